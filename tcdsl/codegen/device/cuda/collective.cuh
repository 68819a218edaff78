/* tcdsl device library for CUDA, part "collective": folds over the threads of a block.
 *
 * The block has TX x TY threads, any numbers of them.  Every thread gets the result, which is
 * combined in an order that never changes.
 *
 *     tc_fold_x<Op, TX, TY>(value)               over the threads of equal threadIdx.y
 *     tc_fold_y<Op, TX, TY>(value)               over the threads of equal threadIdx.x
 *     tc_fold_y_first<Op, TX, TY>(value)         the same, for the threads of threadIdx.y == 0 only
 *     tc_fold_xy<Op, TX, TY>(value)              over all threads
 *     tc_fold_x_apart<Op, 32, TY, N>(value)      over those of a warp whose threadIdx.x are equal
 *                                                modulo N, a power of two
 *     tc_argfold_x<Better, TX, TY>(value, i)     the best value and the least index of it; also
 *                                                _y and _xy.  A negative i is no candidate.
 *
 * value may be a tc_vec, whose lanes are folded at once.  tc_fold_x over a power of two up to 32 is
 * shuffles among its own TX lanes: other threads need not take part.  All else is for the whole
 * block and waits at two barriers, the second so that the shared memory can be used again at once.
 * With a number of its own as last template argument (SITE >= 0) a call has shared memory of its
 * own and no second barrier: the block must then meet some other barrier before it comes back. */

