"""Which executable a call gets: by its target, from the disk cache or compiled.

Each target's module is imported when the first program is built for it: they take as long as what
is built, where that is in the disk cache.
"""

from collections.abc import Collection, Mapping

from tcdsl.executable.base import Executable, warn_once
from tcdsl.lang.size_class import SizeClass
from tcdsl.lang.types.head import Head
from tcdsl.options import Options
from tcdsl.runtime.arrays import ArraySpec, require_cpu
from tcdsl.runtime.fitting import require_type
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.lazy_defs import SizedDef

Specs = Mapping[str, ArraySpec]
NOTHING: Mapping[str, None] = {}


def require_arguments(head: Head, specs: Specs, target: str) -> None:
    """Raise a TCError unless every argument has its declared type and lies where *target* runs."""
    for name, spec in specs.items():
        require_type(head, name, spec)
        if target in ("cpu", "reference", "emulate"):
            require_cpu(spec, f"argument {name!r}")


def build(
    sized: SizedDef,
    specs: Specs,
    target: str,
    options: Options,
    opened: Mapping[str, SizeClass | None] = NOTHING,
) -> Executable:
    """Return the executable for *target*, from the disk cache if it is there.

    :arg opened: sizes that the code leaves open, within classes on a GPU; its method ``at`` gives
        them other values.
    :raises CannotOpenError: there is no such code.
    """
    require_arguments(sized.head, specs, target)
    if target == "cpu":
        return _build_for_cpu(sized, specs, options, opened)
    if target == "reference":
        return _reference(sized, specs, options)
    bounds = {name: ends for name, ends in opened.items() if ends is not None}
    if target == "cuda":
        with late_import():
            from tcdsl.executable.cuda import cuda_executable

        return cuda_executable(sized, specs, options, bounds)
    assert target == "emulate", target
    with late_import():
        from tcdsl.executable.emulated import emulated_executable

    return emulated_executable(sized, specs, options, bounds)


def _build_for_cpu(
    sized: SizedDef, specs: Specs, options: Options, opened: Collection[str]
) -> Executable:
    with late_import():
        from tcdsl.executable.cpu import CpuExecutable, cpu_program
        from tcdsl.runtime.c_compiler import why_no_compiler

    reason = why_no_compiler()
    if reason is not None:
        warn_once(
            f"there is no usable C compiler ({reason}): programs run on NumPy, slowly; "
            "install gcc, and see 'tcdsl doctor'"
        )
        return _reference(sized, specs, options)
    program = cpu_program(sized.comprehension, sized.special, specs, options, opened)
    return CpuExecutable(sized, specs, options, program)


def _reference(sized: SizedDef, specs: Specs, options: Options) -> Executable:
    with late_import():
        from tcdsl.executable.reference import ReferenceExecutable

    return ReferenceExecutable(sized, specs, options)
