/* tcdsl device library for CUDA, part "cluster": folds over the blocks of a cluster (sm_90).
 *
 * The kernel has __cluster_dims__(1, 1, BLOCKS) and a grid of BLOCKS along z, so that blockIdx.z is
 * a block's rank in its cluster.  All threads of all its blocks call
 *
 *     tc_cluster_begin()                         at the kernel's start, and
 *     tc_cluster_end()                           at its end; between them, in the same order,
 *     tc_cluster_sync()                          a barrier, for global and shared memory too
 *     tc_fold_xc<Op, TX, TY, BLOCKS>(value)      over the threads of all blocks of the cluster
 *     tc_argfold_xc<Better, TX, TY, BLOCKS>(value, i)
 *     tc_fold_xyc<Op, TX, TY, BLOCKS>(value)     the same, of blocks with threads along y
 *     tc_fold_yc<Op, TX, TY, BLOCKS>(value)      over those of equal threadIdx.x
 *     tc_fold_c<Op, TX, TY, BLOCKS>(value)       over the blocks, each of whose threads has its value
 *
 * Every thread gets the same bits.  Along xc and xyc a block has whole warps of threads, along xc TY
 * is 1; along yc and c any numbers.
 *
 * The cluster's barrier is split in two, and between any two of these calls each thread has one
 * arrival that it has not waited for.  It says: this thread has started, and has read what others
 * have put into its block's slots so far.  So a fold waits for it before it puts anything, which it
 * need not do right after the reading: whoever comes late is waited for by a later fold only.
 *
 * Folds that are called once, in the order of their numbers 0, 1, ... SITES - 1 (a last template
 * argument), between tc_cluster_begin<SITES>() and tc_cluster_end<SITES>(), with no other call here
 * between them, have slots of their own.  Nobody reads them before, so nobody is waited for but at
 * the first, for having started; and what is put arrives at a barrier of the memory's own (an
 * mbarrier counts its bytes), which takes no fence of the GPU.  Nobody ends before all has arrived
 * that is put to it.  The emulator runs them as it runs the others.
 *
 * Of folds that are called in turns, in one order by all blocks (tc_cluster_begin<SITES, true>), the
 * last argument tells how often: two bits a number.  They have two sets of slots, and use each in
 * every second turn.  Who puts something there has waited for the turn between, for which all warps
 * of all blocks have put what they had, and so have read before.  Two turns never count at one door:
 * nobody is two turns ahead.  So along xc and xyc alone, where every warp puts something. */

/* ---- the barrier and the memory of other blocks -------------------------------------------- */

/* A release is a fence of the whole GPU, in machine code; where nothing was read or written since
 * the last wait it may be left out. */
TC_FN void tc_cluster_arrive_relaxed()
{
#ifdef __CUDA_ARCH__
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
  emu_cluster_arrive(__FILE__, __LINE__);
#endif
}
TC_FN void tc_cluster_arrive()
{
#ifdef __CUDA_ARCH__
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  emu_cluster_arrive(__FILE__, __LINE__);
#endif
}
TC_FN void tc_cluster_wait()
{
#ifdef __CUDA_ARCH__
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  emu_cluster_wait(__FILE__, __LINE__);
#endif
}

/* *p = value in the block of a rank; p is in this block's shared memory. */
template <typename T> TC_FN void tc_put_scalar(T *p, int rank, T value)
{
#ifdef __CUDA_ARCH__
  const uint32_t own = (uint32_t)__cvta_generic_to_shared(p);
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(own), "r"(rank));
  if constexpr (sizeof(T) == 8) {
    const uint64_t bits = *reinterpret_cast<uint64_t *>(&value);
    asm volatile("st.shared::cluster.b64 [%0], %1;" ::"r"(address), "l"(bits) : "memory");
  } else if constexpr (sizeof(T) == 4) {
    const uint32_t bits = *reinterpret_cast<uint32_t *>(&value);
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(address), "r"(bits) : "memory");
  } else if constexpr (sizeof(T) == 2) {
    const uint16_t bits = *reinterpret_cast<uint16_t *>(&value);
    asm volatile("st.shared::cluster.b16 [%0], %1;" ::"r"(address), "h"(bits) : "memory");
  } else {
    static_assert(sizeof(T) == 1, "no instruction stores it");
    const uint32_t bits = *reinterpret_cast<uint8_t *>(&value);
    asm volatile("st.shared::cluster.b8 [%0], %1;" ::"r"(address), "r"(bits) : "memory");
  }
