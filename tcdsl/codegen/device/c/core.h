/* tcdsl device library for C, part "core": bit casts, integers, the exact float functions, casts.
 *
 * Everything is branch-free where it is on a hot path, so that a loop over it vectorises; nothing
 * relies on undefined behaviour.  A name ends in its type: i8 .. i64, u8 .. u64, f32, f64, b (a
 * bool, a uint8_t that holds 0 or 1), and in part "half" f16, bf16 (uint16_t).
 *
 * No header but <stdint.h>: parsing <math.h> would cost more than compiling a kernel. */
#include <stdint.h>

#define TC_FN static inline __attribute__((always_inline, unused))
/* Large and rare functions: a call of one keeps a loop scalar, but costs no code when unused. */
#define TC_SLOW static __attribute__((noinline, unused))
/* The emulator of CUDA compiles this text as C++. */
#ifdef __cplusplus
#define TC_LIBM extern "C"
#else
#define TC_LIBM extern
#endif

/* Under reassociation (-ffast-math) rounding by a magic constant, the error terms of sums and
 * two-part reductions would vanish: wrong results without a warning.  It is taken back for the
 * whole file, as gcc inlines no function into one with other floating-point options. */
#if defined(__clang__)
#pragma clang fp reassociate(off)
#elif defined(__ASSOCIATIVE_MATH__) || defined(__FAST_MATH__)
#pragma GCC optimize("no-associative-math")
#endif

#define TC_INF_F32 (__builtin_inff())
#define TC_NAN_F32 (__builtin_nanf(""))
#define TC_MAX_F32 0x1.fffffep+127f
#define TC_MIN_F32 (-0x1.fffffep+127f)
#define TC_INF_F64 (__builtin_inf())
#define TC_NAN_F64 (__builtin_nan(""))
#define TC_MAX_F64 0x1.fffffffffffffp+1023
#define TC_MIN_F64 (-0x1.fffffffffffffp+1023)
#define TC_MIN_I8 INT8_MIN
#define TC_MAX_I8 INT8_MAX
#define TC_MIN_I16 INT16_MIN
#define TC_MAX_I16 INT16_MAX
#define TC_MIN_I32 INT32_MIN
#define TC_MAX_I32 INT32_MAX
#define TC_MIN_I64 INT64_MIN
#define TC_MAX_I64 INT64_MAX
#define TC_MIN_U8 ((uint8_t)0)
#define TC_MAX_U8 UINT8_MAX
#define TC_MIN_U16 ((uint16_t)0)
#define TC_MAX_U16 UINT16_MAX
#define TC_MIN_U32 UINT32_C(0)
#define TC_MAX_U32 UINT32_MAX
#define TC_MIN_U64 UINT64_C(0)
#define TC_MAX_U64 UINT64_MAX

#define TC_MAGIC_F32 0x1.8p23f /* x + magic - magic: x rounded to an integer, |x| < 2^22 ... */
#define TC_MAGIC_F64 0x1.8p52  /* ... and the integer lies in the low bits of x + magic */

/* ---- bit casts -------------------------------------------------------------------------- */
TC_FN uint32_t tc_bits_f32(float x) { uint32_t u; __builtin_memcpy(&u, &x, 4); return u; }
TC_FN float tc_float_u32(uint32_t u) { float x; __builtin_memcpy(&x, &u, 4); return x; }
TC_FN uint64_t tc_bits_f64(double x) { uint64_t u; __builtin_memcpy(&u, &x, 8); return u; }
TC_FN double tc_double_u64(uint64_t u) { double x; __builtin_memcpy(&x, &u, 8); return x; }

/* ---- integers ---------------------------------------------------------------------------
 * T wraps like its unsigned partner; W is unsigned and at least as wide as int, so that products
 * of narrow types do not overflow a promoted int.  The narrowing cast back to a signed T is
 * modular in gcc and clang. */
#define TC_INTEGER(t, T, W, BITS)                                                                  \
  TC_FN T tc_add_##t(T a, T b) { return (T)((W)a + (W)b); }                                        \
  TC_FN T tc_sub_##t(T a, T b) { return (T)((W)a - (W)b); }                                        \
  TC_FN T tc_mul_##t(T a, T b) { return (T)((W)a * (W)b); }                                        \
  TC_FN T tc_neg_##t(T a) { return (T)((W)0 - (W)a); }                                             \
  TC_FN T tc_min_##t(T a, T b) { return a < b ? a : b; }                                           \
  TC_FN T tc_max_##t(T a, T b) { return a > b ? a : b; }                                           \
  TC_FN T tc_shl_##t(T a, T n) {                                                                   \
    const T shifted = (T)((W)a << ((W)n & (BITS - 1)));                                            \
    return (W)n < BITS ? shifted : (T)0;                                                           \
  }                                                                                                \
  TC_FN int tc_arg_better_max_##t(T candidate, T best) { return candidate > best; }                \
  TC_FN int tc_arg_better_min_##t(T candidate, T best) { return candidate < best; }

