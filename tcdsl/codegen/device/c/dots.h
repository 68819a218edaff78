/* --- dots: register tiles of sums, whose terms are several narrow products at once ---------------
 *
 * tc_dots_X(sums, a, b, R, C, K), where a step multiplies T terms, 2 of 16 bits or 4 of 8, by
 * columns of which there are a multiple of 16:
 *
 *   sums[r][c] += a[r][T k + t] * b[k][c][t]       r < R, c < C, k < K, t < T
 *
 * R, C and K are constants where it is called: then the sums of a tile stay in registers.
 *
 * Integers: modulo 2^32, as one by one.  No instruction here saturates, and 32 bits hold every
 * product.  vpdpbusd has one unsigned factor.  Where both have a sign, or none, the columns' terms
 * are moved by 128, by which sums are off by 128 times the sum of the row's terms:
 *
 *   int8:   sum a b = sum a (b + 128) - 128 sum a
 *   uint8:  sum a b = sum a (b - 128) + 128 sum a
 *
 * bfloat16, sums in float32: a product has 16 bits and is exact, if it is a normal number, so that
 * additions alone round, each to nearest even: within the bound of a sum as written.  vdpbf16ps
 * adds so, too (a pair's second product first), but takes subnormal operands and sums for 0.  There
 * are none where no operand is subnormal, and all products and old sums are multiples of 2^-126:
 * all sums are then, since rounding keeps that.  Operands from 2^e and 2^f on have products that
 * are multiples of 2^(e - 7) 2^(f - 7), and a sum from 2^-103 on is one of 2^-126.  A tile of which
 * less is known is multiplied again, with FMA. */
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512BW__)
#define TC_LANES 16
#else
#define TC_LANES 8
#endif
#define TC_MOST_SUMS 640 /* of a tile, which is planned for registers of 64 bytes at most */

#define TC_LANES_OF(TYPE, BYTES)                                                                   \
  TYPE __attribute__((vector_size(4 * TC_LANES), aligned(BYTES), may_alias))
typedef TC_LANES_OF(int32_t, 4) tc_v_i32;
typedef TC_LANES_OF(uint32_t, 4) tc_v_u32;
typedef TC_LANES_OF(float, 4) tc_v_f32;
typedef TC_LANES_OF(int16_t, 2) tc_v_i16;
typedef TC_LANES_OF(uint16_t, 2) tc_v_u16;

/* No function here is called through an ABI, on which a vector's registers would depend. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

/* A step: s + the products of the terms in each lane of a and b. */
TC_FN tc_v_i32 tc_dot_i16(tc_v_i32 s, tc_v_i32 a, tc_v_i32 b)
{
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
  return (tc_v_i32)_mm512_dpwssd_epi32((__m512i)s, (__m512i)a, (__m512i)b);
#elif defined(__AVX512BW__)
  return s + (tc_v_i32)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return s + (tc_v_i32)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  return s + (a >> 16) * (b >> 16) + (a << 16 >> 16) * (b << 16 >> 16);
#endif
}

TC_FN tc_v_f32 tc_fma_lanes(tc_v_f32 s, tc_v_i32 a, tc_v_i32 b)
{
#if defined(__AVX512BW__)
  return (tc_v_f32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)s);
#elif defined(__AVX2__) && defined(__FMA__)
  return (tc_v_f32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)s);
#else
  return s + (tc_v_f32)a * (tc_v_f32)b;
#endif
}
TC_FN tc_v_f32 tc_dot_bf16(tc_v_f32 s, tc_v_i32 a, tc_v_i32 b)
{
  return tc_fma_lanes(tc_fma_lanes(s, a & -65536, b & -65536), a << 16, b << 16);
}

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define TC_DOT_BYTES(NAME, UNSIGNED, SIGNED)                                                       \
  TC_FN tc_v_i32 tc_dot_##NAME(tc_v_i32 s, tc_v_i32 a, tc_v_i32 b)                                 \
  {                                                                                                \
    return (tc_v_i32)_mm512_dpbusd_epi32((__m512i)s, (__m512i)(UNSIGNED), (__m512i)(SIGNED));      \
  }
