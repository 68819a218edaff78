/* tcdsl device library for C, part "rare": the builtins that no hot loop is expected to call.
 *
 * Most are libm's.  The float32 versions of what libm lacks, or computes badly in float32, run in
 * float64 and round once.  Needs part "core" only. */

TC_LIBM double acosh(double), asinh(double), atanh(double), cbrt(double), sin(double), cos(double);
TC_LIBM double erf(double), erfc(double), exp(double), log(double), lgamma_r(double, int *);
TC_LIBM double tgamma(double), j0(double), j1(double), y0(double), y1(double), logb(double);
TC_LIBM double atan2(double, double), fmod(double, double), hypot(double, double);
TC_LIBM double nextafter(double, double), remainder(double, double);
TC_LIBM float acoshf(float), asinhf(float), atanhf(float), cbrtf(float), logbf(float);
TC_LIBM float atan2f(float, float), fmodf(float, float), nextafterf(float, float);
TC_LIBM float remainderf(float, float);

#define TC_LIBM_1(name)                                                                            \
  TC_FN float tc_##name##_f32(float x) { return name##f(x); }                                      \
  TC_FN double tc_##name##_f64(double x) { return name(x); }
#define TC_LIBM_2(name)                                                                            \
  TC_FN float tc_##name##_f32(float x, float y) { return name##f(x, y); }                          \
  TC_FN double tc_##name##_f64(double x, double y) { return name(x, y); }
/* For a function without a good float32 version in libm. */
#define TC_WIDE_1(name)                                                                            \
  TC_FN float tc_##name##_f32(float x) { return (float)tc_##name##_f64((double)x); }

TC_LIBM_1(acosh)
TC_LIBM_1(asinh)
TC_LIBM_1(atanh)
TC_LIBM_1(cbrt)
TC_LIBM_1(logb)
TC_LIBM_2(atan2)
TC_LIBM_2(fmod)
TC_LIBM_2(nextafter)
TC_LIBM_2(remainder)

TC_FN double tc_erfc_f64(double x) { return erfc(x); }
TC_FN double tc_tgamma_f64(double x) { return tgamma(x); }
TC_FN double tc_lgamma_f64(double x) { /* lgamma itself writes the global signgam */
  int sign;
  return lgamma_r(x, &sign);
}
TC_FN double tc_j0_f64(double x) { return j0(x); }
TC_FN double tc_j1_f64(double x) { return j1(x); }
TC_FN double tc_y0_f64(double x) { return y0(x); }
TC_FN double tc_y1_f64(double x) { return y1(x); }
TC_WIDE_1(erfc)
TC_WIDE_1(tgamma)
TC_WIDE_1(lgamma)
TC_WIDE_1(j0)
TC_WIDE_1(j1)
TC_WIDE_1(y0)
TC_WIDE_1(y1)

/* a % b with the divisor's sign, as in Python; a zero has that sign too. */
#define TC_MOD(t, T, f)                                                                            \
  TC_FN T tc_mod_##t(T a, T b) {                                                                   \
    const T r = fmod##f(a, b);                                                                     \
    const T moved = (r < 0) != (b < 0) ? r + b : r;                                                \
    return r == 0 ? __builtin_copysign##f((T)0, b) : moved;                                        \
  }
TC_MOD(f32, float, f)
TC_MOD(f64, double, )

TC_FN float tc_rcbrt_f32(float x) { return (float)(1.0 / cbrt((double)x)); }
TC_FN double tc_rcbrt_f64(double x) { return 1.0 / cbrt(x); }

/* ---- norms: infinite if any operand is, else NaN if any is; no overflow on the way -------- */

/* Squares of float32 neither overflow nor vanish in float64. */
TC_FN double tc_square_f64(float x) { return (double)x * (double)x; }
TC_FN float tc_norm4d_f32(float a, float b, float c, float d) {
  const double squares = tc_square_f64(a) + tc_square_f64(b) + tc_square_f64(c) + tc_square_f64(d);
  const int infinite = tc_isinf_f32(a) | tc_isinf_f32(b) | tc_isinf_f32(c) | tc_isinf_f32(d);
  return infinite ? TC_INF_F32 : (float)__builtin_sqrt(squares);
}
TC_FN float tc_norm3d_f32(float a, float b, float c) { return tc_norm4d_f32(a, b, c, 0.0f); }
TC_FN float tc_hypot_f32(float a, float b) { return tc_norm4d_f32(a, b, 0.0f, 0.0f); }

