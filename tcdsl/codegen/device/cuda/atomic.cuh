/* tcdsl device library for CUDA, part "atomic": tc_atomic_<op>_<type>(p, v), *p = *p op v at once.
 *
 * T is the stored type.  The GPU's own instruction where it has one, else a loop of
 * compare-and-swap, whose first attempt guesses 0 and so reads.  Needs "half" and "operators". */

/* ---- compare and swap on 8 to 64 bits: returns what was there ----------------------------- */
TC_FN uint16_t tc_swap(uint16_t *p, uint16_t expected, uint16_t desired)
{
  return atomicCAS((unsigned short *)p, expected, desired);
}
TC_FN uint32_t tc_swap(uint32_t *p, uint32_t expected, uint32_t desired)
{
  return atomicCAS((unsigned int *)p, expected, desired);
}
TC_FN uint64_t tc_swap(uint64_t *p, uint64_t expected, uint64_t desired)
{
  return atomicCAS((unsigned long long *)p, expected, desired);
}
/* A GPU has no such instruction for a byte: together with its neighbour, whatever that holds, and
 * though it lie outside of the array.  The emulator, which would complain, has one. */
TC_FN uint8_t tc_swap(uint8_t *p, uint8_t expected, uint8_t desired)
{
#ifdef __CUDACC__
  const int shift = (int)((uint64_t)p & 1) * 8;
  uint16_t *const both = (uint16_t *)((uint64_t)p & ~(uint64_t)1);
  uint16_t neighbour = 0;
  for (;;) {
    const uint16_t assumed = (uint16_t)(neighbour | expected << shift);
    const uint16_t seen = tc_swap(both, assumed, (uint16_t)(neighbour | desired << shift));
    const uint8_t held = (uint8_t)(seen >> shift);
    if (seen == assumed || held != expected) return held;
    neighbour = (uint16_t)(seen & ~(0xff << shift));
  }
#else
  const auto next = [=](uint8_t old) -> uint8_t { return old == expected ? desired : old; };
  return emu_atomic(p, next, __FILE__, __LINE__);
#endif
}

/* ---- loops: W is unsigned and as wide as T; AS_BITS and AS_T convert ----------------------- */
#define TC_ATOMIC_LOOP(op, t, T, W, AS_BITS, AS_T, COMBINED)                                       \
  TC_FN void tc_atomic_##op##_##t(T *p, T v)                                                       \
  {                                                                                                \
    W assumed, seen = 0;                                                                           \
    do {                                                                                           \
      assumed = seen;                                                                              \
      const auto a = AS_T(assumed);                                                                \
      const auto b = v;                                                                            \
      seen = tc_swap((W *)p, assumed, AS_BITS(COMBINED));                                          \
    } while (seen != assumed);                                                                     \
  }
#define TC_ATOMIC_NATIVE(op, t, T, N, FUNCTION)                                                    \
  TC_FN void tc_atomic_##op##_##t(T *p, T v) { FUNCTION((N *)p, (N)v); }

