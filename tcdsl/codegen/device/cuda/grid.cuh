/* tcdsl device library for CUDA, part "grid": a barrier of all blocks, which are there at once. */

/* To be called by all threads of all blocks of a cooperative launch, with NUMBER 1, 2, ... in turn;
 * the last call has IS_LAST.  What all threads stored before is visible to all afterwards: the
 * block's barrier and one thread's fence publish a block's stores, since fences are cumulative.
 * Both words at *arrived* are zero before the kernel, and after it: the last block to leave the
 * last barrier, when nobody reads them any more, clears them. */
template <unsigned int NUMBER, bool IS_LAST>
TC_FN void tc_grid_barrier(unsigned int *arrived, unsigned int blocks)
{
#ifdef __CUDA_ARCH__
  const bool is_first = threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0;
  __syncthreads();
  if (is_first) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (*(volatile unsigned int *)arrived < NUMBER * blocks) {
    }
    __threadfence();
  }
  __syncthreads();
  if (IS_LAST && is_first && atomicInc(arrived + 1, blocks - 1u) == blocks - 1u)
    *(volatile unsigned int *)arrived = 0u;
#else
  (void)arrived, (void)blocks;
  emu_grid_barrier(NUMBER, IS_LAST, __FILE__, __LINE__);
#endif
}
