"""Functions that a kernel's text brings with it, because no library has them."""

_FIRST = """\
/* The least number from low on that leaves the remainder me, divided by width. */
static __device__ __forceinline__ int64_t tcdsl_first(int64_t low, int me, int width)
{
  const int64_t step = (me - low) % width;
  return low + (step < 0 ? step + width : step);
}
"""

_CLAMP = """\
static __device__ __forceinline__ int64_t tcdsl_clamp(int64_t index, int64_t extent)
{
  return (uint64_t)index < (uint64_t)extent ? index : 0;
}
"""

# Functions that are in no library, in the order of their texts.
HELPERS = {"tcdsl_first": _FIRST, "tcdsl_clamp": _CLAMP}
