"""What the compiler knows of a GPU: a data file an architecture.

    chips/h200.json    {"name": ..., "arch": "sm_90", "names": [...], "sources": {tag: text},
                        "numbers": {"l2_bytes": [62914560, "datasheet"], ...},
                        "operations_per_s": {"fma_f32": [2.55e13, "measured"], ...}}

Every number has its unit in its name and a tag that says where it is from: *measured* (where and
when), *datasheet*, or how else it was found; the file's sources spell the tags out.  A file that
lacks a number, or has one too many, is refused.  ``tcdsl calibrate`` replaces what it can measure
(:mod:`tcdsl.runtime.calibrated`).

Which file a device has is decided by the name that its driver reports, then by its compute
capability; a device that nobody knows has ``generic.json``.
"""

import json
from collections.abc import Mapping
from dataclasses import field, fields, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from tcdsl.records import dataclass

# Of every GPU that CUDA runs on, and of the code that is made for it: masks of a warp have 32 bits,
# no access moves more than 16 bytes.  Chips say the same of themselves.
WARP = 32
MOST_THREADS = 1024  # of a block
BANK_BYTES = 4  # of shared memory
VECTOR_BYTES = 16
LINE_BYTES = 128  # of its caches, four sectors
GENERIC = "generic"
CPU = "cpu"  # no GPU's (costmodel.machine)
MOST = 1e18  # of any number: what is more is a mistake


class Unit(StrEnum):
    """What operations are counted by.  A multiply-add is one operation, in tensor cores too."""

    FMA_F16 = "fma_f16"  # packed: two results an instruction
    FMA_F32 = "fma_f32"
    FMA_F64 = "fma_f64"
    INT32 = "int32"
    SPECIAL = "special"  # reciprocals, square roots, exponentials, sines of float32
    SHUFFLE = "shuffle"
    TENSOR_F64 = "tensor_f64"
    TENSOR_F16 = "tensor_f16"
    TENSOR_BF16 = "tensor_bf16"
    TENSOR_TF32 = "tensor_tf32"
    TENSOR_FP8 = "tensor_fp8"
    TENSOR_INT8 = "tensor_int8"


class Feature(StrEnum):
    """What kernels may use from some compute capability on."""

    ASYNC_COPY = "async_copy"  # cp.async, to shared memory
    BFLOAT16 = "bfloat16"
    TF32 = "tf32"
    FP8 = "fp8"
    BULK_COPY = "bulk_copy"  # cp.async.bulk and tensor maps
    CLUSTERS = "clusters"
    PROGRAMMATIC_LAUNCH = "programmatic_launch"
    WARPGROUP_PRODUCTS = "warpgroup_products"  # wgmma, of 9.0 alone


_SINCE = {
    Feature.ASYNC_COPY: 80, Feature.BFLOAT16: 80, Feature.TF32: 80, Feature.FP8: 89,
    Feature.BULK_COPY: 90, Feature.CLUSTERS: 90, Feature.PROGRAMMATIC_LAUNCH: 90,
}  # fmt: skip


class ChipError(ValueError):
    """A chip's file says what no chip is."""


@dataclass(frozen=True, slots=True)
class Chip:
    """A GPU: its parts, what one block may have of them, and how fast they are.

    Bandwidths and rates are of the whole chip unless their names say otherwise.
    """

    name: str
    arch: str

    # Parts, and what kernels may have of them.
    multiprocessors: int
    clock_hz: float  # under a full load of arithmetic
    schedulers_per_multiprocessor: int  # each starts an instruction of a warp in a cycle
    threads_per_warp: int
    threads_per_block: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    blocks_per_cluster: int  # that any kernel may ask for; 1 where there are no clusters
    most_blocks_per_cluster: int  # that a kernel may be allowed to ask for
    largest_clusters: int  # of so many blocks that run at once, if each takes a multiprocessor
    cluster_share: float  # of the multiprocessors that other clusters reach
    grid_x_blocks: int
    grid_y_blocks: int
    grid_z_blocks: int
    registers_per_multiprocessor: int
    registers_per_thread: int
    registers_granule: int  # a thread's are a multiple
    static_shared_bytes_per_block: int
    shared_bytes_per_block: int  # that a launch may ask for, in all
    shared_bytes_per_multiprocessor: int
    reserved_shared_bytes_per_block: int
    shared_bank_bytes: int
    l1_bytes_per_multiprocessor: int  # shared memory's included
    l2_bytes: int
    dram_bytes: int
    sector_bytes: int  # what memory moves at least
    vector_bytes: int  # the widest access of a thread

    # Bandwidths.
    dram_read_bytes_per_s: float
    dram_copy_bytes_per_s: float  # read and written
    multiprocessor_bytes_per_s: float  # that one loads whose neighbours are idle
    l2_bytes_per_s: float
    shared_bytes_per_s: float

    # Latencies.
    dram_latency_s: float  # of the first loads of a kernel: caches and address translation cold
    dram_loaded_latency_s: float  # while memory is busy: bytes in flight / rate (Little's law)
    l2_latency_s: float
    shared_latency_s: float
    launch_s: float  # that a kernel takes at least, after another one
    programmatic_launch_s: float  # where it may begin before the other one ends
    block_start_s: float  # between the starts of two blocks, of the whole chip
    cluster_block_start_s: float  # the same, of blocks of clusters
    block_barrier_s: float
    cluster_barrier_s: float
    grid_barrier_s: float
    atomic_s: float  # until the old value is there
    same_atomic_s: float  # that one delays others on the same address

    operations_per_s: tuple[tuple[Unit, float], ...]
    sources: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)
    libraries: tuple[str, ...] = ()  # whose calls a plan may have by itself

    @property
    def capability(self) -> int:
        """The compute capability, 90 for 9.0."""
        return int(self.arch.removeprefix("sm_").rstrip("af"))

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.grid_x_blocks, self.grid_y_blocks, self.grid_z_blocks

    @property
    def threads(self) -> int:
        """How many threads the chip holds at once."""
        return self.multiprocessors * self.threads_per_multiprocessor

    @property
    def overlaps_kernels(self) -> bool:
        """Whether a kernel may begin before the one before it has ended."""
        return self.has(Feature.PROGRAMMATIC_LAUNCH)

    def has(self, feature: Feature) -> bool:
        """Return whether kernels may use *feature*."""
        if feature is Feature.WARPGROUP_PRODUCTS:
            return self.capability == 90
        return self.capability >= _SINCE[feature]

    def rate(self, unit: Unit) -> float:
        """Return the operations of *unit* in a second, 0 if the chip has no such unit."""
        return dict(self.operations_per_s).get(unit, 0.0)

    def refined(self, numbers: Mapping[str, float], tag: str) -> "Chip":
        """Return the chip with *numbers*, and rates of units, in place of its own.

        :raises ChipError: if one of them can be no number of a chip.
        """
        rates = dict(self.operations_per_s)
        rates |= {Unit(n): number(n, x, float) for n, x in numbers.items() if n in set(Unit)}
        values: dict[str, Any] = {n: number(n, x) for n, x in numbers.items() if n not in set(Unit)}
        sources = dict(self.sources) | dict.fromkeys(numbers, tag)
        return replace(
            self, **values, operations_per_s=tuple(rates.items()), sources=tuple(sources.items())
        )


