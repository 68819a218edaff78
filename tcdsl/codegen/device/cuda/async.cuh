/* tcdsl device library for CUDA, part "async": copies to shared memory that arrive later (sm_80).
 *
 * A copy is on its way until the thread that issued it calls tc_copy_wait, or tc_copy_wait_but of
 * fewer groups than it has ended since; other threads see it after a barrier that follows.  Until
 * then nobody may touch the destination, nor write the source.  Needs "vector". */

/* N elements, from global to shared memory, both aligned to their size: 4, 8 or 16 bytes past the
 * registers; of another size they are copied at once. */
template <int N, typename T> TC_FN void tc_copy_async(T *to, const T *from)
{
  constexpr int BYTES = sizeof(T) * N;
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 800
  const uint32_t address = (uint32_t)__cvta_generic_to_shared(to);
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
    return;
  } else if constexpr (BYTES == 8 || BYTES == 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(BYTES)
                 : "memory");
    return;
  }
#endif
#elif !defined(EMU_ADDRESS_SANITIZER)
  if constexpr (BYTES == 4 || BYTES == 8 || BYTES == 16)
    return emu_copy_async(to, from, BYTES, __FILE__, __LINE__);
#endif
  tc_vstore(to, tc_vload<N>(from));
}

/* N elements if they are there, else as many zeros; both ends are aligned as above. */
template <int N, typename T>
TC_FN void tc_copy_async_or_zero(T *to, const T *from, bool is_there)
{
  constexpr int BYTES = sizeof(T) * N;
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 800
  const uint32_t address = (uint32_t)__cvta_generic_to_shared(to);
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(is_there ? 16 : 0) : "memory");
    return;
  } else if constexpr (BYTES == 8 || BYTES == 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from),
                 "n"(BYTES), "r"(is_there ? BYTES : 0) : "memory");
    return;
  }
#endif
#elif !defined(EMU_ADDRESS_SANITIZER)
  if constexpr (BYTES == 4 || BYTES == 8 || BYTES == 16)
    return emu_copy_async(to, is_there ? from : nullptr, BYTES, __FILE__, __LINE__);
#endif
  tc_vec<T, N> v;
#pragma unroll
  for (int l = 0; l < N; l++) v[l] = T(0);
  if (is_there) v = tc_vload<N>(from);
  tc_vstore(to, v);
}

/* The elements first to last of N, which are aligned together. */
template <int N, typename T>
TC_FN void tc_copy_async_some(T *to, const T *from, int first, int last)
{
  if (first <= 0 && last >= N - 1) {
    tc_copy_async<N>(to, from);
  } else {
#pragma unroll
    for (int l = 0; l < N; l++)
      if (l >= first && l <= last) tc_copy_async<1>(to + l, from + l);
  }
}

/* Ask the second-level cache for bytes that this thread's block will load; both are multiples of 16,
 * or else nothing is asked for. */
TC_FN void tc_prefetch(const void *p, int bytes)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (((uint64_t)p & 15u) == 0u && (bytes & 15) == 0)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes));
#elif !defined(__CUDA_ARCH__)
  const volatile uint8_t *bytes_of_p = (const volatile uint8_t *)p; /* the emulator checks them */
  (void)bytes_of_p[0];
  (void)bytes_of_p[bytes - 1];
#endif
}

/* Wait until the calling thread's own copies have arrived. */
TC_FN void tc_copy_wait()
{
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
#elif !defined(EMU_ADDRESS_SANITIZER)
  emu_copy_wait(__FILE__, __LINE__);
#endif
}

/* End a group: the calling thread's copies since the group before. */
TC_FN void tc_copy_end_group()
{
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
#elif !defined(EMU_ADDRESS_SANITIZER)
  emu_copy_end_group();
#endif
}

/* Wait until all but the last N groups of the calling thread have arrived. */
template <int N> TC_FN void tc_copy_wait_but()
{
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
#elif !defined(EMU_ADDRESS_SANITIZER)
  emu_copy_wait_but(N, __FILE__, __LINE__);
#endif
}
