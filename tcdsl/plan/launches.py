"""Launches: which kernels of a plan share one, chosen by the estimate as groups are.

    kernels    A        B        C
    launches   {A}      {B}      {C}       each on its own                  9.0 us
               {A then B}        {C}       a barrier of all blocks          schedule/grid_phases
               {A and C}         {B}       blocks are shared                schedule/packing

Both moves are declared alike (:class:`Move`): the word that joins the names, why they do not apply
to two launches, how long the launch takes, and its loops.  What is asked for is done first; then
the move that saves most, until none is predicted to save enough (``MARGIN``).

Launches are the nodes of a graph, dependences its edges; a move makes one node of several.  It is
legal if there is an order of the nodes still: no path leads from one of them through another node
to one of them, and none at all where blocks are side by side.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from math import ceil, inf, prod
from typing import Any

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.occupancy import resident_blocks
from tcdsl.costmodel.side_by_side import (
    block_seconds,
    launch_seconds,
    longest,
    side_by_side_seconds,
)
from tcdsl.costmodel.work import Chain, Work, chain_seconds
from tcdsl.poly.dependences import Dependences
from tcdsl.poly.loop_tree import Node, statements_of
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.schedule.grid_phases import common_grid, joined, why_not_one_launch
from tcdsl.schedule.mapping import Dim3, Mapped
from tcdsl.schedule.packing import idle_blocks, packed, why_not_packed
from tcdsl.schedule.plan import Kernel, Weighed
from tcdsl.schedule.signals import is_signalled
from tcdsl.strategies.asked import Asked, misfit

SEPARATE = "separate"  # the template of launches that are to stay two
# Launches that a move must save by the estimate.
MARGIN = {
    "grid_phases": gpu_thresholds.PHASES_LAUNCHES,
    "packed": gpu_thresholds.PACKED_LAUNCHES,
}
BLOCKS = (1, 2, 4, 8)  # of a multiprocessor, that wait for one another


@dataclass(frozen=True, eq=False)
class Part:
    """A kernel, and what its last blocks do; *work* is None where no template made it."""

    name: str
    kernel: Kernel  # with its last blocks' part
    phases: tuple[Kernel, ...]  # both, separately
    work: Work | None


@dataclass(frozen=True, eq=False)
class Launch:
    """Parts that are one launch, by one *move*, or one part alone (None)."""

    parts: tuple[Part, ...]
    move: "Move | None" = None
    config: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        word = f" {self.move.word} " if self.move else ""
        return word.join(part.name for part in self.parts)

    @cached_property
    def members(self) -> frozenset[str]:
        return frozenset(n for p in self.parts for k in p.phases for n in statements_of(k.tree))


@dataclass(frozen=True, slots=True)
class Known:
    """What does not change from move to move."""

    scop: Scop
    dependences: Dependences
    gpu: Chip

    def mapped(self, parts: Sequence[Part]) -> list[Mapped]:
        return [Mapped(self.scop, kernel.tree) for part in parts for kernel in part.phases]

    def depends(self, later: Launch, earlier: Launch) -> bool:
        """Return whether some statement of *later* must run after one of *earlier*."""
        return any(
            edge.source in earlier.members and edge.sink in later.members
            for edge in self.dependences.edges
        )

    def seconds(self, launch: Launch) -> float:
        """Return how long *launch* is predicted to take; infinity where nobody knows."""
        if launch.move is not None:
            return launch.move.seconds(launch.parts, dict(launch.config), self)
        work = launch.parts[0].work
        return inf if work is None else estimate(work, self.gpu).seconds

    def saved(self, own: Sequence[Launch], whole: Launch) -> float:
        """Return what *whole* saves of *own*; launches that run beside each other do so before."""
        assert whole.move is not None
        if whole.move.needs_neighbours:
            return sum(map(self.seconds, own)) - self.seconds(whole)
        works = [part.work for part in whole.parts if part.work is not None]
        launches = [self._launch_seconds(launch) for launch in own]
        return sum(launches) + longest(works, self.gpu) - self.seconds(whole)

    def _launch_seconds(self, launch: Launch) -> float:
        """Return how long the launch of *launch* takes, whose parts' work is known."""
        works = (part.work for part in launch.parts if part.work is not None)
        return max(launch_seconds(work, self.gpu) for work in works)