#else
  *(T *)emu_cluster_map(p, (unsigned)rank, __FILE__, __LINE__) = value;
#endif
}
template <typename T> TC_FN void tc_put_to(T *p, int rank, T value)
{
  tc_put_scalar(p, rank, value);
}
template <typename T, typename I> TC_FN void tc_put_to(tc_pair<T, I> *p, int rank, tc_pair<T, I> v)
{
  tc_put_scalar(&p->value, rank, v.value);
  tc_put_scalar(&p->index, rank, v.index);
}
#ifdef TC_COMPENSATED
TC_FN void tc_put_to(tc_c32 *p, int rank, tc_c32 s)
{
  tc_put_scalar(&p->sum, rank, s.sum);
  tc_put_scalar(&p->lost, rank, s.lost);
}
TC_FN void tc_put_to(tc_c64 *p, int rank, tc_c64 s)
{
  tc_put_scalar(&p->sum, rank, s.sum);
  tc_put_scalar(&p->lost, rank, s.lost);
}
#endif
template <typename T, int N> TC_FN void tc_put_to(tc_vec<T, N> *p, int rank, tc_vec<T, N> value)
{
  constexpr int BYTES = sizeof(T) * N; /* in pieces that one instruction stores */
  if constexpr (BYTES % 8 == 0 && sizeof(T) < 8) {
    for (int k = 0; k < BYTES / 8; k++)
      tc_put_scalar((uint64_t *)p + k, rank, reinterpret_cast<uint64_t *>(&value)[k]);
  } else if constexpr (BYTES % 4 == 0 && sizeof(T) < 4) {
    for (int k = 0; k < BYTES / 4; k++)
      tc_put_scalar((uint32_t *)p + k, rank, reinterpret_cast<uint32_t *>(&value)[k]);
  } else {
    for (int l = 0; l < N; l++) tc_put_scalar(&p->lane[l], rank, value[l]);
  }
}

/* ---- slots that are written once ----------------------------------------------------------- */
constexpr int TC_MOST_SITES = 16;

#ifdef __CUDA_ARCH__
/* Where the bytes that are put to this block for fold number site are counted. */
TC_FN uint32_t tc_cluster_door(int site)
{
  __shared__ TC_VARIABLE(uint64_t, doors, [2 * TC_MOST_SITES], 8); /* of two turns */
  return (uint32_t)__cvta_generic_to_shared(doors + site);
}
TC_FN uint32_t tc_cluster_of(uint32_t own, int rank)
{
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(own), "r"(rank));
  return address;
}
template <int SITES> TC_FN void tc_cluster_open()
{
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    for (int site = 0; site < SITES; site++)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(tc_cluster_door(site)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  tc_cluster_arrive();
}
/* WORDS words, and they count at the door. */
template <int WORDS>
TC_FN void tc_put_words(uint32_t to, const uint32_t *words, uint32_t door)
{
  for (int w = 0; w < WORDS; w++)
    asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to + 4 * w),
      "r"(words[w]), "r"(door)
      : "memory");
}
TC_FN void tc_cluster_expect(uint32_t door, int bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(door), "r"(bytes)
               : "memory");
}
TC_FN void tc_cluster_await(uint32_t door, uint32_t parity = 0)
{
  asm volatile("{\n"
               ".reg .pred done;\n"
               "TC_AGAIN:\n"
               "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
               "@done bra TC_DONE;\n"
               "bra TC_AGAIN;\n"
               "TC_DONE:\n"
               "}" ::"r"(door),
               "r"(parity)
               : "memory");
}
#endif

