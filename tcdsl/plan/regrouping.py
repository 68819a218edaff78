"""Rewrites that only the groups of a GPU's kernels show to be worth while; then groups anew.

a temporary beside rows that are staged     is computed again from shared memory
a temporary that is more than its sources   is computed again from these, not stored
sums of exponentials                        in chunks of rows, where no block holds one
what rows read of their own sums            in a temporary, stored for others   (kept sums)
what columns sum of rows beside them        likewise
a temporary's row that others read too      likewise, where registers keep it
"""

from collections.abc import Collection
from math import inf

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.options import Options
from tcdsl.plan.carried import carried
from tcdsl.plan.search import groups_of, searched
from tcdsl.poly.scop import Kind, Scop, Statement, Storage
from tcdsl.rewrites.scop.recomputation import without, writers_and_users
from tcdsl.rewrites.scop.write_back import store_of, why_not_written_back, write_back
from tcdsl.schedule.fusion import Group
from tcdsl.schedule.trace import record
from tcdsl.strategies.gpu_grouping import Grouped
from tcdsl.strategies.problem import Problem, Scheme
from tcdsl.strategies.row_chunks import in_chunks
from tcdsl.strategies.templates import row
from tcdsl.strategies.templates.row_cluster import cluster_rows
from tcdsl.strategies.templates.row_column import share_of

WORTH = gpu_thresholds.REREAD_BYTES


def without_temporary(before: Grouped, options: Options, gpu: Chip) -> Scop | None:
    """Return the scop as clusters do better with it, None if it is so already.

    A temporary beside rows that are staged is computed again from shared memory: fewer registers
    leave room for more blocks.
    """
    scop, shapes = before.scop, before.shapes
    for group in before.groups:
        rows = cluster_rows(Problem(scop, group, shapes, gpu, options))
        if rows is None or rows.keeps_well:
            continue
        for array in rows.resident:
            if (fewer := without(scop, array)) is not None:
                return fewer
    return None


def without_stored(before: Grouped) -> Scop | None:
    """Return the scop without a temporary that one kernel stores for another, if that moves less.

    What is stored is loaded again; computed again, it is what it is made of that is loaded, unless
    the other kernel loads that anyway.
    """
    scop = before.scop
    for array in scop.arrays.values():
        if array.storage is not Storage.SCRATCH:
            continue
        writers, readers = writers_and_users(scop, array.name)
        elsewhere = [
            group
            for group in before.groups
            if any(s.name in group.members for s in readers)
            and not any(s.name in group.members for s in writers)
        ]
        size = array.size_bytes()
        if not elsewhere or not size or len(writers) != 1:
            continue
        loaded = sum(_more_bytes(scop, writers[0], group) for group in elsewhere)
        stored = size * (1 + len(elsewhere))
        if loaded < WORTH * stored and (fewer := without(scop, array.name)) is not None:
            return fewer
    return None


def _more_bytes(scop: Scop, producer: Statement, group: Group) -> float:
    """Return the bytes that *group* loads only for the value of *producer*."""
    loaded = {r.array for name in group.members for r in scop.by_name[name].reads}
    sizes = [scop.arrays[name].size_bytes() for name in {r.array for r in producer.reads} - loaded]
    return sum(inf if size is None else size for size in sizes)


def regroup(before: Grouped, options: Options, gpu: Chip, scheme: Scheme) -> Grouped:
    """Return the groups with rows in chunks, or else with kept sums, where that is better."""
    if options.fuse == "none":
        return before
    if scheme is Scheme.AUTO and not options.tile:
        scop, chunks = in_chunks(before.scop, before.groups, before.shapes, gpu)
        if chunks:
            scop = _without_used_once(scop)
            record("online softmax", scop)
            return groups_of(scop, options, gpu, chunks)
    return _with_kept_sums(before, options, gpu)


def _without_used_once(scop: Scop) -> Scop:
    """Return *scop* without temporaries that one statement alone still reads."""
    for array in list(scop.arrays.values()):
        if array.storage is Storage.SCRATCH and len(writers_and_users(scop, array.name)[1]) == 1:
            scop = without(scop, array.name) or scop
    return scop


