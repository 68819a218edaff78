/* tcdsl device library for CUDA, part "math_f32": the elementary functions on float32.
 *
 * CUDA's own, but for erf and sigmoid.  Their greatest errors are documented (CUDA C++ Programming
 * Guide, "Mathematical Functions") and at most 4 units in the last place; those two are below 5. */

#define TC_MATH_1(name) TC_FN float tc_##name##_f32(float x) { return name##f(x); }

TC_MATH_1(acos)
TC_MATH_1(asin)
TC_MATH_1(atan)
TC_MATH_1(cos)
TC_MATH_1(cosh)
TC_MATH_1(cospi)
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

/* 2^x and 1 / x by the one instruction that there is for each, to about a unit in the last place;
 * subnormal numbers are zeros to it. */
TC_FN float tc_ex2_f32(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
TC_FN float tc_rcp_f32(float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
  return reciprocal;
}

/* ---- e^x for x <= 0 ----------------------------------------------------------------------
 * Five instructions where CUDA's expf has eight:
 *
 *     z = x log2(e) / 2, rounded down     w = 2^z     d = x - 2 z ln 2     e^x = w (w + w d)
 *
 * w is no subnormal number where e^x is one.  The constants are rounded so that z is not above what
 * it should be, and d is never negative: then saturation to 0..1 changes nothing but a NaN, of
 * x = -inf, to 0.  d <= 2e-5, so that 1 + d is e^d to 2^-32.
 *
 * Error, in 2^-24 of the value: 4 of each w, as CUDA allows ex2, 4.1 by d (ln 2 is off by 1.9e-9,
 * and x is -87), 1 of each of two roundings: 14.1, of the 16 that functions are allowed here.  If
 * ex2 is right to half a unit it is 7.4.
 *
 * Addends of a sum that is not below 1 may be 0 where they are less than 2^-126, and need not be as
 * good: two instructions, off by 4 of ex2 and 1.22 |x| of the rounded product.  What that means to
 * the sum stands in rewrites/scop/shifted_exponentials. */
#ifdef TC_FAST_MATH
TC_FN float tc_exp_nonpositive_f32(float x) { return expf(x); }
#else
TC_FN float tc_times_down_f32(float a, float b) {
  float product;
  asm("mul.rm.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
}
TC_FN float tc_mad_sat_f32(float a, float b, float c) {
  float sum;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}
TC_FN float tc_exp_nonpositive_f32(float x) {
  const float z = tc_times_down_f32(x, 0x1.715478p-1f);
  const float w = tc_ex2_f32(z);
  const float d = tc_mad_sat_f32(z, -0x1.62e43p+0f, x);
  return tc_mad_f32(w, d, w) * w;
}
#endif
TC_FN float tc_exp_addend_f32(float x) { return tc_ex2_f32(x * 0x1.715476p+0f); }

/* With e = e^-|x|, which cannot overflow: 1 / (1 + e), or for x < 0 e / (1 + e). */
TC_FN float tc_sigmoid_f32(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) * tc_rcp_f32(1.0f + e);
}

/* ---- erf ---------------------------------------------------------------------------------
 * With z = x^2 / 2 and e = 2^-z, for |x| up to 3.7573, from where on it is 1:
 *
 *     erf x = x / 2 + x (p(z) + e (b + e (c + e q(z)))),   p of degree 4, q of degree 1
 *
 * 13 instructions and no branch.  CUDA's erff has 20, of which 9 choose between two sets of
 * coefficients, at half the rate.  x / 2 is exact, and leaves a factor of at most 0.63, the
 * rounding of which matters less.  Of all floats none is wrong by more than 2.82 units in the last
 * place if ex2 is right, 3.05 if it is wrong by one, 4.53 if by two, as CUDA allows it; none is
 * beyond 1.
 *
 * Coefficients: the least greatest relative error, 2^-25.5, by linear programming; rounded; then
 * hill climbing among their neighbours for the least error of what is computed. */
#if __CUDA_ARCH__ >= 860
TC_FN float tc_cut_f32(float x, float most) { /* |x| up to *most*, with the sign of x; NaN stays */
  float cut;
  asm("min.NaN.xorsign.abs.f32 %0, %1, %2;" : "=f"(cut) : "f"(x), "f"(most));
  return cut;
}
#else
TC_FN float tc_cut_f32(float x, float most) { return copysignf(tc_min_f32(fabsf(x), most), x); }
#endif
TC_FN float tc_erf_f32(float x) {
  const float a = tc_cut_f32(x, 0x1.e0eff6p+1f);
  const float half = 0.5f * a;
  const float z = half * a;
  const float e = tc_ex2_f32(-z);
  float p = tc_mad_f32(0x1.7924e6p-18f, z, -0x1.130f64p-12f);
  p = tc_mad_f32(p, z, 0x1.5c9deap-8f);
  p = tc_mad_f32(p, z, -0x1.f423eap-5f);
  p = tc_mad_f32(p, z, 0x1.0899ccp-7f);
  float q = tc_mad_f32(0x1.22d9dp-7f, z, 0x1.273602p-4f);
  q = tc_mad_f32(q, e, 0x1.f6e0c4p-3f);
  q = tc_mad_f32(q, e, 0x1.35f322p-2f);
  return tc_mad_f32(a, tc_mad_f32(q, e, p), half);
}
