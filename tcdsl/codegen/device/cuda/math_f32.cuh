/* tcdsl device library for CUDA, part "math_f32": the elementary functions on float32.
 *
 * CUDA's own.  Their greatest errors are documented (CUDA C++ Programming Guide, "Mathematical
 * Functions") and at most 4 units in the last place; sigmoid's is below 5. */

#define TC_MATH_1(name) TC_FN float tc_##name##_f32(float x) { return name##f(x); }

TC_MATH_1(acos)
TC_MATH_1(asin)
TC_MATH_1(atan)
TC_MATH_1(cos)
TC_MATH_1(cosh)
TC_MATH_1(cospi)
TC_MATH_1(erf)
TC_MATH_1(exp)
TC_MATH_1(exp10)
TC_MATH_1(exp2)
TC_MATH_1(expm1)
TC_MATH_1(log)
TC_MATH_1(log10)
TC_MATH_1(log1p)
TC_MATH_1(log2)
TC_MATH_1(sin)
TC_MATH_1(sinh)
TC_MATH_1(sinpi)
TC_MATH_1(tan)
TC_MATH_1(tanh)
TC_FN float tc_pow_f32(float x, float y) { return powf(x, y); }

/* With e = e^-|x|, which cannot overflow: 1 / (1 + e), or for x < 0 e / (1 + e).  The divisor lies
 * between 1 and 2, where the fast division is good to 2 units in the last place. */
TC_FN float tc_sigmoid_f32(float x) {
  const float e = expf(-fabsf(x));
  return __fdividef(x < 0.0f ? e : 1.0f, 1.0f + e);
}
