"""Rows that the blocks of a cluster share: who gets clusters, and that the results are right."""

import re
from dataclasses import replace

import pytest

import tcdsl
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.options import Options
from tcdsl.schedule.fold_slots import fold_slots, static_bytes
from tcdsl.schedule.mapping import Mapped
from tests.strategies.waiting_sums import (
    CHANNELS,
    ROWS,
    Case,
    CheckAll,
    MakeUnit,
    Way,
    check_all_sizes,
    program,
    share_short_rows,
    special_rows,
)

SOFTMAX, LOGSUMEXP = program("softmax", ROWS), program("logsumexp", ROWS)
BATCHNORM = program("batchnorm", CHANNELS)

CASES: dict[str, Case] = {
    "softmax": (SOFTMAX, [[(5, 4096)], [(3, 4099)], [(2, 2050)], [(133, 1024)]]),
    "logsumexp": (LOGSUMEXP, [[(5, 4096)], [(3, 4099)], [(1, 8192)]]),
    "batchnorm": (BATCHNORM, [[(9, 5, 512), (5,), ()], [(9, 3, 515), (3,), ()]]),
    "flat batchnorm": (BATCHNORM, [[(16, 5, 196), (5,), ()], [(9, 3, 49), (3,), ()]]),
    "statistics as outputs": (
        program("statistics as outputs", CHANNELS),
        [[(16, 3, 196)], [(8, 2, 49)], [(8, 2, 512)]],
    ),
    "two arrays": (program("two arrays", ROWS), [[(3, 4096)] * 2, [(2, 1031)] * 2]),
    "operators": (program("operators", ROWS, "double"), [[(3, 2048)], [(2, 1027)]]),
    "integers": (program("integers", ROWS), [[(3, 2048)], [(2, 1027)]]),
    "half types": (program("softmax", ROWS, "bfloat16"), [[(3, 4096)], [(3, 4099)]]),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    share_short_rows(monkeypatch)


@pytest.mark.slow_but("integers", "softmax", "logsumexp")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_blocks")
def test_one_kernel_reads_a_row_once(name: str, cuda_unit: MakeUnit) -> None:
    source, sizes = CASES[name]
    for shapes in sizes:
        unit = cuda_unit(source, *shapes)
        (launch,) = unit.source.launches
        assert launch.cluster > 1 and launch.grid[2] == launch.cluster
        assert f"__cluster_dims__(1, 1, {launch.cluster})" in unit.source.text
        assert launch.shared_bytes > 0
        assert re.search("tc_copy_async(_some)?<", unit.source.text)
        for array in unit.comprehension.inputs:
            load = rf"tc_vload\w*<\d+>\(&(u0_)?{array}(_rows)?\["
            loads = re.findall(load, unit.source.text)
            assert not loads, "what is staged is read from shared memory"


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_blocks")
def test_the_results_are_right(name: str, check_emulated: CheckAll) -> None:
    check_all_sizes(check_emulated, CASES[name])


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_blocks")
def test_the_results_are_right_on_a_small_chip(
    name: str, check_emulated: CheckAll, small_chip: Chip
) -> None:
    check_all_sizes(check_emulated, CASES[name], gpu=small_chip)


@pytest.mark.usefixtures("small_blocks")
def test_vectors_of_one_element(check_emulated: CheckAll) -> None:
    cases = [(SOFTMAX, [(2, 2048)]), (BATCHNORM, [(16, 2, 64), (2,), ()])]
    check_emulated(cases, options=Options(vectorise=False))


@pytest.mark.usefixtures("small_blocks")
def test_rules_for_nan_and_infinity(check_emulated: CheckAll) -> None:
    x = special_rows(2048)
    check_emulated([(SOFTMAX, [x]), (LOGSUMEXP, [x])])


def test_rows_that_a_block_holds_get_no_cluster(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(SOFTMAX, (300, 4096))
    (launch,) = unit.source.launches
    assert launch.cluster == 1 and launch.shared_bytes == 0


def test_rows_that_no_cluster_holds_are_read_again(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(SOFTMAX, (8, 1 << 20))
    assert len(unit.source.launches) > 1
    assert all(launch.cluster == 1 for launch in unit.source.launches)


@pytest.mark.usefixtures("small_blocks")
def test_more_blocks_than_any_kernel_may_have(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    """Sixteen share what eight do not hold; the runtime asks the driver for them."""
    gpu = load_chip("h200")
    gpu = replace(gpu, shared_bytes_per_block=6 << 10, static_shared_bytes_per_block=4 << 10)
    shapes = [(32, 3, 256), (3,), ()]
    (launch,) = cuda_unit(BATCHNORM, *shapes, gpu=gpu).source.launches
    assert launch.cluster == 16 and launch.shared_bytes == 2 << 10
    check_emulated([(BATCHNORM, shapes), (BATCHNORM, [(31, 3, 253), (3,), ()])], gpu=gpu)


@pytest.mark.slow_but("text0-16", "text1-8")
@pytest.mark.parametrize("blocks", [8, 16])
@pytest.mark.parametrize("text", [SOFTMAX, LOGSUMEXP, program("softmax", ROWS, "double")])
def test_the_longest_rows_are_in_shared_memory(text: str, blocks: int, cuda_unit: MakeUnit) -> None:
    """Rows that fit by the cost model fit beside what the kernel's folds are left."""
    gpu = load_chip("h200")
    each = gpu.shared_bytes_per_block - gpu.static_shared_bytes_per_block
    length = blocks * each // (8 if "double" in text else 4)
    for launch in cuda_unit(text, (40, length), gpu=gpu).source.launches:
        assert launch.shared_bytes >= each - 1024 if launch.cluster > 1 else launch.cluster == 1


def test_staged_rows_leave_folds_what_they_take(cuda_unit: MakeUnit) -> None:
    """Both arrays of a channel are 196 KB in each of sixteen blocks: they had 48 KB less than a
    block has, so that there was one array in shared memory, or five kernels.
    """
    f = tcdsl.define(tcdsl.library.load("batchnorm_relu"))["batchnorm_relu"]
    x = (32, 64, 112, 112)
    unit = cuda_unit(tcdsl.vjp(f, wrt=("x", "gamma", "beta")).source, x, (64,), (64,), (), x)
    first, *_ = unit.source.launches
    assert (first.cluster, first.shared_bytes) == (16, 2 * 2 * 112 * 112 * 4)
    plan = unit.done.plan
    kernel = Mapped(plan.scop, plan.kernels[0].tree)
    slots = fold_slots(kernel, plan.placements, plan.shared_bytes)
    taken = first.shared_bytes + static_bytes(kernel, plan.placements, slots)
    assert slots.numbers and taken <= load_chip("h200").shared_bytes_per_block


@pytest.mark.slow_but("20")
@pytest.mark.parametrize("left", [8, 20, 200])
def test_what_staged_rows_leave_is_enough(left: int, check_emulated: CheckAll) -> None:
    """Folds have no slots of their own where these do not fit, and rows are not staged else."""
    gpu = load_chip("h200")
    row_bytes = 32 * 256 * 4
    gpu = replace(gpu, shared_bytes_per_block=row_bytes // 8 + 16 * left + (1 << 10))
    check_emulated([(BATCHNORM, [(32, 3, 256), (3,), ()])], gpu=gpu)


def test_few_rows_are_shared_by_clusters_too(cuda_unit: MakeUnit) -> None:
    """Of 64 channels blocks alone would leave half of the chip idle: what follows waits apart."""
    f = tcdsl.define(tcdsl.library.load("batchnorm_relu"))["batchnorm_relu"]
    text = tcdsl.vjp(f).source
    x = (32, 64, 56, 56)
    first, *rest = cuda_unit(text, x, (64,), (64,), (), x).source.launches
    assert first.cluster == 8
    assert [launch.grid[:2] for launch in rest] == [(1, 1)]  # the sum over channels


def test_older_gpus_have_no_clusters(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(
        SOFTMAX, (300, 131072), gpu=replace(load_chip("h200"), arch="sm_80", blocks_per_cluster=1)
    )
    assert all(launch.cluster == 1 for launch in unit.source.launches)


@pytest.mark.usefixtures("small_blocks")
def test_a_vector_is_what_every_array_allows(cuda_unit: MakeUnit) -> None:
    """Who reads registers alone would take longer ones."""
    assert "tc_vstore(&y[" in cuda_unit(SOFTMAX, (3, 4096)).source.text


@pytest.mark.parametrize(("axes", "has_clusters"), [("a,b", True), ("a,b,c", False)])
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_a_grid_without_an_axis_to_spare_has_no_clusters(
    axes: str, has_clusters: bool, cuda_unit: MakeUnit
) -> None:
    """The result's axes are in another order, so that none can be merged."""
    source = program("softmax", Way(f"{axes.upper()},N", f"{axes},j", axes, "N"))
    source = source.replace(f"y({axes},", f"y({axes[::-1]},")
    shape = (*range(2, 2 + len(axes.split(","))), 4096)
    launches = cuda_unit(source, shape).source.launches
    assert {launch.cluster > 1 for launch in launches} == {has_clusters}


def test_one_pass_needs_no_cluster(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (256, 1 << 17))
    (launch,) = unit.source.launches
    assert launch.cluster == 1


def test_channels_get_a_cluster_each(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(BATCHNORM, (32, 64, 3136), (64,), ())
    (launch,) = unit.source.launches
    assert launch.grid == (64, 1, 8) and launch.shared_bytes == 4 * 3136 * 4
    assert "clusters of 8 blocks" in launch.why[0]


def test_sums_that_one_pass_finds_need_no_cluster(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(
        "def f(float(M,N) x) -> (s, t) { s(i) +=! x(i,j)\n t(i) max=! x(i,j) * x(i,j) }",
        (2, 1 << 18),
    )
    assert all(launch.cluster == 1 for launch in unit.source.launches)


@pytest.mark.usefixtures("small_blocks")
def test_compensated_sums_are_folded_over_clusters(check_emulated: CheckAll) -> None:
    doubles = program("batchnorm", CHANNELS, "double")
    cases = [(SOFTMAX, [(2, 2048)]), (BATCHNORM, [(16, 2, 64), (2,), ()])]
    check_emulated(
        [*cases, (doubles, [(16, 2, 64), (2,), ()])], options=Options(summation="compensated")
    )
