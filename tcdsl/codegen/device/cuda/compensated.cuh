/* tcdsl device library for CUDA, part "compensated": sums in twice the precision of their type.
 *
 * The types and functions of device/c/compensated.h, with the same results; their operator, and
 * their shuffles.  Compiled without reassociation, which would take all that is lost for 0. */
#define TC_COMPENSATED(c, t, T)                                                                    \
  struct __align__(2 * sizeof(T)) tc_##c { /* one load, one store */                               \
    T sum, lost;                                                                                   \
  };                                                                                               \
  TC_FN tc_##c tc_cast_##t##_##c(T x) { return {x, (T)0}; }                                        \
  TC_FN T tc_cast_##c##_##t(tc_##c s)                                                              \
  {                                                                                                \
    const T whole = s.sum + s.lost;                                                                \
    return whole - whole == (T)0 ? whole : s.sum;                                                  \
  }                                                                                                \
  TC_FN tc_##c tc_plus_##c(tc_##c s, T x)                                                          \
  {                                                                                                \
    const T sum = s.sum + x, part = sum - s.sum;                                                   \
    return {sum, s.lost + ((s.sum - (sum - part)) + (x - part))};                                  \
  }                                                                                                \
  TC_FN tc_##c tc_add_##c(tc_##c a, tc_##c b)                                                      \
  {                                                                                                \
    const T sum = a.sum + b.sum, part = sum - a.sum;                                               \
    return {sum, (a.lost + b.lost) + ((a.sum - (sum - part)) + (b.sum - part))};                   \
  }                                                                                                \
  TC_FN tc_##c tc_mad_##c(T a, T b, tc_##c s)                                                      \
  {                                                                                                \
    const T product = a * b;                                                                       \
    tc_##c r = tc_plus_##c(s, product);                                                            \
    r.lost += tc_fma_##t(a, b, -product);                                                          \
    return r;                                                                                      \
  }                                                                                                \
  struct tc_op_add_##c {                                                                           \
    typedef tc_##c type;                                                                           \
    TC_FN type identity() { return {(T)0, (T)0}; }                                                 \
    TC_FN type combine(type a, type b) { return tc_add_##c(a, b); }                                \
  };                                                                                               \
  TC_FN tc_##c tc_shuffle_xor(unsigned mask, tc_##c s, int distance)                               \
  {                                                                                                \
    return {__shfl_xor_sync(mask, s.sum, distance), __shfl_xor_sync(mask, s.lost, distance)};      \
  }                                                                                                \
  TC_FN tc_##c tc_shuffle_down(unsigned mask, tc_##c s, int distance)                              \
  {                                                                                                \
    return {__shfl_down_sync(mask, s.sum, distance), __shfl_down_sync(mask, s.lost, distance)};    \
  }
TC_COMPENSATED(c32, f32, float)
TC_COMPENSATED(c64, f64, double)
