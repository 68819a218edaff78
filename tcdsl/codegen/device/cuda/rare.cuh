/* tcdsl device library for CUDA, part "rare": the builtins that no hot loop is expected to call.
 *
 * CUDA's own, in both types; see math_f32.cuh. */

#define TC_RARE_1(name)                                                                            \
  TC_FN float tc_##name##_f32(float x) { return name##f(x); }                                      \
  TC_FN double tc_##name##_f64(double x) { return name(x); }
#define TC_RARE_2(name)                                                                            \
  TC_FN float tc_##name##_f32(float x, float y) { return name##f(x, y); }                          \
  TC_FN double tc_##name##_f64(double x, double y) { return name(x, y); }
#define TC_RARE_NORMS(t, T, f)                                                                     \
  TC_FN T tc_norm3d_##t(T a, T b, T c) { return norm3d##f(a, b, c); }                              \
  TC_FN T tc_rnorm3d_##t(T a, T b, T c) { return rnorm3d##f(a, b, c); }                            \
  TC_FN T tc_norm4d_##t(T a, T b, T c, T d) { return norm4d##f(a, b, c, d); }                      \
  TC_FN T tc_rnorm4d_##t(T a, T b, T c, T d) { return rnorm4d##f(a, b, c, d); }
/* a % b with the divisor's sign, as in Python; a zero has that sign too. */
#define TC_RARE_MOD(t, T, f)                                                                       \
  TC_FN T tc_mod_##t(T a, T b) {                                                                   \
    const T r = fmod##f(a, b);                                                                     \
    const T moved = (r < 0) != (b < 0) ? r + b : r;                                                \
    return r == 0 ? copysign##f((T)0, b) : moved;                                                  \
  }

TC_RARE_1(acosh)
TC_RARE_1(asinh)
TC_RARE_1(atanh)
TC_RARE_1(cbrt)
TC_RARE_1(cyl_bessel_i0)
TC_RARE_1(cyl_bessel_i1)
TC_RARE_1(erfc)
TC_RARE_1(erfcinv)
TC_RARE_1(erfcx)
TC_RARE_1(erfinv)
TC_RARE_1(j0)
TC_RARE_1(j1)
TC_RARE_1(lgamma)
TC_RARE_1(logb)
TC_RARE_1(normcdf)
TC_RARE_1(normcdfinv)
TC_RARE_1(rcbrt)
TC_RARE_1(tgamma)
TC_RARE_1(y0)
TC_RARE_1(y1)
TC_RARE_2(atan2)
TC_RARE_2(fmod)
TC_RARE_2(hypot)
TC_RARE_2(nextafter)
TC_RARE_2(remainder)
TC_RARE_2(rhypot)
TC_RARE_NORMS(f32, float, f)
TC_RARE_NORMS(f64, double, )
TC_RARE_MOD(f32, float, f)
TC_RARE_MOD(f64, double, )
TC_FN double tc_sinpi_f64(double x) { return sinpi(x); }
TC_FN double tc_cospi_f64(double x) { return cospi(x); }
