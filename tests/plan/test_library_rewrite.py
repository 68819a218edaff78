"""Calls of libraries as candidates of a plan: where they are weighed, taken and left."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tcdsl
from tcdsl.codegen.cuda.source import LibraryCall
from tcdsl.costmodel import convolutions, matrix_products
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.options import Options
from tcdsl.strategies.asked import data_of
from tcdsl.strategies.decided import candidates_text

MakeUnit = Callable[..., Any]
LAYER = """def f(float(M,K) A, float(K,N) B, float(N) b) -> (D) {
    C(m,n) +=! A(m,k) * B(k,n)
    D(m,n) = relu(C(m,n) + b(n))
}"""
LARGE, SMALL = 2048, 256
ON = Options(libraries=True)


@pytest.fixture(scope="module")
def chip() -> Chip:
    return replace(load_chip("h200"), libraries=("cublas",))


def made(cuda_unit: MakeUnit, size: int, chip: Chip, options: Options = ON) -> Any:
    return cuda_unit(LAYER, (size, size), (size, size), (size,), gpu=chip, options=options)


def kinds(unit: Any) -> list[str]:
    return [type(launch).__name__ for launch in unit.source.launches]


def test_a_call_is_taken_where_it_is_predicted_to_be_faster(
    cuda_unit: MakeUnit, chip: Chip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix_products, "FMA_SHARE", 4.0)
    unit = made(cuda_unit, LARGE, chip)
    assert kinds(unit) == ["LibraryCall", "Launch"]
    (tried,) = [t for t in unit.done.plan.tried if t.rewrite == "cublas"]
    assert tried.site == "S0" and "become" in tried.result and "would" not in tried.result
    text = candidates_text(unit.done.plan, "cuda", chip)
    assert '"template": "library"' in text and '"template": "tile_simt"' in text


def test_a_call_is_left_where_ours_is_predicted_to_be_faster(
    cuda_unit: MakeUnit, chip: Chip
) -> None:
    unit = made(cuda_unit, SMALL, chip)
    assert "LibraryCall" not in kinds(unit)
    (tried,) = [t for t in unit.done.plan.tried if t.rewrite == "cublas"]
    assert "would become" in tried.result


@pytest.mark.parametrize("options", [
    Options(), Options(libraries=False), Options(libraries=True, summation="compensated"),
], ids=repr)  # fmt: skip
def test_nothing_is_weighed_that_was_not_asked_for(
    options: Options, cuda_unit: MakeUnit, chip: Chip
) -> None:
    unit = made(cuda_unit, SMALL, chip, options)
    assert "LibraryCall" not in kinds(unit)
    assert not [t for t in unit.done.plan.tried if "cublas" in t.rewrite]


def test_a_process_without_the_library_weighs_none(cuda_unit: MakeUnit) -> None:
    unit = made(cuda_unit, SMALL, load_chip("h200"))
    assert not [t for t in unit.done.plan.tried if "cublas" in t.rewrite]


def test_a_convolution_is_a_candidate(
    cuda_unit: MakeUnit, chip: Chip, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """def f(float(N,H,V,C) x, float(F,R,S,C) k) -> (y) {
        y(n,p,q,f) +=! x(n,p+r,q+s,c) * k(f,r,s,c) }"""
    shapes = (8, 18, 18, 64), (64, 3, 3, 64)
    has_both = replace(chip, libraries=("cublas", "cudnn"))
    unit = cuda_unit(source, *shapes, gpu=has_both, options=ON)
    (tried,) = [t for t in unit.done.plan.tried if t.rewrite == "cudnn"]
    assert "would become" in tried.result and "LibraryCall" not in kinds(unit)
    monkeypatch.setattr(convolutions, "FMA_SHARE", 1e3)
    monkeypatch.setattr(convolutions, "CALL_S", 0.0)
    unit = cuda_unit(source, *shapes, gpu=has_both, options=ON)
    assert kinds(unit) == ["LibraryCall"]
    assert '"library": "cudnn"' in candidates_text(unit.done.plan, "cuda", chip)


def test_convolutions_that_a_library_may_not_have_are_no_candidates() -> None:
    windows = (convolutions.Window(9, 3, 7), convolutions.Window(9, 3, 7))
    computed = convolutions.Computed.RESULT

    def why_not(dtype: str, channels: int, rank: int) -> str | None:
        sizes = 2, channels, 16
        return convolutions.why_not_surely(convolutions.Convolution(
            computed, *sizes, windows[:rank], "x", "k", "y", dtype, "float32", True
        ))  # fmt: skip

    assert why_not("float32", 5, 2) is None and why_not("bfloat16", 8, 2) is None
    assert why_not("bfloat16", 5, 2) and why_not("float64", 8, 2) and why_not("float32", 8, 1)


@pytest.mark.slow
def test_choices_make_the_call_again_and_leave_it_out(
    cuda_unit: MakeUnit, chip: Chip, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = made(cuda_unit, SMALL, chip)
    ours = data_of(own.done.plan.weighed, "cuda")
    monkeypatch.setattr(matrix_products, "FMA_SHARE", 1000.0)
    called = made(cuda_unit, LARGE, chip)
    assert isinstance(called.source.launches[0], LibraryCall)
    theirs = data_of(called.done.plan.weighed, "cuda")
    assert theirs["kernels"][0] == {"kernel": "S0", "template": "library"}
    monkeypatch.undo()
    again = made(cuda_unit, LARGE, chip, Options(choices=theirs))
    assert [launch.why for launch in again.source.launches] == [
        launch.why for launch in called.source.launches
    ]
    monkeypatch.setattr(matrix_products, "FMA_SHARE", 1000.0)
    assert kinds(made(cuda_unit, SMALL, chip, replace(ON, choices=ours))) == kinds(own)


def test_the_option_has_three_values() -> None:
    assert Options().libraries == "named"
    with pytest.raises(tcdsl.TCError, match="'cublas' is not one of its values"):
        Options(libraries="cublas")  # type: ignore[arg-type]
