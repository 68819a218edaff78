/* tcdsl device library for CUDA, part "wgmma": products of half types by four warps together (sm_90a).
 *
 * Both operands are read from shared memory, where they lie in atoms: 128 bytes of each line, the
 * lines one after another, swizzled as tc_swizzled does; then the next 128 bytes of the lines.
 * The atoms of a tile begin at multiples of 1024 bytes.  The warps are neighbours along z.  Results
 * lie as in part "mma", with 16 rows a warp.  Needs "mma". */

/* The place of an element of a tile of LINES lines, counted along lines; vectors stay whole. */
template <int LINE, int LINES, int BYTES = 2> TC_FN int tc_in_atoms(int at)
{
  constexpr int WIDTH = 128 / BYTES;
  static_assert(LINE % WIDTH == 0 && LINES % 8 == 0, "a tile is made of whole atoms");
  const uint32_t tile = (uint32_t)at / (LINE * LINES), within = (uint32_t)at % LINE;
  const uint32_t line = (uint32_t)at / LINE % LINES;
  const int in_atom = tc_swizzled<WIDTH, BYTES>((int)(line * WIDTH + within % WIDTH));
  return (int)(tile * (LINE * LINES) + within / WIDTH * (WIDTH * LINES)) + in_atom;
}

/* What copies have brought is for tensor cores, which read it by another way than threads do. */
TC_FN void tc_show_copies()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* Where a matrix is, for the instruction: it begins at p, an atom's lines are 128 bytes apart, eight
 * of them 1024, and atoms apart bytes; the swizzle is of 128 bytes. */
TC_FN uint64_t tc_matrix(const uint16_t *p, int apart)
{
  const uint32_t start = (uint32_t)__cvta_generic_to_shared(p);
  return (uint64_t)(start >> 4 & 0x3fff) | (uint64_t)(apart >> 4) << 16 | (uint64_t)(1024 >> 4) << 32
         | (uint64_t)1 << 62;
}

/* d += a * b: 64 x N results of 16 terms, the accumulators of this thread. */
template <bool IS_BFLOAT, int TA, int TB>
TC_FN void tc_multiply_group(float (&d)[32], uint64_t a, uint64_t b)
{
#define TC_D(i) "+f"(d[(i / 2 % 2 * 8 + i / 4) * 2 + i % 2])
#define TC_WGMMA(type) \
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." \
               type "." type " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
               "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
               "}, %32, %33, p, 1, 1, %34, %35;}" \
               : TC_D(0), TC_D(1), TC_D(2), TC_D(3), TC_D(4), TC_D(5), TC_D(6), TC_D(7), TC_D(8), \
                 TC_D(9), TC_D(10), TC_D(11), TC_D(12), TC_D(13), TC_D(14), TC_D(15), TC_D(16), \
                 TC_D(17), TC_D(18), TC_D(19), TC_D(20), TC_D(21), TC_D(22), TC_D(23), TC_D(24), \
                 TC_D(25), TC_D(26), TC_D(27), TC_D(28), TC_D(29), TC_D(30), TC_D(31) \
               : "l"(a), "l"(b), "n"(TA), "n"(TB))
  if constexpr (IS_BFLOAT)
    TC_WGMMA("bf16");
  else
    TC_WGMMA("f16");
