/* tcdsl device library for CUDA, part "overlap": kernels that begin before others end (sm_90).
 *
 * Both do nothing in a kernel that was launched in order, or before one that is.  The emulator runs
 * one kernel after the other. */

/* Let the next kernel of the stream begin when all blocks of this one have called this or ended. */
TC_FN void tc_begin_next_kernel()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Wait until the kernel before this one has ended, and see what it stored. */
TC_FN void tc_await_kernels()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
