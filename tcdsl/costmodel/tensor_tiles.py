"""What a contraction on tensor cores costs: tiles of warps, operands by way of shared memory.

    block    for each step:   copies on their way | barrier | matrices from shared memory, products

Products are of whole tiles: what lies outside the results takes as long.
"""

from dataclasses import replace
from math import prod
from typing import NamedTuple

from tcdsl.costmodel.chip import BANK_BYTES, WARP, Chip, Feature, Unit
from tcdsl.costmodel.copies import BOX_CYCLES, THREAD_CYCLES, late_cycles
from tcdsl.costmodel.work import Chain, Work, times
from tcdsl.records import dataclass

# Of the rate of cuBLAS, which has wgmma: what an H200 reached at most with mma.sync.
WARP_RATE = 0.53
# Of float64, which wgmma does not have (H100); two threads of a load of 8 bytes meet in a bank.
DOUBLE_RATE, DOUBLE_CONFLICTS = 0.7, 2
GROUP_RATE = 0.9  # and with wgmma behind copies by cp.async, were there no barriers
# Of copies of boxes, which wait for no threads (benchmarks/measured/products_h200.jsonl): the rate
# of products, and the cache's share for what a box brings.
BOX_RATE, BOX_SHARE = 1.0, 0.5
# The same where blocks have equal shares of all steps: neighbours ask for other lines at a time.
# No size that was timed is predicted faster than it is (H200, docs/trials.md).
APART_SHARE = 0.8
ODD_LINES = 1.25  # a line of a box that is in two of the cache has five sectors, not four
CLUSTERED = 1.05  # of a block's time, in a cluster: 1.01 to 1.09 where lines are not odd (H200)
# Of any block, from its start to its first products and from its last ones to its end; for each
# result, which a thread stores two at a time.
END_CYCLES, RESULT_CYCLES = 2000, 0.03
SHUFFLE_CYCLES = 1.0  # of a warp: a multiprocessor exchanges 32 values of 4 bytes a cycle (guide)
# From 40 configurations of products of 2048 and 4096 on an H200.
# Of products of float32 in parts, all waits of a step (benchmarks/split_products.py, H200).
SPLIT_PRODUCTS, SPLIT_REGISTERS = 3, 32
SPLIT_CYCLES = 0.78, 330, 6  # rate, cycles of a step, and of each of its columns
PLANES_CYCLES = 1.0, 140, 0  # where columns have parts in memory: tiles of 128 x 128 (H200)
PROMOTED_INSTRUCTIONS = 2  # of each result and step: set to 0, and added
# Of a step, during which the next ones' operands come, if groups of four warps add by turns (H100).
PROMOTED_CYCLES = 250
GROUP_ROWS = 64  # of an instruction of four warps
# Of a sum that blocks of an implicit product share: stored, and read by another kernel, at digits
# of its number (3x3 by weights of 14 x 14, H100: six chunks take 2.1 us more than three, 14 MB of
# float32).  Of plain products no more than it moves: 256 x 1024 sums of 6272 take 16.0 to 16.4 in
# eight chunks, 16.5 to 16.7 in four of half as large tiles (H200).
PART_BYTES = 8.0
FINISH_BYTES_PER_S = 60e9  # that one block adds up
PART_OF_SUM = 4  # bytes of a part of a float32 sum, or an int32 one
COPY_SHARE = 0.67  # of the time that the second-level cache takes for what blocks share
COPY_INSTRUCTIONS = 3  # of a copy, its addresses included
OTHER_REGISTERS = 44  # operands, addresses and counters, of a thread
OPERAND_REGISTERS = 4  # of a matrix of 16 x 16
ROWS, COLUMNS, BYTES = 16, 8, 32  # of one instruction; bytes along the terms
# Of a step, where no other block is there: until the first products, and between matrices.
STEP_CYCLES, TERMS_CYCLES = 200, 25
GROUP_CYCLES = 250  # of a step of wgmma


