/* tcdsl device library for CUDA, part "wgmma_f32": products of float32 by four warps together, each
 * as three products of tf32 (sm_90a).
 *
 *     x = high + low    high: the nearest tf32 (11 bits); low = x - high, exact, of 12 bits, of which
 *                       the instruction reads 11
 *     x y ~ low_x high_y + high_x low_y + high_x high_y
 *
 * A factor whose numbers are of a half type (bits LOW: 1, rows have low parts; 2, columns have) is
 * its high part, and one of the three products is 0.
 *
 * What is left out is at most 2^-22 |x y|, and each low loses at most 2^-23 of its factor.  Tensor
 * cores add up with less than float32 has, and truncate: so 32 terms alone are added there, from 0,
 * and their sum by a plain addition (it is "promoted").
 *
 * Factors that are not finite, or whose high is not, would give NaN (infinity minus infinity); low
 * parts of tiny ones (below 2^-103) are no numbers of tf32.  A step that has such a factor, or whose
 * sum is not finite, is done again as plain float32 arithmetic does it, by each thread for its own.
 * So are sums of integers below 2^25 where what is left out would be an error of theirs.
 *
 * A comes by way of registers, so that its lines may go either way.  B's parts are put into shared
 * memory, with the terms next to one another, as instructions on tf32 need it.  Layouts as in part
 * "wgmma", which it needs; a step has 32 terms. */

#define TC_LEAST_SPLIT 0x18000000u /* of 2^-103, twice its bits: its exponent is 24 */
#define TC_ONE_SPLIT 0x7effffffu   /* tc_size_tf32(1) */

TC_FN uint32_t tc_high_tf32(float x) { return (tc_bits_f32(x) + 0x1000u) & ~0x1fffu; }
TC_FN uint32_t tc_low_tf32(float x, uint32_t high)
{
  return tc_bits_f32(x - tc_float_u32(high));
}
/* Larger than TC_LEAST_SPLIT unless x is tiny; 0 is not, it has the largest. */
TC_FN uint32_t tc_size_tf32(float x) { return 2 * tc_bits_f32(x) - 1; }
/* Whether a step is to be looked at in which a thread's least factor has this size: it may be tiny;
 * or no factor is below 1, so that all may be integers.  Of a thread that has nothing but zeros, as
 * where a tile ends after the results, the others decide: looking takes as long as a step does. */
TC_FN int tc_is_odd_tf32(uint32_t least)
{
  return least != ~0u && least - TC_LEAST_SPLIT >= TC_ONE_SPLIT - TC_LEAST_SPLIT;
}

enum { TC_TINY = 1, TC_FRACTION = 2, TC_LOW = 4, TC_CUT = 8 };
/* What x has: too few bits, a fraction, a low part, one of more bits than the instruction reads. */
TC_FN uint32_t tc_look_tf32(float x)
{
  const uint32_t low = tc_low_tf32(x, tc_high_tf32(x)), size = tc_size_tf32(x);
  const int is_small = size + 1 < 2 * 0x4b000000u; /* 2^23: larger numbers are integers */
  return (size < TC_LEAST_SPLIT ? TC_TINY : 0)
         | (is_small && (float)(int)x != x ? TC_FRACTION : 0)
         | (2 * low != 0 ? TC_LOW : 0) | ((low & 0x1fffu) != 0 ? TC_CUT : 0);
}
/* Which sums of a step are done again, beside those that are not finite: from <= |sum| < to, by what
 * its factors have.  Of integers low parts are left out where both factors have one, or it is cut;
 * a large sum of high parts may be beyond 2^24, where not all integers are numbers. */
