/* tcdsl device library for CUDA, part "core": bit casts, integers, exact float functions, casts.
 *
 * The functions of device/c/core.h with the same names and the same results, of instructions that
 * a GPU has: min and max that keep NaN are one, a float becomes an integer by one that saturates.
 * It is for NVRTC without any header; the emulator takes device/c/core.h in its place. */
#pragma nv_diag_suppress 177 /* a kernel calls few of these functions */
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

#define TC_FN static __device__ __forceinline__
#define TC_SLOW static __device__ __noinline__

/* What a shared variable is: __shared__ TC_VARIABLE(float, tile, [33], 16) is float tile[33] at a
 * multiple of 16 bytes, extern __shared__ TC_DYNAMIC(float, all, 16) what the launch asks for.  The
 * emulator, whose blocks are functions of one process, has other macros of these names. */
#define TC_VARIABLE(T, name, extents, alignment) __align__(alignment) T name extents
#define TC_DYNAMIC(T, name, alignment) __align__(alignment) T name[]

#define TC_INF_F32 (__int_as_float(0x7f800000))
#define TC_NAN_F32 (__int_as_float(0x7fc00000))
#define TC_INF_F64 (__longlong_as_double(0x7ff0000000000000ll))
#define TC_NAN_F64 (__longlong_as_double(0x7ff8000000000000ll))

/* ---- bit casts -------------------------------------------------------------------------- */
TC_FN uint32_t tc_bits_f32(float x) { return __float_as_uint(x); }
TC_FN float tc_float_u32(uint32_t u) { return __uint_as_float(u); }
TC_FN uint64_t tc_bits_f64(double x) { return (uint64_t)__double_as_longlong(x); }
TC_FN double tc_double_u64(uint64_t u) { return __longlong_as_double((long long)u); }

/* ---- the lesser and the greater of two integers -------------------------------------------
 * For sm_90 the assembler of CUDA 12.6 to 13.3 merges max(max(a, -b), -c) into one instruction of
 * three operands, and loses the sign of b.  There the operands are complements, which it does not
 * look through: max(a, b) = ~min(~a, ~b).  Those of a chain's results cancel each other; that of an
 * element is here, lest the front end makes it one of a narrow type.  A negation is written as a
 * complement, too, for chains of ?:.  Part "pairs" has extremes of arguments, which nothing
 * negates, without complements. */
#define TC_VERSION (__CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__)
#if !defined(TC_BY_COMPLEMENTS) && defined(__CUDA_ARCH__)
#define TC_BY_COMPLEMENTS (__CUDA_ARCH__ == 900 && TC_VERSION >= 1206 && TC_VERSION < 1304)
#endif
#if TC_BY_COMPLEMENTS
#define TC_BY_COMPLEMENT(name, T, opposite)                                                        \
  TC_FN T name(T a, T b) {                                                                         \
    T other;                                                                                       \
    asm("{.reg .b32 rest; not.b32 rest, %2; " opposite "32 %0, %1, rest;}"                         \
        : "=r"(other) : "r"(~a), "r"(b));                                                          \
    return ~other;                                                                                 \
  }
