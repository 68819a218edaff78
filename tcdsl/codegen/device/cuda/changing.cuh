/* tcdsl device library for CUDA, part "changing": loads of what is written while a kernel runs.
 *
 * The compiler makes one load of the arms of c ? x[i] : y[i], and where x is only read, one through
 * the read-only cache, which does not see what was stored to y.  tc_changing(y[i]) is y[i]; the
 * load goes to an assembly without instructions, and no other load is like it. */
#ifdef __CUDA_ARCH__
#define TC_CHANGING(constraint, word) asm("// changing" : "+" constraint(word))
#endif
template <typename T> TC_FN T tc_changing(T value)
{
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) % 4 == 0) { /* words: of 64 bits lanes of 16 would be shifted out */
#pragma unroll
    for (int w = 0; w < (int)sizeof(T) / 4; w++)
      TC_CHANGING("r", reinterpret_cast<unsigned int *>(&value)[w]);
  } else if constexpr (sizeof(T) == 2) {
    TC_CHANGING("h", reinterpret_cast<unsigned short &>(value));
  } else {
    static_assert(sizeof(T) == 1, "a number, or a vector of numbers");
    unsigned int wide = reinterpret_cast<unsigned char &>(value);
    TC_CHANGING("r", wide);
    reinterpret_cast<unsigned char &>(value) = (unsigned char)wide;
  }
#endif
  return value;
}