/* ---- folds --------------------------------------------------------------------------------- */
/* The N values at slot, for every lane; in an order that depends on N alone. */
template <typename Op, int N>
TC_FN typename Op::type tc_join_slots(const typename Op::type *slot, int thread)
{
  constexpr int WIDTH = N <= 2 ? 2 : N <= 4 ? 4 : N <= 8 ? 8 : N <= 16 ? 16 : 32;
  const int lane = thread & (WIDTH - 1);
  typename Op::type value = N % WIDTH == 0 || lane < N ? tc_get(slot + lane) : Op::identity();
  for (int k = WIDTH; k < N; k += WIDTH)
    if (N % WIDTH == 0 || k + lane < N) value = Op::combine(value, tc_get(slot + k + lane));
  return tc_fold_lanes<Op, WIDTH>(value, thread);
}

template <typename Op, int TX, int TY, int BLOCKS, int SITE = -1>
TC_FN typename Op::type tc_fold_xyc_any(typename Op::type value)
{
  static_assert(TX * TY % 32 == 0, "a block of whole warps");
  static_assert(2 <= BLOCKS && BLOCKS <= 16, "no such cluster");
  constexpr int WARPS = TX * TY / 32;
  __shared__ TC_VARIABLE(typename Op::type, slots, [BLOCKS * WARPS], 16);
  const int thread = (int)threadIdx.x + (TY == 1 ? 0 : TX * (int)threadIdx.y);
  const int lane = thread & 31, warp = thread >> 5;
  value = tc_fold_lanes<Op, 32>(value, thread);
#ifdef __CUDA_ARCH__
  if constexpr (SITE >= 0) {
    static_assert(SITE < TC_MOST_SITES && sizeof(value) % 4 == 0, "no such site");
    const uint32_t door = tc_cluster_door(SITE);
    if (thread == 0) tc_cluster_expect(door, (int)sizeof(slots));
    if (SITE == 0) tc_cluster_wait();
    if (lane < BLOCKS) {
      const uint32_t own = (uint32_t)__cvta_generic_to_shared(slots + (int)blockIdx.z * WARPS + warp);
      tc_put_words<sizeof(value) / 4>(
        tc_cluster_of(own, lane), reinterpret_cast<const uint32_t *>(&value),
        tc_cluster_of(door, lane));
    }
    tc_cluster_await(door);
    return tc_join_slots<Op, BLOCKS * WARPS>(slots, thread);
  }
#endif
  tc_cluster_wait();
  if (lane < BLOCKS) tc_put_to(slots + (int)blockIdx.z * WARPS + warp, lane, value);
  tc_cluster_arrive();
  tc_cluster_wait();
  value = tc_join_slots<Op, BLOCKS * WARPS>(slots, thread);
  tc_cluster_arrive();
  return value;
}

