"""``tcdsl bench --target cuda`` without a GPU: tensors on the CPU, kernels on the emulator."""

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.cli.bench import command as bench
from tcdsl.cli.bench import copy_rate, device_inputs, device_peers, jax_calls
from tcdsl.cli.bench.device_peers import (
    Device,
    input_bytes,
    relative_error,
)
from tcdsl.cli.bench.lines import read_lines
from tcdsl.cli.bench.xla_queue import Queue
from tcdsl.costmodel.lower_bounds import gathered_reads, least_bytes
from tcdsl.errors import TargetError
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.library import case, cases, cub_peers, cudnn_peers, source_for
from tcdsl.library.cub_peers import CubCall
from tcdsl.library.draws import below, mostly, near_one, ordinary, uniform, weights
from tcdsl.library.peer_calls import call_on_tensors
from tcdsl.runtime.arrays import spec
from tcdsl.runtime.timing import Comparison, Timing, compare

torch = pytest.importorskip("torch")

Tcdsl = Callable[..., tuple[int, str, str]]
QUICK = ("--target", "cuda", "--seconds", "0.001")


def compare_here(
    calls: Mapping[str, Any], seconds: float, flush: bool = True,
    others: Mapping[str, Callable[[], float]] | None = None,
) -> Comparison:  # fmt: skip
    """As compare_cuda, by this processor's clock."""
    found = compare(calls, repeats=1)
    own = {name: Timing(measured(), 0.0, 1, 1) for name, measured in (others or {}).items()}
    return Comparison({**found.timings, **own}, found.ratios)


@pytest.fixture
def precompiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A GPU that is none; what was to be compiled beforehand is in the list."""
    jobs: list[Any] = []
    device = Device(memory_bytes=1 << 40)
    monkeypatch.setattr(device_inputs, "_DEVICE", "cpu")
    monkeypatch.setattr(device_peers, "_TARGET", "emulate")
    monkeypatch.setattr(device_peers, "compare_cuda", compare_here)
    monkeypatch.setattr(Device, "sizes", lambda self, one, dtype: one.small_sizes[-1:])
    monkeypatch.setattr(Device, "settle", lambda self: None)
    monkeypatch.setattr(Device, "about", lambda self, *rates: {"gpu": "none", "copy": f"{rates}"})
    monkeypatch.setattr(bench, "open_device", lambda: device)
    monkeypatch.setattr(bench, "copy_rate_gbs", lambda: 1000.0)
    monkeypatch.setattr(bench, "read_rate_gbs", lambda: 1100.0)
    monkeypatch.setattr(bench, "precompile", lambda found: jobs.extend(found) or "compiled")
    return jobs


@pytest.fixture
def emulator() -> None:
    """The emulator's own code, which the first program on a machine compiles, and says so."""
    tcdsl.define("def f(float(N) x) -> (y) { y(n) = x(n) }").f.compile(
        np.zeros(3, np.float32), target="emulate"
    )


@pytest.mark.slow
def test_it_prints_rates_and_launches(
    emulator: None, precompiled: list[Any], tcdsl: Tcdsl, tmp_path: Path
) -> None:
    code, printed, errors = tcdsl("bench", "softmax", *QUICK, "--json", tmp_path / "t.json")
    assert (code, errors) == (0, ""), printed
    assert precompiled == [("softmax", dict(case("softmax").small_sizes[-1]), "float32")]
    assert "of a copy's" in printed
    report = json.loads((tmp_path / "t.json").read_text())
    assert report["machine"]["gpu"] == "none"
    (row,) = report["rows"]
    assert set(row["times_us"]) == {"tcdsl", "torch"}
    elements = math.prod(case("softmax").small_sizes[-1].values())
    assert row["launches"]["least_bytes"] == 2 * 4 * elements
    assert row["launches"]["kernels"] >= 1 and math.prod(row["launches"]["block"]) >= 1


def test_what_a_program_updates_is_a_copy_that_stays_bound(precompiled: list[Any]) -> None:
    adam, device = case("adam"), Device(1 << 40)
    inputs = device.inputs(adam, {"N": 37}, "float32")
    before = {name: x.clone() for name, x in inputs.items() if hasattr(x, "clone")}
    call, launches = device.tcdsl_call(adam, inputs, "float32")
    expected = device.peer_call("torch", adam, inputs)()
    assert device.disagreement(call(), expected, "float32") is None
    assert device.disagreement(call(), expected, "float32") is not None  # a second step
    assert all(torch.equal(inputs[name], x) for name, x in before.items())
    assert launches.least_bytes == 4 * (4 + 3) * 37 + 6 * 4  # and six numbers


