/* tcdsl device library for C, part "math_f32": the elementary functions on float32, vectorisable.
 *
 * Every function is correct on its whole domain: subnormal arguments and results, signed zeros,
 * infinities, NaN.  The errors, in units in the last place, are asserted by the tests.
 *
 * Coefficients: minimax polynomials for the relative error of the whole function, found by our own
 * Remez exchange in 200-bit arithmetic (mpmath).  They are rounded to float32 from the constant
 * term up, the exchange being run again for the terms that are left after each rounding. */

/* e 2^k, rounded once though the result be subnormal or infinite; -252 <= k <= 254.  Two factors,
 * as 2^k itself may be no normal number.  Any k is harmless: e is NaN then. */
TC_FN float tc_scale_f32(float e, uint32_t k) {
  const uint32_t half = (k + 254u) >> 1;
  return e * tc_float_u32(half << 23) * tc_float_u32((k + 254u - half) << 23);
}

/* ---- exponentials: x = k ln 2 + r with |r| <= ln 2 / 2, then e^x = 2^k e^r --------------- */

/* (e^r - 1 - r) / r^2 to 2^-27.9 of e^r. */
TC_FN float tc_exp_tail_f32(float r) {
  float p = tc_mad_f32(0x1.6ad6fap-10f, r, 0x1.123fd2p-7f);
  p = tc_mad_f32(p, r, 0x1.55586ap-5f);
  p = tc_mad_f32(p, r, 0x1.55548cp-3f);
  return tc_mad_f32(p, r, 0x1.fffffcp-2f);
}

/* r, and k in the low bits of *k; |x| < 2^20.  The high part of ln 2 has 15 bits, so that k times
 * it is exact even without an fma instruction. */
TC_FN float tc_reduce_ln2_f32(float x, float *k) {
  *k = x * 0x1.715476p+0f + TC_MAGIC_F32;
  const float n = *k - TC_MAGIC_F32;
  const float r = tc_mad_f32(n, -0x1.62e4p-1f, x);
  return tc_mad_f32(n, -0x1.7f7d1cp-20f, r);
}
TC_FN uint32_t tc_magic_int_f32(float k) { return tc_bits_f32(k) - 0x4b400000u; }

TC_FN float tc_clamp_f32(float x, float low, float high) { /* NaN stays */
  const float below = high < x ? high : x;
  return low > below ? low : below;
}

TC_FN float tc_exp_f32(float x) {
  float k;
  const float r = tc_reduce_ln2_f32(tc_clamp_f32(x, -104.0f, 89.0f), &k);
  const float e = 1.0f + tc_mad_f32(r * r, tc_exp_tail_f32(r), r);
  return tc_scale_f32(e, tc_magic_int_f32(k));
}

TC_FN float tc_exp2_f32(float x) { /* (2^r - 1) / r to 2^-26.2 */
  const float inside = tc_clamp_f32(x, -151.0f, 129.0f);
  const float k = inside + TC_MAGIC_F32;
  const float r = inside - (k - TC_MAGIC_F32);
  float p = tc_mad_f32(0x1.17adfep-13f, r, 0x1.5ef46p-10f);
  p = tc_mad_f32(p, r, 0x1.3b67f4p-7f);
  p = tc_mad_f32(p, r, 0x1.c6af9ep-5f);
  p = tc_mad_f32(p, r, 0x1.ebfb94p-3f);
  p = tc_mad_f32(p, r, 0x1.62e43p-1f);
  return tc_scale_f32(tc_mad_f32(p, r, 1.0f), tc_magic_int_f32(k));
}

/* e^x for x <= 0 as device/cuda/math_f32.cuh has it, for the emulator: its rounding down, its
 * saturation, and its zeros for subnormal numbers. */
