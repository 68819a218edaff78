"""What else tiles on tensor cores might be, by turns on one GPU: equal shares (stream-K), clusters.

    python benchmarks/tile_choices.py --size 2560x2560x2560 --size 3000x3000x3000
    python benchmarks/tile_choices.py --of clusters --size 1000x1000x1000 --size 2000x3000x1600

A size is M x N x K, of bfloat16.  Of each: microseconds of the likeliest tiles without either, of
the likeliest with other numbers of columns and shares (*shares*), or of clusters (*clusters*), as
measured and as predicted, and of torch.mm; and ratios of the first to each.  Results are compared
with float64, and with themselves from run to run.  Several processes compile first.
"""

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
from computed_operands import timed

import tcdsl
from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options

MOST = 3  # others for a size, the likeliest
FORMS = {
    "nn": ("bfloat16(M,K) A, bfloat16(K,N) B", "A(m,k) * B(k,n)"),
    "nt": ("bfloat16(M,K) A, bfloat16(N,K) B", "A(m,k) * B(n,k)"),
}
KEYS: dict[str, Callable[[dict[str, Any]], tuple[Any, ...]]] = {
    "shares": lambda c: (c["columns"], c["warp_rows"], c["shares"]),
    "clusters": lambda c: (c["cluster_rows"], c["cluster_columns"]),
}


def function_of(form: str) -> Any:
    operands, terms = FORMS[form]
    text = f"def f({operands}) -> (bfloat16(M,N) C) {{ C(m,n) +=! {terms} }}"
    return tcdsl.define(text).f


def inputs_of(form: str, size: Sequence[int]) -> list[Any]:
    m, n, k = size
    b = (k, n) if form == "nn" else (n, k)
    return [torch.randn(s, device="cuda").to(torch.bfloat16) for s in ((m, k), b)]


def chosen(form: str, size: Sequence[int], of: str) -> list[tuple[str, float, Options]]:
    """Return names, predicted microseconds and choices; all are in the cache afterwards."""
    function, inputs = function_of(form), inputs_of(form, size)
    first = function.compile(*inputs)
    found: dict[tuple[Any, ...], tuple[str, float, Options]] = {}
    for one in first.candidates:  # of one kernel alone: others copy operands, or add up chunks
        is_timed = "predicted_us" in one and "code_change" not in one
        if one.get("template") != "tile_mma" or not is_timed:
            continue
        config = one["config"]
        is_plain = not config["shares"] and config["cluster_rows"] * config["cluster_columns"] == 1
        if not is_plain and not (config["shares"] if of == "shares" else not config["shares"]):
            continue
        key = () if is_plain else KEYS[of](config)
        if key not in found:
            own = {"kernel": one["kernel"], "template": "tile_mma", **config}
            choices = {"format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": [own]}
            name = "x".join(map(str, key)) or f"plain {config['columns']}"
            found[key] = name, one["predicted_us"], Options(choices=choices)
    plain = found.pop(())
    cases = [plain, *sorted(found.values(), key=lambda one: one[1])[:MOST]]
    for _, _, options in cases:
        function.compile(*inputs, options=options)
    return cases


def report(form: str, size: Sequence[int], cases: Sequence[tuple[str, float, Options]]) -> None:
    function, inputs = function_of(form), inputs_of(form, size)
    a, b = inputs[0], inputs[1] if form == "nn" else inputs[1].T
    exact = a.double() @ b.double()
    calls: list[Callable[[], object]] = []
    notes = []
    for _, _, options in cases:
        exe = function.compile(*inputs, options=options)
        result = exe(*inputs)
        error = float((result.double() - exact).norm() / exact.norm())
        is_same = all(torch.equal(result, exe(*inputs)) for _ in range(10))
        notes.append(f"error {error:.1e}{'' if is_same else ', DIFFERS FROM RUN TO RUN'}")
        calls.append(exe.bind(*inputs, out=torch.empty_like(result)))
    *times, library = timed([*calls, lambda: torch.mm(a, b)])
    print(f"{form} {'x'.join(map(str, size))}: torch.mm {library:.1f}")
    for (name, predicted, _), us, note in zip(cases, times, notes, strict=True):
        ratio = times[0] / us
        print(f"  {name}: {us:.1f} us, predicted {predicted:.1f}; {ratio:.3f}; {note}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", action="append", required=True)
    parser.add_argument("--of", choices=KEYS, default="shares")
    parser.add_argument("--form", choices=FORMS, default="nn")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--compile", action="store_true", help="fill the cache, and time nothing")
    args = parser.parse_args()
    sizes = [tuple(map(int, size.split("x"))) for size in args.size]
    with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
        found = [pool.submit(chosen, args.form, size, args.of) for size in sizes]
        for size, one in zip(sizes, found, strict=True):
            cases = one.result()
            if not args.compile:
                report(args.form, size, cases)


if __name__ == "__main__":
    main()
