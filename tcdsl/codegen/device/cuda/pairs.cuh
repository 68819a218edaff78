/* tcdsl device library for CUDA, part "pairs": what two halves of a register do at once.
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
