/* tcdsl device library for CUDA, part "mma": products of half types on tensor cores (sm_80).
 *
 * A tile of an operand lies in shared memory in lines of LINE elements, a power of two from 16 on.
 * Vectors of 8 elements change places within their line (tc_swizzled), so that the 8 lines which a
 * matrix of 8 x 8 has are in different banks.  A warp (threadIdx.x) multiplies together.  Where a
 * thread's results are, strategies/fragments.py says.  Needs "half". */

/* The place of an element of BYTES, counted along lines; vectors of 16 bytes stay whole. */
template <int LINE, int BYTES = 2> TC_FN int tc_swizzled(int at)
{
  constexpr int VECTOR = 16 / BYTES, WIDTH = LINE / VECTOR; /* of a line, in vectors */
  static_assert(WIDTH >= 2 && (LINE & (LINE - 1)) == 0, "a line has a power of two elements");
  constexpr int PERIOD = VECTOR * (WIDTH < 8 ? 8 : WIDTH), MASK = (WIDTH < 8 ? WIDTH : 8) - 1;
  return at ^ (int)(((uint32_t)at / PERIOD & MASK) * VECTOR);
}

/* Four matrices of 8 x 8 elements: the threads 8 i to 8 i + 7 name the lines of the i-th.  Thread t
 * gets elements 2 (t % 4) and the next of line t / 4; IS_TURNED: those of the transposed matrix. */
template <bool IS_TURNED> TC_FN void tc_load_matrices(uint32_t (&to)[4], const uint16_t *line)
{
#ifdef __CUDA_ARCH__
  const uint32_t address = (uint32_t)__cvta_generic_to_shared(line);
  if constexpr (IS_TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address));
#else
  const int lane = (int)threadIdx.x, row = lane / 4, column = lane % 4 * 2;
  (void)tc_vload<8>(line); /* is it aligned, and there? */
  for (int i = 0; i < 4; i++) {
    uint32_t word[2];
    for (int half = 0; half < 2; half++) {
      const int from = IS_TURNED ? column + half : row, at = IS_TURNED ? row : column + half;
      word[half] = ((const uint16_t *)__shfl_sync(~0u, (long long)line, 8 * i + from, 32))[at];
    }
    to[i] = word[0] | word[1] << 16;
  }
#endif
}

/* d += a * b: 16 x 8 results of 16 terms, of bfloat16 or of float16. */
template <bool IS_B>
TC_FN void tc_multiply(float &d0, float &d1, float &d2, float &d3, const uint32_t (&a)[4],
                       uint32_t b0, uint32_t b1)
{
#ifdef __CUDA_ARCH__
  if constexpr (IS_B)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  const auto number = [](uint64_t word, int at) {
    const uint16_t half = (uint16_t)(word >> at * 16);
    return (double)(IS_B ? tc_bf16_to_f32(half) : tc_f16_to_f32(half));
  };
  const int lane = (int)threadIdx.x, row = lane / 4, column = lane % 4 * 2;
  const uint64_t words[3] = {(uint64_t)a[1] << 32 | a[0], (uint64_t)a[3] << 32 | a[2],
                             (uint64_t)b1 << 32 | b0};
  double sums[4] = {d0, d1, d2, d3};
  for (int pair = 0; pair < 4; pair++) {
    uint64_t rows[2], columns[2]; /* terms 0 to 7 and 8 to 15; the column, and the next one */
    for (int i = 0; i < 2; i++) {
      rows[i] = (uint64_t)__shfl_sync(~0u, (long long)words[i], row * 4 + pair, 32);
      columns[i] = (uint64_t)__shfl_sync(~0u, (long long)words[2], (column + i) * 4 + pair, 32);
    }
    for (int q = 0; q < 4; q++)
      for (int i = 0; i < 4; i++)
        sums[q] += number(rows[i / 2], q / 2 * 2 + i % 2) * number(columns[q % 2], i);
  }
  d0 = (float)sums[0], d1 = (float)sums[1], d2 = (float)sums[2], d3 = (float)sums[3];
#endif
}

/* sums += A * B: 16 MT x 8 NT results of a warp, of 16 KT terms each.
 *
 * The tile of A that is multiplied begins at its element a, counted before they are swizzled.  It has
 * a line of LA elements a row, terms next to one another (IS_A), or else a line a term; and so has
 * that of B, with columns for rows. */
template <bool IS_BFLOAT, int MT, int NT, int KT, int LA, bool IS_A, int LB, bool IS_B>
TC_FN void tc_mma(float (&sums)[4 * MT * NT], const uint16_t *A, int a, const uint16_t *B, int b)
{
  static_assert(NT % 2 == 0, "columns are loaded 16 at a time");
  const int lane = (int)threadIdx.x, line = lane % 8, one = lane / 8 % 2 * 8, other = lane / 16 * 8;
  a += IS_A ? (line + one) * LA + other : (line + other) * LA + one;
  b += IS_B ? (line + other) * LB + one : (line + one) * LB + other;
#pragma unroll
  for (int k = 0; k < KT; k++) {
    uint32_t x[MT][4], y[NT / 2][4];
#pragma unroll
    for (int i = 0; i < MT; i++) {
      const int at = a + 16 * (IS_A ? i * LA + k : k * LA + i);
      tc_load_matrices<!IS_A>(x[i], A + tc_swizzled<LA>(at));
    }
#pragma unroll
    for (int j = 0; j < NT / 2; j++) {
      const int at = b + 16 * (IS_B ? j * LB + k : k * LB + j);
      tc_load_matrices<!IS_B>(y[j], B + tc_swizzled<LB>(at));
    }
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
      for (int j = 0; j < NT; j++) {
        float *const upper = &sums[4 * i * NT + 2 * j], *const lower = upper + 2 * NT;
        const uint32_t(&own)[4] = y[j / 2];
        tc_multiply<IS_BFLOAT>(upper[0], upper[1], lower[0], lower[1], x[i], own[j % 2 * 2],
                               own[j % 2 * 2 + 1]);
      }
    }
  }
}
