"""The stages of a compilation as text, for people to read: what ``tcdsl show`` prints."""

from tcdsl.codegen.c.printer import CSource
from tcdsl.codegen.cuda.mechanisms import print_copies
from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.open_sizes import AnySpecialisation
from tcdsl.poly.isl_utils import schedule_text
from tcdsl.poly.loop_tree import print_tree, schedule_of, sequence
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.comprehension.canonical_form import explain_coalescing
from tcdsl.rewrites.comprehension.merging import Coalesced
from tcdsl.schedule.placement import print_placement
from tcdsl.schedule.plan import Kernel, Plan, arrays_of


def describe(
    comprehension: Comprehension,
    paired: Comprehension,
    special: AnySpecialisation,
    canonical: Coalesced,
    scop: Scop,
    plan: Plan,
) -> dict[str, str]:
    """Return the stages of a compilation as text, by name; *special* is that of *paired*."""
    from tcdsl.lang.syntax.printer import print_comprehension  # only for people to read

    tree = sequence([kernel.tree for kernel in plan.kernels])
    return {
        "comprehension": print_comprehension(comprehension),
        "coalesced": "\n".join(explain_coalescing(paired, special, canonical)),
        "scop": print_scop(scop),
        "schedule": "".join(
            f"kernel {kernel.name}\n{_schedule_of(plan, kernel)}" for kernel in plan.kernels
        ),
        "tree": schedule_text(schedule_of(plan.scop, tree)),
    }


def _schedule_of(plan: Plan, kernel: Kernel) -> str:
    """Return the local arrays, copies and loops of *kernel* as text, or what is called instead."""
    if kernel.library:
        return f"  a call of {kernel.library}\n"
    own = [plan.placements[name] for name in arrays_of(plan, kernel) if name in plan.placements]
    lines = [*map(print_placement, own), *print_copies(plan.scop, kernel.tree, plan.placements)]
    return "".join(f"  {line}\n" for line in lines) + print_tree(kernel.tree, plan.scop, 1)


def print_scop(scop: Scop) -> str:
    """Return *scop* as text: domains and accesses of every statement."""
    lines = []
    for statement in scop.statements:
        lines.append(f"{statement.name} ({statement.kind}): {statement.domain}")
        lines += [f"  writes {access.relation}" for access in statement.writes]
        lines += [f"  reads  {access.relation}" for access in statement.reads]
    return "\n".join(lines) + "\n"


def code_text(source: CSource | CudaSource) -> str:
    """Return the text of *source* without the device library."""
    return source.body if isinstance(source, CSource) else source.text
