/* tcdsl device library for CUDA, part "wgmma_planes": products of float32 by four warps together,
 * each as three products of tf32, of columns whose parts another kernel has made (sm_90a).
 *
 * What is computed is what part "wgmma_f32" says, which it needs, and what is done again.  A's
 * parts are made in registers, by the threads that multiply them.  B has two planes of N columns,
 * high parts and low ones, each with its terms next to one another (rewrites/scop/column_planes.py):
 * an infinite low part says that the high one is all of the element, which is infinite, NaN or
 * tiny.  It makes sums that are not finite, so that they are done again.
 *
 * Nothing is stored, and no warp waits for those of other rows: whether factors of A are odd, the
 * sixteen rows of a warp say, and what B has is looked at where these are integers. */

TC_FN float tc_whole_tf32(float high, float low) { return low * 0 == 0 ? high + low : high; }

/* The element of two planes of N columns. */
template <int N> TC_FN float tc_in_planes(const float *B, int column, int term)
{
  const int at = tc_place_f32<N>(column, column % 8, term);
  return tc_whole_tf32(B[at], B[32 * N + at]);
}

/* The bits that any thread of the warp has. */
TC_FN uint32_t tc_any_of_warp(uint32_t bits)
{
#ifdef __CUDA_ARCH__
  return __reduce_or_sync(0xffffffffu, bits);
#else
  return bits;
#endif
}

/* What any element of B has, until one is a fraction: then nothing else matters. */
template <int N> TC_FN uint32_t tc_look_at_planes(const float *B, int lane)
{
  uint32_t all = 0;
#pragma unroll 1
  for (int i = 0; i < N && !(all & TC_FRACTION); i++) /* a column, of which a thread has a term */
    all |= tc_any_of_warp(tc_look_tf32(tc_in_planes<N>(B, i, lane)));
  return all & ~TC_TINY; /* the sums that it is in are not finite */
}

/* Whether any element of B has a low part. */
template <int N> TC_FN uint32_t tc_has_low_parts(const float *B, int lane)
{
  uint32_t any = 0;
#pragma unroll 1
  for (int i = 0; i < N / 4 && !any; i += 4) { /* sixteen columns at once */
    uint32_t own = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const tc_vec<float, 4> low = tc_vload<4>(B + 32 * N + 128 * (i + j) + 4 * lane);
#pragma unroll
      for (int k = 0; k < 4; k++) own |= tc_bits_f32(low[k]);
    }
    any = tc_any_of_warp(2 * own);
  }
  return any;
}

/* Which sums of a step are done again, whose rows of A from *row* on have tiny elements, or may be
 * integers.  What is common comes first: other elements in B, and integers of few bits. */
template <int N, int MA, bool IS_A>
TC_FN tc_again tc_again_of_planes(const float *A, const float *B, int row, int lane, uint32_t least)
{
  if (tc_any_of_warp(least < TC_LEAST_SPLIT)) return tc_again_tf32(TC_TINY, 0);
  const uint32_t first = tc_look_tf32(tc_in_planes<N>(B, 0, lane));
  if (tc_any_of_warp(first) & TC_FRACTION) return {0, 0};
  uint32_t of_a = 0;
#pragma unroll 1
  for (int i = 0; i < 16; i++) /* a row of the warp, of which a thread has a term */
    of_a |= tc_look_tf32(A[tc_of_line<MA, IS_A>(row + i, lane)]);
  of_a = tc_any_of_warp(of_a);
  if (of_a & TC_FRACTION || (!(of_a & TC_LOW) && !tc_has_low_parts<N>(B, lane))) return {0, 0};
  return tc_again_tf32(of_a, tc_look_at_planes<N>(B, lane));
}

/* The sum of a step for one row and column, as plain float32 arithmetic has it. */
template <int N, int MA, bool IS_A>
TC_FN float tc_plain_step_of_planes(const float *A, const float *B, int row, int column)
{
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < 32; k++)
    sum = tc_fma_f32(A[tc_of_line<MA, IS_A>(row, k)], tc_in_planes<N>(B, column, k), sum);
  return sum;
}

/* sums += A * B: 64 x N results of four warps, of 32 terms each.  A as in tc_wgmma, LB x MB the tile
 * of both planes. */
template <int N, int LA, int MA, bool IS_A, int LB, int MB, bool IS_B, int LOW = 3>
TC_FN void tc_wgmma_planes(float (&sums)[N / 2], const float *A, int a, const float *B, int b)
{
  static_assert((IS_A ? LA : MA) == 32 && LB == 32 && MB == 2 * N && IS_B, "a step has 32 terms");
  const int lane = (int)threadIdx.x, warp = (int)threadIdx.z;
  const int row = 16 * warp + lane / 4;
  A += a - warp * 16 * (IS_A ? LA : 1), B += b; /* the tiles of this step */
  float step[N / 2]; /* 4 j + q: row + 8 (q / 2), column + 8 j + q % 2 */
  tc_again again = {0, 0};
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  uint32_t high[4][4], low[4][4], least = ~0u;
#pragma unroll
  for (int k = 0; k < 4; k++)
#pragma unroll
    for (int q = 0; q < 4; q++) {
      const int term = lane % 4 + q / 2 * 4, line = row + q % 2 * 8;
      const float x = A[IS_A ? tc_place_f32<MA>(line, lane / 4, 8 * k + term)
                             : tc_place_f32<MA>(8 * k + term, term, line)];
      const uint32_t size = tc_size_tf32(x);
      least = size < least ? size : least;
      high[k][q] = tc_high_tf32(x);
      low[k][q] = tc_low_tf32(x, high[k][q]);
    }
  const uint64_t y_high = tc_matrix(B, 0), y_low = tc_matrix(B + 32 * N, 0);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int k = 0; k < 4; k++) { /* 8 terms are 32 bytes of a line */
    if constexpr (LOW & 1) tc_multiply_tf32(step, low[k], y_high + 2 * k, k > 0);
    if constexpr (LOW & 2) tc_multiply_tf32(step, high[k], y_low + 2 * k, (LOW & 1) || k > 0);
  }
#pragma unroll
  for (int k = 0; k < 4; k++) tc_multiply_tf32(step, high[k], y_high + 2 * k, LOW != 0 || k > 0);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  const bool is_odd = __any_sync(0xffffffffu, tc_is_odd_tf32(least));
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(step[i])::"memory");
  if (is_odd) again = tc_again_of_planes<N, MA, IS_A>(A, B, 16 * warp, lane, least);
#elif defined(__CUDA_ARCH__)
  __trap(); /* not compiled for sm_90a */
#else
  again = tc_run_f32<N, LOW>(
      step, row, [&](int line, int k) { return tc_split_of(A[tc_of_line<MA, IS_A>(line, k)]); },
      [&](int line, int k) {
        const int at = tc_place_f32<N>(line, line % 8, k);
        const float whole = tc_in_planes<N>(B, line, k);
        return tc_split{tc_size_tf32(whole) < TC_LEAST_SPLIT ? 0 : whole, B[at], B[32 * N + at]};
      });
#endif
  tc_add_step_f32<N>(sums, step, again, row, [&](int own_row, int own_column) {
    return tc_plain_step_of_planes<N, MA, IS_A>(A, B, own_row, own_column);
  });
}
