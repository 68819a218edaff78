"""Several products in one kernel: that they are right, and when they are apart."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.options import Options
from tcdsl.plan.state import Evaluator
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values

MakeUnit = Callable[..., Any]
FEW = replace(load_chip("h200"), multiprocessors=4)  # blocks have several tiles
FORMS = {
    "nn": ("A(m,k) * B(k,n)", "A(m,k) * V(k,n)"),
    "nt": ("A(m,k) * B(n,k)", "A(m,k) * V(n,k)"),
    "tn": ("A(k,m) * B(k,n)", "V(k,n) * A(k,m)"),
    "apart": ("A(m,k) * B(k,n)", "V(m,k) * W(n,k)"),
    "turned": ("A(m,k) * B(k,n)", "A(k,m) * V(k,n)"),
}
SIZES = {"m": 0, "n": 1, "k": 2}


def parts_of(form: str) -> list[str]:
    """Return the first read of each array."""
    found = [part for own in FORMS[form] for part in re.findall(r"\w\(.*?\)", own)]
    return list({part[0]: part for part in reversed(found)}.values())[::-1]


def source_of(form: str, dtype: str = "bfloat16", rest: str | None = None) -> str:
    """Return a gated layer: y = a sigmoid(a) b, of the two products of a *form*."""
    parts = parts_of(form)
    arguments = ", ".join(
        f"{dtype}({', '.join(re.findall('[mnk]', part[1:])).upper()}) {part[0]}" for part in parts
    )
    one, other = FORMS[form]
    rest = rest or "y(m,n) = float(a(m,n)) * sigmoid(float(a(m,n))) * b(m,n)"
    statements = f"a(m,n) +=! {one}  b(m,n) +=! {other}  {rest}"
    return f"def f({arguments}) -> ({dtype}(M,N) y) {{ {statements} }}"


def shapes_of(form: str, *sizes: int) -> list[tuple[int, ...]]:
    parts = parts_of(form)
    return [tuple(sizes[SIZES[index]] for index in re.findall("[mnk]", part[1:])) for part in parts]


def tiles(shape: tuple[int, int, int, int], **others: Any) -> dict[str, Any]:
    """Return a configuration of *shape*, which copies by threads fill unless *others* say more."""
    rows, columns, warp_rows, warp_columns = shape
    return {
        "rows": rows, "columns": columns, "warp_rows": warp_rows, "warp_columns": warp_columns,
        "step": 64, "stages": 3, "together": 4, "loader": "threads", "swath": 1, "chunks": 1,
        "is_persistent": False, "is_finished": False, **others,
    }  # fmt: skip


CONFIGS = {
    "boxes": tiles((16, 128, 4, 1), loader="boxes"),
    "four warps": tiles((16, 64, 4, 1)),
    "single warps": tiles((32, 32, 2, 2), step=32, together=1),
    "persistent": tiles((16, 64, 4, 1), loader="boxes", swath=2, is_persistent=True),
}


def asked(unit: Any, config: dict[str, Any]) -> Options:
    """Return the options that ask for *config* for the last kernel of *unit*."""
    kernel = unit.done.plan.weighed[-1].kernel
    choice = {"kernel": kernel, "template": "tile_mma", **config}
    return Options(choices={"format": "tcdsl choices", "version": 1, "kernels": [choice]})


def kernels_of(unit: Any) -> list[str]:
    return [weighed.kernel for weighed in unit.done.plan.weighed]


def inputs_of(unit: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    c = unit.comprehension
    types = [c.tensors[name].dtype for name in c.inputs]
    return [values(*of, "real", n) for n, of in enumerate(zip(types, shapes, strict=True))]


@pytest.mark.slow_but("boxes")
@pytest.mark.parametrize("way", CONFIGS)
def test_gated_layers(way: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    units, inputs = [], []
    gpu = FEW if way == "persistent" else load_chip("h200")
    sizes = {
        "nn": (312, 72, 264),
        "nt": (137, 200, 200),
        "tn": (72, 136, 200),
        "apart": (64, 128, 72),
        "turned": (136, 72, 136),
    }
    for form in ("nn",) if way == "persistent" else FORMS:
        shapes, source = shapes_of(form, *sizes[form]), source_of(form)
        bare = cuda_unit(source, *shapes, gpu=gpu)
        assert kernels_of(bare) == ["S0+S1+S2"]
        units.append(cuda_unit(source, *shapes, gpu=gpu, options=asked(bare, CONFIGS[way])))
        assert not units[-1].done.is_fallback
        inputs.append(inputs_of(units[-1], shapes))
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


# --- one sum ----------------------------------------------------------------------------------

SUMS = {
    "of products": (
        """def f(bfloat16(M,K) x, bfloat16(K,N) w, bfloat16(M,K) u, bfloat16(K,N) v)
            -> (bfloat16(M,N) y) { y(m,n) +=! x(m,k) * w(k,n) + u(m,k) * v(k,n) }""",
        lambda m, n, k: [(m, k), (k, n), (m, k), (k, n)],
    ),
    "of three": (
        """def f(half(M,K) x, half(K,N) w, half(M,K) u, half(K,N) v) -> (y) {
            y(m,n) +=! x(m,k) * w(k,n) + u(m,k) * v(k,n) + w(k,n) * u(m,k)
        }""",
        lambda m, n, k: [(m, k), (k, n), (m, k), (k, n)],
    ),
    "an update": (
        """def f(half(M,K) x, half(N,K) w, half(M,J) u, half(N,J) v) -> (float(M,N) y, z) {
            y(m,n) +=! x(m,k) * w(n,k)
            y(m,n) += u(m,j) * v(n,j)
            z(m,n) = fmax(y(m,n), 0.0)
        }""",
        lambda m, n, k: [(m, k), (n, k), (m, 2 * k), (n, 2 * k)],
    ),
    "gates": (
        """def f(half(B,I) x, half(I,N) w, half(B,H) h, half(H,N) u, float(N) c) -> (half(B,N) y) {
            a(b,n) +=! float(x(b,i)) * w(i,n)
            r(b,n) +=! float(h(b,j)) * u(j,n)
            y(b,n) = tanh(a(b,n) + r(b,n) + c(n))
        }""",
        lambda m, n, k: [(m, k), (k, n), (m, 56), (56, n), (n,)],
    ),
}  # fmt: skip


@pytest.mark.slow_but("boxes-of products", "persistent-an update")
@pytest.mark.parametrize("form", SUMS)
@pytest.mark.parametrize("way", CONFIGS)
def test_one_sum(
    way: str, form: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e3)  # else only where sums are long
    gpu = FEW if way == "persistent" else load_chip("h200")
    (source, shapes_for), units, inputs = SUMS[form], [], []
    for size in (
        ((312, 72, 264),)
        if way == "persistent"
        else ((256, 128, 64), (128, 128, 128), (137, 200, 200))
    ):
        shapes = shapes_for(*size)
        bare = cuda_unit(source, *shapes, gpu=gpu)
        assert len(kernels_of(bare)) == 1
        units.append(cuda_unit(source, *shapes, gpu=gpu, options=asked(bare, CONFIGS[way])))
        assert not units[-1].done.is_fallback
        assert any("of one sum" in why for why in units[-1].done.plan.kernels[0].why)
        inputs.append(inputs_of(units[-1], shapes))
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


BETWEEN = """def f(half(M,K) x, half(K,N) w, half(M,K) u, half(K,N) v)
    -> (half(M,K) h, float(M,N) y) {
    y(m,n) +=! x(m,k) * w(k,n)
    h(m,k) = fmax(u(m,k), 0.0)
    y(m,n) += h(m,k) * v(k,n)
}"""


def test_a_factor_that_is_computed_between_two_products(cuda_unit: MakeUnit, emulated: Any) -> None:
    """All is done where the last product was: what comes before it are its factors."""
    shapes = [(264, 520), (520, 136), (264, 520), (520, 136)]
    unit = cuda_unit(BETWEEN, *shapes)
    assert sorted(kernels_of(unit)) == ["S0+S2", "S1"] and not unit.done.is_fallback
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


@pytest.mark.parametrize("second", ["h", "u"])
def test_a_factor_that_changes_between_two_products(second: str, cuda_unit: MakeUnit) -> None:
    """Whether or not the second product reads it, too: the first cannot run where that does."""
    source = BETWEEN.replace("half(M,K) x,", "half(M,K) h, half(M,K) x,").replace("+=! x", "+=! h")
    source = source.replace("+= h(m,k)", f"+= {second}(m,k)")
    unit = cuda_unit(source, (264, 520), (264, 520), (520, 136), (264, 520), (520, 136))
    assert not any({"S0", "S2"} <= {*name.split("+")} for name in kernels_of(unit))
    assert not unit.done.is_fallback


# --- forms ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["half", "double", "int8", "float8_e4m3"])
def test_types(dtype: str, check_emulated: Callable[..., None], monkeypatch: Any) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    source = source_of("nt", dtype, "y(m,n) = a(m,n) - b(m,n)")
    source = source.replace(f"({dtype}(M,N) y)", "(y)")
    sizes = [(72, 136, 200), (61, 40, 48), (0, 8, 8), (8, 0, 8), (8, 8, 0)]
    check_emulated([(source, shapes_of("nt", *size)) for size in sizes])


@pytest.mark.slow
def test_batches(cuda_unit: MakeUnit, emulated: Any) -> None:
    source = """def f(half(B,M,K) x, half(B,K,N) w, half(B,N,K) v) -> (half(B,M,N) y) {
        a(b,m,n) +=! x(b,m,k) * w(b,k,n)
        c(b,m,n) +=! x(b,m,k) * v(b,n,k)
        y(b,m,n) = tanh(a(b,m,n)) * c(b,m,n)
    }"""
    shapes = [(3, 136, 200), (3, 200, 264), (3, 264, 200)]
    unit = cuda_unit(source, *shapes)
    assert kernels_of(unit) == ["S0+S1+S2"] and not unit.done.is_fallback
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


@pytest.mark.slow
def test_what_follows_has_rows_that_are_added_up(cuda_unit: MakeUnit, emulated: Any) -> None:
    rest = "y(m,n) = a(m,n) * b(m,n) + fmax(float(a(m,n)), 0.0)  r(m) +=! float(y(m,n)) * y(m,n)"
    source = source_of("nn", "half", rest).replace("(half(M,N) y)", "(y, r)")
    shapes = shapes_of("nn", 264, 136, 200)
    unit = cuda_unit(source, *shapes)
    assert not unit.done.is_fallback and {"S0", "S1", "S2"} <= {*kernels_of(unit)[0].split("+")}
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


def test_what_both_products_read_is_copied_once(cuda_unit: MakeUnit) -> None:
    for form, copies in (("nn", 3), ("nt", 3), ("tn", 3), ("apart", 4)):
        unit = cuda_unit(source_of(form), *shapes_of(form, 1024, 1024, 1024))
        assert kernels_of(unit) == ["S0+S1+S2"]
        assert unit.source.text.count("tc_copy_box<") == copies
        assert unit.source.text.count("tc_wgmma<") == 2
        assert "tc_leave_products<2>" in unit.source.text


def test_one_sum_has_one_product_in_its_loop(cuda_unit: MakeUnit) -> None:
    source, shapes_for = SUMS["of products"]
    unit = cuda_unit(source, *shapes_for(4096, 4096, 4096))
    assert kernels_of(unit) == ["S0+S0_term0+S0_part0_fold"]
    assert unit.source.text.count("tc_copy_box<") == 4
    assert unit.source.text.count("tc_wgmma<") == 1
    assert "c3 <= 127" in unit.source.text and "tc_leave_products<1>" in unit.source.text


PROJECTIONS = """def f(half(M,C) x, half(C,N) w, half(C,N) v, half(C,N) u, float(N) b)
    -> (half(M,N) q, half(M,N) k, float(M,N) z) {
    q(m,n) +=! x(m,c) * w(c,n)
    k(m,n) +=! x(m,c) * v(c,n)
    p(m,n) +=! float(x(m,c)) * u(c,n)
    z(m,n) = p(m,n) + b(n)
}"""
ADJOINTS = """def f(half(M,K) x, half(M,N) a, half(M,N) b) -> (half(K,N) d_w, half(K,N) d_v) {
    d_w(k,n) +=! x(m,k) * a(m,n)
    d_v(k,n) +=! x(m,k) * b(m,n)
}"""


@pytest.mark.slow_but("adjoints")
@pytest.mark.parametrize("form", ["projections", "adjoints"])
def test_results_that_are_stored_apart(
    form: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what both read ties the products: nothing does along their columns."""
    seconds = Evaluator.seconds
    monkeypatch.setattr(Evaluator, "seconds", lambda self, g: seconds(self, g) / len(g.members))
    m, n, k = 136, 200, 264
    source, shapes, names = {
        "projections": (PROJECTIONS, [(m, k), (k, n), (k, n), (k, n), (n,)], "S0+S1+S2+S3"),
        "adjoints": (ADJOINTS, [(m, k), (m, n), (m, n)], "S0+S1"),
    }[form]
    unit = cuda_unit(source, *shapes)
    assert kernels_of(unit) == [names] and not unit.done.is_fallback
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


