/* The CUDA that generated kernels use, as C++17 on the CPU; stands before the kernels' text.
 *
 * A thread of a block is a fibre of runtime.cpp.  What a thread shares with others (barriers,
 * shuffles, atomics, fences) calls the runtime; everything else is inline.  A site is the file and
 * line of a call, so that a finding can name it: __builtin_LINE() as a default argument is
 * evaluated where the function is called. */
#include <stdint.h>

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(condition) ((void)0)

#define EMU_FN inline __attribute__((always_inline, unused))
#define EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

enum emu_exchange { EMU_INDEX, EMU_UP, EMU_DOWN, EMU_XOR, EMU_BALLOT, EMU_SYNC };
enum emu_barrier_kind { EMU_PLAIN, EMU_COUNT, EMU_AND, EMU_OR };

extern "C" {
/* Constant for a fibre: the compiler may call them once and keep the result. */
__attribute__((const)) unsigned emu_thread_x(), emu_thread_y(), emu_thread_z();
__attribute__((const)) unsigned emu_block_x(), emu_block_y(), emu_block_z(), emu_rank();
__attribute__((const)) unsigned emu_threads_x(), emu_threads_y(), emu_threads_z();
__attribute__((const)) unsigned emu_blocks_x(), emu_blocks_y(), emu_blocks_z();
int emu_barrier(int kind, int predicate, const char *file, int line);
uint64_t emu_exchange_lanes(int kind, unsigned mask, uint64_t bits, int operand, int width,
                            const char *file, int line);
unsigned emu_active_mask();
/* An atomic access: checked, and the old bits are returned; then the new ones are stored. */
uint64_t emu_atomic_load(const void *p, int size, const char *file, int line);
void emu_atomic_store(void *p, int size, uint64_t bits);
void emu_fence(int scope);
void emu_load_read_only(const void *p, int size, const char *file, int line);
void emu_trap(const char *file, int line);
/* The cluster's barrier, in two steps; an address in another block's shared memory; copies that
 * arrive later. */
void emu_cluster_arrive(const char *file, int line);
void emu_cluster_wait(const char *file, int line);
void *emu_cluster_map(const void *p, unsigned rank, const char *file, int line);
void emu_grid_barrier(int number, int is_last, const char *file, int line);
void emu_no_signal(const char *file, int line);
void emu_copy_async(void *to, const void *from, int size, const char *file, int line);
void emu_copy_wait(const char *file, int line);
void emu_copy_end_group();
void emu_copy_wait_but(int groups, const char *file, int line);
/* A product of tensor cores, which runs when the thread waits for its products. */
void emu_product(void (*run)(void *, const void *, int, const void *, int), void *sums,
                 const void *A, int a, const void *B, int b, const char *file, int line);
void emu_end_products(int left);
/* Barriers in phases, and copies of boxes that arrive at them. */
void emu_phases_begin(const void *place, int count, const char *file, int line);
void emu_phases_arrive(const void *place, int bytes, const char *file, int line);
void emu_phases_wait(const void *place, unsigned parity, const char *file, int line);
void emu_copy_box(void *to, const void *map, const int *indices, const void *place,
                  unsigned blocks, const char *file, int line);
void emu_copy_pixels(void *to, const void *map, const int *indices, const int *offsets,
                     const void *place, const char *file, int line);
__attribute__((const)) void *emu_dynamic_shared();
/* The tag is the variable's own. */
struct emu_tag { uint64_t launch; void *base; };
__attribute__((const)) void *emu_shared_variable(emu_tag *tag, uint64_t size, unsigned alignment,
                                                 unsigned element, const char *name);
}

#ifndef EMU_ADDRESS_SANITIZER
/* Calls that the compiler itself makes, for large copies, are accesses too. */
extern "C" void *memcpy(void *, const void *, __SIZE_TYPE__) asm("emu_memcpy");
extern "C" void *memmove(void *, const void *, __SIZE_TYPE__) asm("emu_memcpy");
extern "C" void *memset(void *, int, __SIZE_TYPE__) asm("emu_memset");
#endif

/* ---- shared variables: see device/cuda/core.cuh -------------------------------------------- *
 *     __shared__ TC_VARIABLE(float, tile, [33], 16);   -->
 *     emu_tag static tile_emu_tag; typedef float tile_emu_type[33];
 *     tile_emu_type &tile = *(tile_emu_type *)emu_shared_variable(&tile_emu_tag, ...);
 * A tag is static: each declaration, in each instance of a template, has one.  A __shared__ without
 * a macro is no declaration: it would be a variable of one thread. */