/* Floored quotient.  Up to 32 bits it goes through a float type Q with at least twice the bits
 * (24 for 8 and 16 bits, 53 for 32), where truncating the rounded quotient is exact: a quotient
 * a / b that is no integer is at least 1 / |a| away from one, relatively.  There is no vector
 * division of integers.  A constant divisor keeps the compiler's multiply and shift. */
#define TC_SIGNED(t, T, W, BITS, Q)                                                                \
  TC_INTEGER(t, T, W, BITS)                                                                        \
  TC_FN T tc_abs_##t(T a) { return a < 0 ? tc_neg_##t(a) : a; }                                    \
  TC_FN T tc_sign_##t(T a) { return (T)((a > 0) - (a < 0)); }                                      \
  TC_FN T tc_relu_##t(T a) { return a > 0 ? a : (T)0; }                                            \
  TC_FN T tc_shr_##t(T a, T n) { return (T)(a >> ((W)n < BITS ? (W)n : (W)(BITS - 1))); }          \
  TC_FN T tc_div_##t(T a, T b) {                                                                   \
    const T d = ((b == 0) | (b == -1)) ? (T)1 : b; /* INT_MIN / -1 would trap */                   \
    const T q = __builtin_constant_p(b) ? (T)(a / d) : (T)((Q)a / (Q)d);                           \
    const T r = tc_sub_##t(a, tc_mul_##t(q, d));                                                   \
    const T floored = (T)(q - ((r != 0) & ((r ^ d) < 0)));                                         \
    const T exact = b == -1 ? tc_neg_##t(a) : floored;                                             \
    return b == 0 ? (T)0 : exact;                                                                  \
  }                                                                                                \
  TC_FN T tc_mod_##t(T a, T b) {                                                                   \
    const T d = ((b == 0) | (b == -1)) ? (T)1 : b; /* a % 0 is 0, a % -1 is 0: as a % 1 */         \
    const T q = __builtin_constant_p(b) ? (T)(a / d) : (T)((Q)a / (Q)d);                           \
    const T r = tc_sub_##t(a, tc_mul_##t(q, d));                                                   \
    return ((r != 0) & ((r ^ d) < 0)) ? (T)(r + d) : r;                                            \
  }

#define TC_UNSIGNED(t, T, W, BITS, Q)                                                              \
  TC_INTEGER(t, T, W, BITS)                                                                        \
  TC_FN T tc_abs_##t(T a) { return a; }                                                            \
  TC_FN T tc_sign_##t(T a) { return (T)(a != 0); }                                                 \
  TC_FN T tc_relu_##t(T a) { return a; }                                                           \
  TC_FN T tc_shr_##t(T a, T n) {                                                                   \
    const T shifted = (T)(a >> ((W)n & (BITS - 1)));                                               \
    return (W)n < BITS ? shifted : (T)0;                                                           \
  }                                                                                                \
  TC_FN T tc_div_##t(T a, T b) {                                                                   \
    const T d = b == 0 ? (T)1 : b;                                                                 \
    const T q = __builtin_constant_p(b) ? (T)(a / d) : (T)((Q)a / (Q)d);                           \
    return b == 0 ? (T)0 : q;                                                                      \
  }                                                                                                \
  TC_FN T tc_mod_##t(T a, T b) {                                                                   \
    const T d = b == 0 ? (T)1 : b;                                                                 \
    const T q = __builtin_constant_p(b) ? (T)(a / d) : (T)((Q)a / (Q)d);                           \
    return tc_sub_##t(a, tc_mul_##t(q, d));                                                        \
  }

TC_SIGNED(i8, int8_t, uint32_t, 8u, float)
TC_SIGNED(i16, int16_t, uint32_t, 16u, float)
TC_SIGNED(i32, int32_t, uint32_t, 32u, double)
TC_SIGNED(i64, int64_t, uint64_t, 64u, int64_t)
TC_UNSIGNED(u8, uint8_t, uint32_t, 8u, float)
TC_UNSIGNED(u16, uint16_t, uint32_t, 16u, float)
TC_UNSIGNED(u32, uint32_t, uint32_t, 32u, double)
TC_UNSIGNED(u64, uint64_t, uint64_t, 64u, uint64_t)

