"""``tcdsl doctor``: is everything here that tcdsl needs, and if not, what to type to get it.

Each examination is a function that returns a :class:`Finding`.  One that is broken makes the
command fail; a note says what tcdsl does without.
"""

import argparse
import os
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from enum import StrEnum
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from rich.table import Table

from tcdsl.cli.cache import contents_text
from tcdsl.cli.console import standard_output
from tcdsl.errors import TCError, TCWarning
from tcdsl.records import dataclass
from tcdsl.runtime.c_compiler import c_flags, compile_shared, find_compiler, why_no_compiler
from tcdsl.runtime.cache import default_cache
from tcdsl.runtime.cuda import device, libcuda
from tcdsl.runtime.nvrtc import ADVICE as NVRTC_ADVICE
from tcdsl.runtime.nvrtc import (
    compile_cuda,
    find_cuda_compiler,
    version_of,
    why_no_cuda_compiler,
)
from tcdsl.settings import settings, unknown_variables

OLDEST_PYTHON = (3, 11)
OLDEST_GCC = 9  # vector conversions, which the generated C uses
PACKAGES = (
    "numpy", "islpy", "lark", "rich", "platformdirs", "filelock", "opt_einsum", "ml_dtypes",
)  # fmt: skip
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
EXPOSE_DRIVER = "nvidia-smi  (in a container: start it with --gpus all)"


class State(StrEnum):
    """How an examination ended."""

    GOOD = "ok"
    NOTE = "note"  # works, with less
    BROKEN = "broken"


