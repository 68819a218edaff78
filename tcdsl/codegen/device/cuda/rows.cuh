/* tcdsl device library for CUDA, part "rows": eight rows of a warp in shared memory, to which four
 * neighbouring threads each store pairs, and of which all its threads move whole lines. */

/* Row *line* of this thread's warp, of those that begin at *rows*: BYTES each, and PAD more, so that
 * eight rows lie in different banks.  Warps are along z. */
template <typename T, int BYTES, int PAD> TC_FN T *tc_row(unsigned char *rows, int line)
{
  return (T *)(rows + ((int)threadIdx.z * 8 + line) * (BYTES + PAD));
}

/* All threads of the warp are done with what they had to do with its rows. */
TC_FN void tc_rows_done() { __syncwarp(); }
