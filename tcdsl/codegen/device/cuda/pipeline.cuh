/* tcdsl device library for CUDA, part "pipeline": stages that one thread fills by copies of whole
 * boxes, and that warps empty (sm_90).
 *
 * A pipeline of S stages has 2 S barriers in shared memory: full[s], which the thread that fills
 * arrives at, and the bytes that it asks for; empty[s], which each reading warp arrives at.  Stage
 * q % S is used for the q-th time at q / S, whose parity is what waiting threads name:
 *
 *     fills   tc_acquire: waits for empty[q % S] of q - S; bytes are expected at full[q % S]
 *             tc_copy_box: on its way; the bytes arrive at full[q % S]
 *     reads   tc_await: waits for full[q % S] of q;   ...;   tc_release: arrives at empty[q % S]
 *
 * PTX ISA, "mbarrier" and "cp.async.bulk.tensor".  Needs "wgmma" for the layout of boxes. */

#ifdef __CUDA_ARCH__
/* What the driver has made of an array: sizes, strides and the box of one copy. */
struct alignas(64) tc_map {
  uint64_t words[16];
};
#elif !defined(EMU_MAP)
#define EMU_MAP
struct tc_map {
  const void *at;
  explicit tc_map(uint64_t address) : at((const void *)address) {}
};
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
TC_FN uint32_t tc_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

TC_FN void tc_wait_for_phase(uint64_t *barrier, uint32_t parity)
{
  uint32_t is_done;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                 "selp.u32 %0, 1, 0, p;}"
                 : "=r"(is_done) : "r"(tc_shared_address(barrier)), "r"(parity) : "memory");
  } while (!is_done);
}
#endif

/* All threads of all blocks of a cluster wait for one another. */
TC_FN void tc_all_of_cluster()
{
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\n"
               "barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
#else
  emu_cluster_arrive(__FILE__, __LINE__);
  emu_cluster_wait(__FILE__, __LINE__);
#endif
}

/* Before all threads use a pipeline of which READERS warps of each of BLOCKS empty each stage: those
 * of a cluster, which copy to one another's stages. */
template <int STAGES, int READERS, int BLOCKS = 1> TC_FN void tc_begin_pipeline(uint64_t *barriers)
{
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
#pragma unroll
    for (int s = 0; s < 2 * STAGES; s++)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                   ::"r"(tc_shared_address(barriers + s)), "r"(s < STAGES ? 1 : READERS * BLOCKS)
                   : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
#endif
#else
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0)
    for (int s = 0; s < 2 * STAGES; s++)
      emu_phases_begin(barriers + s, s < STAGES ? 1 : READERS * BLOCKS, __FILE__, __LINE__);
#endif
  if (BLOCKS > 1)
    tc_all_of_cluster();
  else
    __syncthreads();
}

/* Nobody copies to this block's stages any more, or says that it has read its own. */
TC_FN void tc_end_pipeline()
{
  __syncwarp(); /* the producer's threads come one by one */
  tc_all_of_cluster();
}

/* The threads of four warps have COUNT registers each from now on: more, or fewer. */
template <int COUNT, bool IS_MORE> TC_FN void tc_have_registers()
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if (IS_MORE)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
  else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

/* Wait until stage q % STAGES is free for use q; then BYTES are to come. */
template <int STAGES, int BYTES> TC_FN void tc_acquire(uint64_t *barriers, int q)
{
  const uint32_t use = (uint32_t)q / STAGES, stage = (uint32_t)q % STAGES;
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
  tc_wait_for_phase(barriers + STAGES + stage, (use & 1) ^ 1); /* of the first use: before phase 0 */
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"(tc_shared_address(barriers + stage)), "r"(BYTES) : "memory");
#endif
#else
  emu_phases_wait(barriers + STAGES + stage, (use & 1) ^ 1, __FILE__, __LINE__);
  emu_phases_arrive(barriers + stage, BYTES, __FILE__, __LINE__);
#endif
}

/* Wait until what was copied for use q has arrived. */
template <int STAGES> TC_FN void tc_await(uint64_t *barriers, int q)
{
  const uint32_t use = (uint32_t)q / STAGES, stage = (uint32_t)q % STAGES;
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
  tc_wait_for_phase(barriers + stage, use & 1);
#endif
#else
  emu_phases_wait(barriers + stage, use & 1, __FILE__, __LINE__);
#endif
}