COLOURS = {State.GOOD: "green", State.NOTE: "yellow", State.BROKEN: "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of *subject*, and the command to type where one helps."""

    subject: str
    state: State
    detail: str
    remedy: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Do nothing: the command has no arguments."""


def examine_python() -> Finding:
    """Is this Python new enough?"""
    detail = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("Python", State.BROKEN, detail, "install Python 3.11 or newer")
    return Finding("Python", State.GOOD, detail)


def examine_package(name: str) -> Finding:
    """Can the package *name* be imported?"""
    try:
        import_module(name)
        return Finding(name, State.GOOD, version(name))
    except PackageNotFoundError:  # on the path, but put there by hand
        return Finding(name, State.GOOD, "version unknown")
    # A broken extension module may fail in any way (a missing library, a NumPy too old), and
    # finding that out is the purpose.
    except Exception as error:
        remedy = f"{sys.executable} -m pip install --force-reinstall {name}"
        return Finding(name, State.BROKEN, f"{type(error).__name__}: {error}", remedy)


def examine_compiler() -> Finding:
    """Is there a C compiler, is it new enough, and does it compile here, now?"""
    if why := why_no_compiler():
        remedy = (
            "set TCDSL_CC to a C compiler, or unset it" if settings().cc else install_command("gcc")
        )
        return Finding("C compiler", State.BROKEN, f"{why}; the slow interpreter runs", remedy)
    compiler = find_compiler()
    if (major := gcc_version(compiler.identity)) is not None and major < OLDEST_GCC:
        detail = f"{compiler.identity} is older than gcc {OLDEST_GCC}"
        return Finding("C compiler", State.BROKEN, detail, install_command("gcc"))
    compile_shared("int tcdsl_doctor(void) { return 0; }\n")  # may raise: a full disk, say
    return Finding("C compiler", State.GOOD, compiler.identity)


def gcc_version(identity: str) -> int | None:
    """Return the major version in gcc's first line of ``--version``, or None for others."""
    match = re.match(r"(?:\S*gcc\S*|cc) \(.*\) (\d+)\.", identity)
    return int(match[1]) if match else None


def install_command(package: str) -> str:
    """Return what installs the system's *package* here."""
    for tool, command in (("apt-get", "apt-get install"), ("dnf", "dnf install")):
        if Path("/usr/bin", tool).exists():
            return f"{'' if os.geteuid() == 0 else 'sudo '}{command} -y {package}"
    return f"install {package} with your system's package manager"


def examine_flags() -> Finding:
    """What is the compiler asked for?"""
    if why_no_compiler():
        return Finding("flags", State.NOTE, "no compiler")
    return Finding("flags", State.GOOD, " ".join(c_flags(find_compiler())))


def examine_openmp() -> Finding:
    """Can the compiler make threads?"""
    if why_no_compiler():
        return Finding("OpenMP", State.NOTE, "no compiler")
    if find_compiler().has_openmp:
        return Finding("OpenMP", State.GOOD, "yes")
    detail = "the compiler has none, so one thread does everything"
    return Finding("OpenMP", State.NOTE, detail, install_command("libgomp1"))


def examine_threads() -> Finding:
    """How many threads will run?"""
    here = len(os.sched_getaffinity(0))
    asked = settings().threads
    detail = f"{asked or here} (this process may use {here} of {os.cpu_count()} processors)"
    return Finding("threads", State.GOOD, detail)


def examine_cache() -> Finding:
    """Is the cache of compiled programs in use, and what does it hold?"""
    stats = default_cache().stats()
    if stats.problem is None:
        return Finding("cache", State.GOOD, f"{stats.root}: {contents_text(stats)}")
    remedy = "TCDSL_CACHE=on" if stats.root is None else "set TCDSL_CACHE_DIR to a folder of yours"
    return Finding("cache", State.NOTE, stats.problem, remedy)


def examine_settings() -> Finding:
    """Do all TCDSL_* variables mean something?"""
    settings()  # raises for a value without meaning
    unknown = unknown_variables()
    if not unknown:
        given = sorted(name for name in os.environ if name.startswith("TCDSL_"))
        return Finding("settings", State.GOOD, ", ".join(given) or "none given")
    name, close = next(iter(unknown.items()))
    remedy = f"unset {name}" + (f"  (or did you mean {close}?)" if close else "")
    return Finding("settings", State.NOTE, f"{name} means nothing", remedy)


def examine_gpu() -> Finding:
    """Is there an NVIDIA GPU with a driver that starts?"""
    if why := libcuda.why_no_gpu():
        if not NVIDIA_DRIVER.exists():
            return Finding("GPU", State.NOTE, f"{why}; the CPU is used")
        # The kernel's half of the driver is there: a container without the other half, mostly.
        return Finding("GPU", State.BROKEN, why, EXPOSE_DRIVER)
    count, version = libcuda.device_count(), libcuda.driver_version()
    detail = f"{count} NVIDIA GPU{'s' if count > 1 else ''}, driver for CUDA {_dotted(version)}"
    if (names := _device_names()) is not None:
        detail += f": {names}"
    return Finding("GPU", State.GOOD, detail)


def _device_names() -> str | None:
    if device.pycuda_problem() is not None:
        return None
    driver = device.pycuda()
    devices = [driver.Device(number) for number in range(driver.Device.count())]
    return ", ".join(
        "{} (sm_{}{})".format(found.name(), *found.compute_capability()) for found in devices
    )


def _dotted(version: tuple[int, int]) -> str:
    return "{}.{}".format(*version)


def examine_pycuda() -> Finding:
    """Can PyCUDA be imported, which needs the driver?"""
    has_gpu = libcuda.why_no_gpu() is None
    problem = device.pycuda_problem()
    if problem is None:
        return Finding("PyCUDA", State.GOOD, version("pycuda"))
    why, remedy = problem
    if not has_gpu:
        return Finding("PyCUDA", State.NOTE, f"{why}; without a GPU nothing needs it")
    is_installed = find_spec("pycuda") is not None
    return Finding("PyCUDA", State.BROKEN if is_installed else State.NOTE, why, remedy)


def examine_nvrtc() -> Finding:
    """Is there a compiler for CUDA, and does the driver load what it makes?"""
    has_gpu = libcuda.why_no_gpu() is None
    if why := why_no_cuda_compiler():
        remedy = NVRTC_ADVICE if has_gpu or settings().nvrtc else None
        return Finding("NVRTC", State.NOTE, why, remedy)
    served = libcuda.driver_version() if has_gpu else (0, 0)
    compiler = find_cuda_compiler(served[0])
    found = version_of(compiler)
    compile_cuda('extern "C" __global__ void tcdsl_doctor() {}', "sm_80", compiler=compiler)
    detail = f"{_dotted(found)}, {compiler.path}"
    if has_gpu and found[0] > served[0]:
        detail += f" is newer than the driver, which serves CUDA {_dotted(served)}"
        remedy = f"{sys.executable} -m pip install nvidia-cuda-nvrtc-cu{served[0]}"
        return Finding("NVRTC", State.BROKEN, detail, remedy)
    return Finding("NVRTC", State.GOOD, detail)


EXAMINATIONS: dict[str, Callable[[], Finding]] = {
    "C compiler": examine_compiler,
    "flags": examine_flags,
    "OpenMP": examine_openmp,
    "threads": examine_threads,
    "cache": examine_cache,
    "GPU": examine_gpu,
    "PyCUDA": examine_pycuda,
    "NVRTC": examine_nvrtc,
}


def examine(subject: str, examination: Callable[[], Finding]) -> Finding:
    """Return the finding of *examination*; an error that it raises is one too."""
    try:
        return examination()
    except TCError as error:
        return Finding(subject, State.BROKEN, f"{error.message} [{error.code}]", error.hint)


def findings() -> list[Finding]:
    """Return the findings of all examinations, in the order to read them."""
    found = [examine_python(), *map(examine_package, PACKAGES)]
    found.append(examine("settings", examine_settings))
    if found[-1].state is State.BROKEN:  # whatever reads the settings would only say it again
        return found
    return found + [examine(subject, look) for subject, look in EXAMINATIONS.items()]


def findings_table(found: Iterable[Finding]) -> Table:
    """Return *found* as a table."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in found:
        colour = COLOURS[finding.state]
        table.add_row(finding.subject, f"[{colour}]{finding.state}", finding.detail)
    return table


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return 1 if something that tcdsl needs is broken."""
    del arguments
    console = standard_output()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TCWarning)  # what they say is in a finding
        found = findings()
    console.print(findings_table(found))
    for finding in found:
        if finding.remedy:
            console.print(f"\n{finding.subject}: {finding.detail}", markup=False)
            console.print(f"    {finding.remedy}", markup=False, style="bold")
    broken = [finding.subject for finding in found if finding.state is State.BROKEN]
    console.print(f"\nbroken: {', '.join(broken)}" if broken else "\nall is well", markup=False)
    return 1 if broken else 0
