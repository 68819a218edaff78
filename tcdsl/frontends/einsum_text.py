"""The text of an einsum, in the language.

    "ij,jk->ik"    def einsum(float32(N_i,N_j) x0, float32(N_j,N_k) x1) -> (float32(N_i,N_k) out) {
                       out(i,k) +=! x0(i,j) * x1(j,k)
                   }

Operands are ``x0``, ``x1``, ...; temporaries ``t0``, ``t1``, ...; the labels of an ellipsis ``e0``,
``e1``, ...; a label's size is ``N_`` and the label.  A dimension that is broadcast is declared 1,
and read at 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from tcdsl.frontends.subscripts import BoundSubscripts
from tcdsl.lang.types.dtypes import BOOL, FLOAT32, DType
from tcdsl.options import BAD_OPTION
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand or a temporary as a factor: its text, and the labels that it depends on."""

    text: str
    labels: tuple[str, ...]


@dataclass(slots=True)
class _Body:
    """The statements so far, and how they combine."""

    output: tuple[str, ...]
    computed: DType  # the type of the factors
    statements: list[str] = field(default_factory=list)

    def add(self, target: str, labels: Sequence[str], factors: Sequence[Factor]) -> None:
        """Write ``target(labels) op product of factors``."""
        is_reduced = {label for factor in factors for label in factor.labels} - set(labels)
        is_bool = self.computed == BOOL
        assign = ("or=!" if is_bool else "+=!") if is_reduced else "="
        product = (" && " if is_bool else " * ").join(factor.text for factor in factors)
        self.statements.append(f"{_element(target, labels)} {assign} {product}")

    def temporary(self, labels: tuple[str, ...], factors: Sequence[Factor]) -> Factor:
        """Write a temporary of *labels*; return it as a factor."""
        name = f"t{len(self.statements)}"
        self.add(name, labels, factors)
        return Factor(_element(name, labels), labels)


def program_text(
    subscripts: str,
    bound: BoundSubscripts,
    dtypes: Sequence[DType],
    result: DType,
    optimize: Any,
) -> str:
    """Return the def that computes *bound* on operands of *dtypes* in the type *result*."""
    # Temporaries of a narrow float would be rounded between the steps.
    computed = FLOAT32 if result.is_narrow_float else result
    factors = [
        Factor(_operand(f"x{k}", labels, dtype, result, computed), _distinct(labels))
        for k, (labels, dtype) in enumerate(zip(bound.operands, dtypes, strict=True))
    ]
    body = _Body(bound.output, computed)
    for positions in contraction_order(factors, bound, optimize):
        if len(positions) == len(factors):
            break
        chosen = [factors.pop(position) for position in sorted(positions, reverse=True)][::-1]
        needed = _labels(factors) | set(bound.output)
        summed = _summed(body, chosen, needed)
        kept = tuple(label for label in _ordered(chosen) if label in needed)
        factors.append(body.temporary(kept, summed))
    body.add("out", bound.output, _summed(body, factors, ()))
    params = ", ".join(
        _typed(dtype, ["1" if label is None else f"N_{label}" for label in labels], f"x{k}")
        for k, (labels, dtype) in enumerate(zip(bound.operands, dtypes, strict=True))
    )
    returned = _typed(result, [f"N_{label}" for label in bound.output], "out")
    lines = "".join(f"    {statement}\n" for statement in body.statements)
    return f"# einsum {subscripts}\ndef einsum({params}) -> ({returned}) {{\n{lines}}}\n"


def _summed(
    body: _Body, factors: Sequence[Factor], needed: Sequence[str] | set[str]
) -> list[Factor]:
    """Return *factors*, those first summed over their own labels where that saves work.

    ``sum_jk a(i,j) b(k)`` is ``(sum_j a(i,j)) (sum_k b(k))``: the sums add instead of multiply.
    """
    result = []
    for position, factor in enumerate(factors):
        others = _labels([*factors[:position], *factors[position + 1 :]])
        own = set(factor.labels) - others - set(needed) - set(body.output)
        if own and others - set(factor.labels):
            left = tuple(label for label in factor.labels if label not in own)
            factor = body.temporary(left, [factor])
        result.append(factor)
    return result


def contraction_order(
    factors: Sequence[Factor], bound: BoundSubscripts, optimize: Any
) -> Sequence[Sequence[int]]:
    """Return which factors each step takes; its result joins the end of those that are left."""
    if len(factors) < 3 or optimize is False:
        return [range(len(factors))]
    import opt_einsum  # 30 ms that most programs need not pay

    names = list(bound.extents)
    symbols = {name: opt_einsum.get_symbol(k) for k, name in enumerate(names)}
    inputs = ["".join(symbols[label] for label in factor.labels) for factor in factors]
    equation = ",".join(inputs) + "->" + "".join(symbols[label] for label in bound.output)
    # An empty dimension costs nothing whatever the order: it would make all of them equal.
    shapes = [tuple(max(bound.extents[label], 1) for label in f.labels) for f in factors]
    try:
        path, _ = opt_einsum.contract_path(
            equation, *shapes, shapes=True, optimize=_strategy(optimize)
        )
    except (KeyError, TypeError, ValueError, IndexError):
        what = f"{optimize!r} is no strategy or path of opt_einsum for {len(factors)} operands"
        advice = "use True, False, 'optimal', 'greedy' or a list of pairs of positions"
        raise BAD_OPTION(name="optimize", what=what, advice=advice) from None
    return [tuple(step) for step in path]


def _strategy(optimize: Any) -> Any:
    """Return what opt_einsum takes; NumPy's paths begin with the word einsum_path."""
    if optimize is True:
        return "auto"
    if isinstance(optimize, list | tuple):
        return [step for step in optimize if step != "einsum_path"]
    return optimize


def _operand(
    name: str, labels: Sequence[str | None], dtype: DType, result: DType, computed: DType
) -> str:
    """Return the element of an operand, converted to the type of all."""
    element = _element(name, ["0" if label is None else label for label in labels])
    if dtype == result and not dtype.is_narrow_float:
        return element
    return element if dtype == computed else f"{computed}({element})"


def _element(name: str, subscripts: Sequence[str]) -> str:
    return f"{name}({','.join(subscripts)})" if subscripts else name


def _typed(dtype: DType, dims: Sequence[str], name: str) -> str:
    return f"{dtype}({','.join(dims)}) {name}" if dims else f"{dtype} {name}"


def _distinct(labels: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(label for label in labels if label is not None))


def _labels(factors: Sequence[Factor]) -> set[str]:
    return {label for factor in factors for label in factor.labels}


def _ordered(factors: Sequence[Factor]) -> Iterator[str]:
    yield from dict.fromkeys(label for factor in factors for label in factor.labels)
