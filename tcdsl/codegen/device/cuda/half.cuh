/* tcdsl device library for CUDA, part "half": float16 and bfloat16, stored as uint16_t.
 *
 * Arithmetic on them runs in float32.  A conversion rounds to nearest even once: from a wider type
 * the value goes to float32 rounded to odd first, after which a rounding to at most 22 bits is what
 * one rounding would have been. */

TC_FN float tc_f16_to_f32(uint16_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
TC_FN uint16_t tc_f32_to_f16(float x) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
/* Shifted in C, the upper one of two in a register would take two instructions. */
TC_FN float tc_bf16_to_f32(uint16_t h) {
  float x;
  asm("mov.b32 %0, {0, %1};" : "=f"(x) : "h"(h));
  return x;
}
#if __CUDA_ARCH__ >= 800
TC_FN uint16_t tc_f32_to_bf16(float x) {
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
#else
TC_FN uint16_t tc_f32_to_bf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return (uint16_t)(x != x ? 0x7fffu : rounded);
}
#endif

/* x rounded to odd: *toward_zero* of it, the last bit set if that lost anything. */
TC_FN float tc_odd_f32(float toward_zero, bool is_exact) {
  return __uint_as_float(__float_as_uint(toward_zero) | (is_exact ? 0u : 1u));
}
#define TC_ODD(t, T, name, back)                                                                   \
  TC_FN float tc_odd_f32_##t(T x) {                                                                \
    const float toward_zero = __##name##2float_rz(x);                                              \
    return tc_odd_f32(toward_zero, back(toward_zero) == x);                                        \
  }
TC_ODD(i32, int32_t, int, __float2int_rz)
TC_ODD(u32, uint32_t, uint, __float2uint_rz)
TC_ODD(i64, int64_t, ll, __float2ll_rz)
TC_ODD(u64, uint64_t, ull, __float2ull_rz)
TC_ODD(f64, double, double, (double))

/* ---- casts ------------------------------------------------------------------------------- */
#define TC_HALF_TO(h, H, t, T)                                                                     \
  TC_FN T tc_cast_##h##_##t(H x) { return tc_cast_f32_##t(tc_##h##_to_f32(x)); }
#define TC_TO_HALF(h, H, t, T)                                                                     \
  TC_FN H tc_cast_##t##_##h(T x) { return tc_f32_to_##h((float)x); }
#define TC_WIDE_TO_HALF(h, H, t, T)                                                                \
  TC_FN H tc_cast_##t##_##h(T x) { return tc_f32_to_##h(tc_odd_f32_##t(x)); }
#define TC_HALF_CASTS(h, H)                                                                        \
  TC_HALF_TO(h, H, b, uint8_t) TC_HALF_TO(h, H, f64, double)                                       \
  TC_HALF_TO(h, H, i8, int8_t) TC_HALF_TO(h, H, i16, int16_t)                                      \
  TC_HALF_TO(h, H, i32, int32_t) TC_HALF_TO(h, H, i64, int64_t)                                    \
  TC_HALF_TO(h, H, u8, uint8_t) TC_HALF_TO(h, H, u16, uint16_t)                                    \
  TC_HALF_TO(h, H, u32, uint32_t) TC_HALF_TO(h, H, u64, uint64_t)                                  \
  TC_TO_HALF(h, H, b, uint8_t) TC_TO_HALF(h, H, f32, float)                                        \
  TC_TO_HALF(h, H, i8, int8_t) TC_TO_HALF(h, H, i16, int16_t)                                      \
  TC_TO_HALF(h, H, u8, uint8_t) TC_TO_HALF(h, H, u16, uint16_t)                                    \
  TC_WIDE_TO_HALF(h, H, i32, int32_t) TC_WIDE_TO_HALF(h, H, u32, uint32_t)                         \
  TC_WIDE_TO_HALF(h, H, i64, int64_t) TC_WIDE_TO_HALF(h, H, u64, uint64_t)                         \
  TC_WIDE_TO_HALF(h, H, f64, double)                                                               \
  TC_FN float tc_cast_##h##_f32(H x) { return tc_##h##_to_f32(x); }                                \
  TC_FN H tc_f64_to_##h(double x) { return tc_cast_f64_##h(x); }

TC_HALF_CASTS(f16, uint16_t)
TC_HALF_CASTS(bf16, uint16_t)
TC_FN uint16_t tc_cast_f16_bf16(uint16_t x) { return tc_f32_to_bf16(tc_f16_to_f32(x)); }
TC_FN uint16_t tc_cast_bf16_f16(uint16_t x) { return tc_f32_to_f16(tc_bf16_to_f32(x)); }