struct tc_again { float from, to; };
TC_FN tc_again tc_again_tf32(uint32_t a, uint32_t b)
{
  if ((a | b) & TC_TINY) return {0, tc_float_u32(0x7f800000u)};
  if ((a | b) & TC_FRACTION || !((a | b) & TC_LOW)) return {0, 0};
  return {(a | b) & TC_CUT || a & b & TC_LOW ? 0.0f : 8388608.0f, 33554432.0f};
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define TC_IN_ORDER(i) "+f"(d[i])
/* d += a * b, or d = a * b: 64 x 2 N results of 8 terms, in the instruction's order; a comes from
 * registers. */
template <int N>
TC_FN void tc_multiply_tf32(float (&d)[N], const uint32_t (&a)[4], uint64_t b, int is_more)
{
  TC_BY_COLUMNS(TC_TF32_FROM, TC_IN_ORDER);
}
#endif

/* ---- parts --------------------------------------------------------------------------------- */
template <int N> struct tc_parts { /* of N columns and 32 terms, each a column's terms in a row */
  uint32_t high[32 * N], low[32 * N];
};

/* Where the element of a row, or column, and of a term is in the tile of a step.  *line_of_8* is the
 * line modulo 8, where a compiler would not find that it is the same for several. */
template <int LINES> TC_FN int tc_place_f32(int line, int line_of_8, int at)
{
  return at / 32 * (32 * LINES) + line * 32 + (at % 32 / 4 ^ line_of_8) * 4 + at % 4;
}
template <int LINES, bool IS_ALONG> TC_FN int tc_of_line(int line, int term)
{
  return IS_ALONG ? tc_place_f32<LINES>(line, line % 8, term)
                  : tc_place_f32<LINES>(term, term % 8, line);
}

/* This thread's share of B, one of THREADS: SHARE times four terms of a column. */
template <int N, int THREADS, bool IS_B> struct tc_share_f32 {
  static constexpr int CHUNKS = 8 * N, SHARE = (CHUNKS + THREADS - 1) / THREADS;
  static constexpr int APART = THREADS / N; /* in chunks, if not IS_B */
  static_assert(IS_B || (THREADS % N == 0 && N % 32 == 0), "threads have one column each");
  static_assert(THREADS % 64 == 0, "a thread's columns are a multiple of 8 apart");
  float x[SHARE][4];
  int column, chunk, n_there; /* chunks of this thread: none or one less where few are dealt */

  __device__ __forceinline__ void load(const float *B, int thread)
  {
    column = IS_B ? thread / 8 : thread % N, chunk = IS_B ? thread % 8 : thread / N;
    n_there = CHUNKS % THREADS == 0 || thread < CHUNKS % THREADS ? SHARE : SHARE - 1;
#pragma unroll
    for (int s = 0; s < SHARE; s++) {
      if (CHUNKS % THREADS != 0 && s >= n_there) continue;
      if constexpr (IS_B) { /* of columns a multiple of 8 apart */
        const int place = tc_place_f32<N>(column, column % 8, 4 * chunk);
        const tc_vec<float, 4> own = tc_vload<4>(B + place + s * (THREADS / 8 * 32));
#pragma unroll
        for (int t = 0; t < 4; t++) x[s][t] = own[t];
      } else {
#pragma unroll
        for (int t = 0; t < 4; t++) {
          const int line = 4 * (chunk + APART * s) + t;
          x[s][t] = B[tc_place_f32<32>(line, (4 * (APART > 1 ? chunk : s) + t) % 8, column)];
        }
      }
    }
  }

  /* Its parts; returns the size of the least factor. */
  template <bool HAS_LOW> __device__ __forceinline__ uint32_t store(tc_parts<N> &to) const
  {
    uint32_t least = ~0u;
#pragma unroll
    for (int s = 0; s < SHARE; s++) {
      if (CHUNKS % THREADS != 0 && s >= n_there) continue;
      tc_vec<uint32_t, 4> high, low;
#pragma unroll
      for (int t = 0; t < 4; t++) {
        high[t] = tc_high_tf32(x[s][t]);
        if constexpr (HAS_LOW) low[t] = tc_low_tf32(x[s][t], high[t]);
        const uint32_t size = tc_size_tf32(x[s][t]);
        least = size < least ? size : least;
      }
      const int own = IS_B ? chunk : chunk + APART * s;
      const int at = tc_place_f32<N>(column, column % 8, 4 * own) + (IS_B ? s * (THREADS / 8 * 32) : 0);
      tc_vstore(to.high + at, high);
      if constexpr (HAS_LOW) tc_vstore(to.low + at, low);
    }
    return least;
  }
};

/* What any of COUNT factors has that THREADS threads find there. */
template <int COUNT, int THREADS> TC_FN uint32_t tc_look_at_f32(const float *tile, int thread)
{
  uint32_t own = 0, all = 0;
#pragma unroll 1
  for (int i = thread; i < COUNT; i += THREADS) own |= tc_look_tf32(tile[i]);
#ifdef __CUDA_ARCH__
#pragma unroll
  for (uint32_t one = TC_TINY; one <= TC_CUT; one *= 2) {
    uint32_t is_there;
    asm volatile("{.reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, 1, %2, p; "
                 "selp.u32 %0, 1, 0, q;}"
                 : "=r"(is_there) : "r"(own & one), "n"(THREADS) : "memory");
    all |= is_there ? one : 0;
  }
#endif
  return all;
}

/* The sum of a step for one row and column, as plain float32 arithmetic has it. */
template <int MA, bool IS_A, int MB, bool IS_B>
TC_FN float tc_plain_step(const float *A, const float *B, int row, int column)
{
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < 32; k++)
    sum = tc_fma_f32(A[tc_of_line<MA, IS_A>(row, k)],
                     B[tc_of_line<MB, IS_B>(column, k)], sum);
  return sum;
}