TC_FN float tc_times_down_f32(float a, float b) {
  const double exact = (double)a * (double)b;
  const float nearest = (float)exact;
  return (double)nearest > exact ? __builtin_nextafterf(nearest, -__builtin_inff()) : nearest;
}
TC_FN float tc_mad_sat_f32(float a, float b, float c) {
  const float sum = __builtin_fmaf(a, b, c);
  return !(sum > 0.0f) ? 0.0f : sum < 1.0f ? sum : 1.0f;
}
TC_FN float tc_exp_nonpositive_f32(float x) {
  const float z = tc_times_down_f32(x, 0x1.715478p-1f);
  const float w = tc_exp2_f32(z);
  const float d = tc_mad_sat_f32(z, -0x1.62e43p+0f, x);
  return __builtin_fmaf(w, d, w) * w;
}
TC_FN float tc_exp_addend_f32(float x) {
  const float w = tc_exp2_f32(x * 0x1.715476p+0f);
  return w < 0x1p-126f ? 0.0f : w;
}

TC_FN float tc_exp10_f32(float x) { /* (10^r - 1) / r to 2^-26.5, |r| <= log10(2) / 2 */
  const float inside = tc_clamp_f32(x, -46.0f, 39.0f);
  const float k = inside * 0x1.a934fp+1f + TC_MAGIC_F32;
  const float n = k - TC_MAGIC_F32;
  const float high = tc_mad_f32(n, -0x1.344p-2f, inside);
  const float r = tc_mad_f32(n, -0x1.3509f8p-18f, high);
  float p = tc_mad_f32(0x1.839c58p-3f, r, 0x1.156264p-1f);
  p = tc_mad_f32(p, r, 0x1.2bff8ep+0f);
  p = tc_mad_f32(p, r, 0x1.046fa6p+1f);
  p = tc_mad_f32(p, r, 0x1.535226p+1f);
  p = tc_mad_f32(p, r, 0x1.26bb1cp+1f);
  return tc_scale_f32(tc_mad_f32(p, r, 1.0f), tc_magic_int_f32(k));
}

/* (e^x - 1) / 4 as *high + the result, for -18 <= x <= 89.5: with s = 2^(k - 2) it is
 * (s - 1/4) + s r + s r^2 tail, and what the first sum loses goes to the low part.  The quarter
 * keeps s finite beyond the overflow threshold of sinh. */
TC_FN float tc_quarter_expm1_f32(float x, float *high) {
  float k;
  const float r = tc_reduce_ln2_f32(x, &k);
  const float s = tc_float_u32((tc_magic_int_f32(k) + 125u) << 23);
  /* (e^r - 1 - r) / r^2 to 2^-25.9 of e^r - 1. */
  float p = tc_mad_f32(0x1.6af0dp-10f, r, 0x1.12292cp-7f);
  p = tc_mad_f32(p, r, 0x1.555792p-5f);
  p = tc_mad_f32(p, r, 0x1.5554aap-3f);
  p = tc_mad_f32(p, r, 0x1.fffffep-2f);
  const float base = s - 0.25f;
  const float sr = s * r; /* exact: s is a power of two */
  *high = base + sr;
  const float lost = sr - (*high - base);
  return tc_mad_f32(sr * r, p, lost);
}

TC_FN float tc_expm1_f32(float x) {
  float high;
  const float low = tc_quarter_expm1_f32(tc_clamp_f32(x, -18.0f, 89.0f), &high);
  const float value = 4.0f * (high + low);
  return __builtin_fabsf(x) < 0x1p-30f ? x : value; /* a quarter of x may be no number; -0 */
}

/* (n + n_lost) / (d + d_lost): the quotient's remainder, times 1 / d, corrects it.  Without an fma
 * instruction the remainder is as inexact as the quotient, but no more. */
TC_FN float tc_corrected_quotient_f32(float n, float n_lost, float d, float d_lost) {
  const float reciprocal = 1.0f / d;
  const float quotient = n * reciprocal;
  const float rest = tc_mad_f32(-quotient, d, n) + tc_mad_f32(-quotient, d_lost, n_lost);
  return tc_mad_f32(rest, reciprocal, quotient);
}

