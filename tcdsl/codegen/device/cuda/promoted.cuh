/* tcdsl device library for CUDA, part "promoted": products of half types whose sums over a step are
 * added to others by ordinary additions, because tensor cores truncate what they add.  Needs "mma"
 * and "wgmma". */

/* As tc_mma. */
template <bool IS_BFLOAT, int MT, int NT, int KT, int LA, bool IS_A, int LB, bool IS_B>
TC_FN void tc_mma_promoted(float (&sums)[4 * MT * NT], const uint16_t *A, int a, const uint16_t *B,
                           int b)
{
  float step[4 * MT * NT];
#pragma unroll
  for (int i = 0; i < 4 * MT * NT; i++) step[i] = 0;
  tc_mma<IS_BFLOAT, MT, NT, KT, LA, IS_A, LB, IS_B>(step, A, a, B, b);
#pragma unroll
  for (int i = 0; i < 4 * MT * NT; i++) sums[i] += step[i];
}

/* As tc_wgmma; it is waited for here, while other groups of four warps multiply. */
template <bool IS_BFLOAT, int N, int KT, int LA, int MA, bool IS_A, int LB, int MB, bool IS_B>
TC_FN void tc_wgmma_promoted(float (&sums)[N / 2], const uint16_t *A, int a, const uint16_t *B,
                             int b)
{
  float step[N / 2];
  tc_wgmma<IS_BFLOAT, N, KT, LA, MA, IS_A, LB, MB, IS_B, true>(step, A, a, B, b);
  tc_end_products(step);
#pragma unroll
  for (int i = 0; i < N / 2; i++) sums[i] += step[i];
}
