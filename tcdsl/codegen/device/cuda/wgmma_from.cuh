/* tcdsl device library for CUDA, part "wgmma_from": products of half types by four warps together,
 * whose first operand the threads have in registers (sm_90a).
 *
 * Of the 16 rows and 16 KT terms of its warp a thread has
 *
 *     A[4 KT (r / 8) + 2 (k / 8) + k % 2]     row r: lane / 4 = r % 8, term k: lane % 4 = k % 8 / 2
 *
 * which are the words that the instruction takes (strategies/register_operands.py).  It reads them
 * until it is done, so that the products are waited for here.  Needs "wgmma". */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TC_HALVES_FROM(type, turned, columns, registers, o0, o1, o2, o3, o4, o5, ...)                  \
  asm volatile("{.reg .pred p; setp.ne.s32 p, " o5 ", 0; wgmma.mma_async.sync.aligned.m64n" columns    \
               "k16.f32." type "." type " {" registers "}, {" o0 ", " o1 ", " o2 ", " o3 "}, " o4      \
               ", p, 1, 1, " turned ";}"                                                               \
               : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(is_more))
#define TC_BFLOATS_FROM(...) TC_HALVES_FROM("bf16", "0", __VA_ARGS__)
#define TC_BFLOATS_FROM_TURNED(...) TC_HALVES_FROM("bf16", "1", __VA_ARGS__)
#define TC_FLOATS_FROM(...) TC_HALVES_FROM("f16", "0", __VA_ARGS__)
#define TC_FLOATS_FROM_TURNED(...) TC_HALVES_FROM("f16", "1", __VA_ARGS__)
/* As tc_multiply_group; TB: the columns' operand is turned. */
template <bool IS_BFLOAT, int TB, int N>
TC_FN void tc_multiply_from(float (&d)[N], const uint32_t (&a)[4], uint64_t b, int is_more)
{
  if constexpr (IS_BFLOAT && TB) {
    TC_BY_COLUMNS(TC_BFLOATS_FROM_TURNED, TC_SUM);
  } else if constexpr (IS_BFLOAT) {
    TC_BY_COLUMNS(TC_BFLOATS_FROM, TC_SUM);
  } else if constexpr (TB) {
    TC_BY_COLUMNS(TC_FLOATS_FROM_TURNED, TC_SUM);
  } else {
    TC_BY_COLUMNS(TC_FLOATS_FROM, TC_SUM);
  }
}
#endif

#ifndef __CUDA_ARCH__
/* The two rows of a thread that four threads have in registers, each with its 16 KT terms. */
template <int KT> void tc_rows_of_quad(uint16_t (&rows)[32 * KT], const uint16_t (&A)[8 * KT])
{
  const int first = (int)threadIdx.x / 4 * 4;
  for (int i = 0; i < 8 * KT; i += 4) { /* terms 8 j + {0, 1}, 8 j + 8 + {0, 1} of this thread */
    uint64_t own = 0;
    for (int n = 0; n < 4; n++) own |= (uint64_t)A[i + n] << 16 * n;
    for (int pair = 0; pair < 4; pair++) {
      const uint64_t word = (uint64_t)__shfl_sync(~0u, (long long)own, first + pair, 32);
      for (int n = 0; n < 4; n++) {
        const int row = i / (4 * KT), term = i % (4 * KT) / 2 * 8 + n / 2 * 8 + 2 * pair + n % 2;
        rows[row * 16 * KT + term] = (uint16_t)(word >> 16 * n);
      }
    }
  }
}
template <bool IS_BFLOAT, int N, int KT, int LB, int MB, bool IS_B>
void tc_run_product_from(void *to, const void *rows, int, const void *columns, int b)
{
  float sums[N / 2]; /* a copy, whose accesses the emulator need not check */
  for (int i = 0; i < N / 2; i++) sums[i] = ((float *)to)[i];
  const uint16_t *const A = (const uint16_t *)rows, *const B = (const uint16_t *)columns;
  const auto number = [](uint16_t half) {
    return (double)(IS_BFLOAT ? tc_bf16_to_f32(half) : tc_f16_to_f32(half));
  };
  const int column = (int)threadIdx.x % 4 * 2;
  for (int k = 0; k < 16 * KT; k++) {
    const double x[2] = {number(A[k]), number(A[16 * KT + k])};
    for (int j = 0; j < N / 8; j++)
      for (int q = 0; q < 2; q++) {
        const int at = b + (IS_B ? (8 * j + column + q) * LB + k : k * LB + 8 * j + column + q);
        const double y = number(B[tc_in_atoms<LB, MB>(at)]);
        for (int h = 0; h < 2; h++) {
          const int i = (h * (N / 8) + j) * 2 + q;
          sums[i] = (float)((double)sums[i] + x[h] * y);
        }
      }
  }
  for (int i = 0; i < N / 2; i++) ((float *)to)[i] = sums[i];
}
#endif

/* sums += A * B, or = if they ARE_NEW, as tc_wgmma; done when it returns.  B as there. */
template <bool IS_BFLOAT, int N, int KT, int LB, int MB, bool IS_B, bool ARE_NEW = false>
TC_FN void tc_wgmma_from(float (&sums)[N / 2], const uint16_t (&A)[8 * KT], const uint16_t *B, int b)
{
  static_assert((IS_B ? LB : MB) == 16 * KT, "a tile of B has the terms of a step");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const uint64_t y = tc_matrix(B + tc_in_atoms<LB, MB>(b), MB * 128);
  uint32_t x[KT][4];
#pragma unroll
  for (int k = 0; k < KT; k++)
#pragma unroll
    for (int q = 0; q < 4; q++) {
      const int at = 4 * KT * (q % 2) + 4 * k + q / 2 * 2;
      x[k][q] = (uint32_t)A[at] | (uint32_t)A[at + 1] << 16;
    }
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int k = 0; k < KT; k++) /* 16 terms are 32 bytes of a line of an atom, or 16 lines of 128 */
    tc_multiply_from<IS_BFLOAT, !IS_B>(
        sums, x[k], y + (IS_B ? k / 4 * (MB * 128) + k % 4 * 32 : k * 2048) / 16, !ARE_NEW || k > 0);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  tc_leave_products<0>();
  __syncwarp(); /* who releases the stage has not read the parts of the others */
#elif defined(__CUDA_ARCH__)
  __trap(); /* not compiled for sm_90a */
#else
  if (ARE_NEW)
    for (float &sum : sums) sum = 0;
  uint16_t rows[32 * KT];
  tc_rows_of_quad<KT>(rows, A);
  const auto run = tc_run_product_from<IS_BFLOAT, N, KT, LB, MB, IS_B>;
#ifdef EMU_ADDRESS_SANITIZER
  run(sums, rows, 0, B, b);
#else
  emu_product(run, sums, rows, 0, B, b, __FILE__, __LINE__);
  emu_end_products(0);
#endif
#endif
}