#undef TC_WGMMA
#undef TC_D
}
template <bool IS_BFLOAT, int TA, int TB>
TC_FN void tc_multiply_group(float (&d)[64], uint64_t a, uint64_t b)
{
#define TC_D(i) "+f"(d[(i / 2 % 2 * 16 + i / 4) * 2 + i % 2])
#define TC_WGMMA(type) \
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." \
               type "." type " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
               "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
               "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
               "%62, %63" \
               "}, %64, %65, p, 1, 1, %66, %67;}" \
               : TC_D(0), TC_D(1), TC_D(2), TC_D(3), TC_D(4), TC_D(5), TC_D(6), TC_D(7), TC_D(8), \
                 TC_D(9), TC_D(10), TC_D(11), TC_D(12), TC_D(13), TC_D(14), TC_D(15), TC_D(16), \
                 TC_D(17), TC_D(18), TC_D(19), TC_D(20), TC_D(21), TC_D(22), TC_D(23), TC_D(24), \
                 TC_D(25), TC_D(26), TC_D(27), TC_D(28), TC_D(29), TC_D(30), TC_D(31), TC_D(32), \
                 TC_D(33), TC_D(34), TC_D(35), TC_D(36), TC_D(37), TC_D(38), TC_D(39), TC_D(40), \
                 TC_D(41), TC_D(42), TC_D(43), TC_D(44), TC_D(45), TC_D(46), TC_D(47), TC_D(48), \
                 TC_D(49), TC_D(50), TC_D(51), TC_D(52), TC_D(53), TC_D(54), TC_D(55), TC_D(56), \
                 TC_D(57), TC_D(58), TC_D(59), TC_D(60), TC_D(61), TC_D(62), TC_D(63) \
               : "l"(a), "l"(b), "n"(TA), "n"(TB))
  if constexpr (IS_BFLOAT)
    TC_WGMMA("bf16");
  else
    TC_WGMMA("f16");
#undef TC_WGMMA
#undef TC_D
}
template <bool IS_BFLOAT, int TA, int TB>
TC_FN void tc_multiply_group(float (&d)[128], uint64_t a, uint64_t b)
{
#define TC_D(i) "+f"(d[(i / 2 % 2 * 32 + i / 4) * 2 + i % 2])
#define TC_WGMMA(type) \
  asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32." \
               type "." type " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
               "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
               "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
               "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, " \
               "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, " \
               "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, " \
               "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, " \
               "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127" \
               "}, %128, %129, p, 1, 1, %130, %131;}" \
               : TC_D(0), TC_D(1), TC_D(2), TC_D(3), TC_D(4), TC_D(5), TC_D(6), TC_D(7), TC_D(8), \
                 TC_D(9), TC_D(10), TC_D(11), TC_D(12), TC_D(13), TC_D(14), TC_D(15), TC_D(16), \
                 TC_D(17), TC_D(18), TC_D(19), TC_D(20), TC_D(21), TC_D(22), TC_D(23), TC_D(24), \
                 TC_D(25), TC_D(26), TC_D(27), TC_D(28), TC_D(29), TC_D(30), TC_D(31), TC_D(32), \
                 TC_D(33), TC_D(34), TC_D(35), TC_D(36), TC_D(37), TC_D(38), TC_D(39), TC_D(40), \
                 TC_D(41), TC_D(42), TC_D(43), TC_D(44), TC_D(45), TC_D(46), TC_D(47), TC_D(48), \
                 TC_D(49), TC_D(50), TC_D(51), TC_D(52), TC_D(53), TC_D(54), TC_D(55), TC_D(56), \
                 TC_D(57), TC_D(58), TC_D(59), TC_D(60), TC_D(61), TC_D(62), TC_D(63), TC_D(64), \
                 TC_D(65), TC_D(66), TC_D(67), TC_D(68), TC_D(69), TC_D(70), TC_D(71), TC_D(72), \
                 TC_D(73), TC_D(74), TC_D(75), TC_D(76), TC_D(77), TC_D(78), TC_D(79), TC_D(80), \
                 TC_D(81), TC_D(82), TC_D(83), TC_D(84), TC_D(85), TC_D(86), TC_D(87), TC_D(88), \
                 TC_D(89), TC_D(90), TC_D(91), TC_D(92), TC_D(93), TC_D(94), TC_D(95), TC_D(96), \
                 TC_D(97), TC_D(98), TC_D(99), TC_D(100), TC_D(101), TC_D(102), TC_D(103), TC_D(104), \
                 TC_D(105), TC_D(106), TC_D(107), TC_D(108), TC_D(109), TC_D(110), TC_D(111), \
                 TC_D(112), TC_D(113), TC_D(114), TC_D(115), TC_D(116), TC_D(117), TC_D(118), \
                 TC_D(119), TC_D(120), TC_D(121), TC_D(122), TC_D(123), TC_D(124), TC_D(125), \
                 TC_D(126), TC_D(127) \
               : "l"(a), "l"(b), "n"(TA), "n"(TB))
  if constexpr (IS_BFLOAT)
    TC_WGMMA("bf16");
  else
    TC_WGMMA("f16");