@dataclass(frozen=True, slots=True)
class Move:
    """Two launches as one: *spaces* are its configurations; see the module's docstring."""

    template: str
    word: str
    why_not: Callable[[Sequence[Part], Known], str | None]
    space: Callable[[Sequence[Part], Known], list[dict[str, int]]]
    seconds: Callable[[Sequence[Part], Mapping[str, int], Known], float]
    made: Callable[[Sequence[Part], Mapping[str, int], Known, str], tuple[Scop, Kernel]]
    needs_neighbours: bool  # the second follows the first; else neither depends on the other


# --- a barrier of all blocks -------------------------------------------------------------------


def _why_not_phases(parts: Sequence[Part], known: Known) -> str | None:
    return _why_not_loops(parts) or why_not_one_launch(known.mapped(parts))


def _why_not_loops(parts: Sequence[Part]) -> str | None:
    called = (kernel.library for part in parts for kernel in part.phases if kernel.library)
    return next((f"{library} is called in the place of loops" for library in called), None)


def _resident(parts: Sequence[Part], known: Known) -> int:
    """Return how many blocks of a multiprocessor may wait for one another."""
    return min((resident_blocks(p.work, known.gpu) for p in parts if p.work is not None), default=1)


def _phases_space(parts: Sequence[Part], known: Known) -> list[dict[str, int]]:
    most = max(1, _resident(parts, known))
    return [{"blocks_per_multiprocessor": n} for n in BLOCKS if n <= most]


def _phases_grid(parts: Sequence[Part], config: Mapping[str, int], known: Known) -> Dim3:
    most = config["blocks_per_multiprocessor"] * known.gpu.multiprocessors
    return common_grid([mapped.grid for mapped in known.mapped(parts)], most)


def _phases_seconds(parts: Sequence[Part], config: Mapping[str, int], known: Known) -> float:
    """Return a launch, each kernel by the blocks that there are at once, and the barriers.

    A kernel with such barriers begins in order.
    """
    blocks, gpu = prod(_phases_grid(parts, config, known)), known.gpu
    total = gpu.launch_s + (sum(len(p.phases) for p in parts) - 1) * gpu.grid_barrier_s
    for part in parts:
        if part.work is None:
            return inf
        turns = ceil(part.work.blocks / blocks)
        chain = _times(part.work.chain, turns)
        here = replace(part.work, blocks=min(blocks, part.work.blocks), chain=chain, launches=0)
        alone = estimate(part.work, gpu)
        total += max(estimate(here, gpu).seconds, alone.seconds - alone.term("launch"))
        if len(part.phases) > 1:  # its own phase: what it loads is in the second-level cache
            total += chain_seconds(part.work.finish, gpu)
    return total


def _times(chain: Chain, turns: int) -> Chain:
    return Chain(**{name: turns * getattr(chain, name) for name in Chain.__slots__})


def _phases(
    parts: Sequence[Part], config: Mapping[str, int], known: Known, prefix: str
) -> tuple[Scop, Kernel]:
    grid = _phases_grid(parts, config, known)
    kernels = [kernel for part in parts for kernel in part.phases]
    scop, tree = joined(known.scop, [kernel.tree for kernel in kernels], grid, prefix)
    count = f"{prod(grid)} blocks, all there at once"
    why = f"{count}, which wait for all others between {len(kernels)} phases"
    return scop, _one(kernels, tree, why, ceil(prod(grid) / known.gpu.multiprocessors))


# --- blocks side by side -----------------------------------------------------------------------


def _why_not_side_by_side(parts: Sequence[Part], known: Known) -> str | None:
    if any(len(part.phases) > 1 for part in parts):
        return "the last block has a part of its own"
    if reason := _why_not_loops(parts) or why_not_packed(known.mapped(parts)):
        return reason
    if _have_roles(parts, known):
        if len({part.kernel.code.thread_registers for part in parts}) > 1:
            return "their warps give up other numbers of registers"
        is_waiting = any(is_signalled(one, known.dependences) for one in known.mapped(parts))
        return "blocks of one wait for one another" if is_waiting else None
    shared_bytes = sum(part.work.shared_bytes for part in parts if part.work is not None)
    if shared_bytes > known.gpu.static_shared_bytes_per_block:
        return f"together they want {shared_bytes} bytes of shared memory"
    return None


