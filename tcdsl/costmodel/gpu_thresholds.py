"""From when on something is worth while on a GPU: numbers of measured kernels.

Where no estimate weighs two ways of doing something, one of these decides.  All are from kernels on
an H200 (docs/performance_gpu.md; where a comment has times, from those), and so are only as good as
another chip is like it: what is asked for a multiprocessor or of a thread scales with the chip,
operations for which a launch costs more scale with launch_s times the rate of one multiprocessor.
Who reads a number keeps it under a name of its own, which tests lower.
"""

# --- work that is worth a kernel, blocks, or threads -------------------------------------------

LAUNCH_OPERATIONS = 1 << 16  # for which another launch costs more than idle multiprocessors
LAST_BLOCK_CONSUMER_OPERATIONS = 1 << 16  # the same, of what the last block does after a reduction
LAST_BLOCK_TICKETS = 2048  # blocks that take tickets, where what follows is small
LAST_BLOCK_LOADS = 32  # of a thread: more is worth a kernel on the whole chip
# Times a kernel of its own that last blocks may take for what they need not run: their estimate has
# not been compared with times.
LAST_BLOCK_SLOWER = 2.0
LAST_BLOCK_CHUNKS = 32  # of a row, for each thread of the row's last block
AXIS_ITERATIONS = 8  # of an axis that are worth threads of their own
RECURRENCE_INSTANCES = 1 << 10  # below which one thread is as fast as many with barriers
BATCH_THREADS = 1 << 12  # that a batch of recurrences has before each takes one of its own
PARALLELISM_KEPT = 0.75  # of what a part has alone: fusion saves memory traffic
FUSED_TIME = 0.9  # of the kernels' apart, that one kernel may take: estimates err
REREAD_BYTES = 0.8  # of what is stored and loaded, that may be loaded again instead
VECTORED_VALUES = 1 << 12  # for which fewer threads may do, each with a vector
# Of a chip's threads, that are left where each has several results; and such results of one.
# Depthwise layers and 3 x 3 convolutions of 4 channels (docs/trials.md).
BLOCKED_THREADS = 1 / 3
BLOCKED_SUMS = 16

# --- rows --------------------------------------------------------------------------------

TWO_LEVEL_VALUES = 1 << 12  # of a row: shorter ones are not worth two levels of exponential sums
TERM_VALUES = 1024  # of a row whose terms are computed once: shorter ones share threads, or a block
KEPT_VALUES = 40  # of a row that a thread keeps, of all arrays together, ...
KEPT_VALUES_OF_ONE = 64  # ... and of a single one: with 1024 threads all registers but a few
# Of the time of rows in clusters, that chunks and the rest are to take at most.  (64, 2^20) in
# bfloat16 takes 110 us in chunks (H200; 99 predicted), 129 in clusters of 16.
CHUNKS_SHARE = 0.9
CHUNK_KEPT_BYTES = 256  # of a thread: more would leave one block to a multiprocessor
FEW_ROWS = 16  # a multiprocessor
LONE_ROWS = 1  # a multiprocessor: nothing hides the latency of a thread's second vector
IDLE_OF_FEW = 0.05  # of a row's threads, where there are few rows
IDLE_OF_MANY = 0.25  # of them, in any case (layernorm of 20000 x 3000: 117 us, 125 with 0.27)
IDLE_OF_WARP = 0.2  # of the threads of a row that are part of a warp
ROW_VECTORS = 2  # of a thread on their way, where a row has so many
ROW_VECTORS_SKEWED = 8  # the first and the last are in pieces, which takes instructions
ROW_VECTORS_READ = 4  # where nothing is stored, or instructions are to hide what loads take
WARP_ROW_LOADS = 2  # of a thread, of all its rows (bfloat16, 64 columns: 38 us; with four 39.6)
WARP_ROW_VECTORS = 8  # of a lane, of rows that a warp adds up
LONE_THREAD_VALUES = 16  # of a row that one thread adds up (bfloat16: 39.6 us; of two threads 40.5)
COLUMN_VECTORS = 4  # of neighbours that threads load together, where rows are far apart
COLUMN_BLOCKS = 2  # of a multiprocessor, that are left where a thread has several columns
CLUSTER_VECTORS = 32  # of a thread, whose loop is unrolled
RAGGED_ENTRIES = 4  # of an average row, that a thread takes: their loads start together
RAGGED_LONG_ENTRIES = 8192  # of a row that blocks share
RAGGED_CHUNK_ENTRIES = 4096  # that a block takes at once
RAGGED_LEAST_ENTRIES = 64 * RAGGED_LONG_ENTRIES  # in all, or no row is worth more kernels
RECOMPUTED_OPERATIONS = 8  # of a value that is computed again from shared memory, not kept, ...
RECOMPUTED_FUNCTIONS = 1  # ... of them functions