TC_FN uint8_t tc_min_b(uint8_t a, uint8_t b) { return a & b; }
TC_FN uint8_t tc_max_b(uint8_t a, uint8_t b) { return a | b; }
TC_FN uint8_t tc_abs_b(uint8_t a) { return a; }
TC_FN uint8_t tc_sign_b(uint8_t a) { return a; }
TC_FN uint8_t tc_relu_b(uint8_t a) { return a; }
TC_FN int tc_arg_better_max_b(uint8_t candidate, uint8_t best) { return candidate > best; }
TC_FN int tc_arg_better_min_b(uint8_t candidate, uint8_t best) { return candidate < best; }

/* ---- floats: the functions that are exact, or nearly so, in a few instructions -----------
 * min and max give NaN when either is NaN, fmin and fmax the other operand.  An arg reduction's
 * candidate is better if it is strictly beyond the best, or the first NaN.  sqrt needs
 * -fno-math-errno to be one instruction, the roundings -fno-trapping-math. */
#define TC_FLOAT(t, T, f)                                                                          \
  TC_FN T tc_neg_##t(T a) { return -a; }                                                           \
  /* Of the forms that keep NaN the fastest: one minps and one blend, with the accumulator first. */ \
  TC_FN T tc_min_##t(T a, T b)                                                                     \
  {                                                                                                \
    const T least = b < a ? b : a;                                                                 \
    return b != b ? b : least;                                                                     \
  }                                                                                                \
  TC_FN T tc_max_##t(T a, T b)                                                                     \
  {                                                                                                \
    const T most = b > a ? b : a;                                                                  \
    return b != b ? b : most;                                                                      \
  }                                                                                                \
  TC_FN T tc_fmin_##t(T a, T b) { return ((a < b) | (b != b)) ? a : b; }                           \
  TC_FN T tc_fmax_##t(T a, T b) { return ((a > b) | (b != b)) ? a : b; }                           \
  TC_FN T tc_fdim_##t(T a, T b) { return a <= b ? (T)0 : a - b; }                                  \
  TC_FN T tc_fabs_##t(T a) { return __builtin_fabs##f(a); }                                        \
  TC_FN T tc_abs_##t(T a) { return __builtin_fabs##f(a); }                                         \
  TC_FN T tc_copysign_##t(T a, T b) { return __builtin_copysign##f(a, b); }                        \
  TC_FN T tc_floor_##t(T a) { return __builtin_floor##f(a); }                                      \
  TC_FN T tc_ceil_##t(T a) { return __builtin_ceil##f(a); }                                        \
  TC_FN T tc_trunc_##t(T a) { return __builtin_trunc##f(a); }                                      \
  TC_FN T tc_round_##t(T a) { /* halves away from zero; a - whole is exact */                      \
    const T whole = __builtin_trunc##f(a);                                                         \
    const T step = __builtin_fabs##f(a - whole) >= (T)0.5 ? (T)1 : (T)0;                           \
    return __builtin_copysign##f(__builtin_fabs##f(whole) + step, a);                              \
  }                                                                                                \
  TC_FN T tc_div_##t(T a, T b) { return a / b; }                                                   \
  TC_FN T tc_sqrt_##t(T a) { return __builtin_sqrt##f(a); }                                        \
  TC_FN T tc_rsqrt_##t(T a) { return (T)1 / __builtin_sqrt##f(a); }                                \
  TC_FN T tc_sign_##t(T a) { return a != a ? a : (T)((a > 0) - (a < 0)); }                         \
  TC_FN T tc_relu_##t(T a) { return (T)0 > a ? (T)0 : a; }                                         \
  TC_FN uint8_t tc_isnan_##t(T a) { return a != a; }                                               \
  TC_FN uint8_t tc_isinf_##t(T a) { return __builtin_fabs##f(a) == (T)__builtin_inf(); }           \
  TC_FN int tc_arg_better_max_##t(T candidate, T best) {                                           \
    return (candidate > best) | ((candidate != candidate) & (best == best));                       \
  }                                                                                                \
  TC_FN int tc_arg_better_min_##t(T candidate, T best) {                                           \
    return (candidate < best) | ((candidate != candidate) & (best == best));                       \
  }

TC_FLOAT(f32, float, f)
TC_FLOAT(f64, double, )

/* Values with their places, as one integer: of the largest the value is the extreme, a NaN if there
 * is one, and of equal ones the place is the first.  -2^63, where nothing was compared, has -1. */