#ifndef __CUDA_ARCH__
struct tc_split { float whole, high, low; };
inline tc_split tc_split_of(float x)
{
  const uint32_t high = tc_high_tf32(x);
  return {x, tc_float_u32(high), tc_float_u32(tc_low_tf32(x, high))};
}
/* What the instructions add up: 8 terms at a time, exactly, then rounded; low parts are truncated.
 * rows(row, term) and columns(column, term) are factors and their parts. */
template <int N, int LOW, class Rows, class Columns>
tc_again tc_run_f32(float (&step)[N / 2], int row, const Rows &rows, const Columns &columns)
{
  uint32_t of_a = 0, of_b = 0;
  const auto cut = [](float x) { return tc_float_u32(tc_bits_f32(x) & ~0x1fffu); };
  const int column = (int)threadIdx.x % 4 * 2;
  tc_split x[2][32];
  for (int k = 0; k < 64; k++) {
    x[k / 32][k % 32] = rows(row + k / 32 * 8, k % 32);
    of_a |= tc_look_tf32(x[k / 32][k % 32].whole);
  }
  for (int i = 0; i < N / 4; i++) {
    tc_split y[32];
    for (int k = 0; k < 32; k++) {
      y[k] = columns(i / 2 * 8 + column + i % 2, k);
      of_b |= tc_look_tf32(y[k].whole);
    }
    for (int h = 0; h < 2; h++) {
      float &sum = step[i / 2 * 4 + h * 2 + i % 2];
      sum = 0;
      for (int part = 0; part < 3; part++) {
        if (part < 2 && !(LOW & part + 1)) continue;
        for (int first = 0; first < 32; first += 8) {
          double exact = sum;
          for (int k = first; k < first + 8; k++)
            exact += (double)cut(part == 0 ? x[h][k].low : x[h][k].high)
                     * (double)cut(part == 1 ? y[k].low : y[k].high);
          sum = (float)exact;
        }
      }
    }
  }
  return tc_again_tf32(of_a, of_b);
}
#endif

/* sums += step, whose sums that are not finite, or again says so of, are plain(row, column). */
template <int N, class Plain>
TC_FN void tc_add_step_f32(float (&sums)[N / 2], float (&step)[N / 2], tc_again again, int row,
                           const Plain &plain)
{
  const int column = (int)threadIdx.x % 4 * 2;
  float check[4] = {0, 0, 0, 0}; /* NaN where a sum is not finite; several, not to wait for one */
#pragma unroll
  for (int i = 0; i < N / 2; i++) check[i % 4] = tc_fma_f32(step[i], 0, check[i % 4]);
  if (again.to > 0 || check[0] + check[1] + (check[2] + check[3]) != 0) {
#pragma unroll 1
    for (int i = 0; i < N / 2; i++) {
      const int q = i % 4, own_row = row + q / 2 * 8, own_column = i / 4 * 8 + column + q % 2;
      float own = 0;
#pragma unroll
      for (int j = 0; j < N / 2; j++) own = j == i ? step[j] : own;
      own = own < 0 ? -own : own;
      if (own * 0 == 0 && !(own >= again.from && own < again.to)) continue;
      const float sum = plain(own_row, own_column);
#pragma unroll
      for (int j = 0; j < N / 2; j++) step[j] = j == i ? sum : step[j];
    }
  }
  __syncwarp(); /* its first thread says for all that they have read the tiles */
#pragma unroll
  for (int i = 0; i < N / 2; i++) {
    sums[(i / 2 % 2 * (N / 8) + i / 4) * 2 + i % 2] += step[i];
  }
}

