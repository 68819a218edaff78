"""Every library program on the GPU once, for ``compute-sanitizer`` to watch.

    python benchmarks/sanitize.py                                      fills the cache of kernels
    compute-sanitizer --tool memcheck python benchmarks/sanitize.py    and the other tools

Arguments: which part of how many; parts may run at the same time.  With ``--emulate`` on the CPU.
"""

import sys
from math import prod
from typing import Any

import numpy as np

import tcdsl
from tcdsl import library

# Library programs whose rows clusters share, or blocks in chunks, or begin inside a vector.
LONG_ROWS = [
    ("softmax", {"M": 2, "N": 131072}),
    ("softmax", {"M": 2, "N": 100_003}),
    ("log_softmax", {"M": 2, "N": 1 << 20}),
    ("cross_entropy", {"B": 3, "V": 131072}),
    ("batchnorm_running", {"N": 32, "C": 2, "H": 56, "W": 56}),
    ("group_norm", {"N": 1, "G": 2, "D": 16, "H": 48, "W": 48}),
    ("softmax", {"M": 7, "N": 4097}),
    ("cross_entropy", {"B": 300, "V": 4099}),
    ("layernorm", {"M": 2200, "N": 8192}),
]
# Kernels that small sizes do not have: chunks, last blocks, several tiles.
LARGER = [
    ("y +=! x(i)", "float(N) x", [(300_001,)]),
    ("y(j) +=! x(i,j)", "float(M,N) x", [(20_011, 40)]),
    ("y(j) max=! x(i,j)", "float(M,N) x", [(9001, 256)]),
    ("y(i) max=! x(i,j)", "float(M,N) x", [(3, 400_003)]),
    ("r(i) +=! x(i,j)\n y +=! r(i)", "float(M,N) x", [(200, 700)]),
    ("y(i) argmax=! x(i,j)", "float(M,N) x", [(5, 70_000)]),
    ("y(m,n) +=! x(m,k) * z(k,n)", "float(M,K) x, float(K,N) z", [(130, 100), (100, 200)]),
]


def jobs() -> list[tuple[Any, list[Any]]]:
    """Return (function, inputs) of all programs."""
    found = []
    for case in library.cases():
        sizes = max(case.small_sizes, key=lambda s: prod(s.values()))
        for dtype in dict.fromkeys((case.dtypes[0], case.dtypes[-1])):
            inputs = case.make_inputs(sizes, np.random.default_rng(0), dtype)
            program = tcdsl.define(library.source_for(case, dtype))
            found.append((getattr(program, case.name), list(inputs.values())))
    for name, sizes in LONG_ROWS:
        case = library.case(name)
        inputs = case.make_inputs(sizes, np.random.default_rng(0), "float32")
        program = tcdsl.define(library.source_for(case, "float32"))
        found.append((getattr(program, name), list(inputs.values())))
    for body, parameters, shapes in LARGER:
        program = tcdsl.define(f"def f({parameters}) -> (y) {{ {body} }}")
        found.append((program.f, [np.random.rand(*s).astype(np.float32) for s in shapes]))
    return found


def main(part: int, parts: int, target: str) -> None:
    n_kernels = n_programs = 0
    for function, inputs in jobs()[part::parts]:
        executable = function.compile(*inputs, target=target)
        needed = executable.results.needed
        out = None
        if needed:  # what the program adds to
            shapes = function.output_shapes(*inputs)
            types = executable.comprehension.tensors
            out = tuple(np.ones(s, types[name].dtype.numpy) for name, s in shapes.items())
        executable(*inputs, out=out)
        n_programs += 1
        n_kernels += len(executable.kernels)
    print(f"{n_programs} programs, {n_kernels} kernels")


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    main(*(numbers or [0, 1]), "emulate" if "--emulate" in sys.argv else "cuda")