def _with_kept_sums(before: Grouped, options: Options, gpu: Chip) -> Grouped:
    """Return the groups with what rows read of their own sums in temporaries, stored for others."""
    scop = before.scop
    stored: list[tuple[str, str]] = []  # the store, and a writer that must be in its kernel
    for group in before.groups:
        problem = Problem(scop, group, before.shapes, gpu, options)
        is_crossing = share_of(problem) is not None
        for array in sorted({w.array for n in group.members for w in scop.by_name[n].writes}):
            writers = scop.writers_of(array)
            inside = {*group.members, *(s.name for s in writers if s.kind is Kind.INIT)}
            is_read = _is_read_by_rows(scop, array, inside) or _is_added_up(problem, array, inside)
            is_read = is_read or _is_kept_by_rows(problem, array)
            if not is_read and not (is_crossing and _is_read_again(scop, array, inside)):
                continue
            if why_not_written_back(scop, array, inside) is None:
                scop = write_back(scop, array, inside)
                stored.append((store_of(array), writers[-1].name))
    if not stored:
        return before
    begun = carried(before, scop, options, gpu)
    done = groups_of(scop, options, gpu) if begun is None else searched(begun, options, gpu)
    kernels = {name: number for number, g in enumerate(done.groups) for name in g.members}
    is_better = all(kernels[store] == kernels[writer] for store, writer in stored)
    return done if is_better else before


def _readers(scop: Scop, array: str) -> list[Statement]:
    return [s for s in scop.statements if any(r.array == array for r in s.reads)]


def _is_public(scop: Scop, array: str, inside: Collection[str]) -> bool:
    """Return whether *array* is an argument, or read elsewhere than *inside* a kernel."""
    is_argument = scop.arrays[array].storage is Storage.ARGUMENT
    return is_argument or any(s.name not in inside for s in _readers(scop, array))


def _is_read_by_rows(scop: Scop, array: str, inside: Collection[str]) -> bool:
    """Return whether a value of *array*, which is in memory, is read by many *inside* a kernel.

    Or says which element is updated: that would wait for what was just stored.
    """
    own, readers = scop.arrays[array], _readers(scop, array)
    is_by_rows = any(
        s.name in inside and (len(s.indices) > own.rank or not s.write.is_exact) for s in readers
    )
    return is_by_rows and _is_public(scop, array, inside)


def _is_added_up(problem: Problem, array: str, inside: Collection[str]) -> bool:
    """Return whether sums along one axis of a row, which others read too, are added up in the row.

    Threads have them in registers; through memory their reader would wait at a barrier.
    """
    scop, own, users = problem.scop, problem.scop.arrays[array], _readers(problem.scop, array)
    updates = [s for s in scop.statements if s.name in inside and s.kind is Kind.UPDATE]
    is_sum = any(s.write.array == array for s in updates)
    is_read = any(s in users for s in updates)
    is_of_rows = is_sum and is_read and own.rank > len(problem.parallel)
    return is_of_rows and _is_public(scop, array, inside)


def _is_kept_by_rows(problem: Problem, array: str) -> bool:
    """Return whether registers would keep a row of *array*, a temporary of other kernels as well.

    Its reader would wait for what its own thread has stored.
    """
    is_temporary = problem.scop.arrays[array].storage is Storage.SCRATCH
    is_public = _is_public(problem.scop, array, problem.group.members)
    if not (is_temporary and is_public) or row.why_not(problem) is not None:
        return False
    own = row.row_of_problem(problem)
    return own.is_kept and array in own.resident


def _is_read_again(scop: Scop, array: str, inside: Collection[str]) -> bool:
    """Return whether *array* is an output that something *inside* its kernel reads."""
    is_output = scop.arrays[array].storage is Storage.ARGUMENT
    return is_output and any(s.name in inside for s in _readers(scop, array))
