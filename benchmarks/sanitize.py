"""Every library program on the GPU once, for ``compute-sanitizer`` to watch.

    python benchmarks/sanitize.py                                      fills the cache of kernels
    compute-sanitizer --tool memcheck python benchmarks/sanitize.py    and the other tools

Arguments: which part of how many; parts may run at the same time.  With ``--emulate`` on the CPU.
"""

import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

import tcdsl
from tcdsl import library
from tcdsl.options import Options

Job = tuple[Any, list[Any], Options]  # a function, its inputs, and what is asked of the compiler

# Library programs at sizes where kernels are others than at the small ones: rows that clusters
# share, or blocks in chunks, or that begin inside a vector; overlapped tiles; copies of results.
OTHER_SIZES = [
    ("softmax", "float32", {"M": 2, "N": 131072}),
    ("softmax", "float32", {"M": 2, "N": 100_003}),
    ("log_softmax", "float32", {"M": 2, "N": 1 << 20}),
    ("cross_entropy", "float32", {"B": 3, "V": 131072}),
    ("batchnorm_running", "float32", {"N": 32, "C": 2, "H": 56, "W": 56}),
    ("group_norm", "float32", {"N": 1, "G": 2, "D": 16, "H": 48, "W": 48}),
    ("softmax", "float32", {"M": 2, "N": 1 << 19}),  # clusters of sixteen blocks
    ("batchnorm_running", "float32", {"N": 32, "C": 2, "H": 112, "W": 112}),
    ("unet_norms_nhwc", "float32", {"N": 1, "P": 256, "G": 3, "D": 40}),
    ("softmax", "float32", {"M": 7, "N": 4097}),
    ("cross_entropy", "float32", {"B": 300, "V": 4099}),
    ("layernorm", "float32", {"M": 2200, "N": 8192}),
    ("harris", "float32", {"H": 300, "W": 515}),
    ("unsharp", "float32", {"H": 300, "W": 512}),
    ("shallow_water", "float32", {"H": 200, "W": 515}),
    ("kmeans_step", "float32", {"P": 20_003, "K": 17, "D": 5}),
    ("moe_gate", "float32", {"T": 9001, "X": 64}),
    ("batch_metrics", "float32", {"M": 9001, "N": 96}),
    ("lstm_steps", "bfloat16", {"B": 64, "N": 128}),
    ("conv3x3_bias_relu_nhwc", "bfloat16", {"N": 2, "C": 64, "H": 28, "W": 28, "F": 64}),
    ("conv3x3_bias_relu", "bfloat16", {"N": 2, "C": 64, "H": 28, "W": 28, "F": 64}),
]
# Rows of two axes, with sums along the inner one: threads along both, clusters of five blocks that
# share the outer axis, of eight that share the inner one.
GROUPS = """m(g) +=! x(g,d,p)
    r(g,d) +=! x(g,d,p) * m(g)
    s(g) +=! r(g,d) * r(g,d)
    y(g,d,p) = x(g,d,p) - s(g)"""