#define __shared__ emu_tag
#ifdef EMU_ADDRESS_SANITIZER /* one block at a time */
#define TC_VARIABLE(T, name, extents, alignment)                                                   \
  static name##_emu_tag;                                                                           \
  static __attribute__((aligned(alignment))) T name extents
#else
#define TC_VARIABLE(T, name, extents, alignment)                                                   \
  static name##_emu_tag;                                                                           \
  typedef T name##_emu_type extents;                                                               \
  name##_emu_type &name = *(name##_emu_type *)emu_shared_variable(                                 \
      &name##_emu_tag, sizeof(name##_emu_type), alignment, sizeof(T), #name)
#endif
#define TC_DYNAMIC(T, name, alignment) emu_no_tag; T *const name = (T *)emu_dynamic_shared()

/* ---- vector types ------------------------------------------------------------------------ */
#define EMU_VECTORS(T, name, two, four)                                                            \
  struct name##1 { T x; };                                                                         \
  struct __align__(two) name##2 { T x, y; };                                                       \
  struct name##3 { T x, y, z; };                                                                   \
  struct __align__(four) name##4 { T x, y, z, w; };                                                \
  EMU_FN name##1 make_##name##1(T x) { return {x}; }                                               \
  EMU_FN name##2 make_##name##2(T x, T y) { return {x, y}; }                                       \
  EMU_FN name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                               \
  EMU_FN name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(signed char, char, 2, 4)
