/* tcdsl device library for C, part "float8": float8_e4m3 and float8_e5m2, stored as uint8_t.
 *
 * e4m3 has no infinities: what rounds to more than its largest number, 448, is NaN.  e5m2 is the
 * upper byte of a float16.  Conversions round to nearest even once, without branches.
 * Needs "half". */

TC_FN float tc_e4m3_to_f32(uint8_t q) {
  const uint32_t magnitude = (uint32_t)(q & 0x7f) << 20;
  const uint32_t rebased = magnitude + (120u << 23); /* 120: the difference of the biases */
  /* A subnormal is read with one exponent more and an implicit bit, which is subtracted. */
  const uint32_t tiny = tc_bits_f32(tc_float_u32(rebased + (1u << 23)) - 0x1p-6f);
  const uint32_t finite = magnitude < (1u << 23) ? tiny : rebased;
  const uint32_t value = (q & 0x7f) == 0x7f ? 0x7fc00000u : finite;
  return tc_float_u32(value | (uint32_t)(q & 0x80) << 24);
}
TC_FN float tc_e5m2_to_f32(uint8_t q) { return tc_f16_to_f32((uint16_t)((uint32_t)q << 8)); }

/* Rounded by *shift* bits, which carry into the last kept one exactly when that goes up. */
TC_FN uint32_t tc_rounded(uint32_t magnitude, int shift) {
  return (magnitude + (1u << (shift - 1)) - 1u + (magnitude >> shift & 1u)) >> shift;
}
TC_FN uint8_t tc_f32_to_e4m3(float x) {
  const uint32_t bits = tc_bits_f32(x), magnitude = bits & 0x7fffffffu;
  const uint32_t normal = tc_rounded(magnitude, 20) - (120u << 3);
  /* Adding 2^14 aligns a subnormal's last bit (2^-9) with that of the sum, which rounds it. */
  const uint32_t tiny = tc_bits_f32(tc_float_u32(magnitude) + 0x1p14f) - 0x46800000u;
  const uint32_t finite = magnitude < (121u << 23) ? tiny : normal;
  const uint32_t value = magnitude > 0x43e80000u ? 0x7fu : finite; /* beyond 464, or NaN */
  return (uint8_t)(value | (bits >> 24 & 0x80u));
}
TC_FN uint8_t tc_f32_to_e5m2(float x) {
  const uint32_t bits = tc_bits_f32(x), magnitude = bits & 0x7fffffffu;
  const uint32_t normal = tc_rounded(magnitude, 21) - (112u << 2);
  const uint32_t tiny = tc_bits_f32(tc_float_u32(magnitude) + 0x1p7f) - 0x43000000u;
  const uint32_t finite = magnitude < (113u << 23) ? tiny : normal;
  const uint32_t bounded = magnitude >= 0x47700000u ? 0x7cu : finite; /* 61440 and beyond */
  const uint32_t value = magnitude > 0x7f800000u ? 0x7eu : bounded;
  return (uint8_t)(value | (bits >> 24 & 0x80u));
}
TC_FN uint8_t tc_f64_to_e4m3(double x) { return tc_f32_to_e4m3(tc_odd_f32_f64(x)); }
TC_FN uint8_t tc_f64_to_e5m2(double x) { return tc_f32_to_e5m2(tc_odd_f32_f64(x)); }

/* ---- casts ------------------------------------------------------------------------------- */
TC_HALF_CASTS(e4m3, uint8_t)
TC_HALF_CASTS(e5m2, uint8_t)
#define TC_FLOAT8_AND_HALF(e, h)                                                                   \
  TC_FN uint16_t tc_cast_##e##_##h(uint8_t x) { return tc_f32_to_##h(tc_##e##_to_f32(x)); }        \
  TC_FN uint8_t tc_cast_##h##_##e(uint16_t x) { return tc_f32_to_##e(tc_##h##_to_f32(x)); }
TC_FLOAT8_AND_HALF(e4m3, f16)
TC_FLOAT8_AND_HALF(e4m3, bf16)
TC_FLOAT8_AND_HALF(e5m2, f16)
TC_FLOAT8_AND_HALF(e5m2, bf16)
TC_FN uint8_t tc_cast_e4m3_e5m2(uint8_t x) { return tc_f32_to_e5m2(tc_e4m3_to_f32(x)); }
TC_FN uint8_t tc_cast_e5m2_e4m3(uint8_t x) { return tc_f32_to_e4m3(tc_e5m2_to_f32(x)); }
