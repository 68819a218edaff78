"""What may be chosen of a kernel's code beside its loops (``schedule.plan.Code``), and what is.

    "code": {"prefetch_bytes": 0, "resident_blocks": 2, "early": true, "streaming": true,
             "unrolled_bytes": 128, "sum_terms": 16, "thread_registers": 0,
             "row_bytes": 0, "is_reversed": false}               on a GPU
    "code": {"sum_terms": 32, "rows_ahead": 16, "pieces": 64}    on a CPU

The defaults are what measurements favour.  Options and the chip filter the rest: only kernels whose
blocks have several rows in turn prefetch, and compensated sums are not cut into blocks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from math import prod
from typing import Any

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import WARP, Chip
from tcdsl.costmodel.machine import Machine
from tcdsl.costmodel.registers import (
    FEW_REGISTERS,
    MANY_REGISTERS,
    MANY_SUMS,
    PRODUCING_WARPS,
)
from tcdsl.costmodel.rows import BARRIER_BYTES, row_lengths
from tcdsl.costmodel.work import Work
from tcdsl.lang.comprehension import Call, walk
from tcdsl.poly.loop_tree import RANK, LoopKind
from tcdsl.schedule.plan import CPU_CODE, Code
from tcdsl.strategies.asked import misfit
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.traffic import footprints
from tcdsl.strategies.work import along_axes

MANY_LOADS = gpu_thresholds.LOADS_OF_WAVE
FEW_WARPS = gpu_thresholds.THREADS_OF_WAVE
RESIDENT_BLOCKS = (0, 1, 2, 3, 4, 6, 8)
UNROLLED_BYTES = (32, 64, 128, 256)
_OF_ONE_INSTRUCTION = frozenset({"abs", "fabs", "fma", "fmax", "fmin", "max", "min", "relu"})
SUM_TERMS = (8, 16, 32)  # bounds of errors (interp/error_bounds) are for 64 and fewer
CPU_SUM_TERMS = (16, 32, 64)
ROWS_AHEAD = (0, 8, 16, 32)
PIECES = (16, 64, 256)
_OF_CPU = ("sum_terms", "rows_ahead", "pieces")


def default_code(problem: Problem, schedule: Schedule) -> Code:
    """Return what is chosen of the code of *schedule* where nothing is asked for.

    Its template has said what it favours, which its estimate knows.
    """
    if not isinstance(problem.machine, Chip):
        return CPU_CODE
    return replace(
        schedule.code,
        resident_blocks=schedule.code.resident_blocks or _blocks_of_wave(problem, schedule),
        thread_registers=_thread_registers(schedule, problem.gpu),
        row_bytes=_row_bytes(problem, schedule),
        is_reversed=False if _is_in_order(schedule) else None,
    )


def _is_in_order(schedule: Schedule) -> bool:
    """Return whether blocks wait for others, which must have started before."""
    return schedule.tensor is not None and schedule.tensor.shares is not None


def _row_lengths(schedule: Schedule, gpu: Chip) -> tuple[int, ...]:
    """Return how long the rows may be by which warps load and store lines, the longest first.

    Warps that have all rows of a tile are along one axis, as rows are.
    """
    product, work = schedule.tensor or schedule.implicit, schedule.work
    if product is None or not isinstance(work, Work) or not product.boxes or product.is_finished:
        return ()
    tiles, barriers = product.tiles, 2 * BARRIER_BYTES * product.stages
    warps, taken = tiles.threads // WARP, work.shared_bytes + barriers
    return row_lengths(gpu, warps, tiles.columns, taken, is_alone=product.in_turn)


def _row_bytes(problem: Problem, schedule: Schedule) -> int:
    """Return how long rows are, 0 where threads exchange.

    Threads that compute functions store meanwhile what they have exchanged: gelu at 4096 takes
    183.5 us, and 185.0 by way of rows (H200).
    """
    lengths = _row_lengths(schedule, problem.gpu)
    if not lengths:
        return 0
    statements = (problem.scop.by_name[name] for name in problem.group.members)
    values = (s.value for s in statements if s.value is not None)
    calls = (node.function for v in values for node in walk(v) if isinstance(node, Call))
    return lengths[0] if _OF_ONE_INSTRUCTION.issuperset(calls) else 0


def _blocks_of_wave(problem: Problem, schedule: Schedule) -> int:
    """Return how many blocks a multiprocessor has where all are few warps and load much, else 0.

    Told nothing, NVRTC leaves threads as few registers as fill a multiprocessor, and they load late
    what they could have loaded at first.  dien_gru (4096, 36), 512 threads on a multiprocessor,
    takes 13.4 us on an H200 with 32 registers, and 10.9 with 96.  Of 1024 threads others hide what
    one waits for: dien_gru (4096, 128) 18.9 with 40 and 19.1 with 64, lstm_steps 10.5 and 10.9.
    """
    pieces = (piece for own in schedule.remaining.values() for piece in own)
    is_cluster = any(piece.axis == RANK for piece in pieces)
    if is_cluster or schedule.work is not None or _n_loads(problem) < MANY_LOADS:
        return 0
    blocks = prod(along_axes(schedule, LoopKind.BLOCK))
    threads = prod(along_axes(schedule, LoopKind.THREAD))
    each = -(-blocks // problem.gpu.multiprocessors)
    if each * threads > FEW_WARPS * problem.gpu.threads_per_multiprocessor:
        return 0
    return next((n for n in RESIDENT_BLOCKS if n >= each), 0)


@analysis
def _n_loads(problem: Problem) -> int:
    """Return how many loads from memory there are in the statements of *problem*."""
    known = footprints(problem)
    statements = (problem.shapes[name].statement for name in problem.group.members)
    return sum(read.array in known for statement in statements for read in statement.reads)


def _thread_registers(schedule: Schedule, gpu: Chip) -> int:
    """Return how many registers the threads get that hold many sums of products, or 0.

    Nine warps have 168 each, as many as twelve; then what is computed of 128 sums does not fit.
    Warps that all take a ticket afterwards have one number of them.
    """
    product = schedule.tensor or schedule.implicit
    if product is None or not product.boxes or product.is_finished:
        return 0
    tiles = product.tiles
    each = 1 if schedule.tensor is None else schedule.tensor.n_sums
    sums = each * tiles.rows * tiles.columns // WARP
    is_large = tiles.threads > PRODUCING_WARPS * WARP and sums >= MANY_SUMS
    taken = tiles.threads * MANY_REGISTERS + PRODUCING_WARPS * WARP * FEW_REGISTERS
    return MANY_REGISTERS if is_large and taken <= gpu.registers_per_multiprocessor else 0


def code_data(code: Code, machine: Machine) -> dict[str, Any]:
    """Return what *machine* has of *code* and is decided, as plain data."""
    own = [(key, value) for key, value in asdict(code).items() if value is not None]
    if not isinstance(machine, Chip):
        return {key: value for key, value in own if key in _OF_CPU}
    return {key: value for key, value in own if key == "sum_terms" or key not in _OF_CPU}


def code_space(problem: Problem, schedule: Schedule) -> dict[str, tuple[int | bool, ...]]:
    """Return the values that each choice may have."""
    default = default_code(problem, schedule)
    is_plain = problem.options.summation == "plain"
    if not isinstance(problem.machine, Chip):
        return {
            "sum_terms": CPU_SUM_TERMS if is_plain else (default.sum_terms,),
            "rows_ahead": ROWS_AHEAD if problem.is_ragged else (default.rows_ahead,),
            "pieces": PIECES if problem.is_ragged else (default.pieces,),
        }
    both, resident = (True, False), default.resident_blocks
    return {
        "prefetch_bytes": tuple(dict.fromkeys((0, default.prefetch_bytes))),
        "resident_blocks": tuple(sorted({*_may_be_resident(problem, schedule), resident})),
        "early": both if problem.gpu.overlaps_kernels else (default.early,),
        "streaming": both,
        "unrolled_bytes": UNROLLED_BYTES,
        "sum_terms": SUM_TERMS if is_plain else (default.sum_terms,),
        "thread_registers": tuple(dict.fromkeys((0, default.thread_registers))),
        "row_bytes": (0, *_row_lengths(schedule, problem.gpu)),
        "is_reversed": (False,) if _is_in_order(schedule) else both,
    }


def _may_be_resident(problem: Problem, schedule: Schedule) -> Iterator[int]:
    """Yield how many blocks a multiprocessor may be asked to hold: it has threads for so many."""
    work = schedule.work
    own = prod(along_axes(schedule, LoopKind.THREAD))
    threads = work.threads if isinstance(work, Work) else own
    most = problem.gpu.threads_per_multiprocessor // threads
    yield from (n for n in RESIDENT_BLOCKS if n <= most)


def codes_beside(
    problem: Problem, schedule: Schedule, code: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield *code* with each other value that one of its keys may have for *schedule*.

    What does not go with that value is given up.
    """
    for key, values in code_space(problem, schedule).items():
        for value in values:
            if value != code[key]:
                other = {**code, key: value}
                if not _go_together(other):
                    other |= dict.fromkeys({"resident_blocks", "thread_registers"} - {key}, 0)
                yield other


def _go_together(code: Mapping[str, Any]) -> bool:
    """Return whether threads get what they wait for: registers that no block beside theirs has."""
    return not (code.get("thread_registers") and code.get("resident_blocks", 0) > 1)


def code_for(problem: Problem, schedule: Schedule, asked: Mapping[str, Any]) -> Code:
    """Return the code of *schedule*: what is *asked* for, or else the default.

    :raises OptionError: (TC060) there is no such choice, or no such value of it.
    """
    default = default_code(problem, schedule)
    if not asked:
        return default
    kernel = "+".join(problem.group.members)
    space = code_space(problem, schedule)
    for key, value in asked.items():
        if key not in space:
            names = ", ".join(space)
            raise misfit(kernel, f"its code has no {key!r}; it has {names}")
        if (type(value), value) not in [(type(known), known) for known in space[key]]:
            allowed = ", ".join(map(repr, space[key]))
            raise misfit(kernel, f"code {key}={value!r} is none of {allowed}")
    if not _go_together(asked):
        raise misfit(kernel, "code thread_registers does not go with several resident_blocks")
    code = {**asdict(default), **asked}
    return Code(**(code if _go_together(code) else {**code, "thread_registers": 0}))