/* With a = |x|: tanh a = h / (h + 1/2) where h = (e^2a - 1) / 4. */
TC_FN float tc_tanh_f32(float x) {
  float high;
  const float a = __builtin_fabsf(x);
  const float low = tc_quarter_expm1_f32(10.0f < a ? 20.0f : a + a, &high);
  const float h = high + low;
  const float h_lost = low - (h - high);
  const float d = h + 0.5f;
  const float d_lost = (h - (d - 0.5f)) + h_lost;
  const float value = tc_corrected_quotient_f32(h, h_lost, d, d_lost);
  return a < 0x1p-30f ? x : __builtin_copysignf(value, x);
}

/* With h = (e^a - 1) / 4: sinh a = 2 h + h / (1/2 + 2 h); where 2 h overflows so does sinh. */
TC_FN float tc_sinh_f32(float x) {
  float high;
  const float a = __builtin_fabsf(x);
  const float low = tc_quarter_expm1_f32(89.5f < a ? 89.5f : a, &high);
  const float h = high + low;
  const float value = 2.0f * h + h / tc_mad_f32(2.0f, h, 0.5f);
  return a < 0x1p-30f ? x : __builtin_copysignf(value, x);
}

/* With q = e^a / 4, finite wherever the result is: cosh a = 2 q + 1 / (8 q). */
TC_FN float tc_cosh_f32(float x) {
  float k;
  const float a = __builtin_fabsf(x);
  const float r = tc_reduce_ln2_f32(90.0f < a ? 90.0f : a, &k);
  const float e = 1.0f + tc_mad_f32(r * r, tc_exp_tail_f32(r), r);
  const float q = tc_scale_f32(e, tc_magic_int_f32(k) - 2u);
  return 2.0f * q + 0.125f / q;
}

/* With e = e^-|x|, which cannot overflow: 1 / (1 + e), or for x < 0 e / (1 + e). */
TC_FN float tc_sigmoid_f32(float x) {
  const float e = tc_exp_f32(-__builtin_fabsf(x));
  const float d = 1.0f + e;
  return tc_corrected_quotient_f32(x < 0.0f ? e : 1.0f, 0.0f, d, e - (d - 1.0f));
}

/* ---- logarithms: x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2) ----------------------- */

/* ln(1 + f) = f + low, low = -f^2 / 2 + f^3 p(f), to 2^-27.3. */
TC_FN float tc_log1p_low_f32(float f) {
  float p = tc_mad_f32(-0x1.38f9fep-4f, f, 0x1.05709cp-3f);
  p = tc_mad_f32(p, f, -0x1.0d81e2p-3f);
  p = tc_mad_f32(p, f, 0x1.22d68ep-3f);
  p = tc_mad_f32(p, f, -0x1.547236p-3f);
  p = tc_mad_f32(p, f, 0x1.99a032p-3f);
  p = tc_mad_f32(p, f, -0x1.000228p-2f);
  p = tc_mad_f32(p, f, 0x1.555554p-2f);
  const float z = f * f;
  return tc_mad_f32(-0.5f, z, z * (f * p));
}