def _have_roles(parts: Sequence[Part], known: Known) -> bool:
    return any(mapped.has_roles for mapped in known.mapped(parts))


def _packed_seconds(parts: Sequence[Part], config: Mapping[str, int], known: Known) -> float:
    """Return a launch, and what takes longest: one kernel, or the units that all of them use."""
    works = [part.work for part in parts if part.work is not None]
    if len(works) < len(parts):
        return inf
    own = side_by_side_seconds(works, known.gpu, are_apart=_have_roles(parts, known))
    return own + idle_blocks([one.grid for one in known.mapped(parts)]) * known.gpu.block_start_s


def _packed(
    parts: Sequence[Part], config: Mapping[str, int], known: Known, prefix: str
) -> tuple[Scop, Kernel]:
    if _have_roles(parts, known):  # few blocks run at once: the longest had better come first
        parts = sorted(parts, key=lambda p: -block_seconds(p.work, known.gpu) if p.work else 0.0)
    kernels = [kernel for part in parts for kernel in part.phases]
    why = f"the blocks of {len(kernels)} kernels, none of which depends on another"
    return known.scop, _one(kernels, packed(known.mapped(parts)), why, 0)


def _one(kernels: Sequence[Kernel], tree: Node, why: str, resident: int) -> Kernel:
    """Return *kernels* as one, with the loops *tree*."""
    own = [kernel.code for kernel in kernels]
    code = replace(
        own[0],
        prefetch_bytes=min(code.prefetch_bytes for code in own),
        resident_blocks=max(resident, *(code.resident_blocks for code in own)),
        early=all(code.early for code in own),
        is_reversed=max((o for code in own if (o := code.is_reversed) is not None), default=None),
        row_bytes=min(code.row_bytes for code in own),
    )
    return Kernel(
        "+".join(kernel.name for kernel in kernels),
        tree,
        (why, *dict.fromkeys(reason for kernel in kernels for reason in kernel.why)),
        code=code,
        template=" + ".join(dict.fromkeys(kernel.template for kernel in kernels)),
    )


MOVES = (
    Move("grid_phases", "then", _why_not_phases, _phases_space, _phases_seconds, _phases, True),
    Move("packed", "and", _why_not_side_by_side, lambda *_: [{}], _packed_seconds, _packed, False),
)


# --- the search --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launched:
    """The kernels of a plan after the moves, over *scop*; what was weighed, and what came of it."""

    scop: Scop
    kernels: tuple[Kernel, ...]
    weighed: tuple[Weighed, ...] = ()


def launched(
    parts: Sequence[Part], known: Known, asked: Asked, *, is_fixed: bool = False
) -> Launched:
    """Return the kernels of *parts*, in order, with those that share a launch as one.

    :arg is_fixed: only what is asked for.
    """
    search = _Search([Launch((part,)) for part in parts], known, asked)
    search.follow()
    while not is_fixed and search.improve():
        pass
    return search.done()