/* Reciprocals in float64, lest a norm that overflows float32 give 0 instead of a subnormal. */
TC_FN float tc_rnorm4d_f32(float a, float b, float c, float d) {
  const double squares = tc_square_f64(a) + tc_square_f64(b) + tc_square_f64(c) + tc_square_f64(d);
  const int infinite = tc_isinf_f32(a) | tc_isinf_f32(b) | tc_isinf_f32(c) | tc_isinf_f32(d);
  return infinite ? 0.0f : (float)(1.0 / __builtin_sqrt(squares));
}
TC_FN float tc_rnorm3d_f32(float a, float b, float c) { return tc_rnorm4d_f32(a, b, c, 0.0f); }
TC_FN float tc_rhypot_f32(float a, float b) { return tc_rnorm4d_f32(a, b, 0.0f, 0.0f); }

/* The greatest magnitude's power of two, kept where its reciprocal is normal; 1 for 0. */
TC_FN double tc_norm_scale_f64(double a, double b, double c, double d) {
  const double ab = tc_fmax_f64(__builtin_fabs(a), __builtin_fabs(b));
  const double cd = tc_fmax_f64(__builtin_fabs(c), __builtin_fabs(d));
  const double most = tc_fmin_f64(tc_fmax_f64(tc_fmax_f64(ab, cd), 0x1p-1020), 0x1p+1020);
  return tc_double_u64(tc_bits_f64(most) & 0x7ff0000000000000u);
}
TC_FN double tc_norm_of_f64(double a, double b, double c, double d, double scale) {
  const double r = 1.0 / scale;
  const double ar = a * r, br = b * r, cr = c * r, dr = d * r;
  return __builtin_sqrt(ar * ar + br * br + cr * cr + dr * dr);
}
TC_FN double tc_norm4d_f64(double a, double b, double c, double d) {
  const double scale = tc_norm_scale_f64(a, b, c, d);
  const int infinite = tc_isinf_f64(a) | tc_isinf_f64(b) | tc_isinf_f64(c) | tc_isinf_f64(d);
  return infinite ? TC_INF_F64 : tc_norm_of_f64(a, b, c, d, scale) * scale;
}
TC_FN double tc_rnorm4d_f64(double a, double b, double c, double d) {
  const double scale = tc_norm_scale_f64(a, b, c, d);
  const int infinite = tc_isinf_f64(a) | tc_isinf_f64(b) | tc_isinf_f64(c) | tc_isinf_f64(d);
  return infinite ? 0.0 : 1.0 / tc_norm_of_f64(a, b, c, d, scale) / scale;
}
TC_FN double tc_norm3d_f64(double a, double b, double c) { return tc_norm4d_f64(a, b, c, 0.0); }
TC_FN double tc_rnorm3d_f64(double a, double b, double c) { return tc_rnorm4d_f64(a, b, c, 0.0); }
TC_FN double tc_hypot_f64(double a, double b) { return hypot(a, b); }
TC_FN double tc_rhypot_f64(double a, double b) { return tc_rnorm4d_f64(a, b, 0.0, 0.0); }

/* ---- sin(pi x), cos(pi x): the reduction to |t| <= 1/4 of a turn's quarters is exact ------ */
TC_SLOW double tc_quarters_f64(double x, int shift) {
  const double turns = 0.5 * x - __builtin_rint(0.5 * x); /* in [-1/2, 1/2] */
  const double quarter = __builtin_rint(4.0 * turns);
  const double t = (4.0 * turns - quarter) * 0x1.921fb54442d18p+0;
  const int n = turns == turns && !tc_isinf_f64(x) ? ((int)quarter + shift) & 3 : 0;
  const double value = n & 1 ? cos(t) : sin(t);
  return n & 2 ? -value : value;
}
TC_FN double tc_sinpi_f64(double x) {
  const double value = tc_quarters_f64(x, 0);
  return value == 0.0 ? __builtin_copysign(0.0, x) : value;
}
TC_FN double tc_cospi_f64(double x) { return tc_quarters_f64(x, 1) + 0.0; }

/* ---- the error function's relatives ------------------------------------------------------ */

/* e^(x^2) erfc x.  Up to 10 as written, with the rounding error of x^2 put back; beyond by the
 * asymptotic series, whose terms shrink at least until the 100th there (DLMF 7.12.1). */
TC_SLOW double tc_erfcx_f64(double x) {
  if (x < 10.0) {
    const double square = x * x;
    const double power = exp(square);
    const double exact = tc_isinf_f64(power) ? power : power + power * tc_fma_f64(x, x, -square);
    return exact * erfc(x);
  }
  const double half = 0.5 / x / x;
  double sum = 1.0;
  for (int k = 14; k > 0; --k) sum = 1.0 - (2 * k - 1) * half * sum;
  return x == x ? sum * 0x1.20dd750429b6dp-1 / x : x;
}

/* The y > 0 with erfc y = p, 0 < p <= 1/2: Newton's method on ln erfc y = ln p, with
 * d(ln erfc)/dy = -2 / (sqrt(pi) erfcx y).  ln erfc is concave, so that from the second step on y
 * only falls, and the method cannot miss; 4 to 6 steps are taken. */