TEXTS = ("name", "arch")
NUMBERS = {f.name: f.type for f in fields(Chip) if f.type in (int, float)}


@cache
def load_chip(stem: str) -> Chip:
    """Return the chip of the file *stem* that is shipped with the package."""
    return parse_chip((files(__package__) / "chips" / f"{stem}.json").read_text(encoding="utf-8"))


@cache
def chip_stems() -> tuple[str, ...]:
    """Return the names of the files that are shipped, the generic one last."""
    found = sorted(path.name for path in (files(__package__) / "chips").iterdir())
    stems = [name.removesuffix(".json") for name in found if name.endswith(".json")]
    return (*(stem for stem in stems if stem not in (GENERIC, CPU)), GENERIC)


def stem_of(device: str, arch: str) -> str:
    """Return the file of the device that its driver calls *device*.

    A device of another name has the first file of its compute capability, then the generic one.
    """
    words = f" {device} "
    raw = {stem: _raw(stem) for stem in chip_stems()}
    named = [stem for stem in raw if any(f" {name} " in words for name in raw[stem]["names"])]
    alike = [stem for stem in raw if raw[stem]["arch"] == arch]
    return [*named, *alike, GENERIC][0]


@cache
def _raw(stem: str) -> Any:
    return json.loads((files(__package__) / "chips" / f"{stem}.json").read_text(encoding="utf-8"))


def parse_chip(text: str) -> Chip:
    """Return the chip that *text* describes.

    :raises ChipError: with the first thing that is wrong.
    """
    try:
        raw = json.loads(text)
        numbers, rates, sources = raw["numbers"], raw["operations_per_s"], raw["sources"]
        values: dict[str, Any] = {name: str(raw[name]) for name in TEXTS}
    except (ValueError, KeyError, TypeError) as error:
        raise ChipError(f"it is not a chip's file: {error}") from None
    if wrong := sorted(NUMBERS.keys() ^ numbers.keys()):
        raise ChipError(f"{wrong[0]} is {'missing' if wrong[0] in NUMBERS else 'unknown'}")
    if wrong := sorted(rates.keys() - set(Unit)):
        raise ChipError(f"the unit {wrong[0]} is unknown")
    tags = {name: _tag(name, entry, sources) for name, entry in (numbers | rates).items()}
    values |= {name: number(name, numbers[name][0]) for name in NUMBERS}
    operations = tuple((Unit(unit), number(unit, rates[unit][0], float)) for unit in rates)
    return Chip(**values, operations_per_s=operations, sources=tuple(tags.items()))


def number(name: str, value: object, kind: object = None) -> float:
    """Return *value* if a chip's *name* may be that.

    :raises ChipError: if not.
    """
    kind = kind or NUMBERS.get(name)
    if name not in NUMBERS and kind not in (int, float):
        raise ChipError(f"{name} is unknown")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < MOST:
        raise ChipError(f"{name} cannot be {value!r}")
    if kind is int and value != int(value):
        raise ChipError(f"{name} cannot be {value!r}: it is a count")
    return int(value) if kind is int else float(value)


def _tag(name: str, entry: object, sources: Mapping[str, str]) -> str:
    """Return where a number is from."""
    if not isinstance(entry, list) or len(entry) != 2 or entry[1] not in sources:
        raise ChipError(f"{name} does not say where it is from")
    return str(entry[1])
