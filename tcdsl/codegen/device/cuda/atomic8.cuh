/* tcdsl device library for CUDA, part "atomic8": the updates of part "atomic" on float8.
 *
 * Apart from them, as a kernel without float8 would pay for the conversions.  Needs "float8". */

TC_ATOMICS_HALF(e4m3, uint8_t)
TC_ATOMICS_HALF(e5m2, uint8_t)
