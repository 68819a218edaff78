/* tcdsl device library for C, part "math_f64": the elementary functions on float64.
 *
 * The exponential and logarithmic families are our own and vectorise; the others call libm.  The
 * method is that of part "math_f32", as are the sources of the coefficients; see there. */

/* log10(2), of which the high part has 40 bits: an exponent times it is exact. */
#define TC_LOG10_2_HIGH 0x1.34413509f8p-2
#define TC_LOG10_2_LOW (-0x1.80433b83b532ap-44)

TC_LIBM double acos(double), asin(double), atan(double), cos(double), sin(double), tan(double);
TC_LIBM double erf(double), pow(double, double);

/* e 2^k, rounded once; -2044 <= k <= 2046. */
TC_FN double tc_scale_f64(double e, uint64_t k) {
  const uint64_t half = (k + 2046u) >> 1;
  return e * tc_double_u64(half << 52) * tc_double_u64((k + 2046u - half) << 52);
}
TC_FN uint64_t tc_magic_int_f64(double k) { return tc_bits_f64(k) - 0x4338000000000000u; }
TC_FN double tc_clamp_f64(double x, double low, double high) { /* NaN stays */
  const double below = high < x ? high : x;
  return low > below ? low : below;
}

/* ---- exponentials ------------------------------------------------------------------------ */

/* (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2, to 2^-61.3 of e^r - 1. */
TC_FN double tc_exp_tail_f64(double r) {
  double p = tc_mad_f64(0x1.1fdc942cf99dap-29, r, 0x1.af5f080d895b4p-26);
  p = tc_mad_f64(p, r, 0x1.27e4a60288b74p-22);
  p = tc_mad_f64(p, r, 0x1.71ddf86ee5247p-19);
  p = tc_mad_f64(p, r, 0x1.a01a01b8b344dp-16);
  p = tc_mad_f64(p, r, 0x1.a01a01afc5a38p-13);
  p = tc_mad_f64(p, r, 0x1.6c16c16c13fddp-10);
  p = tc_mad_f64(p, r, 0x1.111111110f6fap-7);
  p = tc_mad_f64(p, r, 0x1.5555555555558p-5);
  p = tc_mad_f64(p, r, 0x1.5555555555559p-3);
  return tc_mad_f64(p, r, 0.5);
}

/* The high part of ln 2 has 40 bits: k times it is exact. */
TC_FN double tc_reduce_ln2_f64(double x, double *k) {
  *k = x * 0x1.71547652b82fep+0 + TC_MAGIC_F64;
  const double n = *k - TC_MAGIC_F64;
  const double r = tc_mad_f64(n, -0x1.62e42fefa4p-1, x);
  return tc_mad_f64(n, 0x1.8432a1b0e2634p-43, r);
}

TC_FN double tc_exp_f64(double x) {
  double k;
  const double r = tc_reduce_ln2_f64(tc_clamp_f64(x, -746.0, 710.0), &k);
  const double e = 1.0 + tc_mad_f64(r * r, tc_exp_tail_f64(r), r);
  return tc_scale_f64(e, tc_magic_int_f64(k));
}

TC_FN double tc_exp2_f64(double x) { /* (2^r - 1) / r to 2^-57.1 */
  const double inside = tc_clamp_f64(x, -1076.0, 1025.0);
  const double k = inside + TC_MAGIC_F64;
  const double r = inside - (k - TC_MAGIC_F64);
  double p = tc_mad_f64(0x1.f0ee69d3541efp-32, r, 0x1.e63b72885d0e4p-28);
  p = tc_mad_f64(p, r, 0x1.b5207f3b0d2a0p-24);
  p = tc_mad_f64(p, r, 0x1.62bfb4aec8f80p-20);
  p = tc_mad_f64(p, r, 0x1.ffcbfe67ac3a2p-17);
  p = tc_mad_f64(p, r, 0x1.4309131678f8dp-13);
  p = tc_mad_f64(p, r, 0x1.5d87fe78455b6p-10);
  p = tc_mad_f64(p, r, 0x1.3b2ab6fb9dacdp-7);
  p = tc_mad_f64(p, r, 0x1.c6b08d704a26fp-5);
  p = tc_mad_f64(p, r, 0x1.ebfbdff82c5b3p-3);
  p = tc_mad_f64(p, r, 0x1.62e42fefa39efp-1);
  return tc_scale_f64(tc_mad_f64(p, r, 1.0), tc_magic_int_f64(k));
}

