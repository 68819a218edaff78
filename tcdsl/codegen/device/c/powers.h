/* tcdsl device library, for C and for CUDA, part "powers": x^y for the exponents that programs write
 * most, in a few operations where pow has a hundred.
 *
 * Of -0 and -inf pow makes 0 and inf, of which a square root would make -0 and NaN. */
#define TC_POWERS(t, T, INF)                                                                       \
  TC_FN T tc_pow_2_##t(T x) { return x * x; }                                                      \
  TC_FN T tc_pow_3_##t(T x) { return x * x * x; }                                                  \
  TC_FN T tc_pow_4_##t(T x) { return x * x * (x * x); }                                            \
  TC_FN T tc_pow_m1_##t(T x) { return (T)1 / x; }                                                  \
  TC_FN T tc_pow_1_2_##t(T x) { return x == -INF ? INF : tc_sqrt_##t(x + (T)0); }                  \
  TC_FN T tc_pow_3_2_##t(T x) { return x == -INF ? INF : x * tc_sqrt_##t(x); }                     \
  TC_FN T tc_pow_m1_2_##t(T x) { return x == -INF ? (T)0 : tc_rsqrt_##t(x + (T)0); }
TC_POWERS(f32, float, TC_INF_F32)
TC_POWERS(f64, double, TC_INF_F64)
