"""What a contraction on tensor cores costs: tiles of warps, operands by way of shared memory.

    block    for each step:   copies on their way | barrier | matrices from shared memory, products

Products are of whole tiles: what lies outside the results takes as long.
"""

from dataclasses import dataclass

from tcdsl.costmodel.chip import WARP, Chip, Feature, Unit
from tcdsl.costmodel.work import Chain, Work

# Of trial kernels on an H200: mma.sync reached 0.55 to 0.61 of the rate of cuBLAS, which has wgmma.
WARP_RATE = 0.62
OTHER_REGISTERS = 44  # operands, addresses and counters, of a thread
OPERAND_REGISTERS = 4  # of a matrix of 16 x 16
ROWS, COLUMNS, TERMS = 16, 8, 16  # of one instruction
STEP_CYCLES = 40  # of a step that nothing hides: the first matrices, and the last products


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
    unit: Unit
    result_bytes: float  # written
    operand_bytes: float  # read at least

    def work(self, chip: Chip) -> Work:
        """Return the kernel's work."""
        along, across = self.warps
        warps = along * across
        steps = -(-self.terms // self.step)
        terms = steps * self.step
        block_lines = along * self.rows + across * self.columns
        element_bytes = 2
        products = float(self.blocks) * warps * self.rows * self.columns * terms
        loaded = float(self.blocks) * warps * terms * (self.rows + self.columns) * element_bytes
        copied = float(self.blocks) * terms * block_lines * element_bytes
        of_warp = self.rows // ROWS * (self.columns // COLUMNS) * (terms // TERMS)
        matrices = (self.rows + self.columns) // ROWS * (terms // TERMS)
        instructions = WARP * float(self.blocks) * warps * (of_warp + 2 * matrices)
        share = WARP_RATE if chip.has(Feature.WARPGROUP_PRODUCTS) else 1.0
        fragments = OPERAND_REGISTERS * ((self.rows + self.columns) // ROWS)
        return Work(
            self.blocks, WARP * warps,
            registers=self.rows * self.columns // WARP + fragments + OTHER_REGISTERS,
            shared_bytes=self.stages * self.step * block_lines * element_bytes,
            read_bytes=self.operand_bytes,
            written_bytes=self.result_bytes,
            l2_bytes=copied + self.result_bytes,
            shared_traffic_bytes=loaded + copied,
            operations=((self.unit, products / share),),
            instructions=instructions + 2 * copied / 16,
            in_flight_bytes=(self.stages - 1) * self.step * block_lines * element_bytes
            / (WARP * warps),
            chain=Chain(dram_loads=1, block_barriers=steps, cycles=STEP_CYCLES * steps),
        )  # fmt: skip
