"""What is verified of every plan, whatever it is for, before anybody gets its code.

    each loop is on a level that the machine has          here
    order, races, completeness, bounds                    of all loops: poly/verify
    one block and thread runs an instance                 of mapped loops: mapping, stitching
    no block waits for ever                               signals, grid_phases
    a barrier wherever threads hand something over        synchronisation

A CPU's loops are not mapped: its threads share iterations of parallel loops, between which there
must be no dependence.
"""

from tcdsl.costmodel.chip import Chip
from tcdsl.poly.dependences import Dependences, dependences_of
from tcdsl.poly.loop_tree import CPU_LEVELS, GPU_LEVELS, loops_of, sequence
from tcdsl.poly.verify import why_not_legal
from tcdsl.schedule.grid_phases import why_not_across_blocks, why_not_at_once
from tcdsl.schedule.mapping import Mapped, why_not_mapped
from tcdsl.schedule.plan import Kernel, Plan
from tcdsl.schedule.signals import why_not_in_order
from tcdsl.schedule.stitching import why_not_stitched
from tcdsl.schedule.synchronisation import why_not_synchronised


def why_not_verified(plan: Plan, chip: Chip | None = None) -> str | None:
    """Return what is wrong with *plan*, or None.

    :arg chip: the GPU that it is for; None for a CPU.
    """
    dependences = dependences_of(plan.scop)
    for kernel in plan.kernels:
        if reason := _why_not_run(plan, kernel, dependences, chip):
            return reason
    tree = sequence([kernel.tree for kernel in plan.kernels])
    return why_not_legal(plan.scop, dependences, tree)


def _why_not_run(
    plan: Plan, kernel: Kernel, dependences: Dependences, chip: Chip | None
) -> str | None:
    """Return why the machine does not run *kernel* as its loops say, or None."""
    levels, machine = (CPU_LEVELS, "CPU") if chip is None else (GPU_LEVELS, "GPU")
    for loop in loops_of(kernel.tree):
        if loop.kind not in levels:
            return f"a {machine} has no level {loop.kind} for the loop {loop.name}"
    if chip is None:
        return None
    mapped = Mapped(plan.scop, kernel.tree)
    return (
        why_not_mapped(mapped)
        or why_not_stitched(mapped)
        or why_not_in_order(plan.scop, kernel)
        or why_not_at_once(mapped, plan.placements, kernel.code.resident_blocks, chip)
        or why_not_across_blocks(mapped, dependences)
        or why_not_synchronised(mapped, dependences, plan.placements)
    )
