/* tcdsl device library for CUDA, part "signal": blocks that wait for what others have stored.
 *
 * Warp w of block b has the flag b * WARPS + w, zero before the kernel and after it: one warp signals
 * it once, and the one that awaits it clears it.  WARPS is how many warps of a block do so. */

TC_FN unsigned int *tc_flag(unsigned int *flags, int flag)
{
  return flags + (flag + (int)(blockDim.y * threadIdx.z + threadIdx.y));
}

/* Show what the threads of this warp have stored to whoever awaits *block*.  All of them call it. */
template <int WARPS> TC_FN void tc_signal(unsigned int *flags, int block)
{
  __syncwarp();
  if (threadIdx.x == 0) {
    unsigned int *const flag = tc_flag(flags, block * WARPS);
#ifdef __CUDA_ARCH__
    asm volatile("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
#else
    __threadfence();
    atomicAdd(flag, 1u);
#endif
  }
}

/* Wait until the warp of this number of *block* has signalled.  All threads of a warp call it. */
template <int WARPS> TC_FN void tc_await_signal(unsigned int *flags, int block)
{
  if (threadIdx.x == 0) {
    unsigned int *const flag = tc_flag(flags, block * WARPS);
#ifdef __CUDA_ARCH__
    unsigned int is_there;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(is_there) : "l"(flag) : "memory");
    } while (!is_there);
    asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(flag) : "memory");
#else
    if (atomicAdd(flag, 0u) == 0u) emu_no_signal(__FILE__, __LINE__);
    atomicAdd(flag, 0xffffffffu);
#endif
  }
  __syncwarp();
}
