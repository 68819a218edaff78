/* tcdsl device library for CUDA, part "ticket": which block is the last. */

/* To be called by all threads of a block, once by each of n blocks: whether this one came last.
 * Then what all threads of all n blocks stored before is visible to all threads of this one.  The
 * barrier and one thread's fence publish a block's stores, since fences are cumulative.  The
 * ticket is zero again when the last block has it. */
TC_FN bool tc_last_block(unsigned int *ticket, unsigned int n)
{
  int is_last = 0;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    __threadfence();
    is_last = atomicInc(ticket, n - 1u) == n - 1u;
    __threadfence();
  }
  return __syncthreads_or(is_last) != 0;
}