def test_projections_of_equal_columns_are_one_kernel(cuda_unit: MakeUnit) -> None:
    """Keys and values of grouped queries: fewer columns than the queries."""
    source = PROJECTIONS.replace("half(C,N) w", "half(C,J) w").replace("half(M,N) q", "half(M,J) q")
    shapes = [(4096, 4096), (4096, 4096), (4096, 1024), (4096, 1024), (1024,)]
    unit = cuda_unit(source, *shapes)
    assert sorted(kernels_of(unit)) == ["S0", "S1+S2+S3"]


# --- when -------------------------------------------------------------------------------------

APART = {
    "other columns": (
        """a(m,n) +=! x(m,k) * w(k,n)
           b(m,n) +=! x(m,k) * v(k,n) where n in 0:N-8
           y(m,n) = a(m,n)  y(m,n) += b(m,n) where n in 0:N-8""",
        "S0",
        "S1",
    ),
    "other terms": (
        """a(m,n) +=! x(m,k) * w(k,n)
           b(m,n) +=! x(m,k) * v(k,n) where k in 0:K-64
           y(m,n) = a(m,n) * b(m,n)""",
        "S0",
        "S1",
    ),
    "a product of the other": (
        """a(m,n) +=! x(m,k) * w(k,n)
           y(m,n) +=! a(m,k) * v(k,n)""",
        "S0",
        "S1",
    ),
    "a sum that is rounded": (
        """y(m,n) +=! x(m,k) * w(k,n)
           y(m,n) += x(m,k) * v(k,n)""",
        "S0",
        "S1",
    ),
    "a sum that is read": (
        """a(m,n) +=! float(x(m,k)) * w(k,n)
           z(m,n) = fmax(a(m,n), 0.0)
           a(m,n) += float(x(m,k)) * v(k,n)
           y(m,n) = a(m,n) * z(m,n)""",
        "S0",
        "S2",
    ),
}


@pytest.mark.parametrize("form", APART)
def test_what_is_apart(form: str, cuda_unit: MakeUnit) -> None:
    body, one, other = APART[form]
    source = f"def f(half(M,K) x, half(K,N) w, half(K,N) v) -> (half(M,N) y) {{ {body} }}"
    unit = cuda_unit(source, (1024, 512), (512, 512), (512, 512))
    assert not any({one, other} <= {*name.split("+")} for name in kernels_of(unit))
    assert not unit.done.is_fallback


def test_small_ones_are_a_chain(cuda_unit: MakeUnit) -> None:
    source, shapes_for = SUMS["gates"]
    unit = cuda_unit(source, *shapes_for(128, 128, 128))
    assert [kernel.template for kernel in unit.done.plan.kernels] == ["product_chain"]


def test_they_are_apart_where_that_is_faster(cuda_unit: MakeUnit) -> None:
    """Products of few tiles have blocks that share their terms, which several products have not."""
    unit = cuda_unit(source_of("nn"), *shapes_of("nn", 64, 96, 200_000))
    assert not any({"S0", "S1"} <= {*name.split("+")} for name in kernels_of(unit))
