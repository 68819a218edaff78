/* tcdsl device library for C, part "compensated": sums in twice the precision of their type.
 *
 *     tc_c32, tc_c64              { sum, lost }: what has been added, and what rounding took from it
 *     tc_plus_c32(s, x)           s + x
 *     tc_mad_c32(a, b, s)         s + a * b, the product in twice the precision too
 *     tc_add_c32(s, t)            s + t
 *     tc_fold_add_c32(p)          TC_VECTOR_BYTES of them at p, halves with halves
 *     tc_cast_c32_f32(s)          the number: sum + lost, rounded once
 *
 * Knuth's two-sum is exact whichever operand is larger, which Kahan's own summation is not.  What
 * is lost of an infinity is NaN, and so it may be near the largest number: then the sum alone
 * counts, which is what summation without compensation gives.
 *
 * After Neumaier, ZAMM 54, 1974, doi:10.1002/zamm.19740540106, and Ogita, Rump, Oishi, "Accurate
 * Sum and Dot Product", SIAM J. Sci. Comput. 26(6), 2005, doi:10.1137/030601818. */
#define TC_COMPENSATED(c, t, T)                                                                    \
  typedef struct { T sum, lost; } tc_##c;                                                          \
  TC_FN tc_##c tc_cast_##t##_##c(T x) { const tc_##c s = {x, (T)0}; return s; }                    \
  TC_FN T tc_cast_##c##_##t(tc_##c s) {                                                            \
    const T whole = s.sum + s.lost;                                                                \
    return whole - whole == (T)0 ? whole : s.sum;                                                  \
  }                                                                                                \
  TC_FN tc_##c tc_plus_##c(tc_##c s, T x) {                                                        \
    const T sum = s.sum + x, part = sum - s.sum;                                                   \
    const tc_##c r = {sum, s.lost + ((s.sum - (sum - part)) + (x - part))};                        \
    return r;                                                                                      \
  }                                                                                                \
  TC_FN tc_##c tc_add_##c(tc_##c a, tc_##c b) {                                                    \
    tc_##c s = tc_plus_##c(a, b.sum);                                                              \
    s.lost += b.lost;                                                                              \
    return s;                                                                                      \
  }                                                                                                \
  TC_FN tc_##c tc_mad_##c(T a, T b, tc_##c s) {                                                    \
    const T product = a * b;                                                                       \
    tc_##c r = tc_plus_##c(s, product);                                                            \
    r.lost += tc_fma_##t(a, b, -product);                                                          \
    return r;                                                                                      \
  }
#define TC_COMPENSATED_FOLD(c)                                                                     \
  TC_FN tc_##c tc_fold_add_##c(const tc_##c *p) {                                                  \
    tc_##c lanes[64 / sizeof(tc_##c)];                                                             \
    for (int l = 0; l < 64 / (int)sizeof(tc_##c); l++) lanes[l] = p[l];                            \
    for (int w = 64 / (int)sizeof(tc_##c) / 2; w > 0; w /= 2)                                      \
      for (int l = 0; l < w; l++) lanes[l] = tc_add_##c(lanes[l], lanes[l + w]);                   \
    return lanes[0];                                                                               \
  }
TC_COMPENSATED(c32, f32, float)
TC_COMPENSATED(c64, f64, double)
TC_COMPENSATED_FOLD(c32)
TC_COMPENSATED_FOLD(c64)