#undef TC_WGMMA
#undef TC_D
}
#endif

/* Wait until the products that add to sums are done, and have read their operands. */
template <int N> TC_FN void tc_end_products(float (&sums)[N])
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(sums[i])::"memory"); /* no use of it before */
  /* A branch that nothing takes: else ptxas moves what is computed of sums to before the wait, and
   * then has products run one at a time (its C7514). */
  uint32_t lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  if (lane > 31) __trap();
#elif !defined(__CUDA_ARCH__) && !defined(EMU_ADDRESS_SANITIZER)
  emu_end_products(0);
#endif
}

/* Wait until all but the last LEFT of the products that were begun are done. */
template <int LEFT> TC_FN void tc_leave_products()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
#elif !defined(__CUDA_ARCH__) && !defined(EMU_ADDRESS_SANITIZER)
  emu_end_products(LEFT);
#endif
}

#ifndef __CUDA_ARCH__
template <bool IS_BFLOAT, int N, int KT, int LA, int MA, bool IS_A, int LB, int MB, bool IS_B>
void tc_run_product(float *sums, const uint16_t *A, int a, const uint16_t *B, int b)
{
  const auto number = [](uint16_t half) {
    return (double)(IS_BFLOAT ? tc_bf16_to_f32(half) : tc_f16_to_f32(half));
  };
  const int row = (int)threadIdx.z % 4 * 16 + (int)threadIdx.x / 4, column = (int)threadIdx.x % 4 * 2;
  for (int k = 0; k < 16 * KT; k++) {
    double x[2];
    for (int h = 0; h < 2; h++) {
      const int at = a + (IS_A ? (row + 8 * h) * LA + k : k * LA + row + 8 * h);
      x[h] = number(A[tc_in_atoms<LA, MA>(at)]);
    }
    for (int j = 0; j < N / 8; j++)
      for (int q = 0; q < 2; q++) {
        const int at = b + (IS_B ? (8 * j + column + q) * LB + k : k * LB + 8 * j + column + q);
        const double y = number(B[tc_in_atoms<LB, MB>(at)]);
        for (int h = 0; h < 2; h++) {
          float &sum = sums[(h * (N / 8) + j) * 2 + q];
          sum = (float)((double)sum + x[h] * y);
        }
      }
  }
}
#endif

/* sums += A * B: 64 x N results of four warps, of 16 KT terms each, until tc_end_products.
 *
 * The tile of this warp begins at element a of A, that of all columns at b of B, as they are counted
 * before they go to their places.  A has LA elements in each of its MA lines: with the terms next to
 * one another a line is a row (IS_A), else a term; so has B, with columns for rows. */
template <bool IS_BFLOAT, int N, int KT, int LA, int MA, bool IS_A, int LB, int MB, bool IS_B>
TC_FN void tc_wgmma(float (&sums)[N / 2], const uint16_t *A, int a, const uint16_t *B, int b)
{
  static_assert((!IS_A || LA == 16 * KT) && (!IS_B || LB == 16 * KT), "a line has all terms");
  const int warp = (int)threadIdx.z % 4;
  a -= warp * 16 * (IS_A ? LA : 1); /* of the first of the four */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const uint64_t x = tc_matrix(A + tc_in_atoms<LA, MA>(a), MA * 128);
  const uint64_t y = tc_matrix(B + tc_in_atoms<LB, MB>(b), MB * 128);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int k = 0; k < KT; k++) /* 16 terms are 32 bytes of a line, or 16 lines of 128 */
    tc_multiply_group<IS_BFLOAT, !IS_A, !IS_B>(sums, x + k * (IS_A ? 32 : 2048) / 16,
                                               y + k * (IS_B ? 32 : 2048) / 16);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#elif defined(__CUDA_ARCH__)
  __trap(); /* not compiled for sm_90a */
#else
  const auto run = tc_run_product<IS_BFLOAT, N, KT, LA, MA, IS_A, LB, MB, IS_B>;
#ifdef EMU_ADDRESS_SANITIZER
  run(sums, A, a, B, b);
#else
  emu_product(run, sums, A, a, B, b, __FILE__, __LINE__);
#endif
#endif
}