# Of an operand that threads compute in registers: instructions of a pair of elements but for loads
# and operations (counted in code); and the cycles of a warp for each load from shared memory, each
# operation of an element, and the conversion of two elements of a byte, during which nobody
# multiplies: groups of four warps come to a stage together.  Where there is one group it waits for
# nobody else's instructions.  Fitted to int8, groups and relu of 4096 and 16 x 4096 x 4096 (H200).
HELD_INSTRUCTIONS = 2.0
HELD_CYCLES, HELD_ALONE = (2.1, 4.2, 11.0), 0.75
# The kernel has to be predicted to take that of the time of others: as far as the fit is off.
# Benchmarks ask for all of them, or for none.
HELD_MARGIN = 0.85


class HeldOperand(NamedTuple):
    """Rows' operand, computed in registers of what has *element_bytes* in memory.

    *operations* of an element, and *loads* from shared memory of two that are neighbours.
    """

    element_bytes: int
    operations: int
    loads: int

    @property
    def instructions(self) -> float:
        """Instructions of a pair of elements."""
        return self.loads + 2 * self.operations + HELD_INSTRUCTIONS

    @property
    def cycles(self) -> float:
        """Cycles of a warp for a pair of elements."""
        of_load, of_operation, of_conversion = HELD_CYCLES
        conversion = of_conversion if self.element_bytes == 1 else 0.0
        return of_load * self.loads + of_operation * self.operations + conversion


