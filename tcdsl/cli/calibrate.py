"""``tcdsl calibrate``: what this machine's memory, units and launches are, for the cost model.

It takes less than a minute.  Numbers are kept with the compiled programs (``tcdsl cache``), by the
device's name, and later processes estimate with them: programs are compiled anew where the numbers
say that another kernel is faster.
"""

import argparse
import time
from collections.abc import Mapping

from rich.table import Table

from tcdsl.cli.console import standard_output
from tcdsl.costmodel.chip import Unit, load_chip, stem_of
from tcdsl.costmodel.machine import CPU_SOURCES, this_cpu
from tcdsl.runtime import calibrated

TARGETS = ("cuda", "cpu")
_SCALES = {"bytes_per_s": (1e-9, "GB/s"), "_hz": (1e-9, "GHz"), "_bytes": (1 / 1024, "KiB")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to *parser*."""
    parser.add_argument(
        "--target", choices=TARGETS, default="",
        help="the GPU or the CPU; default: the GPU if there is one",
    )  # fmt: skip
    parser.add_argument("--device", type=int, default=0, help="which GPU; default 0")
    parser.add_argument("--dry-run", action="store_true", help="measure, and keep nothing")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return 1 if the numbers could not be kept."""
    console = standard_output()
    start = time.perf_counter()
    is_cuda = arguments.target == "cuda" or (not arguments.target and _has_gpu())
    measure = _measure_gpu if is_cuda else _measure_cpu
    device, found, before, sources = measure(arguments.device)
    console.print(f"{device}: measured in {time.perf_counter() - start:.0f} s", markup=False)
    console.print(numbers_table(found, before, sources))
    if arguments.dry_run:
        return 0
    if not calibrated.keep(device, found):
        console.print("the numbers cannot be kept: see tcdsl cache", markup=False)
        return 1
    console.print("kept; later programs are estimated with these numbers", markup=False)
    return 0


Measured = tuple[str, dict[str, float], dict[str, float], Mapping[str, str]]


def _has_gpu() -> bool:
    from tcdsl.runtime.cuda.device import why_not_available

    return why_not_available() is None


def _measure_gpu(ordinal: int) -> Measured:
    from tcdsl.runtime.cuda.device import primary_context, pycuda
    from tcdsl.runtime.cuda.measure_chip import OnDevice, chip_numbers

    device = str(pycuda().Device(ordinal).name())
    with OnDevice(ordinal) as kernels:
        found = chip_numbers(kernels, kernels.chip)
    shipped = load_chip(stem_of(device, primary_context(ordinal).gpu.arch))
    rates: dict[str, float] = {str(unit): rate for unit, rate in shipped.operations_per_s}
    before = {name: rates[name] if name in set(Unit) else getattr(shipped, name) for name in found}
    return device, found, before, dict(shipped.sources)


def _measure_cpu(_: int) -> Measured:
    from tcdsl.runtime.measure_cpu import cpu_numbers

    cpu = this_cpu()
    found = cpu_numbers(cpu)
    before = {name: getattr(cpu, name) for name in found}
    return calibrated.cpu_name(), found, before, CPU_SOURCES


def numbers_table(
    found: Mapping[str, float], before: Mapping[str, float], sources: Mapping[str, str]
) -> Table:
    """Return a table of *found*, of what the data file says, and of the ratios."""
    table = Table("number", "measured", "in the file", "ratio", "where that is from", box=None)
    for name, value in found.items():
        expected = before[name]
        table.add_row(
            name, quantity(name, value), quantity(name, expected), f"{value / expected:.2f}",
            sources.get(name, ""),
        )  # fmt: skip
    return table


def quantity(name: str, value: float) -> str:
    """Return *value* with a unit that reads well: ``4.38e+12`` bytes a second are ``4380 GB/s``."""
    if name.endswith("_s") and not name.endswith("_per_s"):
        return f"{value * 1e6:.3g} us" if value >= 1e-6 else f"{value * 1e9:.3g} ns"
    for ending, (scale, unit) in _SCALES.items():
        if name.endswith(ending):
            return f"{value * scale:.4g} {unit}"
    return f"{value * 1e-9:.4g} G/s"
