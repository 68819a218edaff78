"""What the text of a kernel costs beside its loops (``schedule.plan.Code``).

    early             a launch that need not wait for the end of the one before it    a launch
    resident_blocks   n blocks of t threads have R / (n t) registers a thread, of R:   registers
                      loads start later, until one vector is on its way, and what
                      still has no register is stored and loaded again

A kernel whose threads keep rows in registers is counted with these from the beginning
(``strategies/work``), as are the budgets of prefetches and of loads in unrolled iterations.  Of
whatever else there is to choose (``code_choices``) no estimate knows a cost: times are the same.
"""

from dataclasses import replace

from tcdsl.costmodel.chip import VECTOR_BYTES, Chip
from tcdsl.costmodel.registers import REGISTER_BYTES
from tcdsl.costmodel.work import Work
from tcdsl.schedule.plan import Code


def with_code(work: Work, code: Code, gpu: Chip) -> Work:
    """Return *work*, which is of the default code, as *code* makes it."""
    if code.resident_blocks > 1:
        work = _within_bounds(work, code.resident_blocks, gpu)
    return work if code.early else replace(work, is_programmatic=False)


def most_registers(gpu: Chip, threads: int, resident_blocks: int) -> int:
    """Return the registers that a thread may have, so that as many blocks are there at once."""
    of_all = max(threads, gpu.threads_per_warp) * max(1, resident_blocks)
    most = gpu.registers_per_multiprocessor // of_all
    return min(gpu.registers_per_thread, most // gpu.registers_granule * gpu.registers_granule)


def _within_bounds(work: Work, resident_blocks: int, gpu: Chip) -> Work:
    """Return *work* with registers for *resident_blocks* of a multiprocessor.

    Spilled bytes are stored, and loaded, once: a lower bound where a loop is around them.
    """
    registers = min(work.registers, most_registers(gpu, work.threads, resident_blocks))
    if registers == work.registers:
        return work
    lost_bytes = REGISTER_BYTES * (work.registers - registers)
    late_bytes = min(lost_bytes, max(0.0, work.in_flight_bytes - VECTOR_BYTES))
    spilled = (lost_bytes - late_bytes) * work.threads * work.blocks
    return replace(
        work, registers=registers, in_flight_bytes=work.in_flight_bytes - late_bytes,
        read_bytes=work.read_bytes + spilled, written_bytes=work.written_bytes + spilled,
        l2_bytes=(work.l2_bytes or work.dram_bytes) + 2 * spilled,
    )  # fmt: skip