TC_DOT_BYTES(u8_i8, a, b)
TC_DOT_BYTES(i8_u8, b, a)
TC_DOT_BYTES(i8_i8, b ^ (int32_t)0x80808080, a)
TC_DOT_BYTES(u8_u8, a, b ^ (int32_t)0x80808080)

/* The sum of the *n* terms of a row. */
TC_FN int32_t tc_row_sum(const void *a, int n, int is_signed)
{
  tc_v_i32 sums = {0}, ones = 0x01010101 - (tc_v_i32){0};
  for (int i = 0; i < n; i += 64) {
    __mmask64 there = n - i < 64 ? ((__mmask64)1 << (n - i)) - 1 : ~(__mmask64)0;
    tc_v_i32 some = (tc_v_i32)_mm512_maskz_loadu_epi8(there, (const char *)a + i);
    sums = is_signed ? tc_dot_u8_i8(sums, ones, some) : tc_dot_u8_i8(sums, some, ones);
  }
  return _mm512_reduce_add_epi32((__m512i)sums);
}
#define TC_OFF_i8(a, n) (-128 * tc_row_sum(a, n, 1))
#define TC_OFF_u8(a, n) (128 * tc_row_sum(a, n, 0))
#else
/* The terms at even places, and those at odd ones, as pairs of 16 bits. */
#define TC_EVEN_i8(x) (tc_v_i32)((tc_v_i16)(x) << 8 >> 8)
#define TC_ODD_i8(x) (tc_v_i32)((tc_v_i16)(x) >> 8)
#define TC_EVEN_u8(x) (tc_v_i32)((tc_v_u16)(x) & 255)
#define TC_ODD_u8(x) (tc_v_i32)((tc_v_u16)(x) >> 8)
#define TC_DOT_BYTES(A, B)                                                                         \
  TC_FN tc_v_i32 tc_dot_##A##_##B(tc_v_i32 s, tc_v_i32 a, tc_v_i32 b)                              \
  {                                                                                                \
    return tc_dot_i16(tc_dot_i16(s, TC_EVEN_##A(a), TC_EVEN_##B(b)), TC_ODD_##A(a), TC_ODD_##B(b)); \
  }
TC_DOT_BYTES(u8, i8)
TC_DOT_BYTES(i8, u8)
TC_DOT_BYTES(i8, i8)
TC_DOT_BYTES(u8, u8)
#define TC_OFF_i8(a, n) 0
#define TC_OFF_u8(a, n) 0
#endif
#define TC_NOT_OFF(a, n) 0

/* *LANES* sums of *SUM*, of products of *A* and *B*; OFF: what a row's sums are off by. */
#define TC_DOTS(NAME, DOT, SUM, LANES, A, B, T, OFF)                                               \
  TC_FN void NAME(SUM *sums, const A *a, const B *b, int rows, int columns, int steps)             \
  {                                                                                                \
    const int vectors = columns / TC_LANES;                                                        \
    LANES tile[TC_MOST_SUMS / TC_LANES];                                                           \
    _Pragma("GCC unroll 40") for (int r = 0; r < rows; r++) {                                      \
      const SUM off = OFF(a + T * steps * r, T * steps);                                           \
      _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)                                    \
        tile[vectors * r + v] = *(const LANES *)(sums + columns * r + TC_LANES * v) + off;         \
    }                                                                                              \
    for (int k = 0; k < steps; k++) {                                                              \
      _Pragma("GCC unroll 40") for (int r = 0; r < rows; r++) {                                    \
        int32_t terms;                                                                             \
        __builtin_memcpy(&terms, a + T * (steps * r + k), 4);                                      \
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)                                  \
          tile[vectors * r + v] = DOT(tile[vectors * r + v], terms - (tc_v_i32){0},                \
            *(const tc_v_i32 *)(b + T * (columns * k + TC_LANES * v)));                            \
      }                                                                                            \
    }                                                                                              \
    _Pragma("GCC unroll 40") for (int i = 0; i < rows * vectors; i++)                              \
      *(LANES *)(sums + TC_LANES * i) = tile[i];                                                   \
  }
