"""Which values a forward pass keeps for its derivative; the others are computed again.

    def f(x) -> (y)    --->    def f_forward(x) -> (y, h)    def f_vjp(x, h, d_y) -> (d_x)

To keep a value costs its bytes twice, written and read; to compute it again costs its operations,
and its operands' bytes.  A multiprocessor adds and multiplies some 14 times while a byte comes from
memory (H200: 67 TFLOP/s, 4.8 TB/s), and the derivative reads most operands anyway: so what is
elementwise is computed again, and a sum is kept, for it has read more than it is.  A sum of a few
terms (a window that the text writes as numbers) counts as elementwise.  An extent with a name, such
as a filter's, is taken to be long: the sum is kept.

What is kept is in the forward pass anyway, so that legality asks only for a value that a call can
return and pass on: a tensor that begins at 0, of a definition that updates no parameter.  After
Griewank and Walther, Evaluating Derivatives, chapter 12 (checkpointing), SIAM 2008,
doi:10.1137/1.9780898717761.
"""

from collections.abc import Collection, Sequence
from math import prod

from tcdsl.derivatives.lines import Line
from tcdsl.derivatives.versions import Forward, Step, Version
from tcdsl.lang.comprehension import Load
from tcdsl.lang.ranges.affine import constant_value

FEW_TERMS = 16


def costly_versions(forward: Forward) -> set[str]:
    """Return the versions that are kept where a derivative reads them."""
    c = forward.c
    if c.is_deferred or set(c.inputs) & set(c.outputs):
        return set()
    return {
        step.target
        for step in forward.steps
        if _is_costly(step) and is_returnable(forward.versions[step.target])
    }


def read_versions(lines: Sequence[Line], versions: Collection[str]) -> list[str]:
    """Return those of *versions* that *lines* read, in the order in which they do."""
    reads = (node.tensor for line in lines for node in line.nodes() if isinstance(node, Load))
    return list(dict.fromkeys(name for name in reads if name in versions))


def _is_costly(step: Step) -> bool:
    """Return whether *step* adds up more than a few terms, or reads what it has written."""
    line = step.line
    if any(isinstance(node, Load) and node.tensor == line.target for node in line.nodes()):
        return True
    return step.reduction is not None and _terms(line) >= FEW_TERMS


def _terms(line: Line) -> int:
    """Return how many terms each sum of *line* has; FEW_TERMS for an extent with a name."""
    counts = []
    for index in line.reduced:
        run = line.instances.ranges[index]
        count = None if run is None else constant_value(run[1].sub(run[0]))
        counts.append(FEW_TERMS if count is None else count)
    return prod(counts)


def is_returnable(version: Version) -> bool:
    """Return whether *version* is a tensor that begins at 0."""
    return version.box is not None and all(constant_value(lower) == 0 for lower, _ in version.box)
