/* --- pairs: sums of products of 16-bit integers, two terms at once ------------------------------
 *
 * tc_pairs_N(sums, a, b):  sums[l] += a[0] * b[2 l] + a[1] * b[2 l + 1]   for 0 <= l < N,
 *
 * modulo 2^32, as one by one.  No 32-bit product of int16_t overflows, and neither vpmaddwd nor
 * vpdpwssd saturates: of all operands only four times -2^15 has a sum of two products beyond
 * int32_t, and it wraps. */
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define TC_PAIRS_LOOP(N)                                                                           \
  for (int l = 0; l < N; l++) {                                                                    \
    uint32_t sum = (uint32_t)sums[l] + (uint32_t)((int32_t)a[0] * b[2 * l]);                       \
    sums[l] = (int32_t)(sum + (uint32_t)((int32_t)a[1] * b[2 * l + 1]));                           \
  }

TC_FN void tc_pairs_8(int32_t *sums, const int16_t *a, const int16_t *b)
{
#if defined(__AVX2__)
  int32_t pair;
  __builtin_memcpy(&pair, a, 4);
  __m256i products = _mm256_madd_epi16(
    _mm256_set1_epi32(pair), _mm256_loadu_si256((const __m256i *)b));
  __m256i old = _mm256_loadu_si256((const __m256i *)sums);
  _mm256_storeu_si256((__m256i *)sums, _mm256_add_epi32(old, products));
#else
  TC_PAIRS_LOOP(8)
#endif
}

TC_FN void tc_pairs_16(int32_t *sums, const int16_t *a, const int16_t *b)
{
#if defined(__AVX512BW__)
  int32_t pair;
  __builtin_memcpy(&pair, a, 4);
  __m512i two = _mm512_set1_epi32(pair), others = _mm512_loadu_si512(b);
  __m512i old = _mm512_loadu_si512(sums);
#if defined(__AVX512VNNI__)
  old = _mm512_dpwssd_epi32(old, two, others);
#else
  old = _mm512_add_epi32(old, _mm512_madd_epi16(two, others));
#endif
  _mm512_storeu_si512(sums, old);
#elif defined(__AVX2__)
  tc_pairs_8(sums, a, b);
  tc_pairs_8(sums + 8, a, b + 16);
#else
  TC_PAIRS_LOOP(16)
#endif
}