class _Parts(NamedTuple):
    """Of products of float32 in parts: the unit's share, a step's cycles, bytes read and stored."""

    share: float
    cycles: float
    loaded: float
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class TensorWork:
    """A contraction: *blocks* of warps with *rows* x *columns* results each, sums of *terms*."""

    blocks: int
    warps: tuple[int, int]  # along rows and columns
    rows: int
    columns: int
    terms: int
    step: int
    stages: int
    together: int  # warps that multiply at once
    unit: Unit
    copy_bytes: int  # that one copy moves, of the operand with the narrower ones
    result_bytes: float  # written
    operand_bytes: float  # read at least
    element_bytes: int = 2
    loads: tuple[int, int] = (1, 1)  # instructions for 16 rows and columns of an instruction
    is_boxed: bool = False  # operands come in boxes, and products wait for no barrier of the block
    chunk_bytes: float = 0.0  # of sums that blocks share: stored, and added up afterwards
    tiles_of_block: int = 1  # one after another, of which the next is on its way
    is_split: bool = False  # each product is three of parts: see strategies/tensor_types.py
    is_promoted: bool = False  # sums of a step are added to others by threads
    finishing: int = 0  # blocks of a tile, of which the last adds up the sums; 0: another kernel
    products: int = 1  # whose results have the same tiles
    factors: tuple[int, int] = (1, 1)  # tiles of rows, and of columns, of a step
    stores: int = 1  # tiles of results that are stored
    fold_steps: float = 0.0  # of a tile: values that warps exchange to fold columns
    in_planes: bool = False  # columns have parts in memory
    # Blocks of a cluster along rows and columns.  What they read alike comes once for all of them,
    # which saves no time at most sizes (docs/trials.md): counted as if it came for each, but where
    # lines of a box are *odd*, of rows' and of columns' operand.
    cluster: tuple[int, int] = (1, 1)
    odd: tuple[bool, bool] = (False, False)
    # What results take of the second-level cache, where its sectors are written in parts.
    stored: float = 0.0
    held: HeldOperand | None = None
    # Of blocks with equal shares of all steps: the tiles that one has steps of, and the most blocks
    # that have steps of a tile, which its owner waits for; 0: each block has whole tiles.
    tiles: float = 0.0
    parts: int = 0
    narrow: int = 0  # factors without low parts: so many products of parts are left out

    def work(self, chip: Chip) -> Work:
        """Return the kernel's work."""
        along, across = self.warps
        warps = along * across
        steps = -(-self.terms // self.step) * self.tiles_of_block
        terms = steps * self.step
        block_bytes, results = self._term_bytes(), self.products * self.rows * self.columns
        element_bytes, at_once = self.element_bytes, BYTES // self.element_bytes
        products = float(self.blocks) * warps * results * terms
        loaded = float(self.blocks) * warps * terms * (self.rows + self.columns) * element_bytes
        copied = float(self.blocks) * terms * block_bytes
        of_warp = self.rows // ROWS * (self.columns // COLUMNS) * (terms // at_once)
        matrices = self._matrices() * (terms // at_once)
        each = WARP * float(self.blocks) * warps * self.products
        instructions, loaded = each * (of_warp + 2 * matrices), loaded * self.products
        share = WARP_RATE if chip.has(Feature.WARPGROUP_PRODUCTS) else 1.0
        if self.unit is Unit.TENSOR_F64:
            share, loaded = DOUBLE_RATE, DOUBLE_CONFLICTS * loaded
        waits = STEP_CYCLES + TERMS_CYCLES * self.step // at_once
        fragments = OPERAND_REGISTERS * ((self.rows + self.columns) // ROWS)
        if self.together > 1:  # which reads shared memory itself, at its own rate
            share, fragments, loaded, waits = GROUP_RATE, 0, 0.0, GROUP_CYCLES
            instructions /= self.rows * self.columns // (ROWS * COLUMNS)
        crossing, asked = COPY_SHARE, COPY_INSTRUCTIONS * copied / self.copy_bytes
        cycles = waits * steps + self._late(chip, share) + self._ends()
        chain = Chain(dram_loads=1, block_barriers=steps, cycles=cycles)
        if self.is_boxed:
            share, asked = BOX_RATE, 0.0
            crossing = APART_SHARE if self.tiles else BOX_SHARE
            chain = Chain(dram_loads=1, cycles=self._late(chip, share) + self._ends())
            # That four warps read in a step.  Products that share a tile reach the rate of one with
            # the columns of all (H100: 690 TFLOP/s), as if they read it once.
            lines = self.factors[0] * self.together * self.rows + self.factors[1] * self.columns
            loaded = float(self.blocks) * warps // self.together * terms * lines * element_bytes
        if self.held is not None:
            fragments += self.factors[0] * self.rows * self.step // WARP // 2 + OPERAND_REGISTERS
            pairs = float(self.blocks) * warps * self.factors[0] * self.rows * terms / 2
            asked += pairs * self.held.instructions
            lines = self.factors[1] * self.columns
            loaded = float(self.blocks) * warps // self.together * terms * lines * element_bytes
            loaded += pairs * self.held.loads * BANK_BYTES
            chain = replace(chain, cycles=chain.cycles + steps * self._held_cycles())
        if self.is_promoted:
            fragments += self.rows * self.columns // WARP
            added = float(self.blocks) * warps * self.rows * self.columns * steps
            instructions += PROMOTED_INSTRUCTIONS * added
        parts_bytes = 0
        if self.is_split:
            share, of_step, loaded, parts_bytes = self._parts(terms)
            chain = Chain(dram_loads=1, cycles=of_step * steps + self._ends())
            fragments += self.rows * self.columns // WARP + SPLIT_REGISTERS
        made = Work(
            self.blocks, WARP * (warps + self.is_boxed),
            registers=results // WARP + fragments + OTHER_REGISTERS,
            shared_bytes=self.stages * self.step * block_bytes + parts_bytes,
            read_bytes=self.operand_bytes,
            written_bytes=self.result_bytes,
            l2_bytes=crossing * self._crossing(terms)
            + max(self.result_bytes, self.stored) + self.chunk_bytes,
            shared_traffic_bytes=loaded + copied,
            operations=((self.unit, products / share),),
            instructions=instructions + asked,
            in_flight_bytes=(self.stages - 1) * self.step * block_bytes / (WARP * warps),
            chain=chain,
            is_tiled=True,
            cluster=prod(self.cluster),
            launches=2 if self.chunk_bytes and not self.finishing else 1,
            finish=self._finish(chip) if self.chunk_bytes else Chain(),
        )  # fmt: skip
        return self._corrected(made, chip)

    def _corrected(self, made: Work, chip: Chip) -> Work:
        """Return *made* as measured: with operands in registers, in clusters, with shares."""
        made = made if self.held is None else times(made, 1 / HELD_MARGIN)
        made = times(made, CLUSTERED) if prod(self.cluster) > 1 else made
        return self._with_parts(made, chip) if self.parts > 1 else made

    def _with_parts(self, work: Work, chip: Chip) -> Work:
        """Return *work* with parts of tiles: each block stores one, an owner adds them up."""
        part_bytes = float(PART_OF_SUM * self._results())
        cycles = self.parts * part_bytes / FINISH_BYTES_PER_S * chip.clock_hz
        chain = replace(
            work.chain, cycles=work.chain.cycles + cycles, l2_loads=work.chain.l2_loads + self.parts
        )
        return replace(work, chain=chain, l2_bytes=work.l2_bytes + 2 * self.blocks * part_bytes)

    def _results(self) -> int:
        """Return how many results a tile has."""
        return prod(self.warps) * self.rows * self.columns

    def _held_cycles(self) -> float:
        """Return the cycles of a step in which threads compute their part, and do not multiply."""
        assert self.held is not None
        own = self.factors[0] * self.rows * self.step / 2 / WARP * self.held.cycles
        return own if prod(self.warps) > self.together else HELD_ALONE * own

    def _matrices(self) -> int:
        """Return how many instructions load the matrices of one instruction's terms."""
        sizes = zip((self.rows, self.columns), self.loads, strict=True)
        return sum(loads * (size // ROWS) for size, loads in sizes)

    def _parts(self, terms: int) -> "_Parts":
        """Return what differs where each product of *terms* is three of parts."""
        along, across = self.warps
        rate, cycles, of_column = PLANES_CYCLES if self.in_planes else SPLIT_CYCLES
        # Parts are read by each product of 64 rows; columns are read, and their parts written.
        lines = along * self.rows * (1 + 3 * self.columns / GROUP_ROWS)
        lines += 0 if self.in_planes else 3 * self.columns
        stored = 0 if self.in_planes else 2 * self.columns * across * self.step
        return _Parts(
            rate / (SPLIT_PRODUCTS - self.narrow), cycles + of_column * self.columns,
            float(self.blocks) * terms * lines * self.element_bytes, stored * self.element_bytes,
        )  # fmt: skip

    def _finish(self, chip: Chip) -> Chain:
        """Return what is done after all blocks have their sums: one block adds up a tile's."""
        seconds = self.chunk_bytes / chip.l2_bytes_per_s
        if not self.finishing:
            return Chain(l2_loads=2, cycles=seconds * chip.clock_hz)
        tiles = self.blocks // self.finishing
        own = self.chunk_bytes / (min(tiles, chip.multiprocessors) * FINISH_BYTES_PER_S)
        cycles = max(seconds, own) * chip.clock_hz
        return Chain(l2_loads=5, block_barriers=2, atomics=1, cycles=cycles)

    def _late(self, chip: Chip, share: float) -> float:
        """Return the cycles that steps wait for operands, at *share* of the unit's rate.

        The first ones' are the chain's load from memory.
        """
        results = self.products * prod(self.warps) * self.rows * self.columns
        a_cycle = share * chip.rate(self.unit) / (chip.multiprocessors * chip.clock_hz)
        own = results * self.step / a_cycle
        if self.is_promoted and prod(self.warps) > self.together:
            own += PROMOTED_CYCLES
        latency = BOX_CYCLES if self.is_boxed else THREAD_CYCLES
        step_bytes = self._term_bytes() * self.step
        waiting = -(-self.terms // self.step) * self.tiles_of_block - 1
        return waiting * late_cycles(step_bytes, self.stages, own, latency)

    def _term_bytes(self) -> int:
        """Return the bytes that the tiles of a step have of each term."""
        return sum(self._operand_bytes())

    def _operand_bytes(self) -> tuple[int, int]:
        """Return the same of rows and of columns."""
        (along, across), (of_rows, of_columns) = self.warps, self.factors
        of_row = self.element_bytes if self.held is None else self.held.element_bytes
        lines = of_rows * along * self.rows, of_columns * across * self.columns
        return of_row * lines[0], self.element_bytes * lines[1]

    def _crossing(self, terms: int) -> float:
        """Return the bytes of *terms* that all blocks ask the second-level cache for."""
        found = 0.0
        for own, odd, sharing in zip(
            self._operand_bytes(), self.odd, self.cluster[::-1], strict=True
        ):
            found += own * ODD_LINES / sharing if odd else own
        return float(self.blocks) * terms * found

    def _ends(self) -> float:
        stored = RESULT_CYCLES * self.stores * self._results()
        turns = self.tiles or self.tiles_of_block
        return END_CYCLES + turns * (stored + SHUFFLE_CYCLES * self.fold_steps)
