/* tcdsl device library for CUDA, part "pairs": what two halves of a register do at once, and plain
 * extremes.
 *
 * The largest or smallest lane of a vector of float16 or bfloat16; NaN if there is one.  Four
 * instructions and one that swaps the last two for eight lanes, where eight conversions to float32
 * and as many comparisons take sixteen. */

#if __CUDA_ARCH__ >= 800
#define TC_VFOLD(op, h, instruction)                                                               \
  template <int N> TC_FN uint16_t tc_v##op##_##h(tc_vec<uint16_t, N> v)                            \
  {                                                                                                \
    static_assert(N % 2 == 0, "pairs");                                                            \
    const uint32_t *pairs = reinterpret_cast<const uint32_t *>(&v);                                \
    uint32_t best = pairs[0];                                                                      \
    for (int l = 1; l < N / 2; l++)                                                                \
      asm(instruction " %0, %1, %2;" : "=r"(best) : "r"(best), "r"(pairs[l]));                     \
    const uint32_t swapped = best << 16 | best >> 16;                                              \
    asm(instruction " %0, %1, %2;" : "=r"(best) : "r"(best), "r"(swapped));                        \
    return (uint16_t)best;                                                                         \
  }
#else
#define TC_VFOLD(op, h, instruction)                                                               \
  template <int N> TC_FN uint16_t tc_v##op##_##h(tc_vec<uint16_t, N> v)                            \
  {                                                                                                \
    float best = tc_cast_##h##_f32(v[0]);                                                          \
    for (int l = 1; l < N; l++) best = tc_##op##_f32(best, tc_cast_##h##_f32(v[l]));               \
    return tc_cast_f32_##h(best);                                                                  \
  }
#endif
TC_VFOLD(max, f16, "max.NaN.f16x2")
TC_VFOLD(min, f16, "min.NaN.f16x2")
TC_VFOLD(max, bf16, "max.NaN.bf16x2")
TC_VFOLD(min, bf16, "min.NaN.bf16x2")

/* Of the lanes first to last, by the infinity that changes nothing in place of the others.  There
 * is no branch: it would keep the loads that follow from starting. */
#define TC_VFOLD_SOME(op, h, IDENTITY)                                                             \
  template <int N> TC_FN uint16_t tc_v##op##_##h(tc_vec<uint16_t, N> v, int first, int last)       \
  {                                                                                                \
    for (int l = 0; l < N; l++) v[l] = l >= first && l <= last ? v[l] : (uint16_t)IDENTITY;        \
    return tc_v##op##_##h(v);                                                                      \
  }
TC_VFOLD_SOME(max, f16, 0xfc00)
TC_VFOLD_SOME(min, f16, 0x7c00)
TC_VFOLD_SOME(max, bf16, 0xff80)
TC_VFOLD_SOME(min, bf16, 0x7f80)

/* Extremes of arguments' integers: what tc_max and tc_min guard against (part "core") cannot
 * be in them, and costs half of the instructions for narrow ones. */
#define TC_LOADED(t, T)                                                                            \
  TC_FN T tc_min_loaded_##t(T a, T b) { return b < a ? b : a; }                                    \
  TC_FN T tc_max_loaded_##t(T a, T b) { return b > a ? b : a; }
TC_LOADED(i8, int8_t)
TC_LOADED(i16, int16_t)
TC_LOADED(i32, int32_t)
TC_LOADED(i64, int64_t)
TC_LOADED(u8, uint8_t)
TC_LOADED(u16, uint16_t)
TC_LOADED(u32, uint32_t)
TC_LOADED(u64, uint64_t)

/* The largest or smallest of a vector's bytes.  Two bytes are compared as one number of 16 bits,
 * whose upper byte alone decides, but where it is the same in both: w has every other byte of four
 * there, w << 8 the others.  Three instructions for four bytes, where each by itself takes three. */
#if __CUDA_ARCH__ >= 900
#define TC_PAIR_EXTREME(name, T, instruction, sign)                                                \
  TC_FN uint32_t name(uint32_t a, uint32_t b)                                                      \
  {                                                                                                \
    uint32_t best;                                                                                 \
    asm(instruction " %0, %1, %2;" : "=r"(best) : "r"(a), "r"(b));                                 \
    return best;                                                                                   \
  }