#define TC_EXTREMES(T, t)                                                                          \
  TC_BY_COMPLEMENT(tc_lesser, T, "max." #t)                                                        \
  TC_BY_COMPLEMENT(tc_greater, T, "min." #t)                                                       \
  TC_FN T tc_minus(T a) {                                                                          \
    T minus;                                                                                       \
    asm("{.reg .b32 rest; not.b32 rest, %1; add.s32 %0, rest, 1;}" : "=r"(minus) : "r"(a));        \
    return minus;                                                                                  \
  }
#else
#define TC_EXTREMES(T, t) TC_PLAIN_EXTREMES(T)
#endif
#define TC_PLAIN_EXTREMES(T)                                                                       \
  TC_FN T tc_lesser(T a, T b) { return a < b ? a : b; }                                            \
  TC_FN T tc_greater(T a, T b) { return a > b ? a : b; }                                           \
  TC_FN T tc_minus(T a) { return (T)(0ull - (uint64_t)a); }

TC_EXTREMES(int32_t, s)
TC_EXTREMES(uint32_t, u)
TC_PLAIN_EXTREMES(int64_t)
TC_PLAIN_EXTREMES(uint64_t)

/* ---- integers ---------------------------------------------------------------------------
 * T wraps like its unsigned partner; W is unsigned and at least as wide as int. */
#define TC_INTEGER(t, T, W, BITS)                                                                  \
  TC_FN T tc_add_##t(T a, T b) { return (T)((W)a + (W)b); }                                        \
  TC_FN T tc_sub_##t(T a, T b) { return (T)((W)a - (W)b); }                                        \
  TC_FN T tc_mul_##t(T a, T b) { return (T)((W)a * (W)b); }                                        \
  TC_FN T tc_neg_##t(T a) { return (T)tc_minus(a); }                                               \
  TC_FN T tc_min_##t(T a, T b) { return (T)tc_lesser(a, b); }                                      \
  TC_FN T tc_max_##t(T a, T b) { return (T)tc_greater(a, b); }                                     \
  TC_FN T tc_shl_##t(T a, T n) { return (W)n < BITS ? (T)((W)a << (W)n) : (T)0; }                  \
  TC_FN int tc_arg_better_max_##t(T candidate, T best) { return candidate > best; }                \
  TC_FN int tc_arg_better_min_##t(T candidate, T best) { return candidate < best; }

#define TC_SIGNED(t, T, W, BITS)                                                                   \
  TC_INTEGER(t, T, W, BITS)                                                                        \
  TC_FN T tc_abs_##t(T a) { return a < 0 ? (T)((W)0 - (W)a) : a; }                                 \
  TC_FN T tc_sign_##t(T a) { return (T)((a > 0) - (a < 0)); }                                      \
  TC_FN T tc_relu_##t(T a) { return a > 0 ? a : (T)0; }                                            \
  TC_FN T tc_shr_##t(T a, T n) { return (T)(a >> ((W)n < BITS ? (W)n : (W)(BITS - 1))); }          \
  TC_FN T tc_div_##t(T a, T b) {                                                                   \
    const T d = ((b == 0) | (b == -1)) ? (T)1 : b; /* the least a / -1 is undefined in C++ */      \
    const T q = (T)(a / d), r = (T)(a % d);                                                        \
    const T floored = (T)(q - ((r != 0) & ((r ^ d) < 0)));                                         \
    return b == 0 ? (T)0 : b == -1 ? tc_neg_##t(a) : floored;                                      \
  }                                                                                                \
  TC_FN T tc_mod_##t(T a, T b) {                                                                   \
    const T d = ((b == 0) | (b == -1)) ? (T)1 : b; /* a % 0 is 0, a % -1 is 0: as a % 1 */         \
    const T r = (T)(a % d);                                                                        \
    return ((r != 0) & ((r ^ d) < 0)) ? (T)(r + d) : r;                                            \
  }

#define TC_UNSIGNED(t, T, W, BITS)                                                                 \
  TC_INTEGER(t, T, W, BITS)                                                                        \
  TC_FN T tc_abs_##t(T a) { return a; }                                                            \
  TC_FN T tc_sign_##t(T a) { return (T)(a != 0); }                                                 \
  TC_FN T tc_relu_##t(T a) { return a; }                                                           \
  TC_FN T tc_shr_##t(T a, T n) { return (W)n < BITS ? (T)((W)a >> (W)n) : (T)0; }                  \
  TC_FN T tc_div_##t(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); }                              \
  TC_FN T tc_mod_##t(T a, T b) { return b == 0 ? (T)0 : (T)(a % b); }

TC_SIGNED(i8, int8_t, uint32_t, 8u)
TC_SIGNED(i16, int16_t, uint32_t, 16u)
TC_SIGNED(i32, int32_t, uint32_t, 32u)
TC_SIGNED(i64, int64_t, uint64_t, 64u)
TC_UNSIGNED(u8, uint8_t, uint32_t, 8u)
TC_UNSIGNED(u16, uint16_t, uint32_t, 16u)
TC_UNSIGNED(u32, uint32_t, uint32_t, 32u)
TC_UNSIGNED(u64, uint64_t, uint64_t, 64u)

