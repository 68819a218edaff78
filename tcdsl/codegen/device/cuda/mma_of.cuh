/* tcdsl device library for CUDA, part "mma_of": products on tensor cores, of other types than halves.
 *
 * As part "mma", for each of the types tc_of_<a>_<b>: elements A and B, sums S, and what a thread
 * has of 16 x 8 results of TERMS terms: WORDS words W of a row of A, and of another one 8 rows below,
 * and as many of a column of B.  Thread t has those of row or column t / 4, and along the terms the
 * words t % 4, t % 4 + 4, ...  A word becomes PARTS operands of instructions.
 *
 * float8 becomes float16, exactly, whose products have sums of float32: the instructions for float8
 * keep fewer bits of a sum.  Needs "mma", "half" and "float8". */

TC_FN uint32_t tc_word_of(int8_t x) { return (uint8_t)x; }
TC_FN uint32_t tc_word_of(uint8_t x) { return x; }
TC_FN uint32_t tc_word_of(float x) { return tc_bits_f32(x); }
TC_FN uint32_t tc_byte(uint32_t word, int at) { return word >> 8 * at & 0xffu; }

/* ---- integers: sums wrap ------------------------------------------------------------------- */
#define TC_OF_INTEGERS(a, b, AT, BT, ptx_a, ptx_b)                                                 \
  struct tc_of_##a##_##b {                                                                         \
    typedef AT A;                                                                                  \
    typedef BT B;                                                                                  \
    typedef int32_t S;                                                                             \
    typedef uint32_t W;                                                                            \
    enum { TERMS = 32, WORDS = 2, PARTS = 1, BITS = 0 };                                           \
    TC_FN W part_of_a(W word, int) { return word; }                                                \
    TC_FN W part_of_b(W word, int) { return word; }                                                \
    TC_FN void add(S &sum, W x, W y)                                                               \
    {                                                                                              \
      for (int i = 0; i < 4; i++)                                                                  \
        sum = tc_add_i32(sum, (int)(AT)tc_byte(x, i) * (int)(BT)tc_byte(y, i));                    \
    }                                                                                              \
    TC_FN void multiply(S &d0, S &d1, S &d2, S &d3, const W (&x)[4], const W (&y)[2])              \
    {                                                                                              \
      TC_ON_GPU(asm volatile(                                                                      \
          "mma.sync.aligned.m16n8k32.row.col.s32." ptx_a "." ptx_b ".s32 "                         \
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                        \
          : "+r"(d0), "+r"(d1), "+r"(d2), "+r"(d3)                                                 \
          : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));)                    \
    }                                                                                              \
  };
#ifdef __CUDA_ARCH__
#define TC_ON_GPU(...) __VA_ARGS__
#else
#define TC_ON_GPU(...)                                                                             \
  (void)d0, (void)d1, (void)d2, (void)d3, (void)x, (void)y; /* tc_multiply_of does it */
#endif
TC_OF_INTEGERS(i8, i8, int8_t, int8_t, "s8", "s8")
TC_OF_INTEGERS(i8, u8, int8_t, uint8_t, "s8", "u8")
TC_OF_INTEGERS(u8, i8, uint8_t, int8_t, "u8", "s8")
TC_OF_INTEGERS(u8, u8, uint8_t, uint8_t, "u8", "u8")

