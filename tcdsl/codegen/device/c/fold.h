/* --- folds: the lanes of one vector, combined in registers -------------------------------------
 *
 * tc_fold_OP_T(p) combines the TC_VECTOR_BYTES / sizeof(T) values at p, halves with halves, in an
 * order that never changes.  As loops they would be written out as a chain of scalars, or through
 * memory, which costs more than the loads of a short row.
 */
#define TC_VECTOR_BYTES 64

#define TC_FOLD_LOOP(op, t, T)                                                                     \
  TC_FN T tc_fold_##op##_##t(const T *p)                                                           \
  {                                                                                                \
    T lanes[TC_VECTOR_BYTES / sizeof(T)];                                                          \
    for (int l = 0; l < TC_VECTOR_BYTES / (int)sizeof(T); l++) lanes[l] = p[l];                    \
    for (int w = TC_VECTOR_BYTES / (int)sizeof(T) / 2; w > 0; w /= 2)                              \
      for (int l = 0; l < w; l++) lanes[l] = tc_##op##_##t(lanes[l], lanes[l + w]);                \
    return lanes[0];                                                                               \
  }
#define TC_FOLD_LOOPS(t, T)                                                                        \
  TC_FOLD_LOOP(add, t, T) TC_FOLD_LOOP(mul, t, T) TC_FOLD_LOOP(min, t, T) TC_FOLD_LOOP(max, t, T)

TC_FOLD_LOOPS(i8, int8_t)
TC_FOLD_LOOPS(i16, int16_t)
TC_FOLD_LOOPS(u8, uint8_t)
TC_FOLD_LOOPS(u16, uint16_t)

TC_FN uint8_t tc_fold_and_b(const uint8_t *p)
{
  uint8_t all = 1;
  for (int l = 0; l < TC_VECTOR_BYTES; l++) all &= p[l];
  return all;
}
TC_FN uint8_t tc_fold_or_b(const uint8_t *p)
{
  uint8_t any = 0;
  for (int l = 0; l < TC_VECTOR_BYTES; l++) any |= p[l];
  return any;
}
TC_FN uint8_t tc_fold_min_b(const uint8_t *p) { return tc_fold_and_b(p); }
TC_FN uint8_t tc_fold_max_b(const uint8_t *p) { return tc_fold_or_b(p); }

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define TC_HAS_SHUFFLE 1
#endif
#endif

#ifdef TC_HAS_SHUFFLE
/* TAKE(a, b, m) takes a where the mask m is all ones, b where it is zero. */
#define TC_TAKE(V, M, m, a, b) ((V)(((M)(a) & (m)) | ((M)(b) & ~(m))))
#define TC_OP_add(V, M, a, b) ((a) + (b))
#define TC_OP_mul(V, M, a, b) ((a) * (b))
#define TC_OP_min(V, M, a, b) TC_TAKE(V, M, ((M)((a) < (b)) | (M)((a) != (a))), a, b)
#define TC_OP_max(V, M, a, b) TC_TAKE(V, M, ((M)((a) > (b)) | (M)((a) != (a))), a, b)

#define TC_LOW8(a) __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7)
#define TC_HIGH8(a) __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15)
#define TC_LOW4(a) __builtin_shufflevector(a, a, 0, 1, 2, 3)
#define TC_HIGH4(a) __builtin_shufflevector(a, a, 4, 5, 6, 7)
#define TC_LOW2(a) __builtin_shufflevector(a, a, 0, 1)
#define TC_HIGH2(a) __builtin_shufflevector(a, a, 2, 3)

#define TC_VECTORS(t, T, I)                                                                        \
  typedef T tc_v64_##t __attribute__((vector_size(64), may_alias));                                \
  typedef T tc_v32_##t __attribute__((vector_size(32)));                                           \
  typedef T tc_v16_##t __attribute__((vector_size(16)));                                           \
  typedef I tc_m32_##t __attribute__((vector_size(32)));                                           \
  typedef I tc_m16_##t __attribute__((vector_size(16)));
#define TC_FOLD_4(op, t, T)                                                                        \
  TC_FN T tc_fold_##op##_##t(const T *p)                                                           \
  {                                                                                                \
    const tc_v64_##t a = *(const tc_v64_##t *)p;                                                   \
    const tc_v32_##t b = TC_OP_##op(tc_v32_##t, tc_m32_##t, TC_LOW8(a), TC_HIGH8(a));              \
    const tc_v16_##t c = TC_OP_##op(tc_v16_##t, tc_m16_##t, TC_LOW4(b), TC_HIGH4(b));              \
    const tc_v16_##t s = __builtin_shufflevector(c, c, 2, 3, 0, 1);                                \
    const tc_v16_##t d = TC_OP_##op(tc_v16_##t, tc_m16_##t, c, s);                                 \
    const tc_v16_##t u = __builtin_shufflevector(d, d, 1, 0, 3, 2);                                \
    const tc_v16_##t e = TC_OP_##op(tc_v16_##t, tc_m16_##t, d, u);                                 \
    return e[0];                                                                                   \
  }
#define TC_FOLD_8(op, t, T)                                                                        \
  TC_FN T tc_fold_##op##_##t(const T *p)                                                           \
  {                                                                                                \
    const tc_v64_##t a = *(const tc_v64_##t *)p;                                                   \
    const tc_v32_##t b = TC_OP_##op(tc_v32_##t, tc_m32_##t, TC_LOW4(a), TC_HIGH4(a));              \
    const tc_v16_##t c = TC_OP_##op(tc_v16_##t, tc_m16_##t, TC_LOW2(b), TC_HIGH2(b));              \
    const tc_v16_##t s = __builtin_shufflevector(c, c, 1, 0);                                      \
    const tc_v16_##t d = TC_OP_##op(tc_v16_##t, tc_m16_##t, c, s);                                 \
    return d[0];                                                                                   \
  }
/* The scalars at the end are vectors too: branches of min and max would be mispredicted. */
#define TC_FOLDS(t, T, I, FOLD)                                                                    \
  TC_VECTORS(t, T, I) FOLD(add, t, T) FOLD(mul, t, T) FOLD(min, t, T) FOLD(max, t, T)
/* Vectors of unsigned integers wrap as the language does; signed ones are left to the loop. */
TC_FOLDS(f32, float, int32_t, TC_FOLD_4)
TC_FOLDS(u32, uint32_t, int32_t, TC_FOLD_4)
TC_FOLDS(f64, double, int64_t, TC_FOLD_8)
TC_FOLDS(u64, uint64_t, int64_t, TC_FOLD_8)
#else
TC_FN float tc_add_f32(float a, float b) { return a + b; }
TC_FN float tc_mul_f32(float a, float b) { return a * b; }
TC_FN double tc_add_f64(double a, double b) { return a + b; }
TC_FN double tc_mul_f64(double a, double b) { return a * b; }
TC_FOLD_LOOPS(f32, float)
TC_FOLD_LOOPS(u32, uint32_t)
TC_FOLD_LOOPS(f64, double)
TC_FOLD_LOOPS(u64, uint64_t)
#endif
TC_FOLD_LOOPS(i32, int32_t)
TC_FOLD_LOOPS(i64, int64_t)
