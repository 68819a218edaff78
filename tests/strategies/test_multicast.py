"""Products whose blocks copy to one another in clusters: right, shared as said, faults found."""

import re
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.emulator import emulated_programs
from tcdsl.errors import EmulationError, OptionError
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.options import Options
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.strategies.tile_configs import FEW, choices_of, planned, tiles

MakeUnit = Callable[..., Any]
FORMS = {"nn": ("mk", "kn"), "nt": ("mk", "nk"), "tn": ("km", "kn"), "tt": ("km", "nk")}
CLUSTERS = [(2, 1), (1, 2), (2, 2)]


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.CLUSTERED", 10**6)  # likely or not


def program_of(
    form: str, sizes: tuple[int, int, int], types: tuple[str, str] = ("bfloat16", "bfloat16")
) -> tuple[str, list[tuple[int, ...]]]:
    """Return a product of *sizes* m, n, k, and the shapes of its factors."""
    a, b = FORMS[form]
    extents = dict(zip("mnk", sizes, strict=True))
    declared = (f"{types[0]}({', '.join(x.upper())}) {o}" for x, o in ((a, "A"), (b, "B")))
    of = f"A({','.join(a)}) * B({','.join(b)})"
    source = f"def f({', '.join(declared)}) -> ({types[1]}(M,N) C) {{ C(m,n) +=! {of} }}"
    return source, [tuple(extents[index] for index in one) for one in (a, b)]


def clustered(
    cluster: tuple[int, int], shape: tuple[int, int, int, int] = (16, 64, 4, 1), **others: Any
) -> dict[str, Any]:
    rows, columns = cluster
    own = {"loader": "boxes", "cluster_rows": rows, "cluster_columns": columns, **others}
    return tiles(shape, **own)


def unit_of(
    make: MakeUnit,
    source: str,
    shapes: list[tuple[int, ...]],
    config: dict[str, Any],
    **others: Any,
) -> Any:
    choices = choices_of(planned(source, *shapes, **others).kernel(0), "tile_mma", config)
    options = replace(others.pop("options", Options()), choices=choices)
    unit = make(source, *shapes, options=options, **others)
    assert not unit.done.is_fallback
    return unit


def drawn(dtype: str, shapes: list[tuple[int, ...]]) -> list[Any]:
    return [values(BY_NAME[dtype], shape, "real", seed) for seed, shape in enumerate(shapes)]


# --- right -----------------------------------------------------------------------------------

SIZES = {
    "ragged": (136, 200, 200),  # 3 x 4 tiles: half of a cluster has nothing to store
    "primes": (197, 136, 192),
    "one row more": (65, 72, 128),
    "whole": (128, 128, 256),
}