# --- of alike candidates ----------------------------------------------------------------

BUSY_THREADS = 768  # of a multiprocessor that hides latencies as well as the estimate believes
BUSY_SECONDS = 10e-6  # predicted, of kernels that are long enough for that

# --- products ----------------------------------------------------------------------------

BRIEF_TILE_SECONDS = 6.5e-6  # predicted: most of them are latencies
BRIEF_CHAIN_SECONDS = 10e-6  # the same, of a chain of several products
SPEEDUP_OVER_BRIEF_TILES = 2.3  # predicted, of what takes their place
TILED_MULTIPLICATIONS = 1 << 18  # below which a launch takes longer than the arithmetic
TILED_USES = 8  # of an operand's element, for it to be worth shared memory
TILED_CHUNK_VALUES = 128  # of a reduced axis that are worth a block of their own
SLOWER_THAN_IMPLICIT = (
    1.15  # predicted, what takes so much longer than tiles of an implicit product
)
SWATH_FROM_MEMORY = 4  # tiles at least, of columns that the second-level cache does not hold (H100)
# Rows that an element is multiplied by, and products in all, from which on planes are tried: with
# 1536 x 1536 x 1536 they took 143 us for 110, with 1792 x 1792 x 1792 169 for 195 (H200).
PLANES_ROWS = 512
PLANES_PRODUCTS = 5 << 30
# Whole sectors that a part of one costs (the gradient by data of stride 2, 56 x 56 x 128 of 32
# images, channels second, H200: 126 us, with neighbours along channels 81).
PART_OF_SECTOR = 2.3
# Of a thread, of sums and of what is reduced of them: with 256 of places of columns some spill.
TILE_HELD_REGISTERS = 200
EQUAL_SHARES_CACHE = 0.75  # of the second-level cache, for operands of blocks with equal shares
TILE_ORDER_BYTES = 0.5  # of those that the usual order of tiles brings, for another one
TILE_CHUNK_TERMS = 64  # of a chunk: its sums are loaded and stored once more
CHAIN_LOAD_INSTRUCTIONS = 2.5  # of a chain's load, with its address
CHAIN_LOAD_CYCLES = 40  # that it waits for, from the first-level cache or shared memory
CHAIN_OWN_LOADS = 0.5  # part of its loads from shared memory that is not another thread's at once
CHAIN_REGISTERS = 32  # of a thread, beside its sums
CHAIN_BYTES_IN_FLIGHT = 32.0  # of a thread

# --- stencils ----------------------------------------------------------------------------

STENCIL_ADDRESS_INSTRUCTIONS = 4  # of an array in memory, beside its loads
STENCIL_COLUMN_REGISTERS = 96  # of a thread that has columns of a tile
STENCIL_COLUMN_ROWS = 8  # of such a thread: faster than 4, 12 and 16, for which NVRTC takes 1.5 s
STENCIL_LOADS_AHEAD = 10  # between a load of such a thread and what needs it
STENCIL_OTHER_UNITS = 0.15  # of the time that units take which are not the limiter

# --- scattered results -------------------------------------------------------------------

COPIES_CACHE = 1 / 4  # of the second-level cache, for copies of results that are added up
COPIES_TIME = 0.9  # of that without copies

# --- folds ---------------------------------------------------------------------------------

FOLD_LANES_BYTES = 36 << 10  # of shared memory, of several lanes at once: two of 512 x 8 floats
FOLD_VALUES_BYTES = 24 << 10  # the same, of several values at once, before arrays have any

# --- launches ----------------------------------------------------------------------------

ALIKE_BLOCKS_LAUNCHES = 0.5  # that blocks like another kernel's may take longer
# That a move must save.  On an H200 (benchmarks/launches.py) blocks side by side save 0.6 to 0.9 us
# a kernel, half of what is predicted, and cost nothing where kernels are large; barriers of all
# blocks have paid where the host's launches take longest, and nowhere else.
PHASES_LAUNCHES = 2.0
PACKED_LAUNCHES = 0.25
UNTOUCHED_CACHE = 1 / 16  # second-level, that a kernel may touch and leave it as it is

