"""Rows of two axes: threads along both, and sums along the inner one that others add up."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.poly.parallelism import Role
from tcdsl.schedule.placement import Space
from tcdsl.strategies import catalogue
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.row_graphs import row_axes
from tcdsl.strategies.templates import row, row_cluster
from tcdsl.strategies.work import least_work_of
from tcdsl.testing.comparison import check
from tests.programs import arrays_for
from tests.strategies.test_templates import problems_of

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

# Results for each d, which are added up in the same row, and stored.
GROUPS = """def f(float(G,D,P) x, float(G,D,P) dy, float(D) w) -> (dx, part) {
    mean(g) +=! x(g,d,p)
    part(g,d) +=! dy(g,d,p) * (x(g,d,p) - mean(g) / (D * P))
    total(g) +=! w(d) * part(g,d)
    dx(g,d,p) = dy(g,d,p) - total(g) * x(g,d,p) / (D * P)
}"""
SHAPES = ((40, 8), (10, 192), (7, 36), (16, 130), (4, 1100))  # short, long, odd, no whole vectors
# Of all but the first a third of the configurations: which one, and of how many.
THIRDS = [(SHAPES[0], 0, 1), *((axes, part, 3) for axes in SHAPES[1:] for part in range(3))]


def shapes_of(rows: int, axes: tuple[int, int]) -> list[tuple[int, ...]]:
    return [(rows, *axes), (rows, *axes), axes[:1]]


def asked_for(unit: Any, **config: int) -> Options:
    """Return options with another configuration of the only kernel of rows."""
    (weighed,) = [w for w in unit.done.plan.weighed if "S0" in w.kernel.split("+")]
    choice = {"kernel": weighed.kernel, "template": "row_cluster", **config}
    choices = {"format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": [choice]}
    return Options(choices=json.dumps(choices))


def group_norm(sizes: tuple[int, int, int, int, int]) -> tuple[str, list[tuple[int, ...]]]:
    """Return the derivative of the library's group_norm, and the shapes of its inputs."""
    text = tcdsl.vjp(tcdsl.define(tcdsl.library.load("group_norm"))["group_norm"]).source
    n, g, d, h, w = sizes
    return text, [(n, g, d, h, w), (g, d), (g, d), (), (n, g, d, h, w)]


@pytest.mark.one_in(3)
@pytest.mark.slow_but("axes0-0-1")
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.parametrize(("axes", "part", "parts"), THIRDS)
def test_every_share_of_a_row_is_right(
    axes: tuple[int, int],
    part: int,
    parts: int,
    cuda_unit: MakeUnit,
    emulated: Callable[..., Any],
) -> None:
    """Each is verified by isl, and none falls back."""
    shapes = shapes_of(3, axes)
    unit = cuda_unit(GROUPS, *shapes)
    (problem, *_) = problems_of(GROUPS, shapes)
    configs = list(row_cluster.space(problem))
    assert {config.outer_threads > 1 for config in configs} >= {True}
    assert {config.cluster for config in configs} > {1} or axes == SHAPES[0]
    asked = [
        {name: getattr(config, name) for name in config.__slots__}
        for config in configs[part::parts]
    ]
    units = [cuda_unit(GROUPS, *shapes, options=asked_for(unit, **own)) for own in asked]
    inputs = arrays_for(unit.comprehension, shapes, 0)
    for program in emulated(units):
        check(program, *inputs)


def test_threads_are_along_both_axes_and_wait_for_three_folds(cuda_unit: MakeUnit) -> None:
    """Both arrays are on their way before the first is waited for, and are read once."""
    unit = cuda_unit(GROUPS, *shapes_of(1024, (40, 64)))
    first, *_ = unit.source.launches
    x, y, _ = first.block
    assert first.grid[0] == 1024 and x < 32 and y > 1 and x * y >= 128
    text = unit.source.text
    folds = re.findall(r"(tc_fold_\w+)<\w+, \d+, \d+>\(", text)
    assert sorted(folds) == ["tc_fold_x", "tc_fold_xy", "tc_fold_y"]
    assert text[text.index("__global__") :].count("__syncthreads") == 1
    copies = [found.start() for found in re.finditer(r"tc_copy_async<4>\(&", text)]
    assert len(copies) == 2 and max(copies) < text.rindex("tc_copy_wait();")


def test_blocks_of_a_cluster_add_up_what_each_has_of_the_outer_axis(cuda_unit: MakeUnit) -> None:
    shapes = shapes_of(3, (16, 512))
    unit = cuda_unit(GROUPS, *shapes)
    config = {"cluster": 4, "per_block": 4, "repeat": 1, "vector": 4}
    one, two = (
        cuda_unit(GROUPS, *shapes, options=asked_for(unit, **config, threads=x, outer_threads=y))
        for x, y in ((128, 1), (128, 2))
    )
    assert "tc_fold_xc<tc_op_add_f32, 128, 1, 4" in one.source.text
    assert "tc_fold_c<tc_op_add_f32, 128, 1, 4" in one.source.text
    assert "tc_fold_xyc<tc_op_add_f32, 128, 2, 4" in two.source.text
    assert "tc_fold_yc<tc_op_add_f32, 128, 2, 4" in two.source.text