/* This warp has read the stage of use q, if there is one: so it tells all of the BLOCKS that copy to
 * it.  All of its threads call it. */
template <int STAGES, int BLOCKS = 1> TC_FN void tc_release(uint64_t *barriers, int q)
{
  if (q < 0) return;
  const uint32_t stage = (uint32_t)q % STAGES;
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
  const uint32_t own = tc_shared_address(barriers + STAGES + stage);
  if constexpr (BLOCKS == 1) {
    if (threadIdx.x == 0)
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(own) : "memory");
  } else if (threadIdx.x < BLOCKS) {
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
                 "mbarrier.arrive.shared::cluster.b64 _, [there];}"
                 ::"r"(own), "r"(threadIdx.x) : "memory");
  }
#endif
#else
  __syncwarp(); /* the threads of a warp have waited for their products together */
  uint64_t *const empty = barriers + STAGES + stage;
  if (BLOCKS == 1) {
    if (threadIdx.x == 0) emu_phases_arrive(empty, 0, __FILE__, __LINE__);
  } else if (threadIdx.x < BLOCKS) {
    emu_phases_arrive(emu_cluster_map(empty, threadIdx.x, __FILE__, __LINE__), 0, __FILE__, __LINE__);
  }
#endif
}

/* The number of this block in its cluster. */
TC_FN uint32_t tc_rank_in_cluster()
{
#ifdef __CUDA_ARCH__
  uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return rank;
#else
  return emu_rank();
#endif
}

/* A bit for each of the PARTS blocks, STRIDE apart in rank, of which the one of *rank* is. */
template <int PARTS, int STRIDE> TC_FN uint16_t tc_blocks_of(uint32_t rank)
{
  uint32_t first = 0;
#pragma unroll
  for (int i = 0; i < PARTS; i++) first |= 1u << i * STRIDE;
  return (uint16_t)(first << (rank - rank / STRIDE % PARTS * STRIDE));
}

/* A box of LINES lines of LINE elements from where the array of *map* has the element of the indices
 * *at*, the innermost first, to its place in atoms (tc_in_atoms); zeros where the array ends.  The
 * bytes arrive at the stage of use q.  One thread calls it.
 *
 * Of a box that PARTS blocks of a cluster read alike, STRIDE apart in rank, each brings a part to all
 * of them: some of the atoms next to one another, or, if these cannot be dealt, some of the lines of
 * each, which are along the index number DIM. */
template <int STAGES, int LINE, int LINES, int PARTS = 1, int STRIDE = 1, int DIM = 1, typename T,
          typename First, typename... At>