TC_DOTS(tc_dots_i16, tc_dot_i16, int32_t, tc_v_i32, int16_t, int16_t, 2, TC_NOT_OFF)
TC_DOTS(tc_dots_i8_i8, tc_dot_i8_i8, int32_t, tc_v_i32, int8_t, int8_t, 4, TC_OFF_i8)
TC_DOTS(tc_dots_i8_u8, tc_dot_i8_u8, int32_t, tc_v_i32, int8_t, uint8_t, 4, TC_NOT_OFF)
TC_DOTS(tc_dots_u8_i8, tc_dot_u8_i8, int32_t, tc_v_i32, uint8_t, int8_t, 4, TC_NOT_OFF)
TC_DOTS(tc_dots_u8_u8, tc_dot_u8_u8, int32_t, tc_v_i32, uint8_t, uint8_t, 4, TC_OFF_u8)
TC_DOTS(tc_each_bf16, tc_dot_bf16, float, tc_v_f32, uint16_t, uint16_t, 2, TC_NOT_OFF)

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
/* 2 |x| - 1 of the bits of bfloat16: of 0 it is the largest.  Then the least biased exponent. */
TC_FN __m512i tc_sizes_bf16(__m512i x)
{
  return _mm512_sub_epi16(_mm512_add_epi16(x, x), _mm512_set1_epi16(1));
}
TC_FN int tc_least_exponent(__m512i sizes)
{
  __m512i low = _mm512_and_si512(sizes, _mm512_set1_epi32(65535));
  return (int)(_mm512_reduce_min_epu32(
    _mm512_min_epu32(low, _mm512_srli_epi32(sizes, 16))) + 1) >> 8;
}

/* Of biased exponents: e + f - 14 >= -126, and of old sums, 2^-103 or (of it itself) twice that. */
#define TC_LEAST_FACTORS 142
#define TC_LEAST_SUM 24

TC_FN void tc_dots_bf16(
  float *sums, const uint16_t *a, const uint16_t *b, int rows, int columns, int steps)
{
  const int vectors = columns / 16;
  __m512i row_sizes = _mm512_set1_epi32(-1), sizes[4], old_sizes = _mm512_set1_epi32(-1);
  __m512 tile[TC_MOST_SUMS / TC_LANES];
#pragma GCC unroll 40
  for (int i = 0; i < rows * vectors; i++) {
    tile[i] = _mm512_loadu_ps(sums + 16 * i);
    __m512i bits = _mm512_castps_si512(tile[i]);
    __m512i size = _mm512_sub_epi32(_mm512_add_epi32(bits, bits), _mm512_set1_epi32(1));
    old_sizes = _mm512_min_epu32(old_sizes, size);
  }
  const int old = (int)(_mm512_reduce_min_epu32(old_sizes) >> 24);
  for (int i = 0; i < 2 * rows * steps; i += 32) {
    const int rest = 2 * rows * steps - i;
    __mmask32 there = rest < 32 ? ((__mmask32)1 << rest) - 1 : ~(__mmask32)0;
    row_sizes = _mm512_min_epu16(row_sizes, tc_sizes_bf16(_mm512_maskz_loadu_epi16(there, a + i)));
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++)
    sizes[v] = _mm512_set1_epi32(-1);
  for (int k = 0; k < steps; k++) {
    __m512i others[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      others[v] = _mm512_loadu_si512(b + 2 * (columns * k + 16 * v));
      sizes[v] = _mm512_min_epu16(sizes[v], tc_sizes_bf16(others[v]));
    }
#pragma GCC unroll 40
    for (int r = 0; r < rows; r++) {
      int32_t terms;
      __builtin_memcpy(&terms, a + 2 * (steps * r + k), 4);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++)
        tile[vectors * r + v] = _mm512_dpbf16_ps(
          tile[vectors * r + v], (__m512bh)_mm512_set1_epi32(terms), (__m512bh)others[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 1; v < vectors; v++)
    sizes[0] = _mm512_min_epu16(sizes[0], sizes[v]);
  const int one = tc_least_exponent(row_sizes), other = tc_least_exponent(sizes[0]);
  if (one < 1 || other < 1 || one + other < TC_LEAST_FACTORS || old < TC_LEAST_SUM) {
    tc_each_bf16(sums, a, b, rows, columns, steps);
    return;
  }
#pragma GCC unroll 40
  for (int i = 0; i < rows * vectors; i++)
    _mm512_storeu_ps(sums + 16 * i, tile[i]);
}
#else
#define tc_dots_bf16 tc_each_bf16
#endif
#pragma GCC diagnostic pop