GROUP_SIZES = (
    {"G": 3, "D": 40, "P": 64}, {"G": 3, "D": 10, "P": 4096}, {"G": 3, "D": 4, "P": 16384}
)  # fmt: skip
# Kernels that small sizes do not have: chunks, last blocks, several tiles.
LARGER = [
    ("y +=! x(i)", "float(N) x", {"N": 300_001}),
    ("y(j) +=! x(i,j)", "float(M,N) x", {"M": 20_011, "N": 40}),
    ("y(j) max=! x(i,j)", "float(M,N) x", {"M": 9001, "N": 256}),
    ("y(i) max=! x(i,j)", "float(M,N) x", {"M": 3, "N": 400_003}),
    ("r(i) +=! x(i,j)\n y +=! r(i)", "float(M,N) x", {"M": 200, "N": 700}),
    ("y(i) argmax=! x(i,j)", "float(M,N) x", {"M": 5, "N": 70_000}),
    *((GROUPS, "float(G,D,P) x", sizes) for sizes in GROUP_SIZES),
]
# Products: FMA, tensor cores, boxes and asynchronous copies; whole tiles, tails, unaligned rows.
PRODUCTS = [
    "y(m,n) +=! x(m,k) * z(k,n)",
    "y(m,n) +=! x(k,m) * z(n,k)",
    "y(m,n) +=! x(m,k) * z(n,k)",
]
PRODUCT_SIZES = [
    {"M": 256, "N": 384, "K": 512},
    {"M": 264, "N": 520, "K": 328},
    {"M": 130, "N": 101, "K": 203},
    {"M": 16, "N": 24, "K": 9000},
]
# What is reduced of a product's rows, blocks with several tiles, and rows that are copied first.
OTHER_PRODUCTS = [
    ("bfloat16", {"M": 520, "N": 392, "K": 264}),
    ("bfloat16", {"M": 4096, "N": 2048, "K": 128}),
    ("half", {"M": 777, "N": 555, "K": 1001}),
]
ROW_SUMS = "\n v(m,n) = fmax(y(m,n) + b(n), 0.0) + r(m,n)\n s(m) +=! v(m,n) * v(m,n)"
# Several products in a kernel, beside one another and one after another, and columns' sums.
JOINT = [
    (
        """g(m,n) +=! x(m,k) * w(k,n)
    u(m,n) +=! x(m,k) * v(k,n)
    y(m,n) = g(m,n) * sigmoid(g(m,n)) * u(m,n)""",
        "bfloat16(M,K) x, bfloat16(K,N) w, bfloat16(K,N) v",
    ),
    (
        "y(m,n) +=! x(m,k) * w(k,n) + u(m,k) * v(k,n)",
        "bfloat16(M,K) x, bfloat16(K,N) w, bfloat16(M,K) u, bfloat16(K,N) v",
    ),
    (
        """c(m,n) +=! x(m,k) * w(k,n)
    y(n) +=! c(m,n) * c(m,n)""",
        "bfloat16(M,K) x, bfloat16(K,N) w",
    ),
]
JOINT_SIZES = [
    {"M": 256, "N": 384, "K": 512},
    {"M": 264, "N": 520, "K": 328},
    {"M": 2048, "N": 2560, "K": 128},  # blocks with several tiles
]
LARGE = {"M": 1024, "N": 1280, "K": 640}
PRECISIONS = (("float", "tf32"), ("float", "float16x3"), ("float8_e5m2", "float8"))
IN_ONE_LAUNCH = ("softmax", "float32", {"M": 2, "N": 1 << 20})  # a barrier of all blocks
PRODUCT_TYPES = ("bfloat16", "half", "float", "double", "int8", "uint8", "float8_e4m3")
WAYS = ("loader", "together")  # choices of a template that make other instructions
EPILOGUE = "\n v(m,n) = fmax(y(m,n) + b(n), 0.0) + r(m,n)"


def of_library(name: str, dtype: str, sizes: Mapping[str, int]) -> Job:
    """Return the library program *name*, and inputs of *sizes*."""
    case = library.case(name)
    inputs = case.make_inputs(sizes, np.random.default_rng(0), dtype)
    function = getattr(tcdsl.define(library.source_for(case, dtype)), name)
    return function, list(inputs.values()), Options()


def of_text(text: str, sizes: Mapping[str, int], precision: str = "float32") -> Job:
    """Return the def *text*, and small numbers of *sizes* as its inputs."""
    rng, f, inputs = np.random.default_rng(0), tcdsl.define(text)["f"], []
    for dims, name in re.findall(r"\w+\(([\w,]+)\) (\w+)", text.partition("->")[0]):
        shape = [sizes[dim] for dim in dims.split(",")]
        inputs.append(rng.integers(0, 4, shape).astype(f.comprehension.tensors[name].dtype.numpy))
    return f, inputs, Options(precision=precision)  # type: ignore[arg-type]