/* ---- float8 -------------------------------------------------------------------------------- */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define TC_HALVES_OF(e)                                                                            \
  TC_FN uint32_t tc_halves_of_##e(uint32_t word, int upper)                                        \
  {                                                                                                \
    uint32_t halves;                                                                               \
    asm("cvt.rn.f16x2." #e "x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)(word >> 16 * upper)));     \
    return halves;                                                                                 \
  }
#else
#define TC_HALVES_OF(e)                                                                            \
  TC_FN uint32_t tc_halves_of_##e(uint32_t word, int upper)                                        \
  {                                                                                                \
    const uint32_t pair = word >> 16 * upper;                                                      \
    return tc_cast_##e##_f16((uint8_t)pair)                                                        \
           | (uint32_t)tc_cast_##e##_f16((uint8_t)(pair >> 8)) << 16;                              \
  }
#endif
TC_HALVES_OF(e4m3)
TC_HALVES_OF(e5m2)

/* A word is two parts, pairs of float16.  The terms of each instruction are those of 16 bytes, in
 * another order than they lie: the same in both operands. */
#define TC_OF_FLOAT8(a, b)                                                                         \
  struct tc_of_##a##_##b {                                                                         \
    typedef uint8_t A;                                                                             \
    typedef uint8_t B;                                                                             \
    typedef float S;                                                                               \
    typedef uint32_t W;                                                                            \
    enum { TERMS = 32, WORDS = 2, PARTS = 2, BITS = 13 /* of a sum, by wgmma */ };                 \
    TC_FN W part_of_a(W word, int upper) { return tc_halves_of_##a(word, upper); }                 \
    TC_FN W part_of_b(W word, int upper) { return tc_halves_of_##b(word, upper); }                 \
    TC_FN void add(double &sum, W x, W y)                                                          \
    {                                                                                              \
      for (int i = 0; i < 2; i++)                                                                  \
        sum += (double)tc_f16_to_f32((uint16_t)(x >> 16 * i))                                      \
               * (double)tc_f16_to_f32((uint16_t)(y >> 16 * i));                                   \
    }                                                                                              \
    TC_FN void multiply(S &d0, S &d1, S &d2, S &d3, const W (&x)[8], const W (&y)[4])              \
    {                                                                                              \
      for (int half = 0; half < 8; half += 4) {                                                    \
        const uint32_t rows[4] = {x[half], x[half + 1], x[half + 2], x[half + 3]};                 \
        tc_multiply<false>(d0, d1, d2, d3, rows, y[half / 2], y[half / 2 + 1]);                    \
      }                                                                                            \
    }                                                                                              \
  };
TC_OF_FLOAT8(e4m3, e4m3)
TC_OF_FLOAT8(e4m3, e5m2)
TC_OF_FLOAT8(e5m2, e4m3)
TC_OF_FLOAT8(e5m2, e5m2)

/* ---- float32 as tf32: rounded to 11 bits, ties away from zero ------------------------------ */
struct tc_of_f32_f32 {
  typedef float A;
  typedef float B;
  typedef float S;
  typedef uint32_t W;
  enum { TERMS = 8, WORDS = 2, PARTS = 1, BITS = 0 };
  TC_FN W part_of_a(W word, int)
  {
#ifdef __CUDA_ARCH__
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
    return word;
#else
    return (word & 0x7f800000u) == 0x7f800000u ? word : (word + 0x1000u) & ~0x1fffu;
#endif
  }
  TC_FN W part_of_b(W word, int) { return part_of_a(word, 0); }
  TC_FN void add(double &sum, W x, W y)
  {
    sum += (double)tc_float_u32(x) * (double)tc_float_u32(y);
  }
  TC_FN void multiply(S &d0, S &d1, S &d2, S &d3, const W (&x)[4], const W (&y)[2])
  {
    TC_ON_GPU(asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                           "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                           : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
                           : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));)
  }
};

/* ---- float64: four words of a row or column, four terms apart ----------------------------- */
struct tc_of_f64_f64 {
  typedef double A;
  typedef double B;
  typedef double S;
  typedef double W;
  enum { TERMS = 16, WORDS = 4, PARTS = 1, BITS = 0 };
  TC_FN W part_of_a(W word, int) { return word; }
  TC_FN W part_of_b(W word, int) { return word; }
  TC_FN void add(S &sum, W x, W y) { sum += x * y; }
  TC_FN void multiply(S &d0, S &d1, S &d2, S &d3, const W (&x)[8], const W (&y)[4])
  {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
                 : "+d"(d0), "+d"(d1), "+d"(d2), "+d"(d3)
                 : "d"(x[0]), "d"(x[1]), "d"(x[2]), "d"(x[3]), "d"(x[4]), "d"(x[5]), "d"(x[6]),
                   "d"(x[7]), "d"(y[0]), "d"(y[1]), "d"(y[2]), "d"(y[3]));
#else
    TC_ON_GPU(for (int word = 0; word < 4; word++) {
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                   : "+d"(d0), "+d"(d1) : "d"(x[2 * word]), "d"(y[word]));
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                   : "+d"(d2), "+d"(d3) : "d"(x[2 * word + 1]), "d"(y[word]));
    })
#endif
  }
};

/* ---- a warp's product ---------------------------------------------------------------------- */
#ifndef __CUDA_ARCH__
TC_FN long long tc_carried(uint32_t word) { return (long long)word; }
TC_FN long long tc_carried(double word) { return (long long)tc_bits_f64(word); }
TC_FN void tc_carried_to(uint32_t &word, long long bits) { word = (uint32_t)bits; }
TC_FN void tc_carried_to(double &word, long long bits) { word = tc_double_u64((uint64_t)bits); }
template <class S> struct tc_exact_sum { typedef S type; };
template <> struct tc_exact_sum<float> { typedef double type; };
#endif

/* d += a * b: 16 x 8 results of as many terms as are in 32 bytes; N parts of words of a column. */
template <class OF, int N>
TC_FN void tc_multiply_of(typename OF::S &d0, typename OF::S &d1, typename OF::S &d2,
                          typename OF::S &d3, const typename OF::W (&x)[2 * N],
                          const typename OF::W (&y)[N])
{
#ifdef __CUDA_ARCH__
  OF::multiply(d0, d1, d2, d3, x, y);
#else
  const int lane = (int)threadIdx.x, row = lane / 4, column = lane % 4 * 2;
  typename tc_exact_sum<typename OF::S>::type sums[4] = {d0, d1, d2, d3};
  for (int part = 0; part < N; part++)
    for (int t = 0; t < 4; t++) {
      typename OF::W rows[2], columns[2];
      for (int i = 0; i < 2; i++) {
        tc_carried_to(rows[i], __shfl_sync(~0u, tc_carried(x[2 * part + i]), row * 4 + t, 32));
        tc_carried_to(columns[i],
                      __shfl_sync(~0u, tc_carried(y[part]), (column + i) * 4 + t, 32));
      }
      for (int q = 0; q < 4; q++) OF::add(sums[q], rows[q / 2], columns[q % 2]);
    }
  typedef typename OF::S S;
  d0 = (S)sums[0], d1 = (S)sums[1], d2 = (S)sums[2], d3 = (S)sums[3];
#endif
}

