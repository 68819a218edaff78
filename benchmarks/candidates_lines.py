"""Times of candidates as lines of JSON, and what they say of the estimate.

    {"case": "softmax", "dtype": "float32", "sizes": {"M": 64, ...}, "kernel": "S0+S1+S2",
     "chip": "NVIDIA H200", "default_us": 8.1,
     "candidates": [{"template": "row", "config": {...}, "predicted_us": 7.9, "limiter": "memory",
                     "measured_us": 8.0}, ...],
     "failed": [...]}

The first candidate is the compiler's choice; others may have a ``code_change`` from it.  Measured
is the whole program with the candidate, of which other kernels are as ever.
"""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

DISTINCT = 1.03  # times that differ by less have no order


@dataclass(frozen=True, slots=True)
class Line:
    """What was measured of one kernel of one program."""

    case: str
    dtype: str
    sizes: Mapping[str, int]
    kernel: str
    chip: str
    default_us: float
    candidates: tuple[Mapping[str, Any], ...]
    failed: tuple[str, ...] = ()  # wrong results, and errors
    is_default_measured: bool = True  # or is it the best known of those that are

    @property
    def program(self) -> str:
        return label_of(self.case, self.dtype, self.sizes)

    @property
    def measured_us(self) -> list[float]:
        return [candidate["measured_us"] for candidate in self.candidates]

    @property
    def predicted_us(self) -> list[float]:
        """Of each candidate; empty where none is predicted."""
        known = [c.get("predicted_us") for c in self.candidates]
        return [us for us in known if us is not None] if None not in known else []

    @property
    def fastest_us(self) -> float:
        return min(self.default_us, *self.measured_us)

    @property
    def correlation(self) -> float | None:
        """Spearman's, None where there are too few times, or too alike, to have an order."""
        if len(self.predicted_us) < 4 or len(set(self.predicted_us)) < 3:
            return None
        if max(self.measured_us) < DISTINCT * min(self.measured_us):
            return None
        return rank_correlation(self.predicted_us, self.measured_us)

    @property
    def order(self) -> float | None:
        """Of pairs whose times differ by more than noise: those in their order less the others.

        Kendall's correlation, of the pairs that have one; None if none have.
        """
        pairs = list(combinations(zip(self.predicted_us, self.measured_us, strict=False), 2))
        distinct = [(p - q) * (a - b) for (p, a), (q, b) in pairs if _differ(a, b)]
        return statistics.fmean(np.sign(distinct)) if distinct else None

    @property
    def of_estimate(self) -> float | None:
        """The time of the least predicted candidate / that of the fastest."""
        if not self.predicted_us:
            return None
        best = min(range(len(self.predicted_us)), key=self.predicted_us.__getitem__)
        return self.measured_us[best] / self.fastest_us

    @property
    def of_default(self) -> float:
        return self.default_us / self.fastest_us


def _differ(one: float, other: float) -> bool:
    return max(one, other) > DISTINCT * min(one, other)


def label_of(case: str, dtype: str, sizes: Mapping[str, int]) -> str:
    return " ".join([case, dtype, *(f"{name}={value}" for name, value in sizes.items())])


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's correlation of *one* and *other*; equal values share a rank."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: Sequence[float]) -> Any:
    table = np.asarray(values)
    return (table[:, None] > table).sum(1) + (table[:, None] == table).sum(1) / 2


def read(path: Path) -> list[Line]:
    """Return the lines that *path* has."""
    if not path.exists():
        return []
    return [_line_of(json.loads(text)) for text in path.read_text(encoding="utf-8").splitlines()]


def _line_of(data: Mapping[str, Any]) -> Line:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
    }
    return Line(**values)


def summary(lines: Sequence[Line]) -> str:
    """Return the table of *lines*, and what they are at the median."""
    rows = ["| program | kernel | candidates | rank correlation | estimate | default |",
            "| --- | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for line in lines:
        ratios = f"{_number(line.of_estimate)} | {line.of_default:.2f}"
        rows.append(
            f"| {line.program} | {line.kernel} | {len(line.candidates)}"
            f" | {_number(line.correlation)} | {ratios} |"
        )
    rows += ["", f"{len(lines)} kernels of {len({line.program for line in lines})} programs"]
    rows += [*_medians(lines), *_codes(lines)]
    rows += [f"FAILED: {line.program}: {what}" for line in lines for what in line.failed]
    return "\n".join(rows)


def _medians(lines: Sequence[Line]) -> Iterator[str]:
    known = [line.correlation for line in lines if line.correlation is not None]
    if known:
        yield f"rank correlation at the median: {statistics.median(known):.2f}"
    yield from _within_templates(lines)
    orders = [line.order for line in lines if line.order is not None]
    if orders:
        yield f"order of times that differ by 3 %, at the median: {statistics.median(orders):.2f}"
    ratios = [line.of_estimate for line in lines if line.of_estimate is not None]
    measured = [line.of_default for line in lines if line.is_default_measured]
    for name, found in (
        ("estimate", ratios),
        ("default", [line.of_default for line in lines]),
        (f"default, of the {len(measured)} kernels where it was measured", measured),
    ):
        if found:
            near = [sum(ratio <= limit for ratio in found) for limit in (1.03, 1.1)]
            yield (
                f"{name}: within 3 % of the fastest in {100 * near[0] / len(found):.0f} %,"
                f" within 10 % in {100 * near[1] / len(found):.0f} %, {max(found):.2f} at most"
            )


def _within_templates(lines: Sequence[Line]) -> Iterator[str]:
    """Yield how far the estimate tells the configurations of each template apart."""
    for name in dict.fromkeys(c["template"] for line in lines for c in line.candidates):
        own = [
            replace(line, candidates=tuple(c for c in line.candidates if c["template"] == name))
            for line in lines
        ]
        known = [line.correlation for line in own if line.correlation is not None]
        if known:
            yield (
                f"rank correlation within {name}: {statistics.median(known):.2f} at the median of"
                f" {len(known)} kernels, {min(known):.2f} at least"
            )


def _codes(lines: Sequence[Line]) -> Iterator[str]:
    """Yield what other code takes of the default's time, value by value.

    What is predicted to be added to a kernel's time is added to that of the whole program.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        own = line.candidates[0]
        for one in line.candidates[1:]:
            if change := one.get("code_change"):
                added = one["predicted_us"] - own["predicted_us"]
                predicted = 1 + added / own["measured_us"]
                ratio = one["measured_us"] / own["measured_us"]
                text = ", ".join(f"{key} {json.dumps(value)}" for key, value in change.items())
                found.setdefault(text, []).append((ratio, predicted))
    for change, ratios in found.items():
        measured, predicted = zip(*ratios, strict=True)
        yield (
            f"code {change}: {statistics.median(measured):.3f} of the default's time at the median"
            f" of {len(measured)}, {min(measured):.3f} to {max(measured):.3f};"
            f" predicted {statistics.median(predicted):.3f}, {max(predicted):.3f} at most"
        )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
