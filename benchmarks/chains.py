"""Chains of small products in one kernel, beside kernels apart and PyTorch, by turns on one GPU.

    python benchmarks/chains.py kronecker3:float32:N0=32,N1=32,N2=32 mlp3:bfloat16 --most 6
    python benchmarks/chains.py --all --seconds 45      every program, several processes compile

Each line is a variant: its time, the peer's over it, and the predicted time.  Results are compared
with the reference of the case (float64, rounded once) before they are timed; they begin as NaN.
"""

import argparse
import fcntl
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tcdsl
from tcdsl.library import Case, case, source_for
from tcdsl.options import Options

ROUNDS = 15
KRONECKER = [{"N0": n, "N1": n, "N2": n} for n in (16, 32, 64)]
ALL = [
    *(("kronecker3", t, s) for t in ("float32", "bfloat16") for s in KRONECKER),
    *((n, t, {}) for n in ("mlp3", "wavenet") for t in ("float32", "bfloat16")),
]
TEMPLATES = ("product_chain", "row")


def timed(calls: list[Callable[[], object]], flush: torch.Tensor) -> list[float]:
    """Return the median times of *calls*, by turns, in microseconds."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(ROUNDS):
        for call, own in zip(calls, times, strict=True):
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            own.append(start.elapsed_time(end) * 1e3)
    return [statistics.median(own) for own in times]


def variants(function: Any, inputs: list[Any], most: int) -> Iterator[tuple[str, Options, float]]:
    """Yield the default, kernels apart, and forced candidates: a label, options, prediction."""
    chosen = function.compile(*inputs)
    kernels = chosen.choices["kernels"]
    shown = " ".join(f"{k['kernel']}={k['template']}" for k in kernels)
    yield f"default {shown}", Options(), 0.0
    if len(kernels) == 1 and "+" in kernels[0]["kernel"]:
        yield "apart", Options(fuse="none"), 0.0
    for number, kernel in enumerate(kernels):
        own = [
            c for c in chosen.candidates if "predicted_us" in c and c["kernel"] == kernel["kernel"]
            and "code_change" not in c
        ]  # fmt: skip
        for name in TEMPLATES:
            ranked = sorted((c for c in own if c["template"] == name),
                            key=lambda c: c["predicted_us"])  # fmt: skip
            plain = [c for c in ranked if not c["config"].get("is_copied")]
            copied = [c for c in ranked if c["config"].get("is_copied")]
            for one in (*plain[: most // 2 if copied else 2], *copied[:most]):
                data = json.loads(json.dumps(chosen.choices))
                data["kernels"][number] = {
                    "kernel": kernel["kernel"],
                    "template": name,
                    **one["config"],
                }
                label = f"{name} {list(one['config'].values())}"
                yield label, Options(choices=json.dumps(data)), one["predicted_us"]


def measure(c: Case, dtype: str, sizes: Mapping[str, int], most: int) -> None:
    """Print a line for each variant of one program."""
    rng = np.random.default_rng(0)
    arrays = c.make_inputs(sizes, rng, dtype=dtype)
    tensors = [torch.from_numpy(np.asarray(a, np.float32)).to(getattr(torch, dtype)).cuda()
               for a in arrays.values()]  # fmt: skip
    function = tcdsl.define(source_for(c, dtype))[c.def_name]
    exact = c.reference({k: t.float().cpu().numpy() for k, t in zip(arrays, tensors, strict=True)})
    flush = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    made: list[tuple[str, Any, Any, float]] = []
    for label, options, predicted in variants(function, tensors, most):
        try:
            exe = function.compile(*tensors, options=options)
            outs = exe(*tensors)
            outs = outs if isinstance(outs, tuple) else (outs,)
            outs = tuple(torch.full_like(o, float("nan")) for o in outs)
            call = exe.bind(*tensors, out=outs if len(outs) > 1 else outs[0])
            call()
            torch.cuda.synchronize()
        except tcdsl.TCError as error:
            print(f"  {label}: {str(error)[:150]}", flush=True)
            continue
        off = max(
            float(np.max(np.abs(o.float().cpu().numpy() - e)) / max(1e-30, np.max(np.abs(e))))
            for o, e in zip(outs, exact, strict=True)
        )
        made.append((label, call, off, predicted))
    named = dict(zip(arrays, tensors, strict=True))
    calls = [call for _, call, _, _ in made]
    with open(Path(tempfile.gettempdir()) / "chains.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        times = timed([*calls, lambda: c.torch(named)], flush)
    *own, other = times
    print(f"{c.name} {dtype} {dict(sizes)}: torch {other:.1f} us")
    for (label, _, off, predicted), us in zip(made, own, strict=True):
        print(f"  {us:7.1f} us {other / us:5.2f} off {off:.1e} est {predicted:5.1f} {label}")
    sys.stdout.flush()


def parse(text: str) -> tuple[str, str, dict[str, int]]:
    name, dtype, *rest = text.split(":")
    pairs = (part.split("=") for part in (rest[0].split(",") if rest and rest[0] else ()))
    return name, dtype, {key: int(value) for key, value in pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--most", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=45)
    given = parser.parse_args()
    if given.all:
        begun = time.monotonic()
        texts = [f"{n}:{t}:" + ",".join(f"{k}={v}" for k, v in s.items()) for n, t, s in ALL]
        own = [
            subprocess.Popen(
                [sys.executable, __file__, text, "--most", str(given.most)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for text in texts
        ]  # fmt: skip
        for text, process in zip(texts, own, strict=True):
            try:
                left = max(1.0, given.seconds - (time.monotonic() - begun))
                out, _ = process.communicate(timeout=left)
            except subprocess.TimeoutExpired:
                process.kill()
                out, _ = process.communicate()
                out += f"{text}: cut off\n"
            print(out[-6000:], end="", flush=True)
        return
    for text in given.programs:
        name, dtype, sizes = parse(text)
        c = case(name)
        measure(c, dtype, {**c.sizes[0], **sizes}, given.most)


if __name__ == "__main__":
    main()