TC_FN int64_t tc_placed(int32_t rank, int32_t place) {
  return (int64_t)((uint64_t)(uint32_t)rank << 32 | (uint32_t)~place);
}
TC_FN int64_t tc_place_of_i64(int64_t placed) { return (int32_t)~(uint32_t)placed; }
TC_FN int64_t tc_placed_max_i32(int32_t x, int32_t place) { return tc_placed(x, place); }
TC_FN int64_t tc_placed_min_i32(int32_t x, int32_t place) { return tc_placed(~x, place); }
TC_FN int32_t tc_rank_f32(float x) { /* in the order of the numbers, 0 for both zeros */
  union { float x; int32_t bits; } same;
  same.x = x + 0.0f;
  return same.bits ^ (same.bits >> 31 & 0x7fffffff);
}
TC_FN int64_t tc_placed_max_f32(float x, int32_t place) {
  return tc_placed(x != x ? 0x7fffffff : tc_rank_f32(x), place);
}
TC_FN int64_t tc_placed_min_f32(float x, int32_t place) {
  return tc_placed(x != x ? 0x7fffffff : ~tc_rank_f32(x), place);
}

/* fma rounds once, on every machine (through libm where there is no instruction); mad rounds once
 * or twice, whichever is faster: for sums whose order is free, and for polynomials. */
TC_LIBM float fmaf(float, float, float);
TC_LIBM double fma(double, double, double);
TC_FN float tc_fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TC_FN double tc_fma_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#if defined(__FMA__) || defined(__aarch64__) || defined(__FP_FAST_FMA)
TC_FN float tc_mad_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TC_FN double tc_mad_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
TC_FN float tc_mad_f32(float a, float b, float c) { return a * b + c; }
TC_FN double tc_mad_f64(double a, double b, double c) { return a * b + c; }
#endif

/* ---- reductions for OpenMP: reduction(tc_max_f32 : x) --------------------------------------
 * OpenMP's own max and min lose a NaN when threads or lanes are combined, and its own + and * may
 * overflow a signed integer.  Each is named as the function that combines. */
#ifdef _OPENMP
#define TC_PRAGMA(text) _Pragma(#text)
#define TC_REDUCTION(name, T, identity)                                                            \
  TC_PRAGMA(omp declare reduction(name : T : omp_out = name(omp_out, omp_in))                      \
                initializer(omp_priv = identity))