/* sums += A * B: 64 x N results of four warps, of 32 terms each.  GROUPS of four warps have the same
 * columns, and share their parts.  Operands as in tc_wgmma. */
template <int N, int GROUPS, int LA, int MA, bool IS_A, int LB, int MB, bool IS_B, int LOW = 3>
TC_FN void tc_wgmma_f32(float (&sums)[N / 2], const float *A, int a, const float *B, int b)
{
  static_assert((IS_A ? LA : MA) == 32 && (IS_B ? LB : MB) == 32, "a step has 32 terms");
  const int lane = (int)threadIdx.x, warp = (int)threadIdx.z;
  const int row = 16 * warp + lane / 4;
  A += a - warp * 16 * (IS_A ? LA : 1), B += b; /* the tiles of this step */
  float step[N / 2]; /* 4 j + q: row + 8 (q / 2), column + 8 j + q % 2 */
  tc_again again = {0, 0};
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int THREADS = 128 * GROUPS;
  __shared__ TC_VARIABLE(tc_parts<N>, parts, , 1024);
  tc_share_f32<N, THREADS, IS_B> share;
  share.load(B, warp * 32 + lane);
  float x[4][4];
#pragma unroll
  for (int k = 0; k < 4; k++)
#pragma unroll
    for (int q = 0; q < 4; q++) {
      const int term = lane % 4 + q / 2 * 4, line = row + q % 2 * 8;
      x[k][q] = A[IS_A ? tc_place_f32<MA>(line, lane / 4, 8 * k + term)
                       : tc_place_f32<MA>(8 * k + term, term, line)];
    }
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); /* the step before has read them */
  uint32_t least = share.template store<(LOW & 2) != 0>(parts);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  uint32_t high[4][4], low[4][4];
#pragma unroll
  for (int k = 0; k < 4; k++)
#pragma unroll
    for (int q = 0; q < 4; q++) {
      high[k][q] = tc_high_tf32(x[k][q]);
      low[k][q] = tc_low_tf32(x[k][q], high[k][q]);
      const uint32_t size = tc_size_tf32(x[k][q]);
      least = size < least ? size : least;
    }
  uint32_t is_odd;
  asm volatile("{.reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, 1, %2, p; "
               "selp.u32 %0, 1, 0, q;}"
               : "=r"(is_odd) : "r"(tc_is_odd_tf32(least)), "n"(THREADS) : "memory");
  const uint64_t y_high = tc_matrix(parts.high, 0);
  const uint64_t y_low = tc_matrix(parts.low, 0);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int k = 0; k < 4; k++) { /* 8 terms are 32 bytes of a line */
    if constexpr (LOW & 1) tc_multiply_tf32(step, low[k], y_high + 2 * k, k > 0);
    if constexpr (LOW & 2) tc_multiply_tf32(step, high[k], y_low + 2 * k, (LOW & 1) || k > 0);
  }
#pragma unroll
  for (int k = 0; k < 4; k++) tc_multiply_tf32(step, high[k], y_high + 2 * k, LOW != 0 || k > 0);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(step[i])::"memory");
  if (is_odd) {
    const uint32_t of_a = tc_look_at_f32<32 * 64 * GROUPS, THREADS>(A, warp * 32 + lane);
    again = tc_again_tf32(of_a, tc_look_at_f32<32 * N, THREADS>(B, warp * 32 + lane));
  }
#elif defined(__CUDA_ARCH__)
  __trap(); /* not compiled for sm_90a */
#else
  again = tc_run_f32<N, LOW>(
      step, row, [&](int line, int k) { return tc_split_of(A[tc_of_line<MA, IS_A>(line, k)]); },
      [&](int line, int k) { return tc_split_of(B[tc_of_line<MB, IS_B>(line, k)]); });
#endif
  tc_add_step_f32<N>(sums, step, again, row, [&](int own_row, int own_column) {
    return tc_plain_step<MA, IS_A, MB, IS_B>(A, B, own_row, own_column);
  });
}
