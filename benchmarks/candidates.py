"""Every candidate of a kernel, timed: does the estimate put them in the order of their times?

    python benchmarks/candidates.py --lines build/candidates.jsonl --limit 500
    python benchmarks/candidates.py --only 'softmax float32*' --target cpu
    python benchmarks/candidates.py --from build/candidates.jsonl        times nothing: the summary

For each program, and each of its kernels with something to choose, all candidates are forced one
after another; they take turns with the default in one process, on the same arrays, and each result
is compared with the default's.  The summary says, kernel by kernel and at the median:

    rank correlation   of predicted and measured times (Spearman)
    estimate           time of the candidate with the least predicted time / that of the fastest
    default            time of what the compiler takes today / that of the fastest

``--lines`` adds a line a kernel, and leaves out those that are there: a run that was cut off goes
on.  On a CPU no times are predicted, so that only the last column means something.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import scipy.stats

import tcdsl
from tcdsl import library
from tcdsl.cli.bench_timing import Place
from tcdsl.cli.device_peers import open_device
from tcdsl.cli.peers import Host
from tcdsl.library import Case
from tcdsl.options import Options

DEFAULT = "default"
MOST = 40  # candidates of a kernel that are timed: the fastest by prediction
STEP = 3  # of a family's programs and sizes: every third


@dataclass(frozen=True, slots=True)
class Line:
    """What was measured of one kernel of one program."""

    program: str
    kernel: str
    default_us: float
    predicted_us: tuple[float, ...]  # of the candidates; empty where none is predicted
    measured_us: tuple[float, ...]  # of the program with each of them
    configs: tuple[Mapping[str, Any], ...]
    wrong: tuple[str, ...] = ()  # whose results are not those of the default

    @property
    def fastest_us(self) -> float:
        return min(self.default_us, *self.measured_us)

    @property
    def correlation(self) -> float | None:
        """Spearman's, None where there are too few times to have an order."""
        if len(self.predicted_us) < 4 or len(set(self.predicted_us)) < 3:
            return None
        return rank_correlation(self.predicted_us, self.measured_us)

    @property
    def of_estimate(self) -> float | None:
        if not self.predicted_us:
            return None
        best = min(range(len(self.predicted_us)), key=self.predicted_us.__getitem__)
        return self.measured_us[best] / self.fastest_us


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's correlation of *one* and *other*; equal values share a rank."""
    return float(scipy.stats.spearmanr(one, other).statistic)


# --- what is timed -----------------------------------------------------------------------------


def programs(place: Place, only: str) -> Iterator[tuple[Case, str, Mapping[str, int]]]:
    """Yield library programs of reductions, graphs and contractions, their largest sizes first."""
    number = 0
    for case in library.cases():
        for dtype in [name for name in ("float32", "bfloat16") if name in case.dtypes]:
            for sizes in reversed(place.sizes(case, dtype)):
                number += 1
                label = label_of(case, dtype, sizes)
                if fnmatchcase(label, only) if only else number % STEP == 0:
                    yield case, dtype, sizes


def label_of(case: Case, dtype: str, sizes: Mapping[str, int]) -> str:
    return " ".join([case.name, dtype, *(f"{name}={value}" for name, value in sizes.items())])


def lines_of(place: Place, case: Case, dtype: str, sizes: Mapping[str, int]) -> Iterator[Line]:
    """Yield what is measured of each kernel of a program with several candidates."""
    inputs = place.inputs(case, sizes, dtype)
    function = tcdsl.define(library.source_for(case, dtype))[case.def_name]
    arguments = [inputs[name] for name in function.comprehension.inputs]
    executable = function.compile(*arguments, target=place.target)
    fitting = [c for c in executable.candidates if "why_not" not in c]
    for kernel in dict.fromkeys(c["kernel"] for c in fitting):
        others = [c for c in fitting if c["kernel"] == kernel and not c["is_chosen"]]
        others.sort(key=lambda c: c.get("predicted_us", 0.0))
        if others:
            own = next(c for c in fitting if c["kernel"] == kernel and c["is_chosen"])
            timed = [own, *others[:MOST]]
            yield _timed(place, (case, dtype, sizes), inputs, executable.choices, timed)