def products() -> Iterator[Job]:
    """Yield products of all types, transpositions and tails, some with a bias and a residual."""
    for product, sizes, dtype in itertools.product(PRODUCTS, PRODUCT_SIZES, PRODUCT_TYPES):
        left, right = re.findall(r"[xz]\((\w),(\w)\)", product)
        parameters = f"{dtype}{_dims(left)} x, {dtype}{_dims(right)} z"
        yield of_text(f"def f({parameters}) -> (y) {{ {product} }}", sizes)
        if dtype in ("bfloat16", "float") and product == PRODUCTS[0]:
            others = f"{parameters}, {dtype}(N) b, {dtype}(M,N) r"
            yield of_text(f"def f({others}) -> (v) {{ {product}{EPILOGUE} }}", sizes)

    for dtype, sizes in OTHER_PRODUCTS:
        parameters = f"{dtype}(M,K) x, {dtype}(K,N) z"
        yield of_text(f"def f({parameters}) -> (y) {{ {PRODUCTS[0]} }}", sizes)
        others = f"{parameters}, {dtype}(N) b, {dtype}(M,N) r"
        yield of_text(f"def f({others}) -> (v, s) {{ {PRODUCTS[0]}{ROW_SUMS} }}", sizes)

    for (body, parameters), sizes in itertools.product(JOINT, JOINT_SIZES):
        yield of_text(f"def f({parameters}) -> (y) {{ {body} }}", sizes)
    for (dtype, precision), product, sizes in itertools.product(
        PRECISIONS, PRODUCTS, (PRODUCT_SIZES[1], LARGE)
    ):
        left, right = re.findall(r"[xz]\((\w),(\w)\)", product)
        parameters = f"{dtype}{_dims(left)} x, {dtype}{_dims(right)} z"
        yield of_text(f"def f({parameters}) -> (y) {{ {product} }}", sizes, precision)


def phases(function: Any, inputs: list[Any], target: str) -> str:
    """Return the choices of *function* with which its kernels are one launch."""
    first, *_, last = function.compile(*inputs, target=target).choices["kernels"]
    name = f"{first['kernel']} then {last['kernel']}"
    own = {**last, "threads_x": first["threads"]}
    kernels = [own, {"kernel": name, "template": "grid_phases"}]
    return json.dumps({"format": "tcdsl choices", "version": 1, "kernels": kernels})


def _dims(indices: tuple[str, str]) -> str:
    return f"({','.join(indices).upper()})"


def jobs() -> Iterator[Job]:
    """Yield all programs with inputs, those of small sizes first."""
    for case in library.cases():
        sizes = max(case.small_sizes, key=lambda s: prod(s.values()))
        for dtype in dict.fromkeys((case.dtypes[0], case.dtypes[-1])):
            yield of_library(case.name, dtype, sizes)
    for name, dtype, sizes in OTHER_SIZES:
        yield of_library(name, dtype, sizes)
    for body, parameters, sizes in LARGER:
        yield of_text(f"def f({parameters}) -> (y) {{ {body} }}", sizes)
    yield from products()


def main(part: int, parts: int, target: str) -> None:
    n_programs, templates = 0, Counter[str]()
    every = itertools.chain(((job, False) for job in jobs()), [(of_library(*IN_ONE_LAUNCH), True)])
    for (function, inputs, options), is_one in itertools.islice(every, part, None, parts):
        asked = phases(function, inputs, target) if is_one else ""
        executable = function.compile(*inputs, target=target, choices=asked, options=options)
        needed = executable.results.needed
        out = None
        if needed:  # what the program adds to
            shapes = function.output_shapes(*inputs)
            types = executable.comprehension.tensors
            out = tuple(np.ones(s, types[name].dtype.numpy) for name, s in shapes.items())
        executable(*inputs, out=out)
        n_programs += 1
        templates.update(kernel_names(executable.choices))
    found = ", ".join(f"{count} {name}" for name, count in sorted(templates.items()))
    print(f"{n_programs} programs; kernels: {found}")


def kernel_names(choices: dict[str, Any]) -> Iterator[str]:
    """Yield each kernel's template, of tiles and copies with how they load and add."""
    for kernel in choices["kernels"]:
        yield " ".join(str(kernel[key]) for key in ("template", *WAYS) if key in kernel)


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    main(*(numbers or [0, 1]), "emulate" if "--emulate" in sys.argv else "cuda")
