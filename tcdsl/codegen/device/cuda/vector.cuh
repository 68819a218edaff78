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

/* The N elements from p on, of the two vectors that they are in: p is K beyond a multiple of N.  Both
 * are read whole.  Neighbouring windows have vectors in common, which are loaded once. */
template <int N, int K, typename T> TC_FN tc_vec<T, N> tc_window(const T *p)
{
  const tc_vec<T, N> one = tc_vload<N>(p - K), other = tc_vload<N>(p - K + N);
  tc_vec<T, N> v;
#pragma unroll
  for (int l = 0; l < N; l++) v[l] = l + K < N ? one[(l + K) % N] : other[(l + K) % N];
  return v;
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

/* The lanes first to last of the vector at p, the others anything: where a row begins or ends.
 *
 * All of it is read, or, where no lane is there, the vector at start, that of the array: vectors are
 * aligned, and what holds a byte of an array lies in memory that can be read.  So the loads of a
 * thread start together, without a branch between them. */
template <int N, typename T>
TC_FN const T *tc_vsome(const T *p, const T *start, int first, int last)
{
  return first <= last && first < N && last >= 0 ? p : start;
}
template <int N, typename T>
TC_FN tc_vec<T, N> tc_vload_some(const T *p, const T *start, int first, int last)
{
#ifdef __CUDA_ARCH__
  return tc_vload<N>(tc_vsome<N>(p, start, first, last));
#else
  tc_vec<T, N> v;
  for (int l = 0; l < N; l++) v[l] = l >= first && l <= last ? p[l] : (T)77;
  return v;
#endif
}
template <int N, typename T>
TC_FN tc_vec<T, N> tc_vload_some_once(const T *p, const T *start, int first, int last)
{
#ifdef __CUDA_ARCH__
  return tc_vload_once<N>(tc_vsome<N>(p, start, first, last));
#else
  return tc_vload_some<N>(p, start, first, last);
#endif
}
/* The vector at p, or anything, of the array that begins at start, where it is not there. */
template <int N, typename T> TC_FN tc_vec<T, N> tc_vload_if(const T *p, const T *start, int is_there)
{
#ifdef __CUDA_ARCH__
  return tc_vload<N>(is_there ? p : start);
#else
  return tc_vload_some<N>(p, start, 0, is_there ? N - 1 : -1);
#endif
}
template <int N, typename T>
TC_FN tc_vec<T, N> tc_vload_if_once(const T *p, const T *start, int is_there)
{
#ifdef __CUDA_ARCH__
  return tc_vload_once<N>(is_there ? p : start);
#else
  return tc_vload_if<N>(p, start, is_there);
#endif
}
/* v, or zeros where it is not there. */
template <typename T, int N> TC_FN tc_vec<T, N> tc_or_zero(tc_vec<T, N> v, int is_there)
{
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(v) % 4 == 0) { /* a word may be several lanes */
#pragma unroll
    for (int w = 0; w < (int)sizeof(v) / 4; w++) {
      unsigned &word = reinterpret_cast<unsigned *>(&v)[w];
      word = is_there ? word : 0u;
    }
    return v;
  }
#endif
#pragma unroll
  for (int l = 0; l < N; l++)
    v[l] = is_there ? v[l] : (T)0;
  return v;
}
template <typename T, int N> TC_FN void tc_vstore_some(T *p, tc_vec<T, N> v, int first, int last)
{
  if (first <= 0 && last >= N - 1) {
    tc_vstore(p, v);
  } else {
#pragma unroll
    for (int l = 0; l < N; l++)
      if (l >= first && l <= last) p[l] = v[l];
  }
}

/* One of two values that are both there: no branch, which CUDA's compiler puts around assemblies. */
template <typename T> TC_FN T tc_select(int condition, T a, T b) { return condition ? a : b; }

/* Thread q of four neighbours gets word q of each of them, and gives them its others. */
TC_FN void tc_exchange_quad(int (&x)[4])
{
  const int q = (int)threadIdx.x % 4;
  const unsigned mask = 15u << ((int)threadIdx.x % 32 - q);
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) { /* blocks of a matrix change sides */
    const bool is_low = (q & distance) == 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & distance) continue;
      const int other = __shfl_xor_sync(mask, is_low ? x[i + distance] : x[i], distance);
      if (is_low)
        x[i + distance] = other;
      else
        x[i] = other;
    }
  }
}

/* Four neighbouring threads store what they have of four runs of neighbours, a pair of each: thread
 * q gets the pairs of the others of run q.  p is where its own pair of that belongs; is_there says
 * whether there is such a run.
 *
 *     thread 0   a0 b0 c0 d0                       a0 a1 a2 a3
 *     thread 1   a1 b1 c1 d1    the pairs   --->   b0 b1 b2 b3   eight elements, 16 bytes each
 *     thread 2   a2 b2 c2 d2    of runs            c0 c1 c2 c3
 *     thread 3   a3 b3 c3 d3    a, b, c, d         d0 d1 d2 d3
 */
template <typename T>
TC_FN void tc_vstore_quad(T *p, const tc_vec<T, 2> (&pairs)[4], bool is_there = true)
{
  static_assert(sizeof(T) == 2, "a pair is a word");
  int x[4];
#pragma unroll
  for (int i = 0; i < 4; i++) x[i] = reinterpret_cast<const int &>(pairs[i]);
  tc_exchange_quad(x);
  tc_vec<T, 8> run;
#pragma unroll
  for (int i = 0; i < 4; i++) reinterpret_cast<int *>(&run)[i] = x[i];
  if (is_there) tc_vstore(p - 2 * (int)(threadIdx.x % 4), run);
}

/* Of four bytes each two neighbours store what they have of two runs of neighbours: the even one gets
 * the pair of the other of the first run, and the odd one of the second.  p is where its own pair of
 * that belongs. */
template <typename T>
TC_FN void tc_vstore_twin(T *p, tc_vec<T, 2> one, tc_vec<T, 2> other, bool is_there = true)
{
  static_assert(sizeof(T) == 4, "a pair is two words");
  const bool is_odd = (int)threadIdx.x % 2 != 0;
  const unsigned mask = 3u << ((int)threadIdx.x % 32 - is_odd);
  tc_vec<T, 4> run;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const T got = __shfl_xor_sync(mask, is_odd ? one[i] : other[i], 1);
    run[i] = is_odd ? got : one[i];
    run[i + 2] = is_odd ? other[i] : got;
  }
  if (is_there) tc_vstore(p - 2 * (int)(threadIdx.x % 2), run);
}

/* As tc_vstore_quad, for loads: p is where thread q has its pair of run q; its pairs of the four runs. */
template <typename T>
TC_FN void tc_vload_quad(tc_vec<T, 2> (&pairs)[4], const T *p, bool is_there = true)
{
  static_assert(sizeof(T) == 2, "a pair is a word");
  tc_vec<T, 8> run = {};
  if (is_there) run = tc_vload<8>(p - 2 * (int)(threadIdx.x % 4));
  int x[4];
#pragma unroll
  for (int i = 0; i < 4; i++) x[i] = reinterpret_cast<const int *>(&run)[i];
  tc_exchange_quad(x);
#pragma unroll
  for (int i = 0; i < 4; i++) reinterpret_cast<int &>(pairs[i]) = x[i];
}