TC_FN void tc_copy_box(T *to, const tc_map &map, uint64_t *barriers, int q, First first, At... at)
{
  constexpr int WIDTH = 128 / (int)sizeof(T); /* elements of a line in one atom */
  constexpr int ATOMS = LINE / WIDTH;
  constexpr bool BY_LINES = ATOMS % PARTS != 0;
  constexpr int OWN = BY_LINES ? LINES / PARTS : LINES; /* lines that this block brings */
  static_assert(LINE % WIDTH == 0 && OWN % 8 == 0 && OWN <= 256,
                "whole atoms, one copy each");
  const uint32_t rank = PARTS == 1 ? 0 : tc_rank_in_cluster();
  const uint32_t part = rank / STRIDE % PARTS;
  uint64_t *const full = barriers + (uint32_t)q % STAGES;
#pragma unroll
  for (int k = 0; k < (BY_LINES ? ATOMS : ATOMS / PARTS); k++) {
    const int i = BY_LINES ? k : (int)part * (ATOMS / PARTS) + k;
    T *const atom = to + (i * LINES + (BY_LINES ? (int)part * OWN : 0)) * WIDTH;
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
    int indices[5] = {(int)first + i * WIDTH, (int)at...};
    if constexpr (BY_LINES) indices[DIM] += (int)part * OWN;
    constexpr int RANK = 1 + (int)sizeof...(At);
    const uint16_t blocks = tc_blocks_of<PARTS, STRIDE>(rank);
#define TC_BOX(rank, list, ...) \
  if constexpr (PARTS == 1) \
    asm volatile("cp.async.bulk.tensor." rank \
                 ".shared::cluster.global.mbarrier::complete_tx::bytes " \
                 "[%0], [%1, {" list "}], [%2];" \
                 ::"r"(tc_shared_address(atom)), "l"(&map), "r"(tc_shared_address(full)), \
                 "h"(blocks), __VA_ARGS__ : "memory"); \
  else \
    asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global" \
                 ".mbarrier::complete_tx::bytes.multicast::cluster " \
                 "[%0], [%1, {" list "}], [%2], %3;" \
                 ::"r"(tc_shared_address(atom)), "l"(&map), "r"(tc_shared_address(full)), \
                 "h"(blocks), __VA_ARGS__ : "memory")
    if constexpr (RANK == 1)
      TC_BOX("1d", "%4", "r"(indices[0]));
    else if constexpr (RANK == 2)
      TC_BOX("2d", "%4, %5", "r"(indices[0]), "r"(indices[1]));
    else if constexpr (RANK == 3)
      TC_BOX("3d", "%4, %5, %6", "r"(indices[0]), "r"(indices[1]), "r"(indices[2]));
    else if constexpr (RANK == 4)
      TC_BOX("4d", "%4, %5, %6, %7", "r"(indices[0]), "r"(indices[1]), "r"(indices[2]),
             "r"(indices[3]));
    else
      TC_BOX("5d", "%4, %5, %6, %7, %8", "r"(indices[0]), "r"(indices[1]), "r"(indices[2]),
             "r"(indices[3]), "r"(indices[4]));
#undef TC_BOX
#endif
#else
    int indices[5] = {(int)first + i * WIDTH, (int)at...};
    if (BY_LINES) indices[DIM] += (int)part * OWN;
    const unsigned blocks = PARTS > 1 ? tc_blocks_of<PARTS, STRIDE>(rank) : 0;
    emu_copy_box(atom, map.at, indices, full, blocks, __FILE__, __LINE__);
#endif
  }
}

/* LINES pixels from the one at the first of the numbers *at* on, channels first, each with the 128
 * bytes of channels there, to their place in an atom; zeros where the array ends.  The next pixel is
 * where *map* says (PTX ISA, "im2col mode"); the offsets of all pixels along the dimensions between
 * the first and the last are the numbers after those.  One thread calls it. */
template <int STAGES, int LINES, typename T, typename... At>
TC_FN void tc_copy_pixels(T *to, const tc_map &map, uint64_t *barriers, int q, At... at)
{
  static_assert(LINES % 8 == 0 && LINES <= 256, "whole atoms, one copy");
  constexpr int RANK = ((int)sizeof...(At) + 2) / 2;
  static_assert(sizeof...(At) % 2 == 0 && RANK >= 3 && RANK <= 5, "indices and offsets");
  uint64_t *const full = barriers + (uint32_t)q % STAGES;
  const int numbers[] = {(int)at...};
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
#define TC_PIXELS(rank, list, offsets, ...) \
  asm volatile("cp.async.bulk.tensor." rank \
               ".shared::cluster.global.im2col.mbarrier::complete_tx::bytes " \
               "[%0], [%1, {" list "}], [%2], {" offsets "};" \
               ::"r"(tc_shared_address(to)), "l"(&map), "r"(tc_shared_address(full)), \
               __VA_ARGS__ : "memory")
#define TC_AT(i) "r"(numbers[i])
#define TC_OFFSET(i) "h"((uint16_t)numbers[i])
  if constexpr (RANK == 3)
    TC_PIXELS("3d", "%3, %4, %5", "%6", TC_AT(0), TC_AT(1), TC_AT(2), TC_OFFSET(3));
  else if constexpr (RANK == 4)
    TC_PIXELS("4d", "%3, %4, %5, %6", "%7, %8", TC_AT(0), TC_AT(1), TC_AT(2), TC_AT(3),
              TC_OFFSET(4), TC_OFFSET(5));
  else
    TC_PIXELS("5d", "%3, %4, %5, %6, %7", "%8, %9, %10", TC_AT(0), TC_AT(1), TC_AT(2), TC_AT(3),
              TC_AT(4), TC_OFFSET(5), TC_OFFSET(6), TC_OFFSET(7));
#undef TC_OFFSET
#undef TC_AT
#undef TC_PIXELS
#endif
#else
  emu_copy_pixels(to, map.at, numbers, numbers + RANK, full, __FILE__, __LINE__);
#endif
}