TC_FN uint8_t tc_min_b(uint8_t a, uint8_t b) { return a & b; }
TC_FN uint8_t tc_max_b(uint8_t a, uint8_t b) { return a | b; }
TC_FN uint8_t tc_abs_b(uint8_t a) { return a; }
TC_FN uint8_t tc_sign_b(uint8_t a) { return a; }
TC_FN uint8_t tc_relu_b(uint8_t a) { return a; }
TC_FN int tc_arg_better_max_b(uint8_t candidate, uint8_t best) { return candidate > best; }
TC_FN int tc_arg_better_min_b(uint8_t candidate, uint8_t best) { return candidate < best; }

/* ---- floats: exact, or nearly so, in a few instructions ----------------------------------
 * min and max give NaN when either is NaN, and put -0 below 0, so that they commute to the bit. */
#define TC_FLOAT(t, T, f, INF)                                                                     \
  TC_FN T tc_neg_##t(T a) { return -a; }                                                           \
  TC_FN T tc_fmin_##t(T a, T b) { return fmin##f(a, b); }                                          \
  TC_FN T tc_fmax_##t(T a, T b) { return fmax##f(a, b); }                                          \
  TC_FN T tc_fdim_##t(T a, T b) { return a <= b ? (T)0 : a - b; }                                  \
  TC_FN T tc_fabs_##t(T a) { return fabs##f(a); }                                                  \
  TC_FN T tc_abs_##t(T a) { return fabs##f(a); }                                                   \
  TC_FN T tc_copysign_##t(T a, T b) { return copysign##f(a, b); }                                  \
  TC_FN T tc_floor_##t(T a) { return floor##f(a); }                                                \
  TC_FN T tc_ceil_##t(T a) { return ceil##f(a); }                                                  \
  TC_FN T tc_trunc_##t(T a) { return trunc##f(a); }                                                \
  TC_FN T tc_round_##t(T a) { return round##f(a); } /* halves away from zero */                    \
  TC_FN T tc_sqrt_##t(T a) { return sqrt##f(a); }                                                  \
  TC_FN T tc_rsqrt_##t(T a) { return rsqrt##f(a); }                                                \
  TC_FN T tc_fma_##t(T a, T b, T c) { return fma##f(a, b, c); }                                    \
  TC_FN T tc_mad_##t(T a, T b, T c) { return fma##f(a, b, c); }                                    \
  TC_FN T tc_sign_##t(T a) { return a != a ? a : (T)((a > 0) - (a < 0)); }                         \
  TC_FN T tc_relu_##t(T a) { return (T)0 > a ? (T)0 : a; }                                         \
  TC_FN uint8_t tc_isnan_##t(T a) { return a != a; }                                               \
  TC_FN uint8_t tc_isinf_##t(T a) { return fabs##f(a) == INF; }                                    \
  TC_FN int tc_arg_better_max_##t(T candidate, T best) {                                           \
    return (candidate > best) | ((candidate != candidate) & (best == best));                       \
  }                                                                                                \
  TC_FN int tc_arg_better_min_##t(T candidate, T best) {                                           \
    return (candidate < best) | ((candidate != candidate) & (best == best));                       \
  }

TC_FLOAT(f32, float, f, TC_INF_F32)
TC_FLOAT(f64, double, , TC_INF_F64)

#if __CUDA_ARCH__ >= 800
TC_FN float tc_min_f32(float a, float b) {
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
}
TC_FN float tc_max_f32(float a, float b) {
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
  return most;
}
#else
TC_FN float tc_min_f32(float a, float b) { return a != a || b != b ? a + b : fminf(a, b); }
TC_FN float tc_max_f32(float a, float b) { return a != a || b != b ? a + b : fmaxf(a, b); }
#endif
TC_FN double tc_min_f64(double a, double b) { return a != a || b != b ? a + b : fmin(a, b); }
TC_FN double tc_div_f64(double a, double b) { return a / b; }