/* f, and *k; x positive and finite.  0x3f3504f3 is sqrt(1/2); subnormals are scaled by 2^23. */
TC_FN float tc_split_log_f32(float x, int32_t *k) {
  const int tiny = x < 0x1p-126f;
  const uint32_t bits = tc_bits_f32(tiny ? x * 0x1p23f : x);
  const uint32_t biased = bits + (0x3f800000u - 0x3f3504f3u);
  *k = (int32_t)(biased >> 23) - (tiny ? 127 + 23 : 127);
  return tc_float_u32((biased & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
}

/* *value* where 0 < x < inf, and there the limits and NaNs of a logarithm. */
TC_FN float tc_log_limits_f32(float x, float value) {
  const float positive = x > 0.0f ? value : TC_NAN_F32;
  const float or_zero = x == 0.0f ? -TC_INF_F32 : positive;
  return x < TC_INF_F32 ? or_zero : x; /* inf and NaN */
}

TC_FN float tc_log_f32(float x) {
  int32_t k;
  const float f = tc_split_log_f32(x, &k);
  const float sum = f + tc_mad_f32((float)k, 0x1.7f7d1cp-20f, tc_log1p_low_f32(f));
  return tc_log_limits_f32(x, tc_mad_f32((float)k, 0x1.62e4p-1f, sum));
}

/* c = *high + low is log2(e): the products are summed from the smallest up. */
TC_FN float tc_log2_f32(float x) {
  int32_t k;
  const float f = tc_split_log_f32(x, &k);
  const float low = tc_log1p_low_f32(f);
  const float small = tc_mad_f32(low, 0x1.715476p+0f, (f + low) * 0x1.4ae0cp-26f);
  return tc_log_limits_f32(x, (float)k + tc_mad_f32(f, 0x1.715476p+0f, small));
}

TC_FN float tc_log10_f32(float x) {
  int32_t k;
  const float f = tc_split_log_f32(x, &k);
  const float low = tc_log1p_low_f32(f);
  const float small = tc_mad_f32(low, 0x1.bcb7b2p-2f, (f + low) * -0x1.5b235ep-27f);
  const float rest = tc_mad_f32((float)k, 0x1.3509f8p-18f, small);
  const float sum = tc_mad_f32(f, 0x1.bcb7b2p-2f, rest);
  return tc_log_limits_f32(x, tc_mad_f32((float)k, 0x1.344p-2f, sum));
}

/* 1 + x = u + c exactly; then f = (u 2^-k - 1) + c 2^-k, which is x itself where k = 0.  From
 * 2^30 on c counts for nothing, and 2^-k may be no normal number. */
TC_FN float tc_log1p_f32(float x) {
  const float u = 1.0f + x;
  const float rounded = u - 1.0f;
  const float c = (1.0f - (u - rounded)) + (x - rounded);
  int32_t k;
  const float g = tc_split_log_f32(u, &k);
  const float scaled = c * tc_float_u32((uint32_t)(127 - k) << 23);
  const float f = g + (x < 0x1p30f ? scaled : 0.0f);
  const float sum = f + tc_mad_f32((float)k, 0x1.7f7d1cp-20f, tc_log1p_low_f32(f));
  const float value = tc_log_limits_f32(u, tc_mad_f32((float)k, 0x1.62e4p-1f, sum));
  return __builtin_copysignf(value, x); /* the sign: log1p(-0) = -0 */
}

/* ---- sine and cosine: x = (n + t) quarter turns with |t| <= 1/2 -------------------------- */

/* sin r and cos r for |r| <= pi / 4, to 2^-27.8 and 2^-33. */
TC_FN float tc_sin_kernel_f32(float r) {
  const float z = r * r;
  float p = tc_mad_f32(-0x1.9952b4p-13f, z, 0x1.110776p-7f);
  p = tc_mad_f32(p, z, -0x1.555546p-3f);
  return tc_mad_f32(r * z, p, r);
}
TC_FN float tc_cos_kernel_f32(float r) {
  const float z = r * r;
  float p = tc_mad_f32(0x1.99e82ap-16f, z, -0x1.6c0c28p-10f);
  p = tc_mad_f32(p, z, 0x1.55554ap-5f);
  return tc_mad_f32(z * z, p, tc_mad_f32(-0.5f, z, 1.0f));
}

/* One chunk of x / (2 pi), without its whole turns; the product has at most 24 + 29 bits, so that
 * all of this is exact. */
TC_FN double tc_part_turn_f64(double x, double chunk) {
  const double turns = x * chunk;
  return turns - __builtin_rint(turns);
}

/* t in radians, and n mod 4 in *n, for every finite x.  1 / (2 pi) is taken in seven chunks of 29
 * bits, enough for 2^128 (Payne and Hanek's reduction, in floating point: ACM SIGNUM Newsletter
 * 18(1), 1983, doi:10.1145/1057600.1057602).  t is summed from the first chunk down, where the
 * sums are exact until what is left is small. */
TC_FN float tc_reduce_turn_f32(float x, uint32_t *n) {
  const double d = (double)x;
  const double q0 = tc_part_turn_f64(d, 0x1.45f306dp-3);
  const double q1 = tc_part_turn_f64(d, 0x1.9391054p-32);
  const double q2 = tc_part_turn_f64(d, 0x1.4fe13abp-61);
  const double q3 = tc_part_turn_f64(d, 0x1.d1f534dp-90);
  const double q4 = tc_part_turn_f64(d, 0x1.b81b6c5p-119);
  const double q5 = d * 0x1.5993c4p-150; /* below 1/4 of a turn, and so is the next */
  const double q6 = d * 0x1.c820ff2p-177;
  const double turns = ((q0 + q1) + (q2 + q3)) + ((q4 + q5) + q6);
  const double k = turns * 4.0 + TC_MAGIC_F64;
  *n = (uint32_t)tc_bits_f64(k);
  const double left = q0 - 0.25 * (k - TC_MAGIC_F64);
  const double first = (left + q1) + q2;
  const double second = (first + q3) + q4;
  return (float)(((second + q5) + q6) * 0x1.921fb54442d18p+2);
}

/* t = 2 x - n quarter turns of pi x, in radians: exact but for the last product. */
TC_FN float tc_reduce_pi_f32(float x, uint32_t *n) {
  const double quarters = 2.0 * (double)x;
  const double whole = __builtin_rint(quarters);
  const double rest = whole - 4.0 * __builtin_rint(0.25 * whole); /* -2 .. 2, and exact */
  *n = (uint32_t)tc_bits_f64((rest + TC_MAGIC_F64));
  return (float)((quarters - whole) * 0x1.921fb54442d18p+0);
}

/* sin(n quarter turns + r). */
TC_FN float tc_quadrant_f32(float r, uint32_t n) {
  const float s = tc_sin_kernel_f32(r);
  const float c = tc_cos_kernel_f32(r);
  return tc_float_u32(tc_bits_f32(n & 1u ? c : s) ^ (n & 2u) << 30);
}

TC_FN float tc_sin_f32(float x) {
  uint32_t n;
  const float r = tc_reduce_turn_f32(x, &n);
  const float value = tc_quadrant_f32(r, n);
  return x == 0.0f ? x : value; /* the reduction loses the sign of zero */
}
TC_FN float tc_cos_f32(float x) {
  uint32_t n;
  const float r = tc_reduce_turn_f32(x, &n);
  return tc_quadrant_f32(r, n + 1u);
}
TC_FN float tc_tan_f32(float x) {
  uint32_t n;
  const float r = tc_reduce_turn_f32(x, &n);
  const float s = tc_sin_kernel_f32(r);
  const float c = tc_cos_kernel_f32(r);
  const float value = (n & 1u ? -c : s) / (n & 1u ? s : c);
  return x == 0.0f ? x : value;
}
TC_FN float tc_sinpi_f32(float x) {
  uint32_t n;
  const float r = tc_reduce_pi_f32(x, &n);
  const float value = tc_quadrant_f32(r, n);
  return value == 0.0f ? __builtin_copysignf(0.0f, x) : value; /* an integer x: zero, signed as x */
}
TC_FN float tc_cospi_f32(float x) {
  uint32_t n;
  const float r = tc_reduce_pi_f32(x, &n);
  const float value = tc_quadrant_f32(r, n + 1u);
  return value + 0.0f; /* no -0 */
}

/* ---- inverse circular functions ----------------------------------------------------------- */

/* atan x / x - 1 over x^2, to 2^-28.3 on [0, 1]; beyond 1, atan x = pi / 2 - atan(1 / x). */
TC_FN float tc_atan_f32(float x) {
  const float a = __builtin_fabsf(x);
  const float t = a > 1.0f ? 1.0f / a : a;
  const float z = t * t;
  float p = tc_mad_f32(-0x1.d33134p-10f, z, 0x1.641494p-7f);
  p = tc_mad_f32(p, z, -0x1.fd745p-6f);
  p = tc_mad_f32(p, z, 0x1.da2758p-5f);
  p = tc_mad_f32(p, z, -0x1.5808c8p-4f);
  p = tc_mad_f32(p, z, 0x1.c08c48p-4f);
  p = tc_mad_f32(p, z, -0x1.24208p-3f);
  p = tc_mad_f32(p, z, 0x1.9991e4p-3f);
  p = tc_mad_f32(p, z, -0x1.55553ep-2f);
  const float angle = tc_mad_f32(t * z, p, t);
  const float beyond = 0x1.921fb6p+0f - (angle + 0x1.777a5cp-25f);
  return __builtin_copysignf(a > 1.0f ? beyond : angle, x);
}

/* asin x - x for |x| <= 1/2, to 2^-27.6 of asin x. */
TC_FN float tc_asin_low_f32(float x) {
  const float z = x * x;
  float p = tc_mad_f32(0x1.595c8cp-5f, z, 0x1.8c3e2ap-6f);
  p = tc_mad_f32(p, z, 0x1.747bbap-5f);
  p = tc_mad_f32(p, z, 0x1.330204p-4f);
  p = tc_mad_f32(p, z, 0x1.5555c8p-3f);
  return x * z * p;
}

/* Beyond 1/2: asin a = pi / 2 - 2 asin sqrt((1 - a) / 2); what is under the root is exact. */
TC_FN float tc_asin_f32(float x) {
  const float a = __builtin_fabsf(x);
  const int outer = a > 0.5f;
  const float t = outer ? __builtin_sqrtf(0.5f - 0.5f * a) : a;
  const float low = tc_asin_low_f32(t);
  const float value = (0x1.921fb6p+0f - 2.0f * t) - tc_mad_f32(2.0f, low, 0x1.777a5cp-25f);
  return __builtin_copysignf(outer ? value : t + low, x);
}
TC_FN float tc_acos_f32(float x) {
  const float a = __builtin_fabsf(x);
  const int outer = a > 0.5f;
  const float t = outer ? __builtin_sqrtf(0.5f - 0.5f * a) : x;
  const float low = tc_asin_low_f32(t);
  const float inner = 0x1.921fb6p+0f - (t + (low + 0x1.777a5cp-25f));
  const float negative = (0x1.921fb6p+1f - 2.0f * t) - tc_mad_f32(2.0f, low, 0x1.777a5cp-24f);
  const float edge = x < 0.0f ? negative : 2.0f * (t + low);
  return outer ? edge : inner;
}

/* ---- erf ---------------------------------------------------------------------------------
 * Below 1: x + x p(x^2), to 2^-29.4.  Above: 1 - e^g with g = ln erfc a, to 2^-29.7 of erf; from
 * 3.95 on that rounds to 1. */
TC_FN float tc_erf_f32(float x) {
  const float a = __builtin_fabsf(x);
  const float z = x * x;
  float p = tc_mad_f32(0x1.4771fep-14f, z, -0x1.a3515ep-11f);
  p = tc_mad_f32(p, z, 0x1.53f224p-8f);
  p = tc_mad_f32(p, z, -0x1.b7f71ap-6f);
  p = tc_mad_f32(p, z, 0x1.ce2ce6p-4f);
  p = tc_mad_f32(p, z, -0x1.81273ep-2f);
  p = tc_mad_f32(p, z, 0x1.06eba8p-3f);
  const float small = tc_mad_f32(x, p, x);
  const float b = 3.95f < a ? 3.95f : a;
  float g = tc_mad_f32(0x1.86d8dp-13f, b, -0x1.82581p-9f);
  g = tc_mad_f32(g, b, 0x1.65ca52p-6f);
  g = tc_mad_f32(g, b, -0x1.a652cep-4f);
  g = tc_mad_f32(g, b, -0x1.46baf8p-1f);
  g = tc_mad_f32(g, b, -0x1.2088e8p+0f);
  g = tc_mad_f32(g, b, -0x1.662528p-12f);
  float k;
  const float r = tc_reduce_ln2_f32(g, &k);
  const float e = 1.0f + tc_mad_f32(r * r, tc_exp_tail_f32(r), r);
  const float erfc = e * tc_float_u32((tc_magic_int_f32(k) + 127u) << 23);
  return a < 1.0f ? small : __builtin_copysignf(1.0f - erfc, x);
}

/* ---- pow: 2^(y log2 |x|) in float64, then the sign of a negative x -----------------------
 * log2(1 + f) = s q(s^2), s = f / (2 + f), to 2^-37.8, so that y log2 |x| < 2^8 has an error below
 * 2^-29; 2^r to 2^-34.3.  The conversion back rounds once, also to a subnormal. */
TC_FN double tc_log2_wide_f32(float x) {
  const uint64_t bits = tc_bits_f64((double)x); /* normal, also for a subnormal x */
  const uint64_t biased = bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  const double k = tc_double_u64(biased >> 52 | 0x4330000000000000u) - (0x1p52 + 1023.0);
  const double m = tc_double_u64((biased & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = tc_mad_f64(0x1.5cea66f7260ccp-2, z, 0x1.a58d6a3f3cfccp-2);
  p = tc_mad_f64(p, z, 0x1.27778031d15fap-1);
  p = tc_mad_f64(p, z, 0x1.ec709d12513c6p-1);
  p = tc_mad_f64(p, z, 0x1.71547652beed3p+1);
  return tc_mad_f64(s, p, k);
}
TC_FN float tc_exp2_wide_f32(double x) { /* |x| <= 200 or NaN */
  const double k = x + TC_MAGIC_F64;
  const double r = x - (k - TC_MAGIC_F64);
  double p = tc_mad_f64(0x1.fde624166127ep-17, r, 0x1.445c87cbe9748p-13);
  p = tc_mad_f64(p, r, 0x1.5d8a85e56da51p-10);
  p = tc_mad_f64(p, r, 0x1.3b29f398f4ce0p-7);
  p = tc_mad_f64(p, r, 0x1.c6b08ac08149bp-5);
  p = tc_mad_f64(p, r, 0x1.ebfbe0778b665p-3);
  p = tc_mad_f64(p, r, 0x1.62e42ff0e17ecp-1);
  const double e = tc_mad_f64(p, r, 1.0);
  return (float)(e * tc_double_u64((tc_bits_f64(k) + 1023u) << 52));
}
TC_FN float tc_pow_f32(float x, float y) {
  const float a = __builtin_fabsf(x);
  const float half = 0.5f * y;
  const int is_integer = __builtin_truncf(y) == y; /* so is every |y| >= 2^23, and inf */
  const int is_odd = is_integer & (__builtin_truncf(half) != half);
  double log2_a = tc_log2_wide_f32(a);
  log2_a = a == 0.0f ? -TC_INF_F64 : log2_a;
  log2_a = a < TC_INF_F32 ? log2_a : (double)a; /* inf and NaN */
  const double exponent = (double)y * log2_a;
  const double below = 200.0 < exponent ? 200.0 : exponent;
  float value = tc_exp2_wide_f32(-200.0 > below ? -200.0 : below);
  value = a == 1.0f && y == y ? 1.0f : value; /* (+-1)^(+-inf) */
  value = ((x < 0.0f) & !is_integer & (a < TC_INF_F32)) ? TC_NAN_F32 : value;
  value = ((x == 1.0f) | (y == 0.0f)) ? 1.0f : value;
  return is_odd ? __builtin_copysignf(value, x) : value;
}
