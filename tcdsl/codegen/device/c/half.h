/* tcdsl device library for C, part "half": float16 and bfloat16, stored as uint16_t.
 *
 * Half types are storage types: arithmetic on them runs in float32.  The conversions are integer
 * arithmetic without branches or tables, round to nearest even once, and keep NaN and its sign. */

TC_FN float tc_f16_to_f32(uint16_t h) {
  const uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
  const uint32_t exponent = magnitude & 0x0f800000u;
  const uint32_t rebased = magnitude + (112u << 23); /* 112: the difference of the biases */
  const uint32_t special = rebased + (112u << 23);   /* inf, NaN: all exponent bits */
  /* A subnormal is read with one exponent more and an implicit bit, which is subtracted. */
  const uint32_t tiny = tc_bits_f32(tc_float_u32(rebased + (1u << 23)) - 0x1p-14f);
  const uint32_t finite = exponent == 0 ? tiny : rebased;
  const uint32_t value = exponent == 0x0f800000u ? special : finite;
  return tc_float_u32(value | (uint32_t)(h & 0x8000) << 16);
}

TC_FN uint16_t tc_f32_to_f16(float x) {
  const uint32_t bits = tc_bits_f32(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  /* 0xfff and the last kept bit carry into it exactly when rounding to nearest even goes up. */
  const uint32_t rounded = (magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  const uint32_t normal = rounded - (112u << 10);
  /* Adding 0.5 aligns a subnormal's last bit (2^-24) with that of the sum, which rounds it. */
  const uint32_t tiny = tc_bits_f32((tc_float_u32(magnitude) + 0.5f)) - 0x3f000000u;
  const uint32_t finite = magnitude < (113u << 23) ? tiny : normal;
  const uint32_t bounded = magnitude >= 0x477ff000u ? 0x7c00u : finite; /* 65520 and beyond */
  const uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x1ffu);
  const uint32_t value = magnitude > 0x7f800000u ? nan : bounded;
  return (uint16_t)(value | (bits >> 16 & 0x8000u));
}

TC_FN float tc_bf16_to_f32(uint16_t h) { return tc_float_u32((uint32_t)h << 16); }

TC_FN uint16_t tc_f32_to_bf16(float x) {
  const uint32_t bits = tc_bits_f32(x);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const uint32_t nan = bits >> 16 | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* float64 to float32, rounded to odd: toward zero, then the last bit set if that was inexact.  A
 * second rounding to at most 22 bits is then what one rounding would have been. */
TC_FN float tc_odd_f32_f64(double x) {
  const float nearest = (float)x;
  const double back = (double)nearest;
  const uint32_t bits = tc_bits_f32(nearest);
  const uint32_t beyond = __builtin_fabs(back) > __builtin_fabs(x) ? 1u : 0u;
  const uint32_t inexact = back != x ? 1u : 0u;
  const uint32_t odd = (bits - beyond) | inexact;
  return tc_float_u32(x != x ? bits : odd);
}
TC_FN uint16_t tc_f64_to_f16(double x) { return tc_f32_to_f16(tc_odd_f32_f64(x)); }
TC_FN uint16_t tc_f64_to_bf16(double x) { return tc_f32_to_bf16(tc_odd_f32_f64(x)); }

/* A 64-bit integer as a float64 that rounds to a half type as the integer does: from 2^40 on its
 * last 12 bits are gathered into one sticky bit, so that the conversion is exact. */
TC_FN double tc_sticky_f64_u64(uint64_t x) {
  const uint64_t sticky = (x | (((x & 0xfffu) + 0xfffu) & 0x1000u)) & ~UINT64_C(0xfff);
  return (double)(x >> 40 ? sticky : x);
}
TC_FN double tc_sticky_f64_i64(int64_t x) {
  const uint64_t magnitude = x < 0 ? UINT64_C(0) - (uint64_t)x : (uint64_t)x;
  return __builtin_copysign(tc_sticky_f64_u64(magnitude), (double)x);
}

/* ---- casts: through the type V, which holds every value of the source exactly ------------ */
#define TC_HALF_TO(h, H, t, T)                                                                     \
  TC_FN T tc_cast_##h##_##t(H x) { return tc_cast_f32_##t(tc_##h##_to_f32(x)); }
#define TC_TO_HALF(h, H, t, T, v, V)                                                               \
  TC_FN H tc_cast_##t##_##h(T x) { return tc_##v##_to_##h((V)x); }
#define TC_HALF_CASTS(h, H)                                                                        \
  TC_HALF_TO(h, H, b, uint8_t) TC_HALF_TO(h, H, f64, double)                                       \
  TC_HALF_TO(h, H, i8, int8_t) TC_HALF_TO(h, H, i16, int16_t)                                      \
  TC_HALF_TO(h, H, i32, int32_t) TC_HALF_TO(h, H, i64, int64_t)                                    \
  TC_HALF_TO(h, H, u8, uint8_t) TC_HALF_TO(h, H, u16, uint16_t)                                    \
  TC_HALF_TO(h, H, u32, uint32_t) TC_HALF_TO(h, H, u64, uint64_t)                                  \
  TC_FN float tc_cast_##h##_f32(H x) { return tc_##h##_to_f32(x); }                                \
  TC_FN H tc_cast_##h##_##h(H x) { return x; }                                                     \
  TC_TO_HALF(h, H, b, uint8_t, f32, float) TC_TO_HALF(h, H, f32, float, f32, float)                \
  TC_TO_HALF(h, H, i8, int8_t, f32, float) TC_TO_HALF(h, H, i16, int16_t, f32, float)              \
  TC_TO_HALF(h, H, u8, uint8_t, f32, float) TC_TO_HALF(h, H, u16, uint16_t, f32, float)            \
  TC_TO_HALF(h, H, i32, int32_t, f64, double) TC_TO_HALF(h, H, u32, uint32_t, f64, double)         \
  TC_TO_HALF(h, H, f64, double, f64, double)                                                       \
  TC_FN H tc_cast_i64_##h(int64_t x) { return tc_f64_to_##h(tc_sticky_f64_i64(x)); }               \
  TC_FN H tc_cast_u64_##h(uint64_t x) { return tc_f64_to_##h(tc_sticky_f64_u64(x)); }

TC_HALF_CASTS(f16, uint16_t)
TC_HALF_CASTS(bf16, uint16_t)
TC_FN uint16_t tc_cast_f16_bf16(uint16_t x) { return tc_f32_to_bf16(tc_f16_to_f32(x)); }
TC_FN uint16_t tc_cast_bf16_f16(uint16_t x) { return tc_f32_to_f16(tc_bf16_to_f32(x)); }
