"""Which executable a call gets: by its target, from the disk cache or compiled."""

from collections.abc import Collection, Mapping

from tcdsl.executable.base import Executable, ReferenceExecutable, warn_once
from tcdsl.executable.cpu import CpuExecutable, cpu_program
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.lang.open_sizes import CannotOpenError
from tcdsl.options import Options
from tcdsl.runtime.arrays import ArraySpec, require_cpu
from tcdsl.runtime.c_compiler import why_no_compiler
from tcdsl.runtime.fitting import require_type


def require_arguments(
    comprehension: Comprehension, specs: Mapping[str, ArraySpec], target: str
) -> None:
    """Raise a TCError unless every argument has its declared type and lies where *target* runs."""
    for name, spec in specs.items():
        require_type(comprehension, name, spec)
        if target in ("cpu", "reference", "emulate"):
            require_cpu(spec, f"argument {name!r}")


def build(
    comprehension: Comprehension,
    special: Specialisation,
    specs: Mapping[str, ArraySpec],
    target: str,
    options: Options,
    opened: Collection[str] = (),
) -> Executable:
    """Return the executable for *target*, from the disk cache if it is there.

    :arg opened: sizes that the code leaves open; its method ``at`` gives them other values.
    :raises CannotOpenError: there is no such code.
    """
    require_arguments(comprehension, specs, target)
    if target == "reference":
        return ReferenceExecutable(comprehension, special, specs, target, options)
    if target == "cuda":
        if opened:
            raise CannotOpenError("the target 'cuda' compiles for the sizes of a call")
        # Imported here: whoever uses no GPU pays nothing for it.
        from tcdsl.executable.cuda import cuda_executable

        return cuda_executable(comprehension, special, specs, options)
    if target == "emulate":
        if opened:
            raise CannotOpenError("the target 'emulate' compiles for the sizes of a call")
        from tcdsl.executable.emulated import emulated_executable

        return emulated_executable(comprehension, special, specs, options)
    assert target == "cpu", target
    reason = why_no_compiler()
    if reason is not None:
        warn_once(
            f"there is no usable C compiler ({reason}): programs run on NumPy, slowly; "
            "install gcc, and see 'tcdsl doctor'"
        )
        return ReferenceExecutable(comprehension, special, specs, "reference", options)
    program = cpu_program(comprehension, special, specs, options, opened)
    return CpuExecutable(comprehension, special, specs, options, program)