def test_blocks_of_a_cluster_share_the_inner_axis_where_the_outer_is_short(
    cuda_unit: MakeUnit,
) -> None:
    shapes = shapes_of(3, (4, 4096))
    config = {"cluster": 4, "per_block": 4, "threads": 128, "repeat": 2, "vector": 4}
    unit = cuda_unit(GROUPS, *shapes)
    text = cuda_unit(GROUPS, *shapes, options=asked_for(unit, **config)).source.text
    assert text.count("tc_fold_xc<tc_op_add_f32, 128, 1, 4") == 2, "four results are one call"
    assert "tc_fold_c" not in text, "every block has all of the outer axis"


def test_sums_for_each_value_are_registers_however_long_the_inner_axis_is(
    cuda_unit: MakeUnit,
) -> None:
    """A serial loop over the outer axis has the fold of each of its values, too."""
    shapes = shapes_of(3, (16, 8192))
    config = {"cluster": 8, "per_block": 2, "threads": 64, "repeat": 32, "vector": 4}
    unit = cuda_unit(GROUPS, *shapes)
    made = cuda_unit(GROUPS, *shapes, options=asked_for(unit, **config)).done.plan
    parts = [p for p in made.placements.values() if ".part" in p.array]
    assert len(parts) == 3 and {p.space for p in parts} == {Space.PRIVATE}


@pytest.mark.slow_but("sizes0-12.0")
@pytest.mark.parametrize(
    ("sizes", "most_us"),
    [((32, 32, 40, 8, 8), 12.0), ((32, 32, 8, 32, 32), 28.0), ((4, 32, 16, 32, 32), 12.0)],
)
def test_group_norms_derivative_is_one_pass(
    sizes: tuple[int, int, int, int, int], most_us: float, cuda_unit: MakeUnit
) -> None:
    """Groups of 40 x 64 had 8 threads along the inner axis, and 32 blocks: 54 us on an H100."""
    source, shapes = group_norm(sizes)
    unit = cuda_unit(source, *shapes)
    (weighed,) = [w for w in unit.done.plan.weighed if "S0" in w.kernel.split("+")]
    assert weighed.choice["template"] == "row_cluster"
    (chosen,) = [c for c in weighed.candidates() if c.get("is_chosen")]
    assert chosen["predicted_us"] < most_us
    n, g, *_ = sizes
    first, *_ = unit.source.launches
    assert first.grid[0] * first.grid[1] == n * g


# --- analysis ----------------------------------------------------------------------------------


def rows_of(source: str, *shapes: tuple[int, ...]) -> tuple[Problem, Any]:
    (problem, *_) = problems_of(source, list(shapes))
    return problem, row_axes(problem.group, problem.shapes)


def test_an_array_tells_which_axis_a_member_has() -> None:
    """Both axes are equally long."""
    problem, found = rows_of(GROUPS, *shapes_of(3, (64, 64)))
    assert found is not None
    dims, extents = found
    assert extents == (64, 64)
    inner_missing = [name for name, own in dims.items() if own[-1] < 0]
    (total,) = inner_missing
    assert problem.shapes[total].roles[dims[total][0]] is Role.REDUCED


@pytest.mark.parametrize(
    "statement",
    [
        "part(g,p) +=! dy(g,d,p) * (x(g,d,p) - mean(g))  total(g) +=! v(p) * part(g,p)",
        "part(g,q) +=! dy(g,q,p) * (x(g,q,p) - mean(g)) where q in 0:D - 1"
        "  total(g) +=! v(d) * part(g,d)",
    ],
)
def test_other_rows_have_no_two_axes(statement: str) -> None:
    """Results along the inner axis would be for all ranks; rows of other lengths are not one."""
    source = f"""def f(float(G,D,P) x, float(G,D,P) dy, float(P) v) -> (dx) {{
        mean(g) +=! x(g,d,p)
        {statement}
        dx(g,d,p) = dy(g,d,p) - total(g) * x(g,d,p)
    }}"""
    _, found = rows_of(source, (3, 8, 64), (3, 8, 64), (64,))
    assert found is None


def test_registers_keep_no_row_of_two_axes() -> None:
    """A serial loop over the outer axis has no number for a register: what was counted as kept was
    read again (group_norm of 32 x 32 x 16 x 48 x 48 was predicted at 76 us and took 157).
    """
    source, shapes = group_norm((32, 32, 16, 48, 48))
    problem = next(p for p in problems_of(source, shapes) if row.why_not(p) is None)
    configs = list(row.space(problem))
    assert configs and all(config.keep == 0 for config in configs)


def test_each_result_of_a_row_is_a_fold() -> None:
    """A thread that goes over the outer axis folds for each of its values."""
    chains = []
    for values in (20, 40):
        (problem, *_) = problems_of(GROUPS, shapes_of(1024, (values, 64)))
        choices = list(catalogue.choices(problem))
        serial = next(c for c in choices if c.template is row.TEMPLATE)
        both = next(c for c in choices if getattr(c.config, "outer_threads", 1) > 1)
        works = (least_work_of(problem, choice.schedule(problem)) for choice in (serial, both))
        chains.append([work.chain for work in works])
    (few, _), (many, short) = chains
    assert many.cycles - few.cycles >= 20 * 4  # at least four shuffles each
    assert short.block_barriers == 4  # of two folds; the third is within warps


def test_gpus_without_clusters_read_rows_again(check_emulated: CheckAll) -> None:
    gpu = replace(load_chip("h200"), arch="sm_80", blocks_per_cluster=1, most_blocks_per_cluster=1)
    check_emulated([(GROUPS, shapes_of(5, (40, 8)))], gpu=gpu)