EMU_VECTORS(unsigned char, uchar, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(unsigned short, ushort, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(unsigned int, uint, 8, 16)
EMU_VECTORS(long long, longlong, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(double, double, 16, 16)
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

EMU_FN uint3 emu_thread() { return {emu_thread_x(), emu_thread_y(), emu_thread_z()}; }
EMU_FN uint3 emu_block() { return {emu_block_x(), emu_block_y(), emu_block_z()}; }
EMU_FN dim3 emu_threads() { return {emu_threads_x(), emu_threads_y(), emu_threads_z()}; }
EMU_FN dim3 emu_blocks() { return {emu_blocks_x(), emu_blocks_y(), emu_blocks_z()}; }
#define threadIdx (emu_thread())
#define blockIdx (emu_block())
#define blockDim (emu_threads())
#define gridDim (emu_blocks())
#define warpSize 32

/* ---- bits -------------------------------------------------------------------------------- */
template <typename To, typename From> EMU_FN To emu_bits(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
template <typename T> EMU_FN uint64_t emu_widen(T value) {
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value); /* little endian, as all targets here */
  return bits;
}
template <typename T> EMU_FN T emu_narrow(uint64_t bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
EMU_FN int __float_as_int(float x) { return emu_bits<int>(x); }
EMU_FN unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
EMU_FN float __int_as_float(int x) { return emu_bits<float>(x); }
EMU_FN float __uint_as_float(unsigned x) { return emu_bits<float>(x); }
EMU_FN long long __double_as_longlong(double x) { return emu_bits<long long>(x); }
EMU_FN double __longlong_as_double(long long x) { return emu_bits<double>(x); }
EMU_FN int __popc(unsigned x) { return __builtin_popcount(x); }
EMU_FN int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMU_FN int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
EMU_FN int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
EMU_FN int __ffs(int x) { return __builtin_ffs(x); }
EMU_FN int __ffsll(long long x) { return __builtin_ffsll(x); }
EMU_FN unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
EMU_FN int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
EMU_FN unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
EMU_FN long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
EMU_FN unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
EMU_FN unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}

/* ---- arithmetic: everything is rounded to nearest, and nothing contracted ----------------- */
EMU_FN float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
EMU_FN double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
EMU_FN float __fadd_rn(float a, float b) { return a + b; }
EMU_FN float __fsub_rn(float a, float b) { return a - b; }
EMU_FN float __fmul_rn(float a, float b) { return a * b; }
EMU_FN float __fdiv_rn(float a, float b) { return a / b; }
EMU_FN float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
EMU_FN double __dadd_rn(double a, double b) { return a + b; }
EMU_FN double __dsub_rn(double a, double b) { return a - b; }
EMU_FN double __dmul_rn(double a, double b) { return a * b; }
EMU_FN double __ddiv_rn(double a, double b) { return a / b; }
EMU_FN double __dsqrt_rn(double a) { return __builtin_sqrt(a); }

/* min and max as overloads of CUDA's; of floats they return the operand that is no NaN. */
#define EMU_MINMAX(T)                                                                              \
  EMU_FN T min(T a, T b) { return b < a ? b : a; }                                                 \
  EMU_FN T max(T a, T b) { return a < b ? b : a; }
EMU_MINMAX(int)
EMU_MINMAX(unsigned)
EMU_MINMAX(long)
EMU_MINMAX(unsigned long)
EMU_MINMAX(long long)
EMU_MINMAX(unsigned long long)
EMU_FN float min(float a, float b) { return __builtin_fminf(a, b); }
EMU_FN float max(float a, float b) { return __builtin_fmaxf(a, b); }
EMU_FN double min(double a, double b) { return __builtin_fmin(a, b); }
EMU_FN double max(double a, double b) { return __builtin_fmax(a, b); }

/* ---- barriers, fences -------------------------------------------------------------------- */
EMU_FN void __syncthreads(EMU_SITE) { emu_barrier(EMU_PLAIN, 0, file, line); }
EMU_FN int __syncthreads_count(int predicate, EMU_SITE) {
  return emu_barrier(EMU_COUNT, predicate, file, line);
}
EMU_FN int __syncthreads_and(int predicate, EMU_SITE) {
  return emu_barrier(EMU_AND, predicate, file, line);
}
EMU_FN int __syncthreads_or(int predicate, EMU_SITE) {
  return emu_barrier(EMU_OR, predicate, file, line);
}
EMU_FN void __threadfence_block() { emu_fence(0); }
EMU_FN void __threadfence() { emu_fence(1); }
EMU_FN void __threadfence_system() { emu_fence(2); }
EMU_FN void __nanosleep(unsigned) {}
EMU_FN void __trap(EMU_SITE) { emu_trap(file, line); }

/* ---- the lanes of a warp ----------------------------------------------------------------- */
EMU_FN unsigned __activemask() { return emu_active_mask(); }
EMU_FN void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE) {
  emu_exchange_lanes(EMU_SYNC, mask, 0, 0, 32, file, line);
}
EMU_FN unsigned __ballot_sync(unsigned mask, int predicate, EMU_SITE) {
  return (unsigned)emu_exchange_lanes(EMU_BALLOT, mask, predicate != 0, 0, 32, file, line);
}
EMU_FN int __any_sync(unsigned mask, int predicate, EMU_SITE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}
EMU_FN int __all_sync(unsigned mask, int predicate, EMU_SITE) {
  return __ballot_sync(mask, !predicate, file, line) == 0;
}
/* Overloads, not a template: a uint16_t must become an int, as CUDA's does. */
#define EMU_SHUFFLE(T, name, kind, operand)                                                        \
  EMU_FN T name(unsigned mask, T value, operand n, int width = 32, EMU_SITE) {                     \
    return emu_narrow<T>(                                                                          \
        emu_exchange_lanes(kind, mask, emu_widen(value), (int)n, width, file, line));              \
  }
#define EMU_SHUFFLES(T)                                                                            \
  EMU_SHUFFLE(T, __shfl_sync, EMU_INDEX, int)                                                      \
  EMU_SHUFFLE(T, __shfl_up_sync, EMU_UP, unsigned)                                                 \
  EMU_SHUFFLE(T, __shfl_down_sync, EMU_DOWN, unsigned)                                             \
  EMU_SHUFFLE(T, __shfl_xor_sync, EMU_XOR, int)
EMU_SHUFFLES(int)
EMU_SHUFFLES(unsigned)
EMU_SHUFFLES(long)
EMU_SHUFFLES(unsigned long)
EMU_SHUFFLES(long long)
EMU_SHUFFLES(unsigned long long)
EMU_SHUFFLES(float)
EMU_SHUFFLES(double)

/* ---- atomics: fibres switch only in the runtime, so that load and store are one step ------- */
template <typename T, typename F>
EMU_FN T emu_atomic(T *p, F next, const char *file, int line) {
  const T old = emu_narrow<T>(emu_atomic_load(p, sizeof(T), file, line));
  emu_atomic_store(p, sizeof(T), emu_widen<T>(next(old)));
  return old;
}
#define EMU_ATOMIC_IN(suffix, T, name, expression)                                                 \
  EMU_FN T name##suffix(T *p, T v, EMU_SITE) {                                                     \
    return emu_atomic(p, [=](T old) -> T { return expression; }, file, line);                      \
  }
#define EMU_ATOMIC(T, name, expression)                                                            \
  EMU_ATOMIC_IN(, T, name, expression)                                                             \
  EMU_ATOMIC_IN(_block, T, name, expression)                                                       \
  EMU_ATOMIC_IN(_system, T, name, expression)
#define EMU_ATOMIC_CAS_IN(suffix, T)                                                               \
  EMU_FN T atomicCAS##suffix(T *p, T expected, T v, EMU_SITE) {                                    \
    return emu_atomic(p, [=](T old) -> T { return old == expected ? v : old; }, file, line);       \
  }