class _Search:
    """Launches in order, and what has been said of every pair that was weighed."""

    def __init__(self, launches: list[Launch], known: Known, asked: Asked) -> None:
        self.first = self.launches = launches
        self.known = known
        self.places = {launch.name: place for place, launch in enumerate(launches)}
        self.followed: set[str] = set()  # launches that are asked for, which stay as they are
        self.asked = {name: one for name, one in asked.items() if _words(name)}
        self.refused: dict[str, tuple[Move, str]] = {}
        self.weighed: dict[str, tuple[Launch, float]] = {}  # and the seconds of its parts, separate

    def follow(self) -> None:
        """Make the launches that are asked for.

        :raises OptionError: (TC060) one of them does not fit, and why.
        """
        for name, wanted in self.asked.items():
            move = _move_of(name, wanted["template"])
            names = name.split(f" {move.word} ")
            is_separate = (
                wanted["template"] == SEPARATE
            )  # of kernels, whatever launches they are in now
            there = self.first if is_separate else self.launches
            by_name = {launch.name: launch for launch in there}
            if missing := [own for own in names if own not in by_name]:
                raise misfit(
                    name, f"there is no kernel {missing[0]}; there are {', '.join(by_name)}"
                )
            if len(set(names)) < len(names):
                raise misfit(name, "it names a kernel twice")
            if is_separate:
                continue
            own = [by_name[n] for n in names]
            parts = [part for launch in own for part in launch.parts]
            reason = self._why_not_one(move, own) or move.why_not(parts, self.known)
            if reason is not None:
                raise misfit(name, f"template {move.template!r} does not apply: {reason}")
            space = move.space(parts, self.known)
            data = {k: v for k, v in wanted.items() if k not in ("kernel", "template")}
            if unknown := sorted(data.keys() - space[0].keys()):
                raise misfit(name, f"template {move.template!r} has no {unknown[0]!r} to choose")
            fitting = [c for c in space if data.items() <= c.items()]
            if not fitting:
                raise misfit(name, f"{data} is none of {', '.join(map(str, space))}")
            launches = [Launch(tuple(parts), move, tuple(config.items())) for config in fitting]
            self._replace(own, min(launches, key=self.known.seconds))
            self.followed.add(name)

    def improve(self) -> bool:
        """Make the move that saves most, and return whether there is one."""
        best: tuple[float, list[Launch], Launch] | None = None
        free = [launch for launch in self.launches if launch.name not in self.followed]
        for first, one in enumerate(free):
            for other in free[first + 1 :]:
                for move in MOVES:
                    found = self._weigh(move, [one, other])
                    if found is not None and (best is None or found[0] > best[0]):
                        best = found[0], [one, other], found[1]
        if best is None:
            return False
        self._replace(best[1], best[2])
        return True

    def _weigh(self, move: Move, own: list[Launch]) -> tuple[float, Launch] | None:
        """Return what *move* saves of *own*, and their launch; None where it is not to be made."""
        if move.needs_neighbours and not self.known.depends(own[1], own[0]):
            return None
        parts = tuple(part for launch in own for part in launch.parts)
        if not move.needs_neighbours:  # in the plan's order, however they were found
            parts = tuple(sorted(parts, key=lambda part: self.places[part.name]))
        name = f" {move.word} ".join(part.name for part in parts)
        # Pipelines in one launch were not faster where they were timed: they are by choices alone.
        if self._is_kept_separate(move, parts) or _have_roles(parts, self.known):
            return None
        if self._why_not_in_order(move, own) is not None:
            return None
        if (reason := move.why_not(parts, self.known)) is not None:
            self.refused[name] = move, reason
            return None
        launches = [Launch(parts, move, tuple(c.items())) for c in move.space(parts, self.known)]
        best = min(launches, key=self.known.seconds)
        before, after = sum(map(self.known.seconds, own)), self.known.seconds(best)
        self.weighed[name] = best, before
        saved = self.known.saved(own, best) if max(before, after) < inf else 0.0
        return (saved, best) if saved > MARGIN[move.template] * self.known.gpu.launch_s else None

    def _why_not_in_order(self, move: Move, own: Sequence[Launch]) -> str | None:
        """Return why the order of dependences does not allow *own* to be one launch, or None."""
        known = self.known
        if any(launch.move not in (None, move) for launch in own):
            return "one of them is made of kernels in another way"
        for one, other in pairwise(own):
            first, last = self.launches.index(one), self.launches.index(other)
            between = self.launches[first + 1 : last]
            if first > last:
                return f"{other.name} comes first"
            if any(known.depends(c, one) or known.depends(other, c) for c in between):
                return "another kernel runs between them"
            if not move.needs_neighbours and known.depends(other, one):
                return f"{other.name} depends on {one.name}"
        return None

    def _is_kept_separate(self, move: Move, parts: Sequence[Part]) -> bool:
        """Return whether some of *parts* are asked not to be together."""
        names = {part.name for part in parts}
        word = f" {move.word} "
        kept = (n for n, one in self.asked.items() if one["template"] == SEPARATE and word in n)
        return any(names.issuperset(name.split(word)) for name in kept)

    def _why_not_one(self, move: Move, own: list[Launch]) -> str | None:
        """Return why *own*, which are asked for, cannot be one launch, or None."""
        if any(launch.move is not None for launch in own):
            return "one of them shares a launch already"
        places = [self.launches.index(launch) for launch in own]
        for (_, first), (other, last) in pairwise(zip(own, places, strict=True)):
            if first > last:
                return f"{other.name} comes first"
        for number, one in enumerate(own):
            for other in () if move.needs_neighbours else own[number + 1 :]:
                if self.known.depends(other, one):
                    return f"{other.name} depends on {one.name}"
        parts = tuple(part for launch in own for part in launch.parts)
        if self._ordered(own, Launch(parts, move)) is None:
            return "another kernel runs between them"
        return None

    def _replace(self, own: list[Launch], whole: Launch) -> None:
        ordered = self._ordered(own, whole)
        assert ordered is not None, "the move was found to be legal"
        self.launches = ordered

    def _ordered(self, own: list[Launch], whole: Launch) -> list[Launch] | None:
        """Return the launches in order, *whole* in the place of *own*; None if there is no order.

        Of those that could be next the one comes first whose last part does in the plan.
        """
        left = [whole, *(launch for launch in self.launches if launch not in own)]
        left.sort(key=lambda launch: max(self.places[part.name] for part in launch.parts))
        found: list[Launch] = []
        while left:
            ready = (
                x for x in left if not any(self.known.depends(x, y) for y in left if y is not x)
            )
            following = next(ready, None)
            if following is None:
                return None
            left.remove(following)
            found.append(following)
        return found

    def done(self) -> Launched:
        scop, kernels, weighed = self.known.scop, list[Kernel](), list[Weighed]()
        for number, launch in enumerate(self.launches):
            if launch.move is None:
                kernels.append(launch.parts[0].kernel)
                continue
            config = dict(launch.config)
            known = replace(self.known, scop=scop)
            scop, kernel = launch.move.made(launch.parts, config, known, f"grid_barrier{number}")
            kernels.append(kernel)
            choice = {"template": launch.move.template, **config}
            weighed.append(Weighed(launch.name, choice, partial(self._candidates, launch)))
        kept = [name for name, one in self.asked.items() if one["template"] == SEPARATE]
        weighed += [Weighed(name, {"template": SEPARATE}) for name in kept]
        made = {launch.name for launch in self.launches}
        weighed += [
            Weighed(name, {}, partial(self._candidates, launch, before))
            for name, (launch, before) in self.weighed.items()
            if name not in made
        ]
        weighed += [
            Weighed(name, {}, partial(_refused, move, reason))
            for name, (move, reason) in self.refused.items()
        ]
        return Launched(scop, tuple(kernels), tuple(weighed))

    def _candidates(self, launch: Launch, before: float | None = None) -> list[dict[str, Any]]:
        """Return the configurations of *launch*; *before* is given where its parts are separate."""
        assert launch.move is not None
        found = []
        for config in launch.move.space(launch.parts, self.known):
            one = replace(launch, config=tuple(config.items()))
            is_chosen = before is None and one.config == launch.config
            own = {"template": launch.move.template, "config": config, "is_chosen": is_chosen}
            seconds = self.known.seconds(one)
            if seconds < inf:
                own |= {"predicted_us": 1e6 * seconds, "limiter": "launch"}
            if before is not None and before < inf:
                own["separate_us"] = 1e6 * before
            found.append(own)
        return found


def _refused(move: Move, reason: str) -> list[dict[str, Any]]:
    return [{"template": move.template, "why_not": reason}]


def _words(name: str) -> bool:
    return any(f" {move.word} " in name for move in MOVES)


def _move_of(name: str, template: str) -> Move:
    for move in MOVES:
        if template in (move.template, SEPARATE) and f" {move.word} " in name:
            return move
    listed = ", ".join(f"{move.template} (A {move.word} B)" for move in MOVES)
    raise misfit(name, f"there is no such launch; there are {listed}, {SEPARATE}")
