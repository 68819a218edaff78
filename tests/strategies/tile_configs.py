"""How tests ask for tiles of products, and what they then look at."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.driver import Compiled, GpuBackend, compile_with
from tcdsl.fallbacks import FallbackLevel
from tcdsl.lang.request import Request, Strides
from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.schedule.plan import Plan
from tcdsl.testing.random_inputs import values
from tests.programs import comprehension_of, specialisation_of

MakeUnit = Callable[..., Any]
FEW = replace(load_chip("h200"), multiprocessors=4)  # blocks have several tiles


def tiles(shape: tuple[int, int, int, int], **others: Any) -> dict[str, Any]:
    """Return a configuration of *shape*, which copies by threads fill unless *others* say more."""
    rows, columns, warp_rows, warp_columns = shape
    return {
        "rows": rows, "columns": columns, "warp_rows": warp_rows, "warp_columns": warp_columns,
        "step": 64, "stages": 3, "together": 4, "loader": "threads", "swath": 1, "chunks": 1,
        "is_persistent": False, "is_finished": False, "cluster_rows": 1, "cluster_columns": 1,
        "shares": 0,
        **others,
    }  # fmt: skip


CONFIGS = {
    "boxes": tiles((16, 128, 4, 1), loader="boxes"),
    "four warps": tiles((16, 64, 4, 1)),
    "single warps": tiles((32, 32, 2, 2), step=32, together=1),
    "persistent": tiles((16, 64, 4, 1), loader="boxes", swath=2, is_persistent=True),
}


class _Planner(GpuBackend):
    """Plans, and neither prints nor verifies."""

    def print(self, plan: Plan, level: FallbackLevel | None) -> CudaSource:
        return CudaSource("", frozenset(), (), 0, ())

    def why_not_legal(self, plan: Plan) -> str | None:
        return None


class Planned:
    """A unit of ``cuda_unit`` without a text, planned when more of it is asked than its kernels."""

    def __init__(self, request: Request, gpu: Chip) -> None:
        self.comprehension, self.special = request.comprehension, request.special
        self._request, self._gpu = request, gpu

    @cached_property
    def done(self) -> Compiled[CudaSource]:
        return compile_with(self._request, _Planner(self._gpu, {}))

    def kernel(self, position: int) -> str:
        """Return the name of a kernel, which programs of one kernel have at all sizes.

        Names are kept from test to test; where a plan has others, asking for a kernel of this name
        is an error.
        """
        form = self.comprehension.source.text, repr(self._request.options)
        at_sizes = *form, *self.special.shapes.items()
        if (known := _NAMES.get(form) or _NAMES.get(at_sizes)) is None:
            known = [weighed.kernel for weighed in self.done.plan.weighed]
            _NAMES[form if len(known) == 1 else at_sizes] = known
        return known[position]


_NAMES: dict[tuple[Any, ...], list[str]] = {}


def planned(
    source: str,
    *shapes: tuple[int, ...],
    gpu: Chip | None = None,
    options: Options | None = None,
    strides: Strides | None = None,
) -> Planned:
    """Return the unit of ``cuda_unit`` without a text, in half the time: to ask what it has."""
    c = comprehension_of(source)
    special = specialisation_of(c, shapes)
    request = Request(c, special, strides or {}, options or Options())
    return Planned(request, gpu or load_chip("h200"))


def kernel_of(unit: Any, position: int = 0) -> str:
    """Return the name of a kernel of *unit*, by default its first."""
    if isinstance(unit, Planned):
        return unit.kernel(position)
    return str(unit.done.plan.weighed[position].kernel)


def choices_of(kernel: str, template: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices, for ``Options``, that ask for *config* of *template* for one kernel."""
    one = {"kernel": kernel, "template": template, **config}
    return {"format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": [one]}


def asked(unit: Any, config: Mapping[str, Any], kernel: int = -1) -> Options:
    """Return the options that ask for *config* for one *kernel* of *unit*, by default its last."""
    return Options(choices=choices_of(kernel_of(unit, kernel), "tile_mma", config))


def kernels_of(unit: Any) -> list[str]:
    return [weighed.kernel for weighed in unit.done.plan.weighed]


def inputs_of(unit: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    c = unit.comprehension
    types = [c.tensors[name].dtype for name in c.inputs]
    return [values(*of, "real", n) for n, of in enumerate(zip(types, shapes, strict=True))]


def check_at_sizes(
    exe: tcdsl.Executable,
    f: tcdsl.Function,
    drawn: Callable[[int], list[Any]],
    sizes: Iterable[int],
) -> None:
    """Compare *exe*, code for many sizes of *f*, with the reference on what is *drawn* at each.

    Results begin as NaN, and sums are exact.
    """
    for size in sizes:
        args = drawn(size)
        expected = f.reference(*args)
        results = np.full_like(expected, np.nan)
        exe(*args, out=results)
        np.testing.assert_array_equal(results, expected)


def take_implicit_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small implicit products are worth while, and no other template is faster."""
    template = "tcdsl.strategies.templates.tile_implicit"
    monkeypatch.setattr("tcdsl.strategies.contracted.MIN_WORK", 1)
    monkeypatch.setattr(f"{template}.least_seconds", lambda *_: inf)
    monkeypatch.setattr(f"{template}.LEAST_STEPS", 1)
    monkeypatch.setattr(f"{template}._is_filled", lambda *_: True)