def test_it_prepares_what_is_left_and_says_which_cache(
    precompiled: list[Any], tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepared: list[Any] = []
    monkeypatch.setattr(bench, "prepare", lambda *words: prepared.append(words) or "prepared")
    path = tmp_path / "t.jsonl"
    words = ("--prepare", "3", "--limit", "60", "--no-flush", "--lines", path)
    assert tcdsl("bench", "softmax", *QUICK, *words)[0] == 0
    assert tcdsl("bench", "softmax", "dot", *QUICK, *words)[0] == 0
    assert [[job[0] for job in jobs] for jobs, *_ in prepared] == [["softmax"], ["dot"]]
    assert prepared[0][1:] == (("torch",), 3, 30.0)
    runs = [json.loads(line).get("run") for line in path.read_text().splitlines()]
    assert [run["flush"] for run in runs if run] == [False, False]
    assert [run["read_gbs"] for run in runs if run] == [1100.0, 1100.0]


def test_jax_measures_itself_on_the_same_tensors(
    precompiled: list[Any], host_queue: Queue, tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setattr(jax_calls, "why_no_gpu", lambda: None)
    words = ("softmax", "row_or", "adam", *QUICK, "--peers", "torch,jax")
    code, printed, _ = tcdsl("bench", *words, "--json", tmp_path / "t.json")
    assert code == 0, printed
    for row in json.loads((tmp_path / "t.json").read_text())["rows"]:
        assert set(row["times_us"]) == {"tcdsl", "torch", "jax", "jax-wall"}


def test_cub_and_cudnn_are_peers_of_what_they_have(
    precompiled: list[Any], tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for peer in (cub_peers, cudnn_peers):
        call = partial(call_on_tensors, compiled=False)
        monkeypatch.setattr(peer, "why_missing", lambda: None)
        monkeypatch.setattr(peer, "version_text", lambda: "9.9")
        monkeypatch.setattr(peer, "call_on_tensors", call)
    path = tmp_path / "t.jsonl"
    words = ("row_sum", "softmax", *QUICK, "--peers", "cub,cudnn", "--dtype", "float32,int32")
    code, printed, _ = tcdsl("bench", *words, "--lines", path)
    assert code == 0, printed
    found = {one.row.label.split()[0] + " " + one.row.dtype: one for one in read_lines([path])}
    assert {name: set(one.row.peers_us) for name, one in found.items()} == {
        "row_sum float32": {"cub", "cudnn"}, "row_sum int32": {"cub"}, "softmax float32": set(),
    }  # fmt: skip
    about = found["row_sum int32"].run.about
    assert about["cub"] == about["cudnn"] == "9.9"


@pytest.mark.slow
def test_a_table_in_every_type_that_its_cases_admit(
    precompiled: list[Any], tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(device_peers, "_TARGET", "cpu")  # quicker than the emulator
    path = tmp_path / "t.jsonl"
    types = "float16,float64,int32,int64,int8,uint8,bool"
    words = ("row_max", "column_or", "row_sum_float32", "softmax", *QUICK, "--lines", path)
    code, printed, _ = tcdsl("bench", *words, "--table", "memory-bound", "--dtype", types)
    assert code == 0, printed
    found = {(one.row.case, one.row.dtype) for one in read_lines([path])}
    ordered = ("float16", "float64", "int32", "int64", "int8", "uint8")
    assert found == {
        ("row_sum_float32", "float16"), ("softmax", "float64"), ("column_or", "bool"),
        *(("row_max", dtype) for dtype in ordered),
    }  # fmt: skip
    page = tcdsl("bench", "--from", path)[1]
    assert all(f"| reduction | {dtype} " in page for dtype in (*ordered, "bool", "all"))


def test_cub_is_timed_without_its_copy_too(precompiled: list[Any]) -> None:
    class Copying(CubCall):
        def __init__(self, is_copied: bool) -> None:
            self.is_copied = is_copied

        def __call__(self) -> None: ...
        def without_copy(self) -> None: ...

    times = [set(Device(1).compare({"cub": Copying(c)}, 1e-3).timings) for c in (True, False)]
    assert times == [{"cub", "cub-rows"}, {"cub"}]


def test_without_cub_and_cudnn_the_others_are_timed(
    precompiled: list[Any], tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cub_peers, "why_missing", lambda: "CuPy is not installed")
    monkeypatch.setattr(cudnn_peers, "why_missing", lambda: "libcudnn.so.9 is not there")
    code, printed, _ = tcdsl("bench", "row_sum", *QUICK, "--peers", "torch,cub,cudnn")
    assert code == 0
    assert "without cub: CuPy is not installed" in printed
    assert "without cudnn: libcudnn.so.9 is not there" in printed


def test_first_calls_on_a_device(
    precompiled: list[Any], tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "wait", lambda self: None)
    monkeypatch.setattr("tcdsl.cli.bench.first_call._CACHE", "UNUSED_BY_A_TEST")  # C++ takes long
    code, printed, _ = tcdsl("bench", "row_sum", *QUICK, "--first-call")
    assert code == 0, printed
    assert "of 1 first calls take more than" in printed and "| row_sum" in printed


@pytest.mark.slow
def test_torch_compile_is_asked_for_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[Any] = []

    def fake(formula: Any, **options: Any) -> Any:
        modes.append(options)
        return formula

    monkeypatch.setattr(torch, "compile", fake)
    Device(1).peer_call("torch-compile", case("dot"), {"a": torch.ones(3), "b": torch.ones(3)})()
    assert modes == [{"dynamic": False, "mode": "max-autotune-no-cudagraphs"}]


def test_a_wrong_result_is_a_problem(
    precompiled: list[Any], tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "peer_call", lambda *_: lambda: torch.tensor(1e9))
    code, printed, _ = tcdsl("bench", "all_sum", *QUICK)
    assert code == 1
    assert "tcdsl and torch disagree" in printed


def test_a_lost_device_ends_the_run(
    precompiled: list[Any], tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "settle", lambda self: "illegal access")
    code, printed, _ = tcdsl("bench", "all_sum", "all_max", "softmax", *QUICK)
    assert code == 1
    assert "the device is lost (illegal access); 2 more are not timed" in printed
    assert "| all_max" not in printed


def test_inputs_that_do_not_fit_are_a_problem(
    precompiled: list[Any], tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Device, "inputs", fail)
    code, printed, _ = tcdsl("bench", "all_sum", *QUICK)
    assert code == 1
    assert "its inputs: out of memory" in printed


def test_numpy_is_no_peer_of_a_gpu(precompiled: list[Any], tcdsl: Tcdsl) -> None:
    code, _, errors = tcdsl("bench", "all_sum", *QUICK, "--peers", "numpy")
    assert code == 2
    assert "use torch, torch-compile, jax, cub, cudnn" in errors


def test_without_a_gpu_it_says_so(tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise TargetError("there is no GPU", code="TC065")

    monkeypatch.setattr(device_peers, "primary_context", fail)
    for extra in ((), ("--latency",), ("--copy-rate",)):
        code, _, errors = tcdsl("bench", "--target", "cuda", *extra)
        assert code == 2
        assert "there is no GPU" in errors


def test_a_torch_that_sees_no_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_peers, "primary_context", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(tcdsl.TCError, match="sees no GPU"):
        device_peers.open_device()


def test_float32_is_not_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    matmul, cudnn = SimpleNamespace(allow_tf32=True), SimpleNamespace(allow_tf32=True)
    backends = SimpleNamespace(cuda=SimpleNamespace(matmul=matmul), cudnn=cudnn)
    monkeypatch.setattr(torch, "backends", backends)
    monkeypatch.setattr(device_peers, "primary_context", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (5, 7))
    assert device_peers.open_device().memory_bytes == 7
    assert not matmul.allow_tf32 and not cudnn.allow_tf32


def test_a_lost_context_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: an illegal memory access\nand much advice")

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 2 << 30)
    assert Device(1).settle() is None
    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    assert Device(1).settle() == "CUDA error: an illegal memory access"


# --- sizes and bytes -------------------------------------------------------------------------


def test_sizes_that_fit_are_chosen_by_the_bytes_of_the_inputs() -> None:
    device = Device(memory_bytes=1 << 40)
    for one in cases():
        dtype = one.dtypes[0]
        for sizes in device.sizes(one, dtype):
            assert input_bytes(one, sizes, dtype) <= device_peers.MOST_INPUT_BYTES
    assert input_bytes(case("dot"), {"N": 10}, "bfloat16") == 40
    largest = max(input_bytes(case("dot"), s, "float32") for s in case("dot").sizes)
    small = Device(memory_bytes=8 * (largest - 1))
    assert len(small.sizes(case("dot"), "float32")) < len(case("dot").sizes)


def specialised(name: str, sizes: Mapping[str, int]) -> tuple[Any, Any]:
    chosen = case(name)
    function = tcdsl.define(source_for(chosen, "float32"))[chosen.def_name]
    shapes = chosen.input_shapes(sizes)
    specs = [spec(shapes[p.name], p.dtype_for("float32")) for p in chosen.params]
    return function.comprehension, function.specialise(*specs)


def test_of_a_table_only_what_is_looked_up_counts() -> None:
    c, special = specialised("lut1", {"E": 1000, "D": 8, "B": 3, "L": 5})
    assert gathered_reads(c, special) == {"table": 3 * 5 * 8}
    index = c.tensors["index"].dtype.size_bytes
    assert least_bytes(c, special) == 3 * 5 * 8 * 4 + 3 * 5 * index + 3 * 8 * 4
    c, special = specialised("lut1", {"E": 2, "D": 8, "B": 3, "L": 5})
    assert least_bytes(c, special) == 2 * 8 * 4 + 3 * 5 * index + 3 * 8 * 4


def test_what_is_also_read_directly_counts_whole() -> None:
    (sizes, *_) = case("cross_entropy").small_sizes[-1:]
    assert gathered_reads(*specialised("cross_entropy", sizes)) == {}


# --- comparing -------------------------------------------------------------------------------


def test_errors_are_relative_to_the_largest_finite_element() -> None:
    expected = torch.tensor([1000.0, 0.0, math.nan, math.inf, -math.inf])
    assert relative_error(expected.clone(), expected) == 0
    assert relative_error(expected + 0.5, expected) == pytest.approx(5e-4)
    assert math.isnan(relative_error(torch.tensor([math.nan, 1.0]), torch.tensor([1.0, 1.0])))
    assert relative_error(torch.tensor([math.inf]), torch.tensor([1.0])) == math.inf
    assert relative_error(torch.tensor([math.inf]), torch.tensor([-math.inf])) == math.inf
    assert relative_error(torch.zeros(0), torch.zeros(0)) == 0
    assert relative_error(torch.tensor([True, False]), torch.tensor([True, True])) == 1
    assert relative_error(torch.tensor(5), torch.tensor(10)) == 0.5


def test_results_are_compared_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_peers, "_PIECE", 4)
    ours, theirs = torch.zeros(3, 3), torch.zeros(3, 3)
    theirs[0, 0] = 10.0
    ours[0, 0], ours[2, 2] = 10.0, 1.0
    assert relative_error(ours, theirs) == pytest.approx(0.1)
    assert Device(1).disagreement(ours, theirs, "float32") is not None
    assert Device(1).disagreement((ours, ours), [ours, ours], "float32") is None
    assert "shape" in str(Device(1).disagreement(ours[:2], theirs, "float32"))
    ours[0, 1] = math.nan
    assert "differs by nan" in str(Device(1).disagreement(ours, theirs, "float32"))


# --- inputs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lut1", "masked_softmax", "row_prod", "mlp1", "adam", "tmm_int8"])
def test_inputs_have_the_types_and_shapes_of_the_librarys(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_inputs, "_DEVICE", "cpu")
    chosen = case(name)
    dtype, sizes = chosen.dtypes[0], chosen.small_sizes[-1]
    ours = device_inputs.device_inputs(chosen, sizes, dtype)
    again = device_inputs.device_inputs(chosen, sizes, dtype)
    theirs = chosen.make_inputs(sizes, np.random.default_rng(0), dtype)
    assert list(ours) == list(theirs)
    for parameter, array in theirs.items():
        tensor = ours[parameter]
        if array.ndim == 0:
            assert tensor == array.item() and isinstance(tensor, float)
            continue
        assert tuple(tensor.shape) == array.shape
        assert str(tensor.dtype) == f"torch.{array.dtype.name}"
        assert torch.equal(tensor, again[parameter])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "bool"])
def test_ordinary_values(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_inputs, "_DEVICE", "cpu")
    drawn = device_inputs._DRAWS[ordinary](torch, (40, 50), BY_NAME[dtype]).double()
    expected = ordinary(np.random.default_rng(0), (40, 50), BY_NAME[dtype], {}).astype("f8")
    assert drawn.mean() == pytest.approx(expected.mean(), abs=0.1 * expected.std() + 1e-9)
    assert drawn.std() == pytest.approx(expected.std(), rel=0.1)
    assert len(drawn.unique()) > 1


def test_products_stay_near_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_inputs, "_DEVICE", "cpu")
    drawn = device_inputs._DRAWS[near_one](torch, (1000, 100), BY_NAME["float32"])
    assert 1e-4 < abs(drawn.double().prod()) < 1e4
    assert {-1.0, 1.0} < set(drawn.unique().tolist())
    whole = device_inputs._DRAWS[near_one](torch, (100,), BY_NAME["int32"])
    assert set(whole.unique().tolist()) == {-1, 1}
    assert device_inputs._DRAWS[near_one](torch, (0, 4), BY_NAME["float32"]).shape == (0, 4)