/* ---- shuffles of every type --------------------------------------------------------------- */
#define TC_SHUFFLE(way)                                                                            \
  template <typename T> TC_FN T tc_shuffle_##way(unsigned mask, T value, int distance)             \
  {                                                                                                \
    if constexpr (sizeof(T) == 8)                                                                  \
      return (T)__shfl_##way##_sync(mask, (long long)value, distance);                             \
    else                                                                                           \
      return (T)__shfl_##way##_sync(mask, (int)value, distance);                                   \
  }                                                                                                \
  TC_FN float tc_shuffle_##way(unsigned mask, float value, int distance)                           \
  {                                                                                                \
    return __shfl_##way##_sync(mask, value, distance);                                             \
  }                                                                                                \
  TC_FN double tc_shuffle_##way(unsigned mask, double value, int distance)                         \
  {                                                                                                \
    return __shfl_##way##_sync(mask, value, distance);                                             \
  }                                                                                                \
  template <typename T, int N>                                                                     \
  TC_FN tc_vec<T, N> tc_shuffle_##way(unsigned mask, tc_vec<T, N> value, int distance)             \
  {                                                                                                \
    for (int l = 0; l < N; l++) value[l] = tc_shuffle_##way(mask, value[l], distance);             \
    return value;                                                                                  \
  }                                                                                                \
  template <typename T, typename I>                                                                \
  TC_FN tc_pair<T, I> tc_shuffle_##way(unsigned mask, tc_pair<T, I> value, int distance)           \
  {                                                                                                \
    return {tc_shuffle_##way(mask, value.value, distance),                                         \
            tc_shuffle_##way(mask, value.index, distance)};                                        \
  }

template <typename T, typename I> struct tc_pair {
  T value;
  I index;
};
TC_SHUFFLE(xor)
TC_SHUFFLE(down)

/* ---- operators on pairs and vectors ------------------------------------------------------- */
template <typename Better, typename I> struct tc_op_arg {
  typedef tc_pair<typename Better::type, I> type;
  TC_FN type identity() { return {0, (I)-1}; }
  TC_FN type combine(type a, type b)
  {
    const bool is_better = Better::better(b.value, a.value);
    const bool is_first = !Better::better(a.value, b.value) & (b.index < a.index);
    const bool takes = (b.index >= 0) & ((a.index < 0) | is_better | is_first);
    return {takes ? b.value : a.value, takes ? b.index : a.index};
  }
};
template <typename Op, int N> struct tc_op_lanes {
  typedef tc_vec<typename Op::type, N> type;
  TC_FN type identity()
  {
    type v;
    for (int l = 0; l < N; l++) v[l] = Op::identity();
    return v;
  }
  TC_FN type combine(type a, type b)
  {
    for (int l = 0; l < N; l++) a[l] = Op::combine(a[l], b[l]);
    return a;
  }
};

/* Pairs are moved member by member: padding is never read. */
template <typename T> TC_FN void tc_put(T *p, T value) { *p = value; }
template <typename T> TC_FN T tc_get(const T *p) { return *p; }
template <typename T, typename I> TC_FN void tc_put(tc_pair<T, I> *p, tc_pair<T, I> pair)
{
  p->value = pair.value;
  p->index = pair.index;
}
template <typename T, typename I> TC_FN tc_pair<T, I> tc_get(const tc_pair<T, I> *p)
{
  return {p->value, p->index};
}

/* ---- within a warp ------------------------------------------------------------------------ */
constexpr bool tc_is_power_of_two(int n) { return (n & (n - 1)) == 0; }

/* The lanes of this warp that a block of THREADS has. */
template <int THREADS> TC_FN unsigned tc_present(int thread)
{
  const int left = THREADS - (thread & ~31);
  return THREADS % 32 == 0 || left >= 32 ? 0xffffffffu : (1u << left) - 1u;
}

/* Among N consecutive lanes, N a power of two. */
template <typename Op, int N>
TC_FN typename Op::type tc_fold_lanes(typename Op::type value, int thread)
{
  const unsigned mask = 0xffffffffu >> (32 - N) << (N == 32 ? 0 : thread & 31 & -N);
  for (int d = N / 2; d > 0; d /= 2)
    value = Op::combine(value, tc_shuffle_xor(mask, value, d));
  return value;
}

/* Among the lanes of one row; the first of them in this warp gets the result. */
template <typename Op, int ROW, int ROWS>
TC_FN typename Op::type tc_fold_piece(typename Op::type value, int column, int thread)
{
  if constexpr (ROW % 32 == 0) {
    return tc_fold_lanes<Op, 32>(value, thread);
  } else {
    const unsigned mask = tc_present<ROW * ROWS>(thread);
    for (int d = 16; d > 0; d /= 2) {
      if (d >= ROW) continue;
      const typename Op::type other = tc_shuffle_down(mask, value, d);
      if ((thread & 31) + d < 32 && column + d < ROW) value = Op::combine(value, other);
    }
    return value;
  }
}

/* ---- rows: ROWS times ROW consecutive threads --------------------------------------------- */

/* The pieces of one row, one a warp. */
template <typename Op, int ROW, int ROWS>
TC_FN typename Op::type tc_join_pieces(const typename Op::type *piece, int row, int thread)
{
  constexpr bool ALONE = ROW % 32 == 0 || ROWS == 1; /* no warp has threads of two rows */
  constexpr int MOST = (ROW + 31) / 32;
  typedef typename Op::type T;
  if constexpr (ALONE && MOST > 8 && ROW % 32 == 0) {
    constexpr int WIDTH = MOST > 16 ? 32 : 16;
    const int k = thread & (WIDTH - 1);
    const T own = k < MOST ? tc_get(piece + k) : Op::identity();
    return tc_fold_lanes<Op, WIDTH>(own, thread);
  } else {
    const int last = ((row * ROW + ROW - 1) >> 5) - (row * ROW >> 5);
    T value = tc_get(piece);
    for (int k = 1; k < (ALONE ? MOST : MOST + 1); k++)
      if (ALONE || k <= last) value = Op::combine(value, tc_get(piece + k));
    return value;
  }
}

template <typename Op, int ROW, int ROWS, int SITE>
TC_FN typename Op::type tc_fold_row(typename Op::type value, int column, int row)
{
  const int thread = row * ROW + column;
  if constexpr (ROW == 1) {
    return value;
  } else if constexpr (ROW <= 32 && tc_is_power_of_two(ROW)) {
    return tc_fold_lanes<Op, ROW>(value, thread);
  } else {
    constexpr int PIECES = (ROW + 31) / 32 + (ROW % 32 != 0 && ROWS > 1);
    __shared__ TC_VARIABLE(typename Op::type, pieces, [ROWS * PIECES], 16);
    typename Op::type *const mine = pieces + row * PIECES;
    value = tc_fold_piece<Op, ROW, ROWS>(value, column, thread);
    if ((thread & 31) == 0 || column == 0) tc_put(mine + (thread >> 5) - (row * ROW >> 5), value);
    __syncthreads();
    value = tc_join_pieces<Op, ROW, ROWS>(mine, row, thread);
    if (SITE < 0) __syncthreads();
    return value;
  }
}

/* ---- columns ------------------------------------------------------------------------------ */

/* Column x of the HEIGHT x TX values at part, all of it for every thread (x, y).  Tall ones in two
 * steps; the first overwrites only what its own thread reads. */
template <typename Op, int TX, int HEIGHT, int STEP>
TC_FN typename Op::type tc_join_column(typename Op::type *part, int x, int first)
{
  typename Op::type value = tc_get(part + first * TX + x);
  for (int k = first + STEP; k < HEIGHT; k += STEP)
    value = Op::combine(value, tc_get(part + k * TX + x));
  return value;
}

template <typename Op, int TX, int TY, int SITE, bool ALL>
TC_FN typename Op::type tc_fold_column(typename Op::type value, int x, int y)
{
  const int thread = x + TX * y;
  constexpr bool IN_WARPS = TX < 32 && tc_is_power_of_two(TX) && TX * TY % 32 == 0;
  if constexpr (TY == 1) {
    return value;
  } else {
    constexpr int HEIGHT = IN_WARPS ? TX * TY / 32 : TY;
    constexpr int STEP = HEIGHT <= 16 ? HEIGHT : HEIGHT <= 64 ? 8 : 16;
    if constexpr (IN_WARPS)
      for (int d = 16; d >= TX; d /= 2)
        value = Op::combine(value, tc_shuffle_xor(0xffffffffu, value, d));
    if constexpr (HEIGHT == 1) return value;
    __shared__ TC_VARIABLE(typename Op::type, part, [HEIGHT * TX], 16);
    const int mine = (IN_WARPS ? thread >> 5 : y) * TX + x;
    if (!IN_WARPS || (thread & 31) < TX) tc_put(part + mine, value);
    __syncthreads();
    if constexpr (STEP < HEIGHT) {
      if (y < STEP) tc_put(part + y * TX + x, tc_join_column<Op, TX, HEIGHT, STEP>(part, x, y));
      __syncthreads();
    }
    if (ALL || y == 0) value = tc_join_column<Op, TX, STEP, 1>(part, x, 0);
    if (SITE < 0) __syncthreads();
    return value;
  }
}

/* ---- what kernels call -------------------------------------------------------------------- */
template <typename Op, int TX, int TY, int SITE = -1>
TC_FN typename Op::type tc_fold_x_any(typename Op::type value)
{
  return tc_fold_row<Op, TX, TY, SITE>(value, (int)threadIdx.x, TY == 1 ? 0 : (int)threadIdx.y);
}
template <typename Op, int TX, int TY, int SITE = -1, bool ALL = true>
TC_FN typename Op::type tc_fold_y_any(typename Op::type value)
{
  const int x = TX == 1 ? 0 : (int)threadIdx.x;
  return tc_fold_column<Op, TX, TY, SITE, ALL>(value, x, (int)threadIdx.y);
}
template <typename Op, int TX, int TY, int SITE = -1>
TC_FN typename Op::type tc_fold_y_first_any(typename Op::type value)
{
  return tc_fold_y_any<Op, TX, TY, SITE, false>(value);
}
template <typename Op, int TX, int TY, int SITE = -1>
TC_FN typename Op::type tc_fold_xy_any(typename Op::type value)
{
  const int thread = (int)threadIdx.x + (TY == 1 ? 0 : TX * (int)threadIdx.y);
  return tc_fold_row<Op, TX * TY, 1, SITE>(value, thread, 0);
}

template <typename Op, int TX, int TY, int APART>
TC_FN typename Op::type tc_fold_x_apart_any(typename Op::type value)
{
  static_assert(TX == 32 && APART < 32 && tc_is_power_of_two(APART), "threads of a warp");
  for (int d = APART; d < 32; d *= 2)
    value = Op::combine(value, tc_shuffle_xor(0xffffffffu, value, d));
  return value;
}

/* Of values, of the lanes of vectors, and of pairs; MORE are the numbers that some ways are told. */
#define TC_FOLD(way)                                                                               \
  template <typename Op, int TX, int TY, int... MORE>                                              \
  TC_FN typename Op::type tc_fold_##way(typename Op::type value)                                   \
  {                                                                                                \
    return tc_fold_##way##_any<Op, TX, TY, MORE...>(value);                                        \
  }                                                                                                \
  template <typename Op, int TX, int TY, int... MORE, int N>                                       \
  TC_FN tc_vec<typename Op::type, N> tc_fold_##way(tc_vec<typename Op::type, N> value)             \
  {                                                                                                \
    return tc_fold_##way##_any<tc_op_lanes<Op, N>, TX, TY, MORE...>(value);                        \
  }                                                                                                \
  template <typename Better, int TX, int TY, int... MORE, typename I>                              \
  TC_FN tc_pair<typename Better::type, I> tc_argfold_##way(typename Better::type value, I index)   \
  {                                                                                                \
    return tc_fold_##way##_any<tc_op_arg<Better, I>, TX, TY, MORE...>({value, index});             \
  }
TC_FOLD(x)
TC_FOLD(y)
TC_FOLD(y_first)
TC_FOLD(xy)
TC_FOLD(x_apart)
