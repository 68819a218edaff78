/* tcdsl device library for CUDA, part "vector": N elements that move by one instruction.
 *
 * N sizeof(T) is 2, 4, 8 or 16 bytes, to a multiple of which the address is aligned.  A load of
 * what a kernel only reads (a const __restrict__ parameter) takes the read-only path.  Lanes are
 * to be named by constants, lest the vector leave the registers. */

template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) tc_vec {
  T lane[N];
  __device__ __forceinline__ T &operator[](int l) { return lane[l]; }
  __device__ __forceinline__ const T &operator[](int l) const { return lane[l]; }
};

template <int N, typename T> TC_FN tc_vec<T, N> tc_vload(const T *p)
{
  static_assert(sizeof(T) * N <= 16, "no instruction moves more than 16 bytes");
  return *reinterpret_cast<const tc_vec<T, N> *>(p);
}
template <typename T, int N> TC_FN void tc_vstore(T *p, tc_vec<T, N> v)
{
  static_assert(sizeof(T) * N <= 16, "no instruction moves more than 16 bytes");
  *reinterpret_cast<tc_vec<T, N> *>(p) = v;
}

/* A load of what no thread reads again, past the first-level cache: of memory that nothing in the
 * kernel writes.  (On an H200 reductions of 8 to 200 MB take a tenth less time so, larger ones
 * 4 % more.) */
template <int N, typename T> TC_FN tc_vec<T, N> tc_vload_once(const T *p)
{
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) * N == 16) {
    uint4 bits;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w) : "l"(p));
    return *reinterpret_cast<const tc_vec<T, N> *>(&bits);
  } else if constexpr (sizeof(T) * N == 8) {
    uint2 bits;
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(bits.x), "=r"(bits.y) : "l"(p));
    return *reinterpret_cast<const tc_vec<T, N> *>(&bits);
  }
#endif
  return tc_vload<N>(p);
}
