"""Which loads of a kernel must not be merged with loads through the read-only cache.

    t4[i] = t1[i] * t2;                          t1: const __restrict__, t4 is written
    t5 += t1[i] > 0.1f ? t4[i] : t1[i];

CUDA's compilers (NVRTC 11.8 to 13.5) make one load of the two arms, from an address selected by the
condition, and keep what they know of one: ``ld.global.nc``, which does not see what was stored to
t4.  They do so for the branches of an ``if`` as well, and whether the kernel itself writes t4 or
one that it has waited for (``overlap``).

An array *changes* iff this kernel writes it or must wait for what others write to it.  What a
statement loads of one goes through ``tc_changing``, an assembly of no instructions::

    t5 += t1[i] > 0.1f ? tc_changing(t4[i]) : t1[i];

Two loads are merged only where a select or a phi has both as operands.  That of t4 is the operand
of the assembly alone, and the assembly of nothing that loads through the read-only cache.  Nothing
else is said of it: it is ordered by the stores to t4, it may be moved, merged with its likes, or
replaced by the value that was stored, as before.

Of what the kernel itself writes none of this is needed where nothing is read that does not change.
Nor is it between what all blocks do and what the last of them does: every path from one to the
other passes the ticket's barriers, and what was loaded before has been used before, unless a
register carries it across.

Of what others write it is always needed.  Where all stores are through ``__restrict__`` pointers,
and no loop or branch is around, the compilers see that this kernel does not write t4, and load it
through the read-only cache although its pointer is not ``__restrict__``, whatever it waits for::

    tc_await_kernels();  out[i] = t4[i];         ld.global.nc.f32
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from tcdsl.poly.loop_tree import statements_of
from tcdsl.poly.scop import Scop, Statement
from tcdsl.schedule.placement import Placement, is_private
from tcdsl.schedule.plan import Kernel
from tcdsl.schedule.stitching import last_loop


def changing_loads(
    scop: Scop, kernel: Kernel, placements: Mapping[str, Placement], awaited: AbstractSet[str]
) -> dict[str, frozenset[str]]:
    """Return { statement of *kernel* -> arrays whose loads must not be merged with others }.

    :arg awaited: arrays that other kernels may write while this one begins.
    """
    every = [scop.by_name[name] for name in statements_of(kernel.tree)]
    changing = awaited | {write.array for s in every for write in s.writes}
    changing -= placements.keys()
    found: dict[str, frozenset[str]] = {}
    for part in _parts(kernel, every, placements):
        read = {access.array for s in part for access in s.all_reads} - placements.keys()
        apart = read & (changing if read - changing else awaited)
        if apart:
            found |= {s.name: frozenset(apart) for s in part}
    return found


def _parts(
    kernel: Kernel, every: list[Statement], placements: Mapping[str, Placement]
) -> Iterable[list[Statement]]:
    """Return the statements of *kernel*, apart where barriers keep their loads apart."""
    last = last_loop(kernel.tree)
    if last is None:
        return [every]
    names = set(statements_of(last.body))
    late = [s for s in every if s.name in names]
    early = [s for s in every if s.name not in names]
    carried = {write.array for s in early for write in s.writes}
    carried &= {access.array for s in late for access in s.all_reads}
    if any(is_private(name, placements) for name in carried):
        return [every]
    return [early, late]
