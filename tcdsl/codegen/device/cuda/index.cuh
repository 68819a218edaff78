/* tcdsl device library for CUDA, part "index": index arithmetic and the fault record.
 *
 * From here on the text is the same for the GPU and for the emulator, which puts device/c/ and its
 * own intrinsics before it.  Operands may mix int and int64_t: the result has the wider type. */

/* The floor of n / d for d > 0. */
template <typename N, typename D> TC_FN decltype(N() + D()) tc_floordiv(N n, D d)
{
  const decltype(N() + D()) quotient = n / d;
  return quotient - (n < quotient * d);
}
template <typename A, typename B> TC_FN decltype(A() + B()) tc_imin(A a, B b)
{
  return a < b ? a : b;
}
template <typename A, typename B> TC_FN decltype(A() + B()) tc_imax(A a, B b)
{
  return a > b ? a : b;
}

/* fault is {0, ...} before the launch; the first thread to claim it records {1, site, index,
 * extent, position}.  It lies in the host's memory, which looks at the first word while kernels run and at
 * the rest after waiting: the fence lets the stores arrive there before this thread goes on. */
TC_SLOW void tc_fault(int64_t *fault, int64_t site, int64_t index, int64_t extent,
                      int64_t position)
{
  if (atomicCAS((unsigned long long *)fault, 0ull, 1ull) != 0ull) return;
  fault[1] = site;
  fault[2] = index;
  fault[3] = extent;
  fault[4] = position;
  __threadfence_system();
}
