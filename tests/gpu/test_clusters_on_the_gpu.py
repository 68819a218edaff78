"""Rows that clusters share, on a GPU: at sizes that get clusters by themselves."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.library import case, source_for
from tcdsl.testing import check
from tests.strategies.test_two_axes import GROUPS

Check = Callable[[str, Sequence[Any]], str | None]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning"),
]

SIZES = {
    "softmax": [{"M": 3, "N": 131072}, {"M": 2, "N": 100_003}, {"M": 300, "N": 40_000}],
    "log_softmax": [{"M": 3, "N": 131_076}],
    "rmsnorm": [{"M": 5, "N": 65536}],
    "batchnorm_relu": [{"N": 32, "C": 3, "H": 56, "W": 56}, {"N": 9, "C": 5, "H": 33, "W": 31}],
    "batchnorm_running": [{"N": 32, "C": 3, "H": 56, "W": 56}],
    "batchnorm_backward": [{"N": 32, "C": 3, "H": 56, "W": 56}],
    "group_norm": [{"N": 2, "G": 3, "D": 16, "H": 48, "W": 48}],
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", SIZES)
def test_rows_that_clusters_share(name: str, dtype: str, check_on_the_gpu: Check) -> None:
    program = case(name)
    if dtype not in program.dtypes:
        pytest.skip(f"{name} has no {dtype}")
    failures = []
    for sizes in SIZES[name]:
        inputs = program.make_inputs(sizes, np.random.default_rng(1), dtype)
        failures.append(check_on_the_gpu(source_for(program, dtype), list(inputs.values())))
    assert not any(failures), failures


@pytest.mark.parametrize("axes", [(40, 64), (10, 4096), (4, 16384), (16, 2048), (7, 900)])
def test_rows_of_two_axes(axes: tuple[int, int]) -> None:
    """Every tenth share of those that the estimate may choose: folds over both axes and blocks."""
    f = tcdsl.define(GROUPS).f
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal((3, *axes)).astype("f") for _ in range(2)]
    inputs.append(rng.standard_normal(axes[:1]).astype("f"))
    executable = f.compile(*inputs, target="cuda")
    weighed = [c for c in executable.candidates if "config" in c]
    shares = [c for c in weighed if c["template"] == "row_cluster"]
    assert shares
    for share in [c for c in shares if c["is_chosen"]] + shares[::10]:
        kernel = {"kernel": share["kernel"], "template": "row_cluster", **share["config"]}
        choices = json.dumps({**executable.choices, "kernels": [kernel]})
        check(f, *inputs, targets=["cuda"], options=tcdsl.Options(choices=choices))


def test_they_do_get_clusters() -> None:
    x = tcdsl.spec((3, 131072), "float32")
    executable = tcdsl.define(source_for(case("softmax"), "float32")).softmax.compile(
        x, target="cuda"
    )
    assert "clusters of 8 blocks" in executable.explain()
