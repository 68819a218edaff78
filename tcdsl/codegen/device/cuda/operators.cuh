/* tcdsl device library for CUDA, part "operators": reductions' operators as types.
 *
 *     struct tc_op_<op>_<type>       type, identity(), combine(a, b)      add mul min max and or
 *     struct tc_better_<op>_<type>   type, better(candidate, best)        max min
 *
 * Every operator commutes, so that a butterfly of shuffles leaves the same value in all lanes. */

#define TC_OPERATOR(op, t, T, IDENTITY, COMBINED)                                                  \
  struct tc_op_##op##_##t {                                                                        \
    typedef T type;                                                                                \
    TC_FN T identity() { return IDENTITY; }                                                        \
    TC_FN T combine(T a, T b) { return COMBINED; }                                                 \
  };
#define TC_BETTER(op, t, T)                                                                        \
  struct tc_better_##op##_##t {                                                                    \
    typedef T type;                                                                                \
    TC_FN bool better(T candidate, T best) { return tc_arg_better_##op##_##t(candidate, best); }   \
  };
#define TC_EXTREMES(t, T, LEAST, MOST)                                                             \
  TC_OPERATOR(min, t, T, MOST, tc_min_##t(a, b))                                                   \
  TC_OPERATOR(max, t, T, LEAST, tc_max_##t(a, b))                                                  \
  TC_BETTER(min, t, T)                                                                             \
  TC_BETTER(max, t, T)
#define TC_OPERATORS_ON_INTEGERS(t, T, LEAST, MOST)                                                \
  TC_OPERATOR(add, t, T, (T)0, tc_add_##t(a, b))                                                   \
  TC_OPERATOR(mul, t, T, (T)1, tc_mul_##t(a, b))                                                   \
  TC_OPERATOR(and, t, T, (T)~(T)0, (T)(a & b))                                                     \
  TC_OPERATOR(or, t, T, (T)0, (T)(a | b))                                                          \
  TC_EXTREMES(t, T, LEAST, MOST)
#define TC_OPERATORS_ON_FLOATS(t, T, INF)                                                          \
  TC_OPERATOR(add, t, T, (T)0, a + b)                                                              \
  TC_OPERATOR(mul, t, T, (T)1, a * b)                                                              \
  TC_EXTREMES(t, T, -INF, INF)

TC_OPERATORS_ON_INTEGERS(i8, int8_t, -128, 127)
TC_OPERATORS_ON_INTEGERS(i16, int16_t, -32768, 32767)
TC_OPERATORS_ON_INTEGERS(i32, int32_t, -2147483647 - 1, 2147483647)
TC_OPERATORS_ON_INTEGERS(i64, int64_t, -9223372036854775807ll - 1, 9223372036854775807ll)
TC_OPERATORS_ON_INTEGERS(u8, uint8_t, 0, 255)
TC_OPERATORS_ON_INTEGERS(u16, uint16_t, 0, 65535)
TC_OPERATORS_ON_INTEGERS(u32, uint32_t, 0, 4294967295u)
TC_OPERATORS_ON_INTEGERS(u64, uint64_t, 0, 18446744073709551615ull)
TC_OPERATORS_ON_FLOATS(f32, float, TC_INF_F32)
TC_OPERATORS_ON_FLOATS(f64, double, TC_INF_F64)
TC_OPERATOR(and, b, uint8_t, 1, (uint8_t)(a & b))
TC_OPERATOR(or, b, uint8_t, 0, (uint8_t)(a | b))
TC_EXTREMES(b, uint8_t, 0, 1)