# --- loads -------------------------------------------------------------------------------

# As many as registers bear without a second thought; other numbers were not measured.
UNROLLED_ITERATIONS = 16  # whose loads may start together
UNROLLED_BYTES = 128  # of a thread, in registers, on their way
# Of a block, at most, whose values of registers are several turns' at once.  focal_loss in float32,
# 1024 threads: 50 registers by turns, one block a multiprocessor, 32.9 us; 29 registers and 27.8 us
# in a loop.  In bfloat16, 512 threads: 24.0 by turns and 25.4 (H200).
THREADS_WITH_SEVERAL_TURNS = 512
SUMMED_ITERATIONS = 64  # of a loop, that are worth blocks of their sum
RANGE_ITERATIONS = 4  # between bounds that are loaded, whose loads start together

# --- what a schedule costs, before any code is made -------------------------------------------

# Registers of a thread, as NVRTC 13 has for 860 candidates of row, column and pointwise kernels.
REGISTERS_BESIDE_KEPT = 16  # beside values of rows or columns that it keeps, ...
# ... but of 64 registers, all that 1024 threads may have, NVRTC fills 52 with the values of a row
# (softmax, rmsnorm, losses) before it stores any; of a layernorm 3 of 52 (`ptxas -v`, sm_90a).
FEWEST_BESIDE_KEPT = 12
REGISTERS_OF_RESULT = 2  # ... and of each of the sums of neighbours that it has then
REGISTERS_OF_STREAM = 32  # where it keeps nothing, and at least
REGISTERS_OF_ARRAY = 3  # where a thread loads vectors: of each array, beside those 16, ...
REGISTERS_OF_SUM = 4  # ... and of each sum (lamb: 10 arrays, 2 sums: 53 to 64)
# Loads of statements, and the share of a multiprocessor's threads, from which on and up to which
# blocks that all run at once are given more registers than NVRTC would take.
LOADS_OF_WAVE = 16
THREADS_OF_WAVE = 1 / 4
# Of a thread with several points, beside two of each sum: 3 x 3 windows of 16 to 64 sums have 63 to
# 164 in all (NVRTC 13).
REGISTERS_OF_BLOCK = 24
STREAM_BYTES = 80  # of a thread on their way, of loads that it does not keep: others start later
BASE_REGISTERS = 26  # of a thread of a stencil, for indices and addresses
PRIVATE_BYTES = 64  # of a temporary in a thread, from when on it is in memory of its own
LOCAL_TRAFFIC = 3  # times that such a byte is stored, and is loaded: the cache holds few of them
KEPT_HALF_BYTES = 2.2  # of a register, that a kept value of a half type takes: two share one
SCATTERED_LOOKUPS = 6  # that a line is worth of which a warp takes but a part
L1_HELD = 0.9  # of the first-level cache, for rows that a block reads again
WARP_CYCLES = 29  # until a warp of a block has begun, and has ended; the first of each scheduler: 0
STAGED_CYCLES = 600  # until rows that are copied to shared memory are there, beside their loads
TICKET_ATOMICS = 2.5  # latencies of an atomic, for the fence and the ticket of a block
INSTRUCTIONS_LEFT = 0.41  # of those that an expression is counted as, after compilers
# Of an argmin's or argmax's candidate: is it better, is it or the best a NaN, is there a best; the
# value and the index of 64 bits are chosen (some 22 instructions; row_argmax, H200, 32 threads).
PAIR_OPERATIONS = 54
CALL_INSTRUCTIONS = 16  # of a function of an element, in chains and stencils
LONE_INSTRUCTION_CYCLES = 2  # of a thread that waits for none, of a warp that no other hides
SHARED_UPDATE_CYCLES = 100  # of a float in shared memory, till a thread's next one
WARP_STEP_CYCLES = 5  # of one step of a fold, that other warps do not hide
SERIAL_VECTORS = 4  # of an array that a thread has on their way, where a loop is serial

# Of a sum: take as long as storing and loading an element of an intermediate (contraction_order).
PRODUCTS_PER_ELEMENT = 64