#define TC_REDUCTIONS(t, T, LEAST, MOST)                                                           \
  TC_REDUCTION(tc_max_##t, T, LEAST) TC_REDUCTION(tc_min_##t, T, MOST)
#define TC_WRAPPING_REDUCTIONS(t, T)                                                               \
  TC_REDUCTION(tc_add_##t, T, 0) TC_REDUCTION(tc_mul_##t, T, 1)

TC_REDUCTIONS(f32, float, -__builtin_inff(), __builtin_inff())
TC_REDUCTIONS(f64, double, -__builtin_inf(), __builtin_inf())
TC_REDUCTIONS(i8, int8_t, INT8_MIN, INT8_MAX)
TC_REDUCTIONS(i16, int16_t, INT16_MIN, INT16_MAX)
TC_REDUCTIONS(i32, int32_t, INT32_MIN, INT32_MAX)
TC_REDUCTIONS(i64, int64_t, INT64_MIN, INT64_MAX)
TC_REDUCTIONS(u8, uint8_t, 0, UINT8_MAX)
TC_REDUCTIONS(u16, uint16_t, 0, UINT16_MAX)
TC_REDUCTIONS(u32, uint32_t, 0, UINT32_MAX)
TC_REDUCTIONS(u64, uint64_t, 0, UINT64_MAX)
TC_WRAPPING_REDUCTIONS(i8, int8_t)
TC_WRAPPING_REDUCTIONS(i16, int16_t)
TC_WRAPPING_REDUCTIONS(i32, int32_t)
TC_WRAPPING_REDUCTIONS(i64, int64_t)
TC_WRAPPING_REDUCTIONS(u8, uint8_t)
TC_WRAPPING_REDUCTIONS(u16, uint16_t)
TC_WRAPPING_REDUCTIONS(u32, uint32_t)
TC_WRAPPING_REDUCTIONS(u64, uint64_t)
#endif

/* ---- casts: tc_cast_<from>_<to> ----------------------------------------------------------
 * Integer to integer wraps; anything to b asks != 0; to a float rounds to nearest even.  Float to
 * integer truncates and saturates, NaN gives 0: the value is first brought into the range where C
 * defines the conversion.  LOW and HIGH are the least and the greatest float that convert. */
#define TC_TO_INT(f, F, t, T, LOW, HIGH)                                                           \
  TC_FN T tc_cast_##f##_##t(F x) {                                                                 \
    const F least = x >= LOW ? x : LOW; /* NaN too */                                              \
    const T inside = (T)(least <= HIGH ? least : HIGH);                                            \
    const T number = x > HIGH ? TC_TO_INT_MAX(T) : inside;                                         \
    return x != x ? (T)0 : number;                                                                 \
  }
#define TC_TO_INT_MAX(T) ((T)-1 > 0 ? (T)-1 : (T)((UINT64_C(1) << (8 * sizeof(T) - 1)) - 1))

TC_TO_INT(f32, float, i8, int8_t, -128.0f, 127.0f)
TC_TO_INT(f32, float, i16, int16_t, -32768.0f, 32767.0f)
TC_TO_INT(f32, float, i32, int32_t, -0x1p31f, 0x1.fffffep30f)
TC_TO_INT(f32, float, i64, int64_t, -0x1p63f, 0x1.fffffep62f)
TC_TO_INT(f32, float, u8, uint8_t, 0.0f, 255.0f)
TC_TO_INT(f32, float, u16, uint16_t, 0.0f, 65535.0f)
TC_TO_INT(f32, float, u32, uint32_t, 0.0f, 0x1.fffffep31f)
TC_TO_INT(f32, float, u64, uint64_t, 0.0f, 0x1.fffffep63f)
TC_TO_INT(f64, double, i8, int8_t, -128.0, 127.0)
TC_TO_INT(f64, double, i16, int16_t, -32768.0, 32767.0)
TC_TO_INT(f64, double, i32, int32_t, -0x1p31, 0x1.fffffffcp30)
TC_TO_INT(f64, double, i64, int64_t, -0x1p63, 0x1.fffffffffffffp62)
TC_TO_INT(f64, double, u8, uint8_t, 0.0, 255.0)
TC_TO_INT(f64, double, u16, uint16_t, 0.0, 65535.0)
TC_TO_INT(f64, double, u32, uint32_t, 0.0, 0x1.fffffffep31)
TC_TO_INT(f64, double, u64, uint64_t, 0.0, 0x1.fffffffffffffp63)

#define TC_CAST(f, F, t, T) TC_FN T tc_cast_##f##_##t(F x) { return (T)x; }
#define TC_CASTS_TO_INTS(f, F)                                                                     \
  TC_CAST(f, F, i8, int8_t) TC_CAST(f, F, i16, int16_t)                                            \
  TC_CAST(f, F, i32, int32_t) TC_CAST(f, F, i64, int64_t)                                          \
  TC_CAST(f, F, u8, uint8_t) TC_CAST(f, F, u16, uint16_t)                                          \
  TC_CAST(f, F, u32, uint32_t) TC_CAST(f, F, u64, uint64_t)
#define TC_CASTS_TO_FLOATS(f, F)                                                                   \
  TC_CAST(f, F, f32, float) TC_CAST(f, F, f64, double)                                             \
  TC_FN uint8_t tc_cast_##f##_b(F x) { return x != 0; }
#define TC_CASTS(f, F) TC_CASTS_TO_INTS(f, F) TC_CASTS_TO_FLOATS(f, F)

TC_CASTS(b, uint8_t)
TC_CASTS(i8, int8_t)
TC_CASTS(i16, int16_t)
TC_CASTS(i32, int32_t)
TC_CASTS(i64, int64_t)
TC_CASTS(u8, uint8_t)
TC_CASTS(u16, uint16_t)
TC_CASTS(u32, uint32_t)
TC_CASTS(u64, uint64_t)
TC_CASTS_TO_FLOATS(f32, float)
TC_CASTS_TO_FLOATS(f64, double)

#ifndef __cplusplus /* emulated CUDA brings its own, of CUDA's atomics */
/* ---- faults ------------------------------------------------------------------------------
 * fault is {0, ...} before the launch; the first thread to claim it records {1, site, index,
 * extent, position}.  Read it after the parallel region, whose end orders the stores. */
TC_SLOW void tc_fault(int64_t *fault, int64_t site, int64_t index, int64_t extent,
                      int64_t position) {
  int64_t unclaimed = 0;
  if (!__atomic_compare_exchange_n(&fault[0], &unclaimed, 1, 0, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE))
    return;
  fault[1] = site;
  fault[2] = index;
  fault[3] = extent;
  fault[4] = position;
}
#endif