def test_intervals_and_rare_bools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_inputs, "_DEVICE", "cpu")
    drawn = device_inputs.drawn_there(torch, uniform(0.5, 1.5), (90, 50), BY_NAME["bfloat16"])
    assert drawn.dtype == torch.bfloat16
    assert 0.5 <= drawn.min() < 0.6 and 1.4 < drawn.max() <= 1.5
    for value in (True, False):
        bools = device_inputs.drawn_there(torch, mostly(value), (200, 30), BY_NAME["bool"])
        assert 0 < (bools == value).all(dim=1).sum() < 200
    assert device_inputs.drawn_there(torch, below("V"), (3,), BY_NAME["int64"]) is None


def test_weights_keep_the_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_inputs, "_DEVICE", "cpu")
    drawn = device_inputs._DRAWS[weights](torch, (64, 10, 10), BY_NAME["float32"])
    assert drawn.std() == pytest.approx(0.1, rel=0.1)


# --- copy rate -------------------------------------------------------------------------------


@pytest.fixture
def small_copies(precompiled: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_rate, "MEGABYTES", (1,))
    monkeypatch.setattr(copy_rate, "DTYPES", ("bfloat16",))
    monkeypatch.setattr(copy_rate, "copy_rate_gbs", lambda: 1e-3)
    monkeypatch.setattr(copy_rate, "copy_call", lambda size_bytes: lambda: None)
    monkeypatch.setattr(copy_rate, "compare_cuda", lambda calls, s: compare(calls, repeats=1))
    monkeypatch.setattr(torch, "randn", lambda n, device: torch.linspace(-3.0, 3.0, n))

    def bound(program: Any, dtype: str, values: Any, out: Any) -> Any:
        function = tcdsl.define(program.source(dtype))[program.name]
        return function.compile(*values, target="cpu").bind(*values, out=out)

    monkeypatch.setattr(copy_rate, "bound", bound)