/* ---- integers and bools -------------------------------------------------------------------- */
#define TC_ATOMIC_INTEGER(op, t, T, W)                                                             \
  TC_ATOMIC_LOOP(op, t, T, W, (W), (T), tc_op_##op##_##t::combine(a, b))
#define TC_ATOMICS_NARROW(t, T, W)                                                                 \
  TC_ATOMIC_INTEGER(add, t, T, W)                                                                  \
  TC_ATOMIC_INTEGER(mul, t, T, W)                                                                  \
  TC_ATOMIC_INTEGER(min, t, T, W)                                                                  \
  TC_ATOMIC_INTEGER(max, t, T, W)                                                                  \
  TC_ATOMIC_INTEGER(and, t, T, W)                                                                  \
  TC_ATOMIC_INTEGER(or, t, T, W)
/* N is T as CUDA's overloads know it, U unsigned. */
#define TC_ATOMICS_WIDE(t, T, W, N, U)                                                             \
  TC_ATOMIC_NATIVE(add, t, T, U, atomicAdd)                                                        \
  TC_ATOMIC_INTEGER(mul, t, T, W)                                                                  \
  TC_ATOMIC_NATIVE(min, t, T, N, atomicMin)                                                        \
  TC_ATOMIC_NATIVE(max, t, T, N, atomicMax)                                                        \
  TC_ATOMIC_NATIVE(and, t, T, U, atomicAnd)                                                        \
  TC_ATOMIC_NATIVE(or, t, T, U, atomicOr)

TC_ATOMICS_NARROW(i8, int8_t, uint8_t)
TC_ATOMICS_NARROW(u8, uint8_t, uint8_t)
TC_ATOMICS_NARROW(i16, int16_t, uint16_t)
TC_ATOMICS_NARROW(u16, uint16_t, uint16_t)
TC_ATOMICS_WIDE(i32, int32_t, uint32_t, int, unsigned int)
TC_ATOMICS_WIDE(u32, uint32_t, uint32_t, unsigned int, unsigned int)
TC_ATOMICS_WIDE(i64, int64_t, uint64_t, long long, unsigned long long)
TC_ATOMICS_WIDE(u64, uint64_t, uint64_t, unsigned long long, unsigned long long)
TC_ATOMIC_INTEGER(and, b, uint8_t, uint8_t)
TC_ATOMIC_INTEGER(or, b, uint8_t, uint8_t)
TC_ATOMIC_INTEGER(min, b, uint8_t, uint8_t)
TC_ATOMIC_INTEGER(max, b, uint8_t, uint8_t)

/* ---- half types: combined in float32, rounded ----------------------------------------- */
#define TC_ATOMIC_HALF(op, h, H)                                                                   \
  TC_ATOMIC_LOOP(op, h, H, H, tc_f32_to_##h, (H),                                                  \
                 tc_op_##op##_f32::combine(tc_##h##_to_f32(a), tc_##h##_to_f32(b)))
#define TC_ATOMICS_HALF(h, H)                                                                      \
  TC_ATOMIC_HALF(add, h, H)                                                                        \
  TC_ATOMIC_HALF(mul, h, H)                                                                        \
  TC_ATOMIC_HALF(min, h, H)                                                                        \
  TC_ATOMIC_HALF(max, h, H)
TC_ATOMICS_HALF(f16, uint16_t)
TC_ATOMICS_HALF(bf16, uint16_t)

/* ---- float32 and float64 -------------------------------------------------------------------
 * Floats of one sign are ordered as their bits are, the negative ones backwards: for v >= +0 max
 * and min are those of signed integers, for v <= -0 they are min and max of unsigned ones.  A NaN
 * joins in with the sign that makes it win from then on; one of the other sign, there from before,
 * loses, but is seen in what the instruction returns, and is put back. */
#define TC_ATOMICS_FLOAT(t, T, N, U, W, BITS, FLOAT, INF)                                          \
  TC_ATOMIC_NATIVE(add, t, T, T, atomicAdd)                                                        \
  TC_ATOMIC_LOOP(mul, t, T, W, BITS, FLOAT, a * b)                                                 \
  TC_FN void tc_atomic_max_##t(T *p, T v)                                                          \
  {                                                                                                \
    const U nan = ~(U)0 >> 1, bits = v == v ? (U)BITS(v) : nan;                                    \
    const U held = (N)bits >= 0 ? (U)atomicMax((N *)p, (N)bits) : atomicMin((U *)p, bits);         \
    if (held > (U)BITS(-INF)) atomicMax((N *)p, (N)nan);                                           \
  }                                                                                                \
  TC_FN void tc_atomic_min_##t(T *p, T v)                                                          \
  {                                                                                                \
    const U nan = ~(U)0, bits = v == v ? (U)BITS(v) : nan;                                         \
    const U held = (N)bits >= 0 ? (U)atomicMin((N *)p, (N)bits) : atomicMax((U *)p, bits);         \
    if ((N)held > (N)BITS(INF)) atomicMax((U *)p, nan);                                            \
  }
TC_ATOMICS_FLOAT(f32, float, int, unsigned int, uint32_t, tc_bits_f32, tc_float_u32, TC_INF_F32)
TC_ATOMICS_FLOAT(f64, double, long long, unsigned long long, uint64_t, tc_bits_f64, tc_double_u64,
                 TC_INF_F64)