/* 10^x = 2^k e^(r ln 10), r = x - k log10(2). */
TC_FN double tc_exp10_f64(double x) {
  const double inside = tc_clamp_f64(x, -325.0, 309.0);
  const double k = inside * 0x1.a934f0979a371p+1 + TC_MAGIC_F64;
  const double n = k - TC_MAGIC_F64;
  const double high = tc_mad_f64(n, -TC_LOG10_2_HIGH, inside);
  const double r = tc_mad_f64(n, -TC_LOG10_2_LOW, high) * 0x1.26bb1bbb55516p+1;
  const double e = 1.0 + tc_mad_f64(r * r, tc_exp_tail_f64(r), r);
  return tc_scale_f64(e, tc_magic_int_f64(k));
}

/* (e^x - 1) / 4 as *high + the result, for -40 <= x <= 710.5. */
TC_FN double tc_quarter_expm1_f64(double x, double *high) {
  double k;
  const double r = tc_reduce_ln2_f64(x, &k);
  const double s = tc_double_u64((tc_magic_int_f64(k) + 1021u) << 52);
  const double base = s - 0.25;
  const double sr = s * r;
  *high = base + sr;
  const double lost = sr - (*high - base);
  return tc_mad_f64(sr * r, tc_exp_tail_f64(r), lost);
}

TC_FN double tc_expm1_f64(double x) {
  double high;
  const double low = tc_quarter_expm1_f64(tc_clamp_f64(x, -40.0, 710.0), &high);
  const double value = 4.0 * (high + low);
  return __builtin_fabs(x) < 0x1p-60 ? x : value; /* a quarter of x may be no number; -0 */
}

/* (n + n_lost) / (d + d_lost): the quotient's remainder, times 1 / d, corrects it.  Without an fma
 * instruction the remainder is as inexact as the quotient, but no more. */
TC_FN double tc_corrected_quotient_f64(double n, double n_lost, double d, double d_lost) {
  const double reciprocal = 1.0 / d;
  const double quotient = n * reciprocal;
  const double rest = tc_mad_f64(-quotient, d, n) + tc_mad_f64(-quotient, d_lost, n_lost);
  return tc_mad_f64(rest, reciprocal, quotient);
}

/* With a = |x|: tanh a = h / (h + 1/2) where h = (e^2a - 1) / 4. */
TC_FN double tc_tanh_f64(double x) {
  double high;
  const double a = __builtin_fabs(x);
  const double low = tc_quarter_expm1_f64(20.0 < a ? 40.0 : a + a, &high);
  const double h = high + low;
  const double h_lost = low - (h - high);
  const double d = h + 0.5;
  const double d_lost = (h - (d - 0.5)) + h_lost;
  const double value = tc_corrected_quotient_f64(h, h_lost, d, d_lost);
  return a < 0x1p-60 ? x : __builtin_copysign(value, x);
}

/* With h = (e^a - 1) / 4: sinh a = 2 h + h / (1/2 + 2 h); where 2 h overflows so does sinh. */
TC_FN double tc_sinh_f64(double x) {
  double high;
  const double a = __builtin_fabs(x);
  const double low = tc_quarter_expm1_f64(710.5 < a ? 710.5 : a, &high);
  const double h = high + low;
  const double value = 2.0 * h + h / tc_mad_f64(2.0, h, 0.5);
  return a < 0x1p-60 ? x : __builtin_copysign(value, x);
}

TC_FN double tc_cosh_f64(double x) {
  double k;
  const double a = __builtin_fabs(x);
  const double r = tc_reduce_ln2_f64(711.0 < a ? 711.0 : a, &k);
  const double e = 1.0 + tc_mad_f64(r * r, tc_exp_tail_f64(r), r);
  const double q = tc_scale_f64(e, tc_magic_int_f64(k) - 2u);
  return 2.0 * q + 0.125 / q;
}

TC_FN double tc_sigmoid_f64(double x) {
  const double e = tc_exp_f64(-__builtin_fabs(x));
  const double d = 1.0 + e;
  return tc_corrected_quotient_f64(x < 0.0 ? e : 1.0, 0.0, d, e - (d - 1.0));
}

/* ---- logarithms -------------------------------------------------------------------------- */

/* ln(1 + f) = f + low.  With s = f / (2 + f): ln(1 + f) = 2 atanh s = 2 s + s R, R = s^2 p(s^2) to
 * 2^-58, and 2 s = f - f^2 / 2 + s f^2 / 2. */
