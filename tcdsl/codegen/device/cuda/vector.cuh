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
