"""Random sums of products, with what computes their operands and what uses their results.

    def f(bfloat16(K, M) a0, float(K, N) a1, float(N) a2) -> (t0, t1) {
        t0(m, n) +=! a0(k, m) * relu(a1(k, n))
        t1(n, m) = tanh(t0(m, n) + a2(n))
    }

A program is one of :data:`FORMS`: a product whose indices are of any number of classes (of both
operands and the result; of one operand and the result; of both operands alone), a convolution or
one of its gradients, several products with an operand in common, a chain of products, a sum of two,
a product of three operands; then up to three statements over its results.  Operands are transposed,
sliced, strided, reversed, gathered or computed, and lie in memory in any way
(:mod:`~tcdsl.testing.drafted_products`).
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from tcdsl.lang.types.dtypes import FLOAT32, promote
from tcdsl.testing.draft import Written
from tcdsl.testing.drafted_convolutions import CONVOLUTIONS, convolution
from tcdsl.testing.drafted_epilogues import AFTER, pointwise
from tcdsl.testing.drafted_products import Pool, Products
from tcdsl.testing.random_graphs import Sizes
from tcdsl.testing.random_programs import accepted

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_MORE = 4  # times the multiplications drawn, that inferred ranges may make of them
SMALL = Pool(
    (
        4, 8, 3, 16, 1, 5, 7, 13, 17, 2, 24, 31, 32, 33, 40, 48, 63, 64, 65, 96, 100, 128, 200,
    ),
    (2_000, 20_000, 20_000, 300_000),
)  # fmt: skip
REAL = Pool(
    (
        64, 128, 16, 1, 3, 8, 17, 31, 32, 48, 65, 100, 127, 200, 256, 257, 500, 512, 777, 1000,
        1024, 1025, 1536, 2048, 4096, 4097, 8192,
    ),
    (1 << 18, 1 << 20, 1 << 22, 1 << 24),
)  # fmt: skip
PLANNED = Pool(REAL.extents, (1 << 22, 1 << 28, 1 << 33, 1 << 37))  # compiled, and never run
FACTORS = (3, 2, 4, 8, 1, 5, 16, 17)  # extents of a Kronecker product's factors
MOST_AFTER = 3  # statements over the results


# --- one sum of products --------------------------------------------------------------------


def product(d: Products) -> None:
    """``t(b, m, n) +=! a(b, m, k) * b(b, k, n)``, of each class none, one or several indices."""
    columns = d.axes("nqv"[: d.choose(1, 2, 1, 0, 3)])
    reduced = d.axes("klj"[: d.choose(1, 1, 2, 3)])
    rows = d.axes("mpu"[: d.choose(1, 2, 1, 0, 3)])
    batch = d.axes("bc"[: d.choose(0, 0, 1, 2)])
    value = d.product(d.operand(batch + rows + reduced), d.operand(batch + reduced + columns))
    d.statement(d.shuffled(batch + rows + columns), "+=!", value, reduced)


def sum_of_products(d: Products) -> None:
    """``t(m, n) +=! a(m, k) * b(k, n) + c(m, k) * e(k, n)``, in one statement or in two."""
    columns, reduced, rows = d.axes("n"), d.axes("k"), d.axes("m")

    def one() -> Written:
        return d.product(d.operand(rows + reduced), d.operand(reduced + columns))

    value = one()
    if d.choose(True, False):
        other, op = one(), d.choose("+", "-")
        both = Written(f"{value.text} {op} {other.text}", promote(value.dtype, other.dtype))
        d.statement(rows + columns, "+=!", both, reduced)
        return
    made = d.statement(rows + columns, "+=!", value, reduced)
    other = one()
    value = Written(f"{made.dtype}({other.text})", made.dtype)
    d.write(f"{made.name}(m, n)", "+=", value, rows + columns + reduced)


def three_operands(d: Products) -> None:
    """``t(m, n) +=! a(m, k) * b(k, l) * c(l, n)``, and the like."""
    n, k, m, j = (d.axes(name) for name in "nkmj")
    sets = d.choose((m + k, k + j, j + n), (m + k, n + j, m + k + j), (m + k, k + n, k + j))
    a, b, c = (d.operand(axes) for axes in sets)
    d.statement(d.shuffled(m + n), "+=!", d.product(d.product(a, b), c), k + j)


# --- several products ----------------------------------------------------------------------


def shared_operand(d: Products) -> None:
    """Two or three products of the same operand: projections of attention, or SwiGLU."""
    columns, reduced, rows = d.axes("n"), d.axes("k"), d.axes("m")
    first = d.operand(rows + reduced)
    bound, made = set(d.bound), []
    for _ in range(d.choose(2, 3)):
        d.bound |= bound
        value = d.product(first, d.operand(reduced + columns))
        made.append(d.statement(rows + columns, "+=!", value, reduced))
    if d.choose(True, False):
        gate, up = d.read(made[0]), d.read(made[1])
        text = f"{gate.text} * sigmoid({gate.text}) * {up.text}"
        d.statement(rows + columns, "=", Written(text, promote(FLOAT32, up.dtype)))


def chain(d: Products) -> None:
    """Two or three products, each of the result before: Kronecker, or layers of a network."""
    instances = d.room
    d.room = max(1, d.room // 16)
    axes = d.axes("mnpq"[: d.choose(2, 3, 4)])
    before, made = d.operand(axes), None
    for name in "uvw"[: d.choose(2, 3)]:
        size = max(1, instances)
        for axis in axes:
            size //= max(1, axis.value)
        d.room = max(1, size)
        reduced, (new,) = d.choose(*axes), d.axes(name, FACTORS)
        before = before if made is None else d.read(made)
        value = d.product(before, d.operand((new, reduced)))
        axes = tuple(new if axis is reduced else axis for axis in axes)
        made = d.statement(d.shuffled(axes), "+=!", value, (reduced,))
        if d.rarely(3):
            pointwise(d)


FORMS: tuple[Callable[[Products], None], ...] = (
    product, product, convolution, chain, shared_operand, sum_of_products, three_operands,
    *CONVOLUTIONS, product, convolution,
)  # fmt: skip


# --- programs -------------------------------------------------------------------------------


def contraction_of(
    draw: Callable[[Any], Any],
    pool: Pool,
    with_values: bool,
    together: Callable[[Callable[[], None]], None],
) -> tuple[str, Mapping[str, Any]]:
    """Return a program and its inputs, in the order of its parameters, by the choices of *draw*.

    :arg together: see :func:`~tcdsl.testing.random_programs.drafted`.
    """
    d = Products(draw, pool, with_values)
    d.choose(*FORMS)(d)
    for _ in range(d.choose(0, 1, 1, 2, MOST_AFTER)):
        together(lambda: d.choose(*AFTER)(d))
    return d.finished(), d.arguments


def contractions(
    sizes: Sizes = "small", *, with_values: bool = True
) -> "SearchStrategy[tuple[str, Mapping[str, Any]]]":
    """Return the strategy of (source, inputs); the def is called ``f``.

    Inputs are by the names of the parameters, in their order: ``f(*inputs.values())``.

    Sums of products with up to three indices of each class (batch, rows, columns, reduced);
    convolutions of one to three dimensions with strides, dilations, guarded padding, groups, of
    each channel alone, transposed, and their gradients; chains of products, several products of one
    operand, sums of two, products of three operands.  Operands are transposed, sliced, strided,
    reversed, gathered, scaled, converted, masked; types float, bfloat16, half, double, float8, and
    int8 and uint8 with int32 results.  Up to three statements use the results: bias, activation,
    residual, reductions, softmax, stores with a stride.  Nothing that is drawn warns.

    :arg sizes: "small": some 300,000 multiplications a statement at most, for the emulator and the
        CPU; "real": extents of 1 to 8192, some 2^24 multiplications (2^37 without values), for a
        GPU.
    :arg with_values: whether inputs are arrays; if not, they are ``tcdsl.spec`` of such, which are
        enough to compile for.
    """
    from hypothesis import strategies as st

    pool = SMALL if sizes == "small" else REAL if with_values else PLANNED

    @st.composite
    def contraction(draw: Callable[[Any], Any]) -> tuple[str, Mapping[str, Any]]:
        return contraction_of(draw, pool, with_values, lambda action: draw(st.builds(action)))

    most = _MORE * pool.instances[-1]
    return contraction().filter(lambda drawn: _is_fit(drawn[0], drawn[1], most))


def _is_fit(source: str, inputs: Mapping[str, Any], most: int) -> bool:
    """Return whether the program is accepted, and no statement has more than *most* instances.

    Where only masked reads mention an index nothing gives its range, which is an error; scattered
    and inferred ranges may be longer than the extents that were drawn, or than a declared result,
    where what an update in place adds is a slice of more.
    """
    from tcdsl.errors import TCError
    from tcdsl.lang.ranges.binding import bind_sizes
    from tcdsl.lang.ranges.specialiser import specialise

    try:
        if (c := accepted(source)) is None:
            return False
        special = specialise(c, bind_sizes(c, {name: x.shape for name, x in inputs.items()}))
    except TCError as error:
        if error.code in ("TC040", "TC053"):
            return False
        raise
    return all(prod(map(len, ranges.values())) <= most for ranges in special.ranges)


__all__ = ["contraction_of", "contractions"]
