"""A row of a table as its page speaks of it: the best peer, the floor, how far from each."""

from collections.abc import Iterable, Sequence

from tcdsl.cli.bench.jax_calls import WALL
from tcdsl.cli.bench.report import Row, mean
from tcdsl.library.cub_peers import ROWS
from tcdsl.records import dataclass

EAGER, COMPILED, XLA = "torch", "torch-compile", "jax"
LARGE_BYTES = 64_000_000
_SLOWER_LARGE, _SLOWER_SMALL = 1.03, 1.05  # than the best peer: what is let pass


@dataclass(frozen=True, slots=True)
class Run:
    """What the times of one process depend on; rates are of the same process, in GB/s."""

    about: dict[str, str]
    peers: tuple[str, ...]
    flush: bool = True
    copy_gbs: float = 0.0
    read_gbs: float = 0.0
    first_calls: bool = False  # rows have the time of a first call, and no other

    def is_alike(self, other: "Run") -> bool:
        """Return whether the rows of both have the same of tcdsl."""
        return (self.flush, self.first_calls) == (other.flush, other.first_calls)

    def serves(self, other: "Run") -> bool:
        """Return whether rows of this run are as good as those of *other*."""
        return self.is_alike(other) and set(self.peers) >= set(other.peers)


@dataclass(frozen=True, slots=True)
class Measured:
    """A row and its run."""

    run: Run
    row: Row

    @property
    def time_us(self) -> float | None:
        """tcdsl's time."""
        return self.row.times_us.get("tcdsl")

    @property
    def compiled_us(self) -> float | None:
        """torch.compile's time; where it has failed, a user has eager PyTorch."""
        times = self.row.times_us
        return times.get(COMPILED, times.get(EAGER) if COMPILED in self.run.peers else None)

    @property
    def has_stand_in(self) -> bool:
        """Whether eager PyTorch stands in for torch.compile."""
        return self.compiled_us is not None and COMPILED not in self.row.times_us

    @property
    def best_peer(self) -> str | None:
        """The fastest peer; the wall time of one counts as none, nor does half of one's work."""
        times = {n: t for n, t in self.row.peers_us.items() if n not in (WALL, ROWS)}
        return min(times, key=lambda name: times[name]) if times else None

    @property
    def best_ratio(self) -> float | None:
        """The best peer's time over tcdsl's."""
        return self.row.ratio([self.best_peer]) if self.best_peer else None

    @property
    def least_bytes(self) -> int:
        """The bytes that no program can save; 0 where they are not known."""
        return self.row.launches.least_bytes if self.row.launches else 0

    @property
    def is_large(self) -> bool:
        """Whether the launches themselves hardly count."""
        return self.least_bytes >= LARGE_BYTES

    @property
    def floor_us(self) -> float | None:
        """The time of the least bytes: at the rate of reading for reductions, else of copying."""
        is_read = self.row.family == "reduction" and self.run.read_gbs
        rate_gbs = self.run.read_gbs if is_read else self.run.copy_gbs
        return self.least_bytes / rate_gbs * 1e-3 if rate_gbs and self.least_bytes else None

    @property
    def of_floor(self) -> float | None:
        """The floor over tcdsl's time: 1 where nothing can be gained."""
        return self.floor_us / self.time_us if self.floor_us and self.time_us else None

    @property
    def is_slower(self) -> bool:
        """Whether the best peer is faster by more than is let pass."""
        ratio = self.best_ratio
        let_pass = _SLOWER_LARGE if self.is_large else _SLOWER_SMALL
        return ratio is not None and ratio * let_pass < 1

    def over_tcdsl(self, time_us: float | None) -> float | None:
        """Return *time_us*, of a peer, over tcdsl's."""
        return time_us / self.time_us if time_us and self.time_us else None

    def peer_ratio(self, peer: str) -> float | None:
        """Return *peer*'s time over tcdsl's; torch.compile may have a stand-in."""
        known = self.compiled_us if peer == COMPILED else self.row.times_us.get(peer)
        return self.over_tcdsl(known)


def of_family(rows: Iterable[Measured], family: str, *dtypes: str) -> list[Measured]:
    """Return those of *rows* in *family*, and in any of *dtypes* if there are some."""
    return [
        one for one in rows
        if one.row.family == family and (not dtypes or one.row.dtype in dtypes)
    ]  # fmt: skip


def mean_ratio(rows: Sequence[Measured], peer: str) -> float | None:
    """Return the geometric mean of *peer*'s times over tcdsl's."""
    return mean(one.peer_ratio(peer) for one in rows)