#else
#define TC_PAIR_EXTREME(name, T, instruction, sign)                                                \
  TC_FN uint32_t name(uint32_t a, uint32_t b)                                                      \
  {                                                                                                \
    const T a0 = (T)a, a1 = (T)(a >> 16), b0 = (T)b, b1 = (T)(b >> 16);                            \
    const uint16_t low = (uint16_t)(b0 sign a0 ? b0 : a0);                                         \
    return (uint32_t)(uint16_t)(b1 sign a1 ? b1 : a1) << 16 | low;                                 \
  }
#endif
TC_PAIR_EXTREME(tc_max2_i16, int16_t, "max.s16x2", >)
TC_PAIR_EXTREME(tc_min2_i16, int16_t, "min.s16x2", <)
TC_PAIR_EXTREME(tc_max2_u16, uint16_t, "max.u16x2", >)
TC_PAIR_EXTREME(tc_min2_u16, uint16_t, "min.u16x2", <)

#define TC_VFOLD_BYTES(op, t, T, pair, IDENTITY)                                                   \
  template <int N> TC_FN T tc_v##op##_##t(tc_vec<T, N> v)                                          \
  {                                                                                                \
    static_assert(N % 4 == 0, "words");                                                            \
    const uint32_t *words = reinterpret_cast<const uint32_t *>(&v);                                \
    uint32_t upper = words[0], lower = words[0] << 8;                                              \
    for (int l = 1; l < N / 4; l++) {                                                              \
      upper = pair(upper, words[l]);                                                               \
      lower = pair(lower, words[l] << 8);                                                          \
    }                                                                                              \
    const uint32_t best = pair(upper, lower);                                                      \
    return (T)(pair(best, best << 16) >> 24);                                                      \
  }                                                                                                \
  template <int N> TC_FN T tc_v##op##_##t(tc_vec<T, N> v, int first, int last)                     \
  {                                                                                                \
    for (int l = 0; l < N; l++) v[l] = l >= first && l <= last ? v[l] : (T)IDENTITY;               \
    return tc_v##op##_##t(v);                                                                      \
  }
TC_VFOLD_BYTES(max, i8, int8_t, tc_max2_i16, -128)
TC_VFOLD_BYTES(min, i8, int8_t, tc_min2_i16, 127)
TC_VFOLD_BYTES(max, u8, uint8_t, tc_max2_u16, 0)
TC_VFOLD_BYTES(min, u8, uint8_t, tc_min2_u16, 255)

/* What a sum, difference or product of two numbers rounds to: once, or by way of float32, which is
 * the same.  Of neighbours, ptxas makes one instruction of two of these. */
#if __CUDA_ARCH__ >= 900
#define TC_HALF_OPERATION(op, h, sign, instruction)                                                \
  TC_FN uint16_t tc_##op##_##h(uint16_t a, uint16_t b)                                             \
  {                                                                                                \
    uint16_t rounded;                                                                              \
    asm(instruction " %0, %1, %2;" : "=h"(rounded) : "h"(a), "h"(b));                              \
    return rounded;                                                                                \
  }
#else
#define TC_HALF_OPERATION(op, h, sign, instruction)                                                \
  TC_FN uint16_t tc_##op##_##h(uint16_t a, uint16_t b)                                             \
  {                                                                                                \
    return tc_cast_f32_##h(tc_cast_##h##_f32(a) sign tc_cast_##h##_f32(b));                        \
  }
#endif
TC_HALF_OPERATION(add, f16, +, "add.rn.f16")
TC_HALF_OPERATION(sub, f16, -, "sub.rn.f16")
TC_HALF_OPERATION(mul, f16, *, "mul.rn.f16")
TC_HALF_OPERATION(add, bf16, +, "add.rn.bf16")
TC_HALF_OPERATION(sub, bf16, -, "sub.rn.bf16")
TC_HALF_OPERATION(mul, bf16, *, "mul.rn.bf16")
