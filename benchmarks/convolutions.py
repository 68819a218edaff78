"""Convolutions and their two gradients beside cuDNN: layers of ResNet-50 and others.

    python benchmarks/convolutions.py --list                  what each takes, without a GPU
    python benchmarks/convolutions.py --seconds 60            times, by turns with torch's
    python benchmarks/convolutions.py --only '*weights nhwc' --candidates 4
    python benchmarks/convolutions.py --type float32 --precision ieee
    python benchmarks/convolutions.py --table resnet50,vgg16,mobilenet_v2   forward, nhwc

Of bfloat16, or of another ``--type``; torch's float32 is without tf32.  Each result is compared
with torch's of a wider type first, outputs poisoned.  cuDNN may search (``benchmark``), and has
channels last in memory where ours has: the table tells microseconds and time(cuDNN) / time(ours),
above 1 where ours is faster.  ``--candidates`` times so many of the configurations, too, those of
the least predicted time; ``--force 'loader=threads;columns=64,stages=3'`` the best that have these
values.  ``--warm`` compiles alone, in one of several processes, into the cache on disk.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from convolution_layers import LAYERS, Layer, networks

import tcdsl
from tcdsl.options import Options

IMAGES = 32
NETWORKS = networks(IMAGES)
ALL_LAYERS = {**LAYERS, **{one.label: one for own in NETWORKS.values() for one in own}}
CHIP_BYTES = 1 << 28  # written between runs, so that the second-level cache has nothing of them
ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Program:
    """A layer's text: forward, or its gradient by the data or by the weights."""

    layer: str
    what: str  # forward, data, weights
    is_last: bool  # channels last
    dtype: str = "bfloat16"

    @property
    def label(self) -> str:
        return f"{self.layer} {self.what} {'nhwc' if self.is_last else 'nchw'}"

    @property
    def of(self) -> Layer:
        return ALL_LAYERS[self.layer]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the extents of images, filters and results."""
        one = self.of
        extents = {
            "I": (one.N, one.C, one.H, one.H), "O": (one.N, one.F, one.P, one.P),
            "K": (one.F, 1 if one.depthwise else one.C, one.T, one.T),
        }  # fmt: skip
        return {n: self._in_order(shape) for n, shape in extents.items()}

    def _in_order(self, dims: tuple[Any, ...]) -> tuple[Any, ...]:
        return (dims[0], *dims[2:], dims[1]) if self.is_last else dims

    def element(self, name: str, *dims: str) -> str:
        return f"{name}({','.join(self._in_order(dims))})"

    def text(self) -> str:
        """Return the def."""
        one, half = self.of, "float" if self.dtype == "float32" else self.dtype
        if one.depthwise:
            return self._depthwise(half)
        filters = self.element("K", "f", "c", "r", "s")
        sizes = {
            "I": self.element("", "N", "C", "H", "H"), "O": self.element("", "N", "F", "P", "P"),
            "K": self.element("", "F", "C", str(one.T), str(one.T)),
        }  # fmt: skip
        ranges = f"h in 0:{one.P}, w in 0:{one.P}, r in 0:{one.T}, s in 0:{one.T}"
        if self.what == "data":
            image, guarded = self.element("I", "n", "c", "y", "x"), self._of_results()
            ranges = f"y in 0:{one.H}, x in 0:{one.H}, r in 0:{one.T}, s in 0:{one.T}"
            head = f"{half}{sizes['O']} O, {half}{sizes['K']} K"
            body = f"{image} +=! {guarded} * {filters} where c in 0:C, f in 0:F, {ranges}"
            return f"def data({head}) -> (I) {{ {body} }}"
        results, image = self.element("O", "n", "f", "h", "w"), self._of_image()
        if self.what == "weights":
            head = f"{half}{sizes['O']} O, {half}{sizes['I']} I"
            body = f"{filters} +=! {results} * {image} where c in 0:C, {ranges}"
            return f"def weights({head}) -> (K) {{ {body} }}"
        head = f"{half}{sizes['I']} I, {half}{sizes['K']} K"
        body = f"{results} +=! {image} * {filters} where n in 0:N, c in 0:C, {ranges}"
        return f"def forward({head}) -> (O) {{ {body} }}"

    def _depthwise(self, half: str) -> str:
        """Return the def of the forward pass where each channel has its own filter."""
        one = self.of
        shapes = self.element("", "N", "C", "H", "H"), self.element("", "C", "1", *2 * [str(one.T)])
        head = f"{half}{shapes[0]} I, {half}{shapes[1]} K"
        results, filters = (
            self.element("O", "n", "c", "h", "w"),
            self.element("K", "c", "z", "r", "s"),
        )
        ranges = f"h in 0:{one.P}, w in 0:{one.P}, r in 0:{one.T}, s in 0:{one.T}, z in 0:1"
        body = f"{results} +=! {self._of_image()} * {filters} where n in 0:N, c in 0:C, {ranges}"
        return f"def forward({head}) -> (O) {{ {body} }}"

    def _of_image(self) -> str:
        """Return the pixel that a result reads with a tap, 0 outside the image."""
        one = self.of
        at = [f"{one.stride}*{p} + {one.dilation}*{t} - {one.pad}" for p, t in ("hr", "ws")]
        image = self.element("I", "n", "c", *at)
        guard = " && ".join(f"{a} >= 0 && {a} < H" for a in at)
        return f"(({guard}) ? {image} : 0)" if one.pad else image

    def _of_results(self) -> str:
        """Return the result that reads a pixel with a tap, 0 where none does."""
        one = self.of
        at = [f"{p} + {one.pad} - {one.dilation}*{t}" for p, t in ("yr", "xs")]
        guards = [f"{a} >= 0 && {a} < {one.stride * one.P}" for a in at]
        guards += [f"({a}) % {one.stride} == 0" for a in at if one.stride > 1]
        places = [f"({a}) / {one.stride}" if one.stride > 1 else a for a in at]
        results = self.element("O", "n", "f", *places)
        is_plain = one.T == 1 and one.stride == 1
        return results if is_plain else f"(({' && '.join(guards)}) ? {results} : 0)"

    def inputs(self) -> tuple[str, str]:
        """Return which arrays the def takes."""
        return {"forward": ("I", "K"), "data": ("O", "K"), "weights": ("O", "I")}[self.what]

    @property
    def result(self) -> str:
        return {"forward": "O", "data": "I", "weights": "K"}[self.what]


PROGRAMS = tuple(
    Program(layer, what, is_last)
    for is_last in (True, False)
    for layer in LAYERS
    for what in ("forward", "data", "weights")
)


def executable(
    program: Program,
    inputs: Any,
    choice: Mapping[str, Any] | None = None,
    target: str = "cuda",
    options: Options | None = None,
) -> Any:
    """Return the executable for *inputs*, with a *choice* for its main kernel."""
    if choice is not None:
        own = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
        options = replace(options or Options(), choices=own)
    function = tcdsl.define(program.text())[program.what]
    return function.compile(*inputs, target=target, options=options)


def main_kernel(exe: Any) -> str:
    """Return the statements of the first kernel that has tiles, or of the longest one."""
    kernels = exe.choices["kernels"]
    tiled = next((k for k in kernels if k["template"].startswith("tile_")), None)
    if tiled is not None:
        return str(tiled["kernel"])
    known = (c for c in exe.candidates if c.get("is_chosen") and "predicted_us" in c)
    longest = max(known, key=lambda c: float(c["predicted_us"]), default=kernels[0])
    return str(longest["kernel"])


def candidates(exe: Any, most: int, forced: str = "") -> Iterator[dict[str, Any]]:
    """Yield *most* other choices for the main kernel, those of the least predicted time.

    :arg forced: values that the best of those that have them is yielded with, by semicolons.
    """
    kernel = main_kernel(exe)
    all_ = [c for c in exe.candidates if c["kernel"] == kernel and "predicted_us" in c]
    all_ = sorted(
        (c for c in all_ if "code_change" not in c), key=lambda c: float(c["predicted_us"])
    )
    for wanted in filter(None, forced.split(";")):
        pairs = [pair.split("=") for pair in wanted.split(",")]
        fitting = (c for c in all_ if all(str(c["config"].get(k)) == v for k, v in pairs))
        if (found := next(fitting, None)) is not None and not found["is_chosen"]:
            yield {"kernel": kernel, "template": found["template"], **found["config"]}
    kinds: dict[tuple[Any, ...], int] = {}
    for c in all_:  # no two that differ in stages or chunks alone, as long as there are others
        config = c["config"]
        keys = "rows", "columns", "warp_rows", "warp_columns", "loader", "is_persistent"
        kind = tuple(config.get(key) for key in keys)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] <= 2 and most > 0 and not c["is_chosen"]:
            most -= 1
            yield {"kernel": kernel, "template": c["template"], **config}


def short(choice: Mapping[str, Any]) -> str:
    """Return *choice* in a few words."""
    if "warp_rows" not in choice:
        counts = (f"{k} {v}" for k, v in choice.items() if isinstance(v, int) and v > 1)
        return " ".join((str(choice["template"]), *counts))
    rows, columns = (choice[n] * choice[f"warp_{n}"] for n in ("rows", "columns"))
    how = "wgmma" if choice["together"] > 1 else "mma"
    more = f" /{choice['chunks']}" if choice.get("chunks", 1) > 1 else ""
    loader = f" {choice['loader']}" if "loader" in choice else ""
    loader += " persistent" if choice.get("is_persistent") else ""
    name = choice["template"].removeprefix("tile_")
    return f"{name} {how} {rows}x{columns} s{choice['stages']}{more}{loader}"


def listed(programs: tuple[Program, ...], options: Options) -> None:
    """Print what each program's kernels are, for an H200."""
    for program in programs:
        shapes = program.shapes()
        inputs = [tcdsl.spec(shapes[name], program.dtype) for name in program.inputs()]
        exe = executable(program, inputs, target="emulate", options=options)
        least = program.of.operations / 785e6
        chosen = [c for c in exe.candidates if c.get("is_chosen")]
        us = sum(float(c.get("predicted_us", 0)) for c in chosen)
        own = ", ".join(short(c) for c in exe.choices["kernels"])
        print(
            f"{program.label:24} predicted {us:7.1f} us (products {least:5.1f}) {own}", flush=True
        )


