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

/* The same of element *at* of a *line* of a *buffer* of such tiles, for whoever reads it. */
template <int LINE, int LINES, int BYTES> TC_FN int tc_line_in_atoms(int buffer, int line, int at)
{
  constexpr int WIDTH = 128 / BYTES, VECTOR = 16 / BYTES;
  const int atom = LINE == WIDTH ? 0 : at / WIDTH; /* it is small: NVRTC cannot know */
  const int vector = (at / VECTOR ^ line) & 7;
  return buffer * (LINE * LINES) + vector * VECTOR + line * WIDTH + atom * (WIDTH * LINES)
         + (at & (VECTOR - 1));
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
TC_FN uint64_t tc_matrix(const void *p, int apart)
{
  const uint32_t start = (uint32_t)__cvta_generic_to_shared(p);
  return (uint64_t)(start >> 4 & 0x3fff) | (uint64_t)(apart >> 4) << 16 | (uint64_t)(1024 >> 4) << 32
         | (uint64_t)1 << 62;
}

/* d += a * b, or d = a * b: 64 x 2 N results, the N accumulators of this thread, of which c(i) is the
 * instruction's i-th as an operand: TC_SUM where they lie as in part "mma", rows first.  TC_BY_COLUMNS
 * calls DO(columns, registers, the operands after them, accumulators). */
#define TC_PLACE(i) (((i) / 2 % 2 * (N / 4) + (i) / 4) * 2 + (i) % 2)
#define TC_SUM(i) "+f"(d[TC_PLACE(i)])
#define TC_SUM_INT(i) "+r"(d[TC_PLACE(i)])
#define TC_D4(c, i) c(i), c(i + 1), c(i + 2), c(i + 3)
#define TC_D8(c, i) TC_D4(c, i), TC_D4(c, i + 4)
#define TC_D16(c, i) TC_D8(c, i), TC_D8(c, i + 8)
#define TC_D64(c) TC_D16(c, 0), TC_D16(c, 16), TC_D16(c, 32), TC_D16(c, 48)
#define TC_R4 \
  "%0, %1, %2, %3"
#define TC_R8 \
  TC_R4 \
  ", %4, %5, %6, %7"
#define TC_R12 \
  TC_R8 \
  ", %8, %9, %10, %11"
#define TC_R16 \
  TC_R12 \
  ", %12, %13, %14, %15"
#define TC_R24 \
  TC_R16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TC_R32 \
  TC_R24 \
  ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TC_R48 \
  TC_R32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define TC_R64 \
  TC_R48 \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TC_R96 \
  TC_R64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TC_R128 \
  TC_R96 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TC_BY_COLUMNS(DO, c) \
  static_assert(N <= 16 ? N > 0 && N % 4 == 0 : N == 24 || N == 32 || N == 48 || N == 64 || N == 96 \
                                                    || N == 128, "8 to 256 columns"); \
  if constexpr (N == 4) \
    DO("8", TC_R4, "%4", "%5", "%6", "%7", "%8", "%9", TC_D4(c, 0)); \
  else if constexpr (N == 8) \
    DO("16", TC_R8, "%8", "%9", "%10", "%11", "%12", "%13", TC_D8(c, 0)); \
  else if constexpr (N == 12) \
    DO("24", TC_R12, "%12", "%13", "%14", "%15", "%16", "%17", TC_D8(c, 0), TC_D4(c, 8)); \
  else if constexpr (N == 16) \
    DO("32", TC_R16, "%16", "%17", "%18", "%19", "%20", "%21", \
       TC_D16(c, 0)); \
  else if constexpr (N == 24) \
    DO("48", TC_R24, "%24", "%25", "%26", "%27", "%28", "%29", \
       TC_D16(c, 0), TC_D8(c, 16)); \
  else if constexpr (N == 32) \
    DO("64", TC_R32, "%32", "%33", "%34", "%35", "%36", "%37", \
       TC_D16(c, 0), TC_D16(c, 16)); \
  else if constexpr (N == 48) \
    DO("96", TC_R48, "%48", "%49", "%50", "%51", "%52", "%53", \
       TC_D16(c, 0), TC_D16(c, 16), TC_D16(c, 32)); \
  else if constexpr (N == 64) \
    DO("128", TC_R64, "%64", "%65", "%66", "%67", "%68", "%69", \
       TC_D64(c)); \
  else if constexpr (N == 96) \
    DO("192", TC_R96, "%96", "%97", "%98", "%99", "%100", "%101", \
       TC_D64(c), TC_D16(c, 64), TC_D16(c, 80)); \
  else if constexpr (N == 128) \
    DO("256", TC_R128, "%128", "%129", "%130", "%131", "%132", "%133", \
       TC_D64(c), TC_D16(c, 64), TC_D16(c, 80), TC_D16(c, 96), TC_D16(c, 112));
/* The same with the words of a in registers; kind says the terms and the types. */
#define TC_WGMMA_FROM(kind, tail, columns, registers, o0, o1, o2, o3, o4, o5, ...) \
  asm volatile("{.reg .pred p; setp.ne.s32 p, " o5 ", 0; wgmma.mma_async.sync.aligned.m64n" columns \
               kind " {" registers "}, {" o0 ", " o1 ", " o2 ", " o3 "}, " o4 ", p" tail ";}" \
               : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(is_more))
#define TC_TF32_FROM(...) TC_WGMMA_FROM("k8.f32.tf32.tf32", ", 1, 1", __VA_ARGS__)
#define TC_HALVES(type, columns, registers, o0, o1, o2, o3, o4, o5, ...) \
  asm volatile("{.reg .pred p; setp.ne.s32 p, " o4 ", 0; wgmma.mma_async.sync.aligned.m64n" columns \
               "k16.f32." type "." type " {" registers "}, " o0 ", " o1 ", p, 1, 1, " o2 ", " o3 ";}" \
               : __VA_ARGS__ : "l"(a), "l"(b), "n"(TA), "n"(TB), "r"(is_more))
#define TC_BFLOATS(...) TC_HALVES("bf16", __VA_ARGS__)
#define TC_FLOATS(...) TC_HALVES("f16", __VA_ARGS__)
template <bool IS_BFLOAT, int TA, int TB, int N>
TC_FN void tc_multiply_group(float (&d)[N], uint64_t a, uint64_t b, int is_more)
{
  if constexpr (IS_BFLOAT) {
    TC_BY_COLUMNS(TC_BFLOATS, TC_SUM);
  } else {
    TC_BY_COLUMNS(TC_FLOATS, TC_SUM);
  }
}
#endif

#ifdef __CUDA_ARCH__
TC_FN void tc_keep(float &sum) { asm volatile("" : "+f"(sum)::"memory"); }
TC_FN void tc_keep(int32_t &sum) { asm volatile("" : "+r"(sum)::"memory"); }
#endif
/* Wait until the products that add to sums are done, and have read their operands. */
template <class S, int N> TC_FN void tc_end_products(S (&sums)[N])
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < N; i++) tc_keep(sums[i]); /* no use of it before */
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
void tc_run_product(void *to, const void *rows, int a, const void *columns, int b)
{
  float sums[N / 2]; /* a copy, whose accesses the emulator need not check */
  for (int i = 0; i < N / 2; i++) sums[i] = ((float *)to)[i];
  const uint16_t *const A = (const uint16_t *)rows, *const B = (const uint16_t *)columns;
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
          const int i = (h * (N / 8) + j) * 2 + q;
          sums[i] = (float)((double)sums[i] + x[h] * y);
        }
      }
  }
  for (int i = 0; i < N / 2; i++) ((float *)to)[i] = sums[i];
}
#endif

/* sums += A * B, or = if they ARE_NEW: 64 x N results of four warps, of 16 KT terms each, until
 * tc_end_products.
 *
 * The tile of this warp begins at element a of A, that of all columns at b of B, as they are counted
 * before they go to their places.  A has LA elements in each of its MA lines: with the terms next to
 * one another a line is a row (IS_A), else a term; so has B, with columns for rows. */
template <bool IS_BFLOAT, int N, int KT, int LA, int MA, bool IS_A, int LB, int MB, bool IS_B,
          bool ARE_NEW = false>
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
                                               y + k * (IS_B ? 32 : 2048) / 16,
                                               !ARE_NEW || k > 0);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#elif defined(__CUDA_ARCH__)
  __trap(); /* not compiled for sm_90a */
#else
  if (ARE_NEW)
    for (float &sum : sums) sum = 0;
  const auto run = tc_run_product<IS_BFLOAT, N, KT, LA, MA, IS_A, LB, MB, IS_B>;
#ifdef EMU_ADDRESS_SANITIZER
  run(sums, A, a, B, b);
#else
  emu_product(run, sums, A, a, B, b, __FILE__, __LINE__);
#endif
#endif
}
