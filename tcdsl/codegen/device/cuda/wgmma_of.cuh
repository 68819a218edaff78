/* tcdsl device library for CUDA, part "wgmma_of": products by four warps together, of other types
 * than halves (sm_90a).
 *
 * As part "wgmma", for the types tc_of_<a>_<b> of part "mma_of".  The instructions read shared memory
 * along the terms alone: B lies so, and A, or else, of elements of four bytes, A comes by way of
 * registers, where a thread has what it has in part "mma".  tf32 has been rounded by the copy
 * (pipeline): the instructions read 19 bits of an element.  Needs "wgmma" and "mma_of". */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TC_WGMMA_OF(kind, tail, columns, registers, o0, o1, o2, o3, o4, o5, ...) \
  asm volatile("{.reg .pred p; setp.ne.s32 p, " o2 ", 0; wgmma.mma_async.sync.aligned.m64n" columns \
               kind " {" registers "}, " o0 ", " o1 ", p" tail ";}" \
               : __VA_ARGS__ : "l"(a), "l"(b), "r"(is_more))
/* d += a * b: 64 x 2 N results of as many terms as are in 32 bytes; see tc_multiply_group. */
#define TC_GROUP_OF(of, S, c, A, group)                                                            \
  template <int N> TC_FN void tc_add_group(tc_of_##of, S(&d)[N], A a, uint64_t b, int is_more)     \
  {                                                                                                \
    TC_BY_COLUMNS(group, c);                                                                       \
  }
#define TC_I8_I8(...) TC_WGMMA_OF("k32.s32.s8.s8", "", __VA_ARGS__)
#define TC_I8_U8(...) TC_WGMMA_OF("k32.s32.s8.u8", "", __VA_ARGS__)
#define TC_U8_I8(...) TC_WGMMA_OF("k32.s32.u8.s8", "", __VA_ARGS__)
#define TC_U8_U8(...) TC_WGMMA_OF("k32.s32.u8.u8", "", __VA_ARGS__)
TC_GROUP_OF(i8_i8, int32_t, TC_SUM_INT, uint64_t, TC_I8_I8)
TC_GROUP_OF(i8_u8, int32_t, TC_SUM_INT, uint64_t, TC_I8_U8)
TC_GROUP_OF(u8_i8, int32_t, TC_SUM_INT, uint64_t, TC_U8_I8)
TC_GROUP_OF(u8_u8, int32_t, TC_SUM_INT, uint64_t, TC_U8_U8)
#define TC_E4M3_E4M3(...) TC_WGMMA_OF("k32.f32.e4m3.e4m3", ", 1, 1", __VA_ARGS__)
#define TC_E4M3_E5M2(...) TC_WGMMA_OF("k32.f32.e4m3.e5m2", ", 1, 1", __VA_ARGS__)
#define TC_E5M2_E4M3(...) TC_WGMMA_OF("k32.f32.e5m2.e4m3", ", 1, 1", __VA_ARGS__)
#define TC_E5M2_E5M2(...) TC_WGMMA_OF("k32.f32.e5m2.e5m2", ", 1, 1", __VA_ARGS__)
TC_GROUP_OF(e4m3_e4m3, float, TC_SUM, uint64_t, TC_E4M3_E4M3)
TC_GROUP_OF(e4m3_e5m2, float, TC_SUM, uint64_t, TC_E4M3_E5M2)
TC_GROUP_OF(e5m2_e4m3, float, TC_SUM, uint64_t, TC_E5M2_E4M3)
TC_GROUP_OF(e5m2_e5m2, float, TC_SUM, uint64_t, TC_E5M2_E5M2)
#define TC_TF32(...) TC_WGMMA_OF("k8.f32.tf32.tf32", ", 1, 1", __VA_ARGS__)
typedef const uint32_t (&tc_words)[4];
TC_GROUP_OF(f32_f32, float, TC_SUM, uint64_t, TC_TF32)
TC_GROUP_OF(f32_f32, float, TC_SUM, tc_words, TC_TF32_FROM)
#endif

#ifndef __CUDA_ARCH__
/* What instructions read of a word. */
template <class T> uint32_t tc_read_of(uint32_t word) { return sizeof(T) == 4 ? word & ~0x1fffu : word; }
/* The word of a row or column, and of a term, the first of its elements, of a tile in atoms. */
template <int LINE, int LINES, bool IS_ALONG, class T>
uint32_t tc_word_in_atoms(const T *tile, int at, int line, int term)
{
  constexpr int COUNT = 4 / (int)sizeof(T);
  static_assert(IS_ALONG || COUNT == 1, "a word has terms of one line");
  uint32_t word = 0;
  for (int i = 0; i < COUNT; i++) {
    const int place = at + (IS_ALONG ? line * LINE + term + i : term * LINE + line);
    word |= tc_word_of(tile[tc_in_atoms<LINE, LINES, sizeof(T)>(place)]) << 8 * (int)sizeof(T) * i;
  }
  return tc_read_of<T>(word);
}
/* sum + the terms, each cut towards 0 at 2^-BITS of the largest of them. */
template <int BITS, int COUNT> double tc_cut_sum(double sum, const double (&terms)[COUNT])
{
  double largest = sum < 0 ? -sum : sum;
  for (double x : terms) largest = (x < 0 ? -x : x) > largest ? (x < 0 ? -x : x) : largest;
  if (!(largest > 0 && largest - largest == 0)) { /* only zeros, or some are not finite */
    for (double x : terms) sum += x;
    return sum;
  }
  int exponent;
  (void)__builtin_frexp(largest, &exponent);
  const double unit = __builtin_ldexp(1, exponent - 1 - BITS);
  sum = __builtin_trunc(sum / unit);
  for (double x : terms) sum += __builtin_trunc(x / unit);
  return sum * unit;
}
template <class OF, int N, int KT, int LA, int MA, bool IS_A, int LB, int MB, bool IS_B>
void tc_run_product_of(void *to, const void *rows, int a, const void *columns, int b)
{
  typedef typename OF::S S;
  S *const sums = (S *)to;
  const typename OF::A *const A = (const typename OF::A *)rows;
  const typename OF::B *const B = (const typename OF::B *)columns;
  const int row = (int)threadIdx.z % 4 * 16 + (int)threadIdx.x / 4, column = (int)threadIdx.x % 4 * 2;
  constexpr int APART = 4 / (int)sizeof(typename OF::A), WORDS = OF::TERMS / APART;
  constexpr int COUNT = WORDS * OF::PARTS;
  /* Each word is read once, for the emulator checks every access. */
  uint32_t x[2][KT * WORDS], y[KT * WORDS];
  for (int word = 0; word < 2 * KT * WORDS; word++) {
    const int h = word / (KT * WORDS), term = word % (KT * WORDS) * APART;
    x[h][term / APART] = tc_word_in_atoms<LA, MA, IS_A>(A, a, row + 8 * h, term);
  }
  for (int i = 0; i < N / 2; i++) {
    const int own = i / 2, h = i % 2; /* both rows of a column */
    if (h == 0)
      for (int word = 0; word < KT * WORDS; word++)
        y[word] = tc_word_in_atoms<LB, MB, IS_B>(B, b, own / 2 * 8 + column + own % 2, word * APART);
    S sum = sums[h * (N / 4) + own];
    for (int k = 0; k < KT; k++) {
      typedef typename tc_exact_sum<S>::type E;
      E exact = sum, terms[COUNT] = {};
      for (int word = 0; word < COUNT; word++) {
        const int at = k * WORDS + word / OF::PARTS, part = word % OF::PARTS;
        OF::add(OF::BITS ? terms[word] : exact, OF::part_of_a(x[h][at], part),
                OF::part_of_b(y[at], part));
      }
      if constexpr (OF::BITS > 0) exact = tc_cut_sum<OF::BITS>(exact, terms);
      sum = (S)exact;
    }
    sums[h * (N / 4) + own] = sum;
  }
}
#endif

/* As tc_wgmma: sums += A * B, 64 x N results of four warps, of the terms in 32 KT bytes. */
template <class OF, int N, int KT, int LA, int MA, bool IS_A, int LB, int MB, bool IS_B,
          bool ARE_NEW = false>
TC_FN void tc_wgmma_of(typename OF::S (&sums)[N / 2], const typename OF::A *A, int a,
                       const typename OF::B *B, int b)
{
  static_assert(IS_B && KT == 4 && LB == KT * OF::TERMS, "a line of B has the 128 bytes of a step");
  static_assert(IS_A ? LA == LB : sizeof(*A) == 4, "A comes from registers word by word");
  const int warp = (int)threadIdx.z % 4;
  a -= warp * 16 * (IS_A ? LA : 1); /* of the first of the four */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const uint64_t y = tc_matrix(B + tc_in_atoms<LB, MB, sizeof(*B)>(b), MB * 128);
  if constexpr (IS_A) {
    const uint64_t x = tc_matrix(A + tc_in_atoms<LA, MA, sizeof(*A)>(a), MA * 128);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < KT; k++) tc_add_group(OF(), sums, x + 2 * k, y + 2 * k, !ARE_NEW || k > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  } else {
    const int line = a + 16 * warp + (int)threadIdx.x / 4;
    uint32_t x[KT][4];
#pragma unroll
    for (int k = 0; k < KT; k++)
#pragma unroll
      for (int q = 0; q < 4; q++) {
        const int term = OF::TERMS * k + (int)threadIdx.x % 4 + q / 2 * 4;
        x[k][q] = tc_word_of(A[tc_in_atoms<LA, MA, 4>(term * LA + line + q % 2 * 8)]);
      }
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < KT; k++) tc_add_group(OF(), sums, x[k], y + 2 * k, !ARE_NEW || k > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    tc_leave_products<0>(); /* they read the registers until then */
  }
#elif defined(__CUDA_ARCH__)
  __trap(); /* not compiled for sm_90a */
#else
  if (ARE_NEW)
    for (auto &sum : sums) sum = 0;
  const auto run = tc_run_product_of<OF, N, KT, LA, MA, IS_A, LB, MB, IS_B>;
#ifdef EMU_ADDRESS_SANITIZER
  run(sums, A, a, B, b);
#else
  emu_product(run, sums, A, a, B, b, __FILE__, __LINE__);
#endif
#endif
}

/* As tc_wgmma_promoted. */
template <class OF, int N, int KT, int LA, int MA, bool IS_A, int LB, int MB, bool IS_B>
TC_FN void tc_wgmma_of_promoted(typename OF::S (&sums)[N / 2], const typename OF::A *A, int a,
                                const typename OF::B *B, int b)
{
  typename OF::S step[N / 2];
  tc_wgmma_of<OF, N, KT, LA, MA, IS_A, LB, MB, IS_B, true>(step, A, a, B, b);
  tc_end_products(step);
#pragma unroll
  for (int i = 0; i < N / 2; i++) sums[i] += step[i];
}