TC_SLOW double tc_erfc_tail_inverse(double p) {
  const double target = log(p);
  double y = __builtin_sqrt(-target);
  for (int step = 0; step < 12; ++step) {
    const double x = tc_erfcx_f64(y);
    const double square = y * y;
    const double excess = (log(x) - square - target) - tc_fma_f64(y, y, -square);
    const double move = excess * x * 0x1.c5bf891b4ef6bp-1; /* sqrt(pi) / 2 */
    y += move;
    if (__builtin_fabs(move) <= 0x1p-52 * y) break;
  }
  return y;
}

/* |x| <= 1/2: Newton's method on erf y = x, from the series' first terms. */
TC_SLOW double tc_erf_inverse_centre(double x) {
  double y = x * (0x1.c5bf891b4ef6bp-1 + 0.23201366653465444 * x * x);
  for (int step = 0; step < 5; ++step)
    y -= (erf(y) - x) * 0x1.c5bf891b4ef6bp-1 * exp(y * y);
  return x == 0.0 ? x : y;
}

TC_SLOW double tc_erfinv_f64(double x) {
  const double a = __builtin_fabs(x);
  if (!(a < 1.0)) return a == 1.0 ? x * TC_INF_F64 : TC_NAN_F64;
  if (a <= 0.5) return tc_erf_inverse_centre(x);
  return __builtin_copysign(tc_erfc_tail_inverse(1.0 - a), x);
}
TC_SLOW double tc_erfcinv_f64(double p) {
  if (!(p > 0.0 && p < 2.0))
    return p == 0.0 ? TC_INF_F64 : p == 2.0 ? -TC_INF_F64 : TC_NAN_F64;
  if (p < 0.5) return tc_erfc_tail_inverse(p);
  return p > 1.5 ? -tc_erfc_tail_inverse(2.0 - p) : tc_erf_inverse_centre(1.0 - p);
}

/* The normal distribution: erfc(y) / 2 at y = -x / sqrt(2), whose rounding error, which the tail
 * would magnify by 2 y^2, is put back by the first term of Taylor's series. */
TC_SLOW double tc_normcdf_f64(double x) {
  const double y = x * -0x1.6a09e667f3bcdp-1;
  const double lost = tc_fma_f64(x, -0x1.6a09e667f3bcdp-1, -y) + x * 0x1.bdd3413b26456p-55;
  const double slope = -0x1.20dd750429b6dp+0 * exp(-y * y);
  const double value = erfc(y);
  return 0.5 * (slope == 0.0 ? value : value + slope * lost);
}
TC_FN double tc_normcdfinv_f64(double p) {
  return -0x1.6a09e667f3bcdp+0 * tc_erfcinv_f64(2.0 * p);
}
TC_WIDE_1(erfcx)
TC_WIDE_1(erfinv)
TC_WIDE_1(erfcinv)
TC_WIDE_1(normcdf)
TC_WIDE_1(normcdfinv)

/* ---- modified Bessel functions of the first kind, orders 0 and 1, x >= 0 -----------------
 * Up to 20 the power series, whose terms are positive (DLMF 10.25.2); beyond the asymptotic one
 * (DLMF 10.40.1), whose terms shrink until about the 2 x-th.  e^x is taken in two factors, as the
 * result overflows later than it. */
TC_SLOW double tc_bessel_i(int order, double x) {
  if (x < 20.0) {
    const double quarter = 0.25 * x * x;
    double term = order ? 0.5 * x : 1.0, sum = term;
    for (int k = 1; k < 100 && term > 0x1p-60 * sum; ++k) {
      term *= quarter / (k * (double)(k + order));
      sum += term;
    }
    return sum;
  }
  /* Both have overflowed at 714; far beyond, 2 pi x would too, and make a NaN of it. */
  if (!(x < 720.0)) return x + TC_INF_F64;
  double term = 1.0, sum = 1.0;
  for (int k = 1; k < 30; ++k) {
    const double odd = 2 * k - 1;
    term *= (odd * odd - 4.0 * order) / (8.0 * k * x);
    sum += term;
  }
  const double root = exp(0.5 * x);
  return root * (sum / __builtin_sqrt(0x1.921fb54442d18p+2 * x)) * root;
}
TC_FN double tc_cyl_bessel_i0_f64(double x) { return tc_bessel_i(0, __builtin_fabs(x)); }
TC_FN double tc_cyl_bessel_i1_f64(double x) {
  return __builtin_copysign(tc_bessel_i(1, __builtin_fabs(x)), x);
}
TC_WIDE_1(cyl_bessel_i0)
TC_WIDE_1(cyl_bessel_i1)