TC_FN double tc_log1p_low_f64(double f) {
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = tc_mad_f64(0x1.2f059b0dc4b60p-3, z, 0x1.39a1bd9ff95a1p-3);
  p = tc_mad_f64(p, z, 0x1.74663e670a930p-3);
  p = tc_mad_f64(p, z, 0x1.c71c520e3de77p-3);
  p = tc_mad_f64(p, z, 0x1.24924941e7213p-2);
  p = tc_mad_f64(p, z, 0x1.999999997fed9p-2);
  p = tc_mad_f64(p, z, 0x1.5555555555592p-1);
  const double half_square = 0.5 * f * f;
  return s * tc_mad_f64(z, p, half_square) - half_square;
}

/* f, and *k; x positive and finite.  0x3fe6a09e667f3bcd is sqrt(1/2). */
TC_FN double tc_split_log_f64(double x, double *k) {
  const int tiny = x < 0x1p-1022;
  const uint64_t bits = tc_bits_f64(tiny ? x * 0x1p52 : x);
  const uint64_t biased = bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
  const double bias = tiny ? 0x1p52 + 1023.0 + 52.0 : 0x1p52 + 1023.0;
  *k = tc_double_u64(biased >> 52 | 0x4330000000000000u) - bias; /* 0x433...: 2^52 */
  return tc_double_u64((biased & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
}

TC_FN double tc_log_limits_f64(double x, double value) {
  const double positive = x > 0.0 ? value : TC_NAN_F64;
  const double or_zero = x == 0.0 ? -TC_INF_F64 : positive;
  return x < TC_INF_F64 ? or_zero : x; /* inf and NaN */
}

TC_FN double tc_log_f64(double x) {
  double k;
  const double f = tc_split_log_f64(x, &k);
  const double sum = f + tc_mad_f64(k, -0x1.8432a1b0e2634p-43, tc_log1p_low_f64(f));
  return tc_log_limits_f64(x, tc_mad_f64(k, 0x1.62e42fefa4p-1, sum));
}

TC_FN double tc_log2_f64(double x) {
  double k;
  const double f = tc_split_log_f64(x, &k);
  const double low = tc_log1p_low_f64(f);
  const double small = tc_mad_f64(low, 0x1.71547652b82fep+0, (f + low) * 0x1.777d0ffda0d24p-56);
  return tc_log_limits_f64(x, k + tc_mad_f64(f, 0x1.71547652b82fep+0, small));
}

TC_FN double tc_log10_f64(double x) {
  double k;
  const double f = tc_split_log_f64(x, &k);
  const double low = tc_log1p_low_f64(f);
  const double small = tc_mad_f64(low, 0x1.bcb7b1526e50ep-2, (f + low) * 0x1.95355baaafad3p-57);
  const double rest = tc_mad_f64(k, TC_LOG10_2_LOW, small);
  const double sum = tc_mad_f64(f, 0x1.bcb7b1526e50ep-2, rest);
  return tc_log_limits_f64(x, tc_mad_f64(k, TC_LOG10_2_HIGH, sum));
}

TC_FN double tc_log1p_f64(double x) {
  const double u = 1.0 + x;
  const double rounded = u - 1.0;
  const double c = (1.0 - (u - rounded)) + (x - rounded);
  double k;
  const double g = tc_split_log_f64(u, &k);
  const double inside = x < 0x1p60 ? k : 0.0;
  const uint64_t scale = tc_bits_f64(0x1p52 + 1023.0 - inside) << 52; /* 2^-k */
  const double f = g + (x < 0x1p60 ? c * tc_double_u64(scale) : 0.0);
  const double sum = f + tc_mad_f64(k, -0x1.8432a1b0e2634p-43, tc_log1p_low_f64(f));
  const double value = tc_log_limits_f64(u, tc_mad_f64(k, 0x1.62e42fefa4p-1, sum));
  return __builtin_copysign(value, x);
}

/* ---- libm -------------------------------------------------------------------------------- */
TC_FN double tc_acos_f64(double x) { return acos(x); }
TC_FN double tc_asin_f64(double x) { return asin(x); }
TC_FN double tc_atan_f64(double x) { return atan(x); }
TC_FN double tc_cos_f64(double x) { return cos(x); }
TC_FN double tc_sin_f64(double x) { return sin(x); }
TC_FN double tc_tan_f64(double x) { return tan(x); }
TC_FN double tc_erf_f64(double x) { return erf(x); }
TC_FN double tc_pow_f64(double x, double y) { return pow(x, y); }
