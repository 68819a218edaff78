"""What is asked of a table of memory-bound programs, and what was found.

Aims are ratios to peers of the same run and shares of the rates of the same run.  QuACK's kernels
(version 0.6.5, the best that there are for rows) are no peer here: their rates were measured once,
on an H200, beside torch.compile's.  On another chip the two ratios to torch.compile are compared.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tcdsl.cli.bench.measured import COMPILED, XLA, Measured, mean_ratio, of_family
from tcdsl.cli.bench.report import mean, ratio_text, sizes_text
from tcdsl.records import dataclass

_QUACK_CHIP = "H200"
_GIGABYTE = 10**9
_QUARTER = 256 * 10**6
_SLOWER = 1.03  # than torch.compile or XLA

# GB/s of QuACK and of torch.compile beside it, by (case, element type, rows, columns).
QUACK: Mapping[tuple[str, str, int, int], tuple[float, float]] = {
    ("softmax", "bfloat16", 32768, 1024): (3535, 3374),
    ("softmax", "bfloat16", 16384, 4096): (3827, 2044),
    ("softmax", "bfloat16", 8192, 16384): (4005, 2131),
    ("softmax", "bfloat16", 4096, 65536): (4140, 2130),
    ("softmax", "bfloat16", 2048, 131072): (4106, 2052),
    ("softmax", "float32", 32768, 1024): (3914, 3804),
    ("softmax", "float32", 16384, 4096): (3859, 3778),
    ("softmax", "float32", 8192, 16384): (4050, 3911),
    ("softmax", "float32", 4096, 65536): (4118, 3222),
    ("softmax", "float32", 2048, 131072): (3941, 2697),
    ("rmsnorm", "bfloat16", 32768, 1024): (3399, 2832),
    ("rmsnorm", "bfloat16", 16384, 4096): (3720, 3927),
    ("rmsnorm", "bfloat16", 8192, 16384): (3983, 4066),
    ("rmsnorm", "bfloat16", 4096, 65536): (3526, 3463),
    ("rmsnorm", "float32", 32768, 1024): (3823, 3882),
    ("rmsnorm", "float32", 16384, 4096): (4001, 4166),
    ("rmsnorm", "float32", 8192, 16384): (4015, 4222),
    ("rmsnorm", "float32", 4096, 65536): (4078, 3222),
    ("cross_entropy", "bfloat16", 16384, 4096): (2990, 1332),
    ("cross_entropy", "bfloat16", 4096, 50304): (3045, 1571),
    ("cross_entropy", "bfloat16", 2048, 131072): (3557, 1680),
    ("cross_entropy", "float32", 16384, 4096): (3466, 2781),
    ("cross_entropy", "float32", 4096, 50304): (3725, 3061),
    ("cross_entropy", "float32", 2048, 131072): (3677, 3267),
}

# Graphs of which more is asked of the ratio to torch.compile, in float32.
PARTICULAR = (
    ("softmax", "M=64 N=1048576", 1.7),
    ("cross_entropy", "B=4096 V=50257", 1.25),
    ("bias_gelu_residual_layernorm", "M=16384 N=4096", 1.25),
    ("batchnorm_gelu", "N=32 C=256 H=56 W=56", 1.2),
)


@dataclass(frozen=True, slots=True)
class Aim:
    """*what* shall be at least (or, for a count, at most) *asked*; *found* None: not measured."""

    what: str
    asked: float
    found: float | None
    at_most: bool = False
    where: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether it is reached; None where nothing was measured."""
        if self.found is None:
            return None
        return self.found <= self.asked if self.at_most else self.found >= self.asked

    def cells(self) -> tuple[str, ...]:
        """Return the aim as a line of a table."""
        met = {None: "-", True: "yes", False: "no"}[self.is_met]
        if self.at_most:
            found = "-" if self.found is None else f"{self.found:.0f}"
            return self.what, f"{self.asked:.0f}", found, met, self.where
        return self.what, ratio_text(self.asked), ratio_text(self.found), met, self.where


def aims(rows: Sequence[Measured]) -> list[Aim]:
    """Return every aim with what was found in *rows*."""
    return [*_of_reductions(rows), *_of_graphs(rows), *_of_quack(rows)]