/* The word of row or column *line* and of the terms from *term* on, from a tile that has lines of
 * LINE elements for each of them (IS_ALONG), or else for each term. */
template <class W, int LINE, bool IS_ALONG, class T>
TC_FN W tc_word(const T *tile, int at, int line, int term)
{
  if constexpr (sizeof(W) == sizeof(T) && sizeof(T) == 8) {
    return tile[tc_swizzled<LINE, 8>(at + (IS_ALONG ? line * LINE + term : term * LINE + line))];
  } else {
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(W) / sizeof(T)); i++) {
      const int place = at + (IS_ALONG ? line * LINE + term + i : (term + i) * LINE + line);
      word |= tc_word_of(tile[tc_swizzled<LINE, sizeof(T)>(place)]) << 8 * (int)sizeof(T) * i;
    }
    return word;
  }
}

/* Words of four matrices of 8 lines and 16 bytes: this thread names the line at *at*. */
template <int LINE, class T> TC_FN void tc_load_words(uint32_t (&to)[4], const T *tile, int at)
{
  const T *const line = tile + tc_swizzled<LINE, sizeof(T)>(at);
  tc_load_matrices<false>(to, reinterpret_cast<const uint16_t *>(line));
}

/* As tc_mma: sums += A * B, 16 MT x 8 NT results of a warp, of the terms in 32 KT bytes each. */
template <class OF, int MT, int NT, int KT, int LA, bool IS_A, int LB, bool IS_B>
TC_FN void tc_mma_of(typename OF::S (&sums)[4 * MT * NT], const typename OF::A *A, int a,
                     const typename OF::B *B, int b)
{
  static_assert(NT % 2 == 0, "columns are loaded 16 at a time");
  static_assert(KT * 32 % (OF::TERMS * sizeof(*A)) == 0, "whole instructions");
  typedef typename OF::W W;
  constexpr int WORDS = OF::WORDS, PARTS = OF::PARTS;
  constexpr int APART = 4 * (sizeof(W) / sizeof(typename OF::A)); /* terms of four words */
  const int lane = (int)threadIdx.x, line = lane / 4, word = lane % 4 * (APART / 4);
  const int eight = lane % 8, one = lane / 8 % 2, other = lane / 16; /* as in tc_mma */
#pragma unroll
  for (int term = 0; term < KT * (int)(32 / sizeof(*A)); term += OF::TERMS) {
    W x[MT][2 * WORDS * PARTS], y[NT][WORDS * PARTS];
#pragma unroll
    for (int i = 0; i < MT; i++) {
      W own[2 * WORDS];
      if constexpr (IS_A && WORDS == 2)
        tc_load_words<LA>(own, A, a + (16 * i + eight + one * 8) * LA + term + other * APART);
      else
#pragma unroll
        for (int w = 0; w < 2 * WORDS; w++)
          own[w] = tc_word<W, LA, IS_A>(A, a, 16 * i + line + w % 2 * 8,
                                        term + word + w / 2 * APART);
#pragma unroll
      for (int w = 0; w < 2 * WORDS; w++)
#pragma unroll
        for (int part = 0; part < PARTS; part++)
          x[i][(w / 2 * PARTS + part) * 2 + w % 2] = OF::part_of_a(own[w], part);
    }
#pragma unroll
    for (int j = 0; j < NT; j += 2) {
      W own[2 * WORDS];
      if constexpr (IS_B && WORDS == 2)
        tc_load_words<LB>(own, B, b + (8 * j + eight + other * 8) * LB + term + one * APART);
      else
#pragma unroll
        for (int w = 0; w < 2 * WORDS; w++)
          own[w] = tc_word<W, LB, IS_B>(B, b, 8 * (j + w / WORDS) + line,
                                        term + word + w % WORDS * APART);
#pragma unroll
      for (int w = 0; w < 2 * WORDS; w++)
#pragma unroll
        for (int part = 0; part < PARTS; part++)
          y[j + w / WORDS][w % WORDS * PARTS + part] = OF::part_of_b(own[w], part);
    }
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
      for (int j = 0; j < NT; j++) {
        typename OF::S *const upper = &sums[4 * i * NT + 2 * j], *const lower = upper + 2 * NT;
        tc_multiply_of<OF>(upper[0], upper[1], lower[0], lower[1], x[i], y[j]);
      }
    }
  }
}