# Each form has rests of both kinds or none, each kind of sizes two forms, and is first for one.
BY_FORM = {
    "nn": ("ragged", "whole"), "nt": ("primes", "one row more"),
    "tn": ("one row more", "ragged"), "tt": ("whole", "primes"),
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.slow_but("nn-ragged")
@pytest.mark.parametrize(
    ("form", "sizes"), [(form, sizes) for form, both in BY_FORM.items() for sizes in both]
)
def test_products(form: str, sizes: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    m, n, k = SIZES[sizes]
    if form[0] == "t":  # rows lie along m: these are multiples of 16 bytes
        m, k = -(-m // 8) * 8, k - 1 if form == "tn" else k
    source, shapes = program_of(form, (m, n, k))
    # Of 128 columns blocks deal whole atoms where these are along columns, of 64 their lines.
    wide = {(2, 1): (16, 128, 4, 1)}
    units = [
        unit_of(cuda_unit, source, shapes, clustered(own, wide.get(own, (16, 64, 4, 1))))
        for own in CLUSTERS
    ]
    for unit, cluster in zip(units, CLUSTERS, strict=True):
        (launch,) = unit.source.launches
        assert sorted(launch.cluster_dims) == [1, *sorted(cluster)]
        assert "tc_end_pipeline" in unit.source.functions
    for program in emulated(units):
        for _ in range(2 if program.unit.source.kernels[0].cluster == 4 else 1):  # two orders
            check(program, *drawn("bfloat16", shapes))


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("how", ["swaths", "persistent", "shared sums", "last block", "wide"])
def test_other_tiles(how: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    few, units, inputs = {}, [], []
    sizes, shape, others = {
        "swaths": ((616, 136, 72), (16, 64, 4, 1), {"swath": 8}),
        "persistent": ((312, 128, 264), (16, 64, 4, 1), {"swath": 2, "is_persistent": True}),
        "shared sums": ((72, 136, 776), (16, 64, 4, 1), {"chunks": 3}),
        "last block": ((72, 136, 776), (16, 64, 4, 1), {"chunks": 3, "is_finished": True}),
        "wide": ((136, 264, 136), (16, 128, 8, 1), {}),
    }[how]
    if how == "persistent":
        few = {"gpu": FEW}
    for form, cluster in (("nn", (2, 1)), ("nt", (1, 2)), ("tt", (2, 2))):
        source, shapes = program_of(form, sizes)
        units.append(unit_of(cuda_unit, source, shapes, clustered(cluster, shape, **others), **few))
        inputs.append(drawn("bfloat16", shapes))
        assert units[-1].source.kernels[0].cluster == cluster[0] * cluster[1]
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


TYPES = [
    ("int8", "int32"), ("half", "float32"), ("float8_e4m3", "bfloat16"), ("float32", "float32"),
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("types", TYPES, ids=lambda types: types[0])
def test_other_types(types: tuple[str, str], cuda_unit: MakeUnit, emulated: Any) -> None:
    """Atoms are along the terms: a part of a box has some of the rows or columns."""
    source, shapes = program_of("nt", (136, 200, 560), types)
    precision = {"float32": "tf32", "float8_e4m3": "float8"}.get(types[0], "float32")
    options = Options(precision=precision)
    step = 128 // BY_NAME[types[0]].size_bytes
    units = [
        unit_of(cuda_unit, source, shapes, clustered(own, step=step), options=options)
        for own in CLUSTERS
    ]
    for program in emulated(units):
        check(program, *drawn(types[0], shapes), options=options)


MORE = {
    "what follows": (
        """def f(bfloat16(M,K) A, bfloat16(K,N) B, float(N) b, float(M,N) x) -> (C) {
            c(m,n) +=! A(m,k) * B(k,n)
            C(m,n) = fmax(c(m,n) + b(n), 0.0) + x(m,n)
        }""",
        [(136, 200), (200, 200), (200,), (136, 200)],
        (2, 1),
    ),
    "sums of rows and columns": (
        """def f(bfloat16(M,K) A, bfloat16(K,N) B) -> (C, r, s) {
            C(m,n) +=! A(m,k) * B(k,n)
            r(m) +=! C(m,n)
            s(n) +=! C(m,n)
        }""",
        [(136, 200), (200, 136)],
        (2, 1),
    ),
    "several products": (
        """def f(bfloat16(M,K) A, bfloat16(K,N) B, bfloat16(K,N) D) -> (C) {
            c(m,n) +=! A(m,k) * B(k,n)
            d(m,n) +=! A(m,k) * D(k,n)
            C(m,n) = fmax(c(m,n), 0.0) * d(m,n)
        }""",
        [(136, 200), (200, 136), (200, 136)],
        (1, 2),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", MORE)
def test_more_than_a_product(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    source, shapes, cluster = MORE[form]
    unit = unit_of(cuda_unit, source, shapes, clustered(cluster))
    assert unit.source.kernels[0].cluster == 2
    (program,) = emulated([unit])
    types = re.findall(r"(bfloat16|float)\(", source.partition("->")[0])
    check(
        program, *(drawn(*one)[0] for one in zip(types, [[shape] for shape in shapes], strict=True))
    )


# --- what is shared ----------------------------------------------------------------------------


def copies(unit: Any) -> dict[str, str]:
    """Return { operand -> the numbers of its copy's call }."""
    calls = re.findall(r"tc_copy_box<([\d, ]+)>\(u\d+_([AB])_tile", unit.source.text)
    return {operand: numbers for numbers, operand in calls}


def test_each_block_copies_a_part_of_what_several_read(cuda_unit: MakeUnit) -> None:
    """Of stages of 64 terms: lines of A are rows, of B terms; ranks count along columns first."""
    source, shapes = program_of("nn", (256, 256, 256))
    got = {own: copies(unit_of(cuda_unit, source, shapes, clustered(own))) for own in CLUSTERS}
    assert got[2, 1] == {"A": "3, 64, 64", "B": "3, 64, 64, 2, 1, 1"}
    assert got[1, 2] == {"A": "3, 64, 64, 2, 1, 1", "B": "3, 64, 64"}
    assert got[2, 2] == {"A": "3, 64, 64, 2, 1, 1", "B": "3, 64, 64, 2, 2, 1"}


@pytest.mark.parametrize(("columns", "lines"), [(64, 32), (128, 64)])
def test_maps_have_boxes_of_a_part(columns: int, lines: int, cuda_unit: MakeUnit) -> None:
    """One atom is cut into lines, of two each block copies one."""
    source, shapes = program_of("nn", (256, 256, 256))
    unit = unit_of(cuda_unit, source, shapes, clustered((2, 1), (16, columns, 4, 1)))
    (launch,) = unit.source.launches
    boxes = [p.map.box for p in launch.parameters if p.map is not None]
    assert boxes == [(64, 64), (64, lines)]


@pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="no NVRTC")
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_what_is_printed_for_a_gpu_compiles(form: str, cuda_unit: MakeUnit) -> None:
    """A step's requests: two atoms of rows or of columns, or one box, are dealt to two blocks."""
    source, shapes = program_of(form, (256, 256, 256))
    unit = unit_of(cuda_unit, source, shapes, clustered((2, 2), (16, 128, 8, 1)))
    text = header_text(parts_for(unit.source.functions)) + unit.source.text
    ptx = compile_cuda(text, unit.source.arch("sm_90"), ptx=True).decode()
    assert ptx.count("multicast::cluster") == ptx.count("cp.async.bulk.tensor") == 2 * 4
    assert "mapa.shared::cluster" in ptx and ptx.count("barrier.cluster.wait") == 2
    assert compile_cuda(text, unit.source.arch("sm_90"))


def test_batches_share_along_another_dimension(cuda_unit: MakeUnit, emulated: Any) -> None:
    """A's lines lie two dimensions out: (k, h, m)."""
    source = "def f(half(M,H,K) A, half(H,K,N) B) -> (C) { C(h,m,n) +=! A(m,h,k) * B(h,k,n) }"
    shapes = [(136, 2, 136), (2, 136, 136)]
    unit = unit_of(cuda_unit, source, shapes, clustered((1, 2)))
    assert copies(unit)["A"].endswith("2, 1, 2")
    (program,) = emulated([unit])
    check(program, *drawn("half", shapes))


def test_when_there_are_no_clusters(cuda_unit: MakeUnit) -> None:
    source, shapes = program_of("nn", (64, 256, 256))
    with pytest.raises(OptionError, match="cluster_rows=2"):
        unit_of(cuda_unit, source, shapes, clustered((2, 1)))
    source, shapes = program_of("nn", (256, 256, 256))
    ampere = {**clustered((2, 1)), "loader": "threads"}
    with pytest.raises(OptionError, match="cluster_rows=2"):
        unit_of(cuda_unit, source, shapes, ampere)


def clusters_of(candidates: Any) -> dict[tuple[int, int], float]:
    """Return { blocks of a cluster along rows and columns -> the least microseconds predicted }."""
    found: dict[tuple[int, int], float] = {}
    own_ones = (c for c in candidates if c["template"] == "tile_mma" and "config" in c)
    for config, us in ((c["config"], c["predicted_us"]) for c in own_ones):
        own = config.get("cluster_rows", 1), config.get("cluster_columns", 1)
        found[own] = min(found.get(own, inf), us)
    return found


def test_open_rows_have_no_clusters() -> None:
    """A call's tiles may be fewer than a cluster's."""
    source, shapes = program_of("nn", (2048, 2048, 256), ("half", "half"))
    f, inputs = tcdsl.define(source).f, [np.zeros(shape, np.float16) for shape in shapes]
    options = Options(dynamic_sizes=("M",))
    exe = f.compile(*inputs, target="emulate", options=options)
    assert exe.opened == ("M",) and set(clusters_of(exe.candidates)) == {(1, 1)}
    fixed = planned(source, *shapes).done.plan.weighed[0].candidates()
    assert set(clusters_of(fixed)) >= {(1, 1), (2, 1), (1, 2)}


def test_rows_that_are_in_more_lines_of_the_cache_have_clusters() -> None:
    """Boxes of rows of 3200 and 6000 bytes: five sectors for four, which come once for both."""
    for sizes, blocks in (((2000, 3000, 1600), 2), ((2048, 2048, 2048), 1)):
        source, shapes = program_of("nn", sizes)
        (weighed,) = planned(source, *shapes).done.plan.weighed
        assert weighed.choice["cluster_rows"] * weighed.choice["cluster_columns"] == blocks


def test_clusters_come_after_the_same_tiles_without() -> None:
    """They are for whoever asks, or measures: see docs/trials.md."""
    for sizes in ((1024, 1024, 1024), (4096, 4096, 4096)):
        source, shapes = program_of("nn", sizes)
        found = clusters_of(planned(source, *shapes).done.plan.weighed[0].candidates())
        assert found[1, 1] < min(found[2, 1], found[1, 2]) < 1.1 * found[1, 1]


# --- what would be wrong is found --------------------------------------------------------------

FAULTS = {
    "the other block is not told": (r"tc_release<3, 2>", "tc_release<3>", "deadlock"),
    "its readers are not waited for": (
        r"(?s)tc_begin_pipeline<3, 4, 2>(.*)tc_release<3, 2>",
        r"tc_begin_pipeline<3, 2, 2>\1tc_release<3>", "data race|nobody waits",
    ),
    "half of the bytes": (r"tc_acquire<3, 16384>", "tc_acquire<3, 8192>", "data race|never|dead"),
    "what both copy is not counted": (
        r"tc_acquire<3, 16384>", "tc_acquire<3, 12288>", "data race|never|deadlock|nobody waits",
    ),
    "no barrier at first": (
        r"tc_begin_pipeline<3, 4, 2>", "tc_begin_pipeline<3, 8>", "start of that|nobody has begun",
    ),
    "no barrier at the end": (r"tc_end_pipeline\(\);", "", "the end of"),
    "the terms' other half": (r"(tc_copy_box<3, 64, 64, 2, 1), 1>", r"\1, 0>", ""),
}  # fmt: skip


@pytest.mark.slow_but("its readers are not waited for")
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, cuda_unit: MakeUnit) -> None:
    pattern, new, message = FAULTS[fault]
    source, shapes = program_of("nn", (128, 64, 520))
    made: CudaSource = unit_of(cuda_unit, source, shapes, clustered((2, 1))).source
    text = re.sub(pattern, new, made.text)
    assert text != made.text
    a, b = drawn("bfloat16", shapes)
    right, broken = emulated_programs([made, replace(made, text=text)])
    results = [np.zeros((128, 64), a.dtype) for _ in range(2)]
    right.run({"A": a, "B": b, "C": results[0]}, seed=1)
    if message:
        for seed in range(1, 4):
            with pytest.raises(EmulationError, match=message):
                broken.run({"A": a, "B": b, "C": results[1]}, seed=seed)
        return
    broken.run({"A": a, "B": b, "C": results[1]}, seed=1)
    assert (results[0] != results[1]).any()