def _of_reductions(rows: Sequence[Measured]) -> list[Aim]:
    found = of_family(rows, "reduction")
    giant = [one for one in found if one.least_bytes >= _GIGABYTE]
    large = [one for one in found if _QUARTER <= one.least_bytes < _GIGABYTE]
    return [
        _count("reductions slower than the best peer", found, lambda one: one.is_slower),
        Aim("reductions: best peer / tcdsl", 1.1, mean(one.best_ratio for one in found)),
        Aim("reductions: torch.compile / tcdsl", 1.25, mean_ratio(found, COMPILED)),
        _least("reductions of 1 GB and more: of the read rate", 0.95, giant,
               lambda one: one.of_floor),
        _least("reductions of 256 MB to 1 GB: of the read rate", 0.85, large,
               lambda one: one.of_floor),
    ]  # fmt: skip


def _of_graphs(rows: Sequence[Measured]) -> list[Aim]:
    found = of_family(rows, "graph", "float32")
    return [
        _count("graphs slower than torch.compile or XLA", found, _is_slower_than_a_compiler),
        Aim("graphs: XLA / tcdsl", 1.45, mean_ratio(found, XLA)),
        Aim("graphs: torch.compile / tcdsl", 1.2, mean_ratio(found, COMPILED)),
        Aim("graphs of 64 MB and more: of the floor", 0.9,
            mean(one.of_floor for one in found if one.is_large)),
        *(
            _least(f"{name} {sizes}: torch.compile / tcdsl", asked,
                   [one for one in found if (one.row.case, sizes_text(one.row.sizes))
                    == (name, sizes)], lambda one: one.peer_ratio(COMPILED))
            for name, sizes, asked in PARTICULAR
        ),
    ]  # fmt: skip


def _of_quack(rows: Sequence[Measured]) -> list[Aim]:
    found = [one for one in rows if quack_rates(one)]
    rows_of = {
        name: [one for one in found if one.row.case == name]
        for name in ("softmax", "rmsnorm", "cross_entropy")
    }
    half = [
        one for one in (*rows_of["softmax"], *rows_of["cross_entropy"])
        if one.row.dtype == "bfloat16"
    ]  # fmt: skip
    return [
        *(
            _least(f"{name} at QuACK's sizes: of QuACK's rate", asked, rows_of[name], of_quack)
            for name, asked in (("softmax", 0.97), ("rmsnorm", 0.97), ("cross_entropy", 1.1))
        ),
        Aim("softmax and cross-entropy in bfloat16 at QuACK's sizes: torch.compile / tcdsl", 1.7,
            mean_ratio(half, COMPILED)),
    ]  # fmt: skip


def quack_rates(one: Measured) -> tuple[float, float] | None:
    """Return the rates of QuACK and of torch.compile beside it for this case, if it is there."""
    sizes = tuple(one.row.sizes.values())
    return QUACK.get((one.row.case, one.row.dtype, *sizes)) if len(sizes) == 2 else None


def of_quack(one: Measured) -> float | None:
    """Return tcdsl's rate over QuACK's; on another chip than QuACK's, through torch.compile."""
    rates, rate, ratio = quack_rates(one), one.row.rate_gbs, one.peer_ratio(COMPILED)
    if rates is None:
        return None
    if _QUACK_CHIP in one.run.about.get("gpu", ""):
        return rate / rates[0] if rate else None
    return ratio / (rates[0] / rates[1]) if ratio else None


def _is_slower_than_a_compiler(one: Measured) -> bool:
    ratios = (one.peer_ratio(COMPILED), one.peer_ratio(XLA))
    return any(ratio is not None and ratio * _SLOWER < 1 for ratio in ratios)


def _count(what: str, rows: Sequence[Measured], holds: Callable[[Measured], bool]) -> Aim:
    return Aim(what, 0, sum(map(holds, rows)) if rows else None, at_most=True,
               where=f"of {len(rows)}")  # fmt: skip


def _least(
    what: str, asked: float, rows: Iterable[Measured],
    value_of: Callable[[Measured], float | None],
) -> Aim:  # fmt: skip
    """Return the aim that the least value reaches *asked*, and where it is found."""
    known = [(value, one.row.label) for one in rows if (value := value_of(one)) is not None]
    if not known:
        return Aim(what, asked, None)
    value, label = min(known)
    return Aim(what, asked, value, where=label if len(known) > 1 else "")