/* The same in turns; *turns* counts those of every fold. */
template <typename Op, int TX, int TY, int BLOCKS, int SITE>
TC_FN typename Op::type tc_fold_xyc_turn(typename Op::type value, uint32_t &turns)
{
#ifdef __CUDA_ARCH__
  static_assert(SITE < TC_MOST_SITES && sizeof(value) % 4 == 0, "no such site");
  constexpr int WARPS = TX * TY / 32;
  __shared__ TC_VARIABLE(typename Op::type, slots, [2][BLOCKS * WARPS], 16);
  const int thread = (int)threadIdx.x + (TY == 1 ? 0 : TX * (int)threadIdx.y);
  const int lane = thread & 31, warp = thread >> 5;
  const uint32_t turn = turns >> 2 * SITE & 3u, set = turn & 1u;
  const uint32_t door = tc_cluster_door(2 * SITE + (int)set);
  if (thread == 0) tc_cluster_expect(door, (int)sizeof(slots[0]));
  value = tc_fold_lanes<Op, 32>(value, thread);
  if (lane < BLOCKS) {
    const uint32_t own =
      (uint32_t)__cvta_generic_to_shared(&slots[set][(int)blockIdx.z * WARPS + warp]);
    tc_put_words<sizeof(value) / 4>(
      tc_cluster_of(own, lane), reinterpret_cast<const uint32_t *>(&value),
      tc_cluster_of(door, lane));
  }
  tc_cluster_await(door, turn >> 1);
  turns ^= (turn ^ (turn + 1u & 3u)) << 2 * SITE;
  return tc_join_slots<Op, BLOCKS * WARPS>(slots[set], thread);
#else
  return tc_fold_xyc_any<Op, TX, TY, BLOCKS>(value);
#endif
}

template <typename Op, int TX, int TY, int BLOCKS, int SITE = -1>
TC_FN typename Op::type tc_fold_xc_any(typename Op::type value)
{
  static_assert(TY == 1, "a block along x");
  return tc_fold_xyc_any<Op, TX, 1, BLOCKS, SITE>(value);
}

/* One thread a rank puts its block's value there. */
template <typename Op, int TX, int TY, int BLOCKS, int SITE = -1>
TC_FN typename Op::type tc_fold_c_any(typename Op::type value)
{
  static_assert(2 <= BLOCKS && BLOCKS <= 16, "no such cluster");
  static_assert(TX * TY >= BLOCKS, "a thread for each block");
  __shared__ TC_VARIABLE(typename Op::type, slots, [BLOCKS], 16);
  const int thread = (int)threadIdx.x + (TY == 1 ? 0 : TX * (int)threadIdx.y);
#ifdef __CUDA_ARCH__
  if constexpr (SITE >= 0) {
    static_assert(SITE < TC_MOST_SITES && sizeof(value) % 4 == 0, "no such site");
    const uint32_t door = tc_cluster_door(SITE);
    if (thread == 0) tc_cluster_expect(door, (int)sizeof(slots));
    if (SITE == 0) tc_cluster_wait();
    if (thread < BLOCKS) {
      const uint32_t own = (uint32_t)__cvta_generic_to_shared(slots + (int)blockIdx.z);
      tc_put_words<sizeof(value) / 4>(
        tc_cluster_of(own, thread), reinterpret_cast<const uint32_t *>(&value),
        tc_cluster_of(door, thread));
    }
    tc_cluster_await(door);
    return tc_join_column<Op, 1, BLOCKS, 1>(slots, 0, 0);
  }
#endif
  tc_cluster_wait();
  if (thread < BLOCKS) tc_put_to(slots + (int)blockIdx.z, thread, value);
  tc_cluster_arrive();
  tc_cluster_wait();
  value = tc_join_column<Op, 1, BLOCKS, 1>(slots, 0, 0);
  tc_cluster_arrive();
  return value;
}

/* Each block's column first, then those of all blocks, in their order.  The block's fold has no
 * barrier at its end: that of the cluster stands for it. */
