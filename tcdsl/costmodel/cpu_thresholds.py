"""From when on something is worth while on a CPU: numbers of measured kernels.

From x86 servers of 2 to 64 cores with AVX2 and AVX-512 (docs/performance.md).  Who reads a number
keeps it under a name of its own, which tests lower.
"""

FORKED_OPERATIONS = 1 << 15  # below which threads cost more than they bring
TILES_A_THREAD = 4  # so that one that is late does not hold up all
TILE_VALUES = 1024  # at least
PARTIAL_BYTES = 64 << 20  # of partial sums, of all threads together
OPEN_CHUNK_VALUES = 512  # of an open reduced axis that a thread takes at once, if innermost, ...
OPEN_CHUNK_ROWS = 16  # ... or otherwise
BAND_TILE = 32  # iterations of a loop of a permutable band
CHUNKS_A_THREAD = 4
WAVEFRONT_INSTANCES = 1 << 19  # of a recurrence: fewer cost more in barriers than threads bring
WAVEFRONT_TILE = (32, 128)  # of the outer loops, of the innermost: long enough to pay a barrier
LINE_BYTES, PAGE_BYTES = 64, 4096
# A set of the first-level cache has so many lines; lines that are SET_BYTES apart share one.
SET_LINES, SET_BYTES = 8, 4096
# At most: the other array's lines, one a value, may all fall into one set of the cache.
TRANSPOSED_NEAR = 16
TRANSPOSED_FAR = 128  # values along the other array: 128 and 256 are alike and 32 is slower
TRANSPOSED_INSTANCES = 1 << 14  # below, everything stays in the cache
TILED_MULTIPLICATIONS = 1 << 14  # below which the simple loops do
TILED_USES = 4  # of an element of an operand, for it to be worth a register
SPLIT_INSTANCES = 1 << 10  # of a sum that is computed for each remainder: 900 took half as long so
PACKED_USES = 8  # of an element of an operand, for it to be copied to a buffer of its own
ACCUMULATORS = {32: 20, 16: 12}  # vector registers for partial results, of so many
# Of the rate of whole vectors of results (layers of benchmarks/cpu_contractions.py): vectors of
# partial sums, whose tiles load nearly as often as they multiply; a last vector that is not whole,
# of partial sums and of results; and results apart in memory, whose stores take as long as so many
# terms.
FOLDED, REST, PARTS, APART_TERMS = 0.55, 0.7, 0.85, 32
# A copy of an operand that takes more than 1 / FAR_SHARE of the cache that cores share: tiles read
# columns of it, which are on pages of their own (3 x 3 filters of 512 channels: 9.4 MB).
FAR_SHARE, FAR = 8, 0.6
TILED_ROWS = 8  # that are summed on average, if data choose them: fewer take as long without tiles
ROW_VECTORS = 8  # for the sum of such rows
ALIKE_ROWS = 1.1  # times the steps of the longest rows, for rows that are nearer in memory
ROWS_AHEAD = 16  # iterations before such a row is added, it is prefetched
ROWS_A_BLOCK = 64  # of the tile's operand that stay in the second-level cache
BLOCKED_ROWS = (32, 64, 120, 200, 360)  # of packed panels, about
BLOCKED_COLUMNS = (64, 128, 256, 512)
TERMS_A_BLOCK = 360  # at most: a tile's two panels and what it adds to stay near
PANEL_TERMS = 128  # of an index, at least
# Terms of the other reduced indices, at most: of convolutions' images, panels along one index took
# 1.0 to 2.5 times as long as tiles that read them where they are.
PANEL_WINDOW = 1
CONVERTED_TILES = 2  # times as long, where tiles convert narrow terms (int8, 128^3: 2.1), or guard
GUARDED_TILES = 20  # the same, for a guard with a remainder (data gradients with strides: 70)
# How much longer a tile of 16 vector registers takes, where the longest loop over terms is around a
# window's taps and goes so far in what vectors load: 1.4 (3 x 3 of 56 x 56 x 64, data, channels
# last) to 2.4 (channels second) times, where tiles of 64 filters side by side take 1.
FAR_TERMS, FAR_TERM_BYTES = 1.7, 512
# Rows and columns, at least: copies took 1 ns an element, as long as 57 products of a vector's
# lane, and what is copied is used once for each column or row.  64 x 1000 by 1000 x 1000, 64 x 256
# by 256 x 3136 and two like them took 0.85 to 0.92 of the time without (one thread of a Zen 4).
PANEL_USES = 96
# The same of a window whose rows count several indices, of 16 vector registers: 3 x 3 of 56 x 56 x
# 64 took 0.54 to 0.75 of the time of tiles (one thread of a Zen 3), but forward with channels last,
# whose tiles have filters side by side, 1.05.
TAPS_USES = 64
COPY_LANES = 24  # products of a lane that copying an element to a panel takes (512^3: 0.4 ns)
# The same of an element alone, whose neighbours in memory are copied at another time: an index that
# counts the values of several is found once for the other side of a panel.  3 x 3 of 56 x 56 x 64
# and 28 x 28 x 128, channels second, took 0.5 and 1.2 ns an element more than with channels last
# (AVX2), since padding is asked once a line; the estimate has 80 products a ns.
APART_LANES = 72
NARROW_USES = 16  # of operands that would else be converted: a copy of them, too
# Of a window of narrow types: terms of its longest index, and rows and columns.
WINDOW_TERMS, WINDOW_USES = 32, 7
PANEL_CACHE = 0.65  # of a core's second-level cache, that a block and its panels may take
PANEL_BYTES = 512 << 10  # of a block of one operand, on a thread's stack
# Rows of a block whose functions run in vectors: the bytes of all, which stay in the first-level
# cache, and their number is a multiple of the longest vector's lanes.
FUNCTION_ROWS_BYTES, FUNCTION_ROWS = 1 << 14, 16
PIECES_A_THREAD = 64  # of a loop whose iterations are of different lengths
STENCIL_ROWS = (8, 16, 32, 64, 128)  # of a tile of a chain of stencils, along all axes but the last
STENCIL_VALUES = (64, 128, 256, 512, 1024)  # of its rows
STENCIL_CACHE = 0.5  # of a core's second-level cache, that what lies between may take
LOOP_START_SECONDS = 1e-8  # until an innermost loop runs in whole vectors

# Of the estimate (estimate, nests).
OVERLAP = 3  # the power of the norm of what a core does, and of what comes from beyond its L1
# What a piece takes beside its own bytes, from the cache that cores share and from memory, if the
# next piece is on another page: 1024^3 of float32 takes 1.2 times as long in tiles as on panels,
# whose columns are together (128 bytes a piece), columns' sums in tiles of 1 KB 1.3 to 2 times as
# long as whole.
RESTART_BYTES = 128, 512
STREAMS = 16  # at once, that go on: what is ahead of them is loaded
HELD_SHARE = 0.8  # of a cache, that what is used again may take
CALL_OPERATIONS = 16  # of a function, in whole vectors
CONVERSION_OPERATIONS = 2  # of a narrow number to a wider one

# Of a sum: take as long as storing and loading an element of an intermediate (contraction_order).
PRODUCTS_PER_ELEMENT = 16