def _timed(
    place: Place,
    program: tuple[Case, str, Mapping[str, int]],
    inputs: Mapping[str, Any],
    choices: Mapping[str, Any],
    candidates: Sequence[Mapping[str, Any]],
) -> Line:
    """Return the times of a program with each of *candidates*, the first of them the default."""
    case, dtype, sizes = program
    kernel = candidates[0]["kernel"]
    first, _ = place.tcdsl_call(case, inputs, dtype)
    calls = {DEFAULT: first}
    expected = first()
    wrong = []
    for number, candidate in enumerate(candidates[1:]):
        entry = {"kernel": kernel, "template": candidate["template"], **candidate["config"]}
        options = Options(choices=json.dumps({**choices, "kernels": [entry]}))
        call, _ = place.tcdsl_call(case, inputs, dtype, options)
        if place.disagreement(call(), expected, dtype):
            wrong.append(json.dumps(entry))
        calls[str(number)] = call
    timings = place.compare(calls, 0.02 * len(calls)).timings
    predicted = [c["predicted_us"] for c in candidates if "predicted_us" in c]
    return Line(
        label_of(case, dtype, sizes), kernel, timings[DEFAULT].median_us, tuple(predicted),
        tuple(timings[name].median_us for name in calls),
        tuple({"template": c["template"], **c["config"]} for c in candidates), tuple(wrong),
    )  # fmt: skip


# --- the summary -------------------------------------------------------------------------------


def summary(lines: Sequence[Line]) -> str:
    """Return the table of *lines*, and what they are at the median."""
    rows = ["| program | kernel | candidates | rank correlation | estimate | default |",
            "| --- | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for line in lines:
        rows.append(
            f"| {line.program} | {line.kernel} | {len(line.configs)} | {_number(line.correlation)}"
            f" | {_number(line.of_estimate)} | {line.default_us / line.fastest_us:.2f} |"
        )
    known = [line.correlation for line in lines if line.correlation is not None]
    ratios = [line.of_estimate for line in lines if line.of_estimate is not None]
    text = [*rows, "", f"{len(lines)} kernels of {len({line.program for line in lines})} programs"]
    if known:
        text.append(f"rank correlation at the median: {statistics.median(known):.2f}")
    for name, found in (
        ("estimate", ratios), ("default", [line.default_us / line.fastest_us for line in lines])
    ):  # fmt: skip
        if found:
            near = [sum(ratio <= limit for ratio in found) for limit in (1.03, 1.1)]
            text.append(
                f"{name}: within 3 % of the fastest in {100 * near[0] / len(found):.0f} %,"
                f" within 10 % in {100 * near[1] / len(found):.0f} %, {max(found):.2f} at most"
            )
    text += [f"WRONG: {line.program}: {entry}" for line in lines for entry in line.wrong]
    return "\n".join(text)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def read(path: Path) -> list[Line]:
    """Return the lines that *path* has."""
    if not path.exists():
        return []
    return [_line_of(json.loads(text)) for text in path.read_text(encoding="utf-8").splitlines()]


def _line_of(data: dict[str, Any]) -> Line:
    values: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in data.items()
    }
    return Line(**values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs, with * and ? (default: every third)")
    parser.add_argument("--target", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--lines", type=Path, help="add a line a kernel there")
    parser.add_argument("--limit", type=float, default=1e9, help="begin none after S seconds")
    parser.add_argument("--from", dest="source", type=Path, help="print the summary of such a file")
    args = parser.parse_args()
    if args.source:
        print(summary(read(args.source)))
        return
    place: Place = open_device() if args.target == "cuda" else Host(args.target, bound=True)
    lines = read(args.lines) if args.lines else []
    known = {line.program for line in lines}
    stop = time.monotonic() + args.limit
    for case, dtype, sizes in programs(place, args.only):
        if time.monotonic() > stop or label_of(case, dtype, sizes) in known:
            continue
        try:
            found = list(lines_of(place, case, dtype, sizes))
        except place.errors as error:
            print(f"{label_of(case, dtype, sizes)}: {error}", flush=True)
            continue
        lines += found
        if args.lines:
            args.lines.parent.mkdir(parents=True, exist_ok=True)
            with args.lines.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(line)) + "\n" for line in found)
        place.settle()
    print(summary(lines))


if __name__ == "__main__":
    main()
