"""Tiles of 8 to 48 columns by four warps: for few columns, and few rows, which become columns."""

import re
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

import pytest

from tcdsl.options import Options
from tcdsl.strategies import tensor_configs
from tcdsl.strategies.templates import tile_mma
from tcdsl.testing.comparison import check
from tests.strategies.test_tensor_types import drawn, source_of

MakeUnit = Callable[..., Any]
TF32, FLOAT8 = Options(precision="tf32"), Options(precision="float8")
KINDS = {
    "bfloat16": (("bfloat16", "bfloat16"), Options()),
    "half": (("half", "half"), Options()),
    "int8": (("int8", "uint8"), Options()),
    "float8": (("float8_e4m3", "float8_e5m2"), FLOAT8),
    "tf32": (("float32", "float32"), TF32),
    "float32": (("float32", "float32"), Options()),
}  # fmt: skip
COUNTS = (9, 2, 5, 8, 16, 17, 31)


def narrow_alone(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    """Products have only narrow tiles that boxes fill, with these *values* of a configuration."""
    in_chunks = tensor_configs.in_chunks

    def narrow(*given: Any) -> Iterator[Any]:
        for one in in_chunks(*given):
            is_narrow = one.loader == tensor_configs.BOXES and one.columns in tensor_configs.NARROW
            if is_narrow and all(getattr(one, name) == value for name, value in values.items()):
                yield one

    monkeypatch.setattr(tile_mma, "in_chunks", narrow)
    monkeypatch.setattr(tile_mma, "MIN_WORK", 1)
    monkeypatch.setattr(tile_mma, "least_seconds", lambda *_: inf)


@pytest.mark.slow_but("rows-bfloat16-counts0", "columns-int8-counts0", "rows-float32-counts0")
@pytest.mark.parametrize("counts", [COUNTS[:1], COUNTS[1:]])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("few", ["rows", "columns"])
def test_products(
    few: str,
    kind: str,
    counts: Sequence[int],
    cuda_unit: MakeUnit,
    emulated: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    types, options = KINDS[kind]
    narrow_alone(monkeypatch)
    units, inputs = [], []
    for count in counts:
        for form in ("nt", "nn") if few == "rows" else ("nt", "tt"):
            if form != "nt" and types[0] in ("int8", "float8_e4m3"):
                continue
            many = 67 if form == "nt" else 80
            sizes = {"m": count, "n": many} if few == "rows" else {"m": many, "n": count}
            source, shapes = source_of(form, types, sizes | {"k": 304})
            unit = cuda_unit(source, *shapes, options=options)
            calls = re.findall(r"tc_wgmma\w*<(?:tc_of_\w+, |[01], )?(\d+),", unit.source.text)
            assert calls == [str(-(-count // 8) * 8)], (form, sizes)
            units.append(unit)
            inputs.append(drawn(types, shapes))
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own, options=options)