@pytest.mark.slow
def test_the_copy_rate_of_every_program(small_copies: None, tcdsl: Tcdsl) -> None:
    code, printed, errors = tcdsl("bench", "--target", "cuda", "--copy-rate")
    assert (code, errors) == (0, ""), printed
    for program in copy_rate.PROGRAMS:
        assert f"| {program.name}" in printed
    assert "least: " in printed


def test_a_wrong_result_of_a_pointwise_program(
    small_copies: None, tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = copy_rate.Pointwise("scale", "z(i) = x(i)", ("x",), lambda x: x + 1)
    monkeypatch.setattr(copy_rate, "PROGRAMS", (wrong,))
    code, printed, _ = tcdsl("bench", "--target", "cuda", "--copy-rate")
    assert code == 1
    assert "scale bfloat16: output 0 differs" in printed


def test_the_rate_counts_what_is_read_and_written() -> None:
    row = copy_rate.Moved("add", "float32", 64, 192_000_000, time_us=48.0, copy_us=24.0)
    assert row.rate_gbs == pytest.approx(4000.0)
    cells = [cell.strip() for cell in copy_rate.table([row], 5000.0).splitlines()[-1].split("|")]
    assert cells[1:-1] == ["add", "float32", "64", "48 us", "4000", "0.50", "0.80"]
    assert copy_rate.least_text([row], 5000.0) == "0.80 (add, float32, 64 MB)"
    failed = copy_rate.Moved("add", "float32", 64, 1, problem="no")
    assert copy_rate.least_text([failed], 1.0) == "nothing was timed"