/* a / b where many have the same b: what depends on b alone leaves the loops, and six instructions
 * are left where a division has ten.  b is scaled by a power of two, so that its reciprocal is no
 * subnormal number; that is right to the last place but for few b, and so is the quotient after
 * one correction: of 50 million pairs of all magnitudes one in 800 was not the nearest number, and
 * none was 1.5 units away.  Where the correction is no number (0 and infinity as divisors, quotients
 * beyond the largest number) the product is right. */
#ifdef TC_FAST_MATH
TC_FN float tc_div_f32(float a, float b) { return a / b; }
#else
TC_FN float tc_div_f32(float a, float b) {
  const float scale = fabsf(b) < 0x1p-100f ? 0x1p+64f : fabsf(b) > 0x1p+100f ? 0x1p-64f : 1.0f;
  const float d = b * scale;
  float first;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(first) : "f"(d));
  const float error = fmaf(-d, first, 1.0f);
  const float r = fabsf(error) < 1.0f ? fmaf(first, error, first) : first;
  const float q = a * r;
  const float rest = fmaf(-q, d, a);
  return (fabsf(rest) < TC_INF_F32 ? fmaf(rest, r, q) : q) * scale;
}
#endif
TC_FN double tc_max_f64(double a, double b) { return a != a || b != b ? a + b : fmax(a, b); }

/* ---- values with their places, as one integer: see device/c/core.h ---------------------------- */
TC_FN int64_t tc_placed(int32_t rank, int32_t place) {
  return (int64_t)((uint64_t)(uint32_t)rank << 32 | (uint32_t)~place);
}
TC_FN int64_t tc_place_of_i64(int64_t placed) { return (int32_t)~(uint32_t)placed; }
TC_FN int64_t tc_placed_max_i32(int32_t x, int32_t place) { return tc_placed(x, place); }
TC_FN int64_t tc_placed_min_i32(int32_t x, int32_t place) { return tc_placed(~x, place); }
TC_FN int32_t tc_rank_f32(float x) {
  const int32_t bits = __float_as_int(x + 0.0f);
  return bits ^ (bits >> 31 & 0x7fffffff);
}
TC_FN int64_t tc_placed_max_f32(float x, int32_t place) {
  return tc_placed(x != x ? 0x7fffffff : tc_rank_f32(x), place);
}
TC_FN int64_t tc_placed_min_f32(float x, int32_t place) {
  return tc_placed(x != x ? 0x7fffffff : ~tc_rank_f32(x), place);
}

/* ---- casts: tc_cast_<from>_<to> ----------------------------------------------------------
 * The conversions to 32 and 64 bits saturate by themselves; of NaN they make 0 in some widths
 * only.  Through 32 bits to the narrow types. */
#define TC_TO_INT(f, F, t, T, CONVERT)                                                             \
  TC_FN T tc_cast_##f##_##t(F x) { return x != x ? (T)0 : (T)CONVERT(x); }
#define TC_TO_NARROW(f, F, t, T, CONVERT, LEAST, MOST)                                             \
  TC_FN T tc_cast_##f##_##t(F x) {                                                                 \
    const int number = x != x ? 0 : CONVERT(x);                                                    \
    return (T)(number < LEAST ? LEAST : number > MOST ? MOST : number);                            \
  }
#define TC_TO_INTS(f, F, name)                                                                     \
  TC_TO_NARROW(f, F, i8, int8_t, __##name##2int_rz, -128, 127)                                     \
  TC_TO_NARROW(f, F, i16, int16_t, __##name##2int_rz, -32768, 32767)                               \
  TC_TO_NARROW(f, F, u8, uint8_t, __##name##2int_rz, 0, 255)                                       \
  TC_TO_NARROW(f, F, u16, uint16_t, __##name##2int_rz, 0, 65535)                                   \
  TC_TO_INT(f, F, i32, int32_t, __##name##2int_rz)                                                 \
  TC_TO_INT(f, F, u32, uint32_t, __##name##2uint_rz)                                               \
  TC_TO_INT(f, F, i64, int64_t, __##name##2ll_rz)                                                  \
  TC_TO_INT(f, F, u64, uint64_t, __##name##2ull_rz)

TC_TO_INTS(f32, float, float)
TC_TO_INTS(f64, double, double)

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
