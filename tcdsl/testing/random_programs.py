"""Random programs that are well formed by construction, with arrays to call them on.

A program is drafted statement by statement (:mod:`tcdsl.testing.draft`); which kind of statement
comes next (:mod:`tcdsl.testing.random_statements`), what it reads and how it combines is
Hypothesis' choice, simple choices first.

    def f(float(N, M) A, int32(N) B) -> (T0, T1) {
        T0(i) +=! A(i, j) * 0.5 where j in 0:M
        T1(i) = i - 1 >= 0 ? T0(i - 1) : T0(B(i))
    }
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tcdsl.interp.arithmetic import Array
from tcdsl.testing.draft import Draft, declared
from tcdsl.testing.random_statements import KINDS, pointwise, reduction, update

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from tcdsl.lang.comprehension import Comprehension

MAX_STATEMENTS = 4


def finished(d: Draft) -> str:
    """Return the program's text: the tensor made last is returned, of the others some."""
    made = [t.name for t in d.tensors if not t.is_input]
    outputs = [
        f"{d.annotations[name]} {name}" if name in d.annotations else name
        for name in made
        if name == made[-1] or name in d.annotations or d.choose(True, False)
    ]
    params = (f"{declared(t.dtype, t.dims)} {t.name}" for t in d.tensors if t.is_input)
    body = "".join(f"    {statement}\n" for statement in d.statements)
    text = f"def f({', '.join(params)}) -> ({', '.join(outputs)}) {{\n{body}}}\n"
    # A size that no parameter has is just a number.
    known = {dim.text for t in d.tensors if t.is_input for dim in t.dims}
    for name in sorted(d.sizes.keys() - known):
        text = re.sub(rf"\b{name}\b", str(d.sizes[name]), text)
    return text


def drafted(
    draw: Callable[[Any], Any], together: Callable[[Callable[[], None]], None] | None = None
) -> tuple[str, Mapping[str, Array]]:
    """Return a program and its inputs, in the order of its parameters, by the choices of *draw*.

    :arg together: runs an action whose choices belong together: a statement's, which shrinking
        may then leave out as a whole.
    """
    d = Draft(draw)

    def statement() -> None:
        # Nine operators, and conditions: a reduction in eight statements would leave some out.
        d.choose(*KINDS, reduction, pointwise, reduction, update)(d)

    for _ in range(d.number(1, MAX_STATEMENTS)):
        if len(d.statements) < MAX_STATEMENTS - 1 or not d.statements:
            statement() if together is None else together(statement)
    return finished(d), d.inputs


def programs() -> "SearchStrategy[tuple[str, Mapping[str, Array]]]":
    """Return the strategy of (source, inputs); the def is called ``f``.

    Inputs are arrays by the names of the parameters, in their order: ``f(*inputs.values())``.

    At most four statements; affine, strided, windowed, gathered and scattered subscripts; all
    reduction operators; updates in place, recurrences, guards, triangles; all types; sizes 0, 1,
    primes and up to 70, within some 20,000 instances a statement; inputs in every layout.  Nothing
    that is drawn warns.
    """
    from hypothesis import strategies as st

    @st.composite
    def program(draw: Callable[[Any], Any]) -> tuple[str, Mapping[str, Array]]:
        return drafted(draw, lambda action: draw(st.builds(action)))

    return program().filter(lambda drawn: is_accepted(drawn[0]))


def is_accepted(source: str) -> bool:
    """Return whether the program is accepted without ``out=`` and without a warning."""
    return accepted(source) is not None


def accepted(source: str) -> "Comprehension | None":
    """Return the program if it is accepted without ``out=`` and without a warning.

    A few of a thousand leave an element unwritten at some sizes, such as ``T(i + j) +=! ...`` where
    one range is empty, and read it later; a few have an integer quotient that promotion makes a
    float.  Whoever hunts takes a warning for a find: a plan has fallen back on another.
    """
    from tcdsl.errors import TCError
    from tcdsl.lang.syntax.parser import parse_program
    from tcdsl.lang.types.sema import analyse
    from tcdsl.source import Source

    try:
        (comprehension,) = analyse(parse_program(Source(source)))
    except TCError as error:
        if error.code in ("TC027", "TC042"):
            return None
        raise
    tensors = comprehension.tensors.values()
    if comprehension.warnings or any(tensor.needs_out for tensor in tensors):
        return None
    return comprehension


__all__ = ["accepted", "drafted", "is_accepted", "programs"]