#define EMU_ATOMIC_CAS(T)                                                                          \
  EMU_ATOMIC_CAS_IN(, T) EMU_ATOMIC_CAS_IN(_block, T) EMU_ATOMIC_CAS_IN(_system, T)
#define EMU_ATOMICS(T, U) /* sums through U, which is unsigned and wraps */                        \
  EMU_ATOMIC(T, atomicAdd, (T)((U)old + (U)v))                                                     \
  EMU_ATOMIC(T, atomicExch, v)                                                                     \
  EMU_ATOMIC(T, atomicMin, v < old ? v : old)                                                      \
  EMU_ATOMIC(T, atomicMax, old < v ? v : old)                                                      \
  EMU_ATOMIC(T, atomicAnd, old & v)                                                                \
  EMU_ATOMIC(T, atomicOr, old | v)                                                                 \
  EMU_ATOMIC(T, atomicXor, old ^ v)                                                                \
  EMU_ATOMIC_CAS(T)
EMU_ATOMICS(int, unsigned)
EMU_ATOMICS(unsigned, unsigned)
EMU_ATOMICS(unsigned long long, unsigned long long)
EMU_ATOMIC(long long, atomicMin, v < old ? v : old)
EMU_ATOMIC(long long, atomicMax, old < v ? v : old)
EMU_ATOMIC(int, atomicSub, (int)((unsigned)old - (unsigned)v))
EMU_ATOMIC(unsigned, atomicSub, old - v)
EMU_ATOMIC(unsigned, atomicInc, old >= v ? 0u : old + 1u)
EMU_ATOMIC(unsigned, atomicDec, old == 0u || old > v ? v : old - 1u)
EMU_ATOMIC(float, atomicAdd, old + v)
EMU_ATOMIC(double, atomicAdd, old + v)
EMU_ATOMIC(float, atomicExch, v)
EMU_ATOMIC_CAS(unsigned short)

/* ---- loads with a cache hint ------------------------------------------------------------- */
template <typename T> EMU_FN T __ldg(const T *p, EMU_SITE) {
  emu_load_read_only(p, sizeof(T), file, line);
  return *p;
}
template <typename T> EMU_FN T __ldcg(const T *p) { return *p; }
template <typename T> EMU_FN T __ldca(const T *p) { return *p; }
template <typename T> EMU_FN T __ldcs(const T *p) { return *p; }
template <typename T> EMU_FN T __ldcv(const T *p) { return *p; }
template <typename T> EMU_FN void __stcg(T *p, T value) { *p = value; }
template <typename T> EMU_FN void __stcs(T *p, T value) { *p = value; }
template <typename T> EMU_FN void __stwt(T *p, T value) { *p = value; }

/* ---- what the runtime calls: kernels by number, arguments as 8 bytes each ------------------ */
template <typename T> struct emu_value {
  static T of(uint64_t bits) { return (T)bits; }
};
template <unsigned... N> struct emu_numbers {};
template <unsigned n, unsigned... N> struct emu_count : emu_count<n - 1, n - 1, N...> {};
template <unsigned... N> struct emu_count<0, N...> { typedef emu_numbers<N...> type; };
template <typename... A, unsigned... N>
EMU_FN void emu_apply(void (*kernel)(A...), const uint64_t *values, emu_numbers<N...>) {
  kernel(emu_value<A>::of(values[N])...);
}
template <typename... A> EMU_FN void emu_call(void (*kernel)(A...), const uint64_t *values) {
  emu_apply(kernel, values, typename emu_count<sizeof...(A)>::type());
}
