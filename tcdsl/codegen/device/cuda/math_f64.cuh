/* tcdsl device library for CUDA, part "math_f64": the elementary functions on float64.
 *
 * CUDA's own, with errors of at most 2 units in the last place, as documented; see math_f32.cuh. */

#define TC_MATH_1_F64(name) TC_FN double tc_##name##_f64(double x) { return name(x); }

TC_MATH_1_F64(acos)
TC_MATH_1_F64(asin)
TC_MATH_1_F64(atan)
TC_MATH_1_F64(cos)
TC_MATH_1_F64(cosh)
TC_MATH_1_F64(erf)
TC_MATH_1_F64(exp)
TC_MATH_1_F64(exp10)
TC_MATH_1_F64(exp2)
TC_MATH_1_F64(expm1)
TC_MATH_1_F64(log)
TC_MATH_1_F64(log10)
TC_MATH_1_F64(log1p)
TC_MATH_1_F64(log2)
TC_MATH_1_F64(sin)
TC_MATH_1_F64(sinh)
TC_MATH_1_F64(tan)
TC_MATH_1_F64(tanh)
TC_FN double tc_pow_f64(double x, double y) { return pow(x, y); }

TC_FN double tc_sigmoid_f64(double x) { /* as tc_sigmoid_f32 */
  const double e = exp(-fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