class Bench:
    """Times programs beside torch until the time is over."""

    def __init__(self, seconds: float, out: str, options: Options) -> None:
        import torch

        self.torch = torch
        self.options = options
        self.stop = time.monotonic() + seconds
        self.out = out
        self.flush = torch.empty(CHIP_BYTES, dtype=torch.uint8, device="cuda")
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(0)

    def arrays(self, program: Program) -> dict[str, Any]:
        """Return random arrays, as views with the channel second."""
        found = {}
        for name, shape in program.shapes().items():
            own = self.torch.randn(shape, device="cuda").to(getattr(self.torch, program.dtype))
            found[name] = own.permute(0, 3, 1, 2) if program.is_last else own
        return found

    def peer(self, program: Program, arrays: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the call of cuDNN."""
        one, functional = program.of, self.torch.ops.aten.convolution_backward
        geometry = [one.stride] * 2, [one.pad] * 2, [one.dilation] * 2
        if program.what == "forward":
            call, groups = self.torch.nn.functional.conv2d, one.C if one.depthwise else 1
            return lambda: call(arrays["I"], arrays["K"], None, *geometry, groups)
        mask = [program.what == "data", program.what == "weights", False]
        place = mask.index(True)
        operands = arrays["O"], arrays["I"], arrays["K"]
        return lambda: functional(*operands, None, *geometry, False, [0, 0], 1, mask)[place]

    def timed(self, calls: list[Callable[[], Any]]) -> list[float]:
        """Return the medians of the *calls*' times by turns, in us."""
        times: list[list[float]] = [[] for _ in calls]
        for _ in range(ROUNDS):
            for call, own in zip(calls, times, strict=True):
                self.flush.zero_()
                start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                call()
                end.record()
                end.synchronize()
                own.append(1e3 * start.elapsed_time(end))
        return [statistics.median(own) for own in times]

    def run(self, program: Program, most: int, forced: str) -> None:
        """Compare and time *program*, with *most* other candidates, and those *forced*."""
        arrays = self.arrays(program)
        peer = self.peer(program, arrays)
        expected = self.double(program, arrays)
        scale = expected.norm()
        theirs = float((peer().double() - expected).norm() / scale)
        plain = {n: a.permute(0, 2, 3, 1) if program.is_last else a for n, a in arrays.items()}
        inputs = [plain[name] for name in program.inputs()]
        begun = time.monotonic()
        first = executable(program, inputs, options=self.options)
        seconds = time.monotonic() - begun
        calls, names, verdicts = [peer], ["torch"], [""]
        own = next(k for k in first.choices["kernels"] if k["kernel"] == main_kernel(first))
        for choice in [None, *candidates(first, most, forced)]:
            exe = first
            if choice is not None:
                try:
                    exe = executable(program, inputs, choice, options=self.options)
                except tcdsl.TCError as error:
                    print(f"{program.label:24} {short(choice)}: {str(error)[:120]}", flush=True)
                    continue
            result = self.torch.full_like(plain[program.result], float("nan"))
            bound = exe.bind(*inputs, out=result)
            bound()
            seen = result.permute(0, 3, 1, 2) if program.is_last else result
            error = float((seen.double() - expected).norm() / scale)
            calls.append(bound)
            names.append(short(choice or own))
            verdicts.append("right" if error <= 1.05 * theirs + 1e-6 else f"WRONG {error:.2g}")
        times = self.timed(calls)
        for us, name, verdict in list(zip(times, names, verdicts, strict=True))[1:]:
            rate = program.of.operations / us / 1e6
            beside = f"cuDNN {times[0]:7.1f}: {times[0] / us:5.2f} {verdict}"
            took = f"{us:7.1f} us {rate:4.0f} TF {beside} {name} ({seconds:.1f} s)"
            print(f"{program.label:24} {took}", flush=True)
            line = {"program": program.label, "us": us, "cudnn_us": times[0], "choice": name,
                    "verdict": verdict}  # fmt: skip
            if self.out:
                with open(self.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")

    def table(self, name: str, dtype: str, only: str) -> None:
        """Time the forward pass of each layer of the network *name*, and print their sum."""
        ours = theirs = 0.0
        for layer, count in NETWORKS[name].items():
            if not any(fnmatchcase(layer.label, one) for one in only.split(",")):
                continue
            if time.monotonic() > self.stop:
                print("the time is over")
                return
            program = Program(layer.label, "forward", True, dtype)
            arrays = self.arrays(program)
            inputs = [arrays[n].permute(0, 2, 3, 1) for n in program.inputs()]
            exe = executable(program, inputs, options=self.options)
            peer = self.peer(program, arrays)
            result = self.torch.full_like(peer().permute(0, 2, 3, 1), float("nan"))
            bound = exe.bind(*inputs, out=result)
            bound()
            expected = self.double(program, arrays)
            error, own = (
                float((seen.double() - expected).norm() / expected.norm())
                for seen in (peer(), result.permute(0, 3, 1, 2))
            )
            verdict = "right" if own <= 1.05 * error + 1e-6 else f"WRONG {own:.2g}"
            us = self.timed([peer, bound])
            theirs, ours = theirs + count * us[0], ours + count * us[1]
            kernels = ", ".join(short(c) for c in exe.choices["kernels"])
            print(f"{name} {count} x {layer.label:20} {us[1]:7.1f} us cuDNN {us[0]:7.1f}:"
                  f" {us[0] / us[1]:5.2f} {verdict} {kernels}", flush=True)  # fmt: skip
        print(f"{name} in all: {ours:.0f} us, cuDNN {theirs:.0f} us: {theirs / ours:.2f}")

    def double(self, program: Program, arrays: Mapping[str, Any]) -> Any:
        """Return the result of the same operands in the next wider type, as float64."""
        is_half = program.dtype != "float32"
        wide = {n: array.float() if is_half else array.double() for n, array in arrays.items()}
        with self.torch.backends.cudnn.flags(benchmark=False, allow_tf32=False):
            return self.peer(program, wide)().double()

    def warm(self, programs: tuple[Program, ...], most: int, forced: str) -> None:
        """Compile what :meth:`run` times."""
        for program in programs:
            arrays = {
                name: self.torch.empty(
                    shape, device="cuda", dtype=getattr(self.torch, program.dtype)
                )
                for name, shape in program.shapes().items()
            }
            inputs = [arrays[name] for name in program.inputs()]
            first = executable(program, inputs, options=self.options)
            for choice in candidates(first, most, forced):
                executable(program, inputs, choice, options=self.options)

    def all(self, programs: tuple[Program, ...], most: int, forced: str) -> None:
        self.torch.backends.cudnn.allow_tf32 = False
        for program in programs:
            if time.monotonic() > self.stop:
                print("the time is over")
                return
            try:
                self.run(program, most, forced)
            except (tcdsl.TCError, RuntimeError) as error:
                print(f"{program.label}: {str(error)[:200]}", flush=True)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="*", help="labels, with * and ?, by commas")
    parser.add_argument("--list", action="store_true", help="print what is chosen")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--candidates", type=int, default=0, help="others that are timed, too")
    parser.add_argument("--table", default="", help=f"networks of {', '.join(NETWORKS)}: layers")
    parser.add_argument("--force", default="", help="values of others that are timed, too")
    parser.add_argument("--out", default="", help="a file of lines of JSON")
    parser.add_argument("--type", default="bfloat16", help="of images, filters and results")
    parser.add_argument("--precision", default="", help="see Options.precision")
    parser.add_argument("--warm", default="", help="I/N: compile every Nth program from I on")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    chosen = tuple(
        replace(p, dtype=arguments.type)
        for pattern in only
        for p in PROGRAMS
        if fnmatchcase(p.label, pattern)
    )
    options = Options(precision=arguments.precision) if arguments.precision else Options()
    tables = [name for name in arguments.table.split(",") if name]
    if tables:
        labels = dict.fromkeys(layer.label for name in tables for layer in NETWORKS[name])
        labels = [one for one in labels if any(fnmatchcase(one, p) for p in only)]
        chosen = tuple(Program(label, "forward", True, arguments.type) for label in labels)
    if arguments.list:
        listed(chosen, options)
        return 0
    bench = Bench(arguments.seconds, arguments.out, options)
    if tables and not (arguments.warm or arguments.candidates or arguments.force):
        for name in tables:
            bench.table(name, arguments.type, arguments.only)
        return 0
    if arguments.warm:
        first, count = map(int, arguments.warm.split("/"))
        bench.warm(chosen[first::count], arguments.candidates, arguments.force)
    else:
        bench.all(chosen, arguments.candidates, arguments.force)
    return 0


if __name__ == "__main__":
    sys.exit(main())