template <typename Op, int TX, int TY, int BLOCKS, int SITE = -1>
TC_FN typename Op::type tc_fold_yc_any(typename Op::type value)
{
  static_assert(2 <= BLOCKS && BLOCKS <= 16, "no such cluster");
  __shared__ TC_VARIABLE(typename Op::type, slots, [BLOCKS * TX], 16);
  const int x = TX == 1 ? 0 : (int)threadIdx.x, y = TY == 1 ? 0 : (int)threadIdx.y;
#ifdef __CUDA_ARCH__
  if constexpr (SITE >= 0) {
    static_assert(SITE < TC_MOST_SITES && sizeof(value) % 4 == 0, "no such site");
    value = tc_fold_column<Op, TX, TY, SITE, true>(value, x, y);
    const uint32_t door = tc_cluster_door(SITE);
    if (x == 0 && y == 0) tc_cluster_expect(door, (int)sizeof(slots));
    if (SITE == 0) tc_cluster_wait();
    const uint32_t own = (uint32_t)__cvta_generic_to_shared(slots + (int)blockIdx.z * TX + x);
    for (int turn = 0; turn * TY < BLOCKS; turn++) { /* whose number the compiler knows */
      const int rank = y + turn * TY;
      if (rank < BLOCKS)
        tc_put_words<sizeof(value) / 4>(
          tc_cluster_of(own, rank), reinterpret_cast<const uint32_t *>(&value),
          tc_cluster_of(door, rank));
    }
    tc_cluster_await(door);
    return tc_join_column<Op, TX, BLOCKS, 1>(slots, x, 0);
  }
#endif
  value = tc_fold_column<Op, TX, TY, 0, true>(value, x, y);
  tc_cluster_wait();
  for (int turn = 0; turn * TY < BLOCKS; turn++) {
    const int rank = y + turn * TY;
    if (rank < BLOCKS) tc_put_to(slots + (int)blockIdx.z * TX + x, rank, value);
  }
  tc_cluster_arrive();
  tc_cluster_wait();
  value = tc_join_column<Op, TX, BLOCKS, 1>(slots, x, 0);
  tc_cluster_arrive();
  return value;
}

/* ---- what kernels call --------------------------------------------------------------------- */
template <int SITES = 0, bool TURNS = false> TC_FN void tc_cluster_begin()
{
#ifdef __CUDA_ARCH__
  if constexpr (TURNS) {
    tc_cluster_open<2 * SITES>();
    return tc_cluster_wait();
  } else if constexpr (SITES > 0) {
    return tc_cluster_open<SITES>();
  }
#endif
  tc_cluster_arrive_relaxed();
}
template <int SITES = 0, bool TURNS = false> TC_FN void tc_cluster_end()
{
#ifdef __CUDA_ARCH__
  if constexpr (SITES > 0) return;
#endif
  tc_cluster_wait();
}
TC_FN void tc_cluster_sync()
{
  tc_cluster_wait();
  tc_cluster_arrive();
  tc_cluster_wait();
  tc_cluster_arrive_relaxed();
}

TC_FOLD(xc)
TC_FOLD(xyc)
TC_FOLD(yc)
TC_FOLD(c)

#define TC_FOLD_IN_TURNS(way)                                                                      \
  template <typename Op, int TX, int TY, int BLOCKS, int SITE>                                     \
  TC_FN typename Op::type tc_fold_##way(typename Op::type value, uint32_t &turns)                  \
  {                                                                                                \
    return tc_fold_xyc_turn<Op, TX, TY, BLOCKS, SITE>(value, turns);                               \
  }                                                                                                \
  template <typename Op, int TX, int TY, int BLOCKS, int SITE, int N>                              \
  TC_FN tc_vec<typename Op::type, N> tc_fold_##way(                                                \
    tc_vec<typename Op::type, N> value, uint32_t &turns)                                           \
  {                                                                                                \
    return tc_fold_xyc_turn<tc_op_lanes<Op, N>, TX, TY, BLOCKS, SITE>(value, turns);               \
  }                                                                                                \
  template <typename Better, int TX, int TY, int BLOCKS, int SITE, typename I>                     \
  TC_FN tc_pair<typename Better::type, I> tc_argfold_##way(                                        \
    typename Better::type value, I index, uint32_t &turns)                                         \
  {                                                                                                \
    return tc_fold_xyc_turn<tc_op_arg<Better, I>, TX, TY, BLOCKS, SITE>({value, index}, turns);    \
  }
TC_FOLD_IN_TURNS(xc)
TC_FOLD_IN_TURNS(xyc)
