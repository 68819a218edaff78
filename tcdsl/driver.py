"""The pipeline, from a program's text to C or CUDA, as flat functions of its steps.

    1. parse        text -> syntax tree                          lang/syntax/parser
    2. analyse      typed comprehensions with ranges             lang/types/sema
    3. specialise   ranges and boxes at the sizes of a call      lang/ranges/range_inference
    4. canonicalise products in pairs; indices that go together  rewrites/comprehension
    5. lower        domains, accesses, bodies                    poly/lowering
    6. plan         kernels, loops, partial accumulators, scratch plan
    7. print        C or CUDA text                               codegen/{c,cuda}/printer
    8. verify       order, races, completeness, bounds           schedule/verification

It needs no compiler and no GPU.  Targets differ in the steps from 6 on (:class:`Backend`).

The order: ranges come before sizes, so that errors speak of the program and not of one call;
coalescing before lowering, for isl would undo it; verification after every rewrite, on what is
printed, and after that, for the text may be compiled meanwhile (*printed*): nobody gets what does
not pass.

isl's work is bounded, step by step.  Where a step takes more, or something in tcdsl fails, the next
*fallback level*, a cheaper plan, is tried, down to the loops as written; each step down is a
warning, an internal error also leaves a script that reproduces it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, Generic, TypeVar

from tcdsl.codegen.c.printer import CSource, print_plan
from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.codegen.names import Names
from tcdsl.costmodel import cpu_thresholds, gpu_thresholds
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.flattening import InterleavedRow, why_flat
from tcdsl.costmodel.grouped_columns import Runs, why_in_columns, why_in_moments
from tcdsl.costmodel.machine import Cpu
from tcdsl.errors import INTERNAL, InternalError, TCError, warn
from tcdsl.fallbacks import FALLBACK_LEVELS, OUR_BUG, REACHED, SERIAL, USUAL, FallbackLevel
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.lang.ranges.open_sizes import (
    AnySpecialisation,
    CannotOpenError,
    leave_open,
    open_names,
)
from tcdsl.lang.ranges.reads import size_names_in
from tcdsl.lang.request import Request, Strides
from tcdsl.lang.types.index_values import with_wide_indices
from tcdsl.options import Options, is_reassociated
from tcdsl.plan.cpu_planner import plan_scop
from tcdsl.plan.reached import Reached, followed
from tcdsl.poly.isl_utils import (
    COMPILE_LOCK,
    QuotaExceededError,
    bounded,
)
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Scop, loads_of
from tcdsl.records import dataclass
from tcdsl.rewrites.comprehension.chunk_moments import in_moments
from tcdsl.rewrites.comprehension.coalescing import coalesce
from tcdsl.rewrites.comprehension.contraction_order import in_pairs
from tcdsl.rewrites.comprehension.flattening import flatten
from tcdsl.rewrites.comprehension.grouped_columns import in_columns
from tcdsl.rewrites.comprehension.merging import Coalesced
from tcdsl.rewrites.comprehension.single_values import with_single_values
from tcdsl.rewrites.scop.let_values import with_lets_apart
from tcdsl.runtime.collector import collector_paused
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.repro import Failure, write_repro
from tcdsl.schedule.plan import Plan
from tcdsl.schedule.trace import Step, recorded
from tcdsl.schedule.verification import why_not_verified
from tcdsl.settings import settings
from tcdsl.stages import code_text, describe
from tcdsl.strategies.decided import candidates_text, choices_text
from tcdsl.strategies.library_kernels import require_products, with_libraries
from tcdsl.strategies.problem import Scheme

# isl operations that a plan for open sizes may take, some seconds; usually it is a tenth of it.
OPEN_OPERATIONS = 20_000_000
# Lowering, verification and the loops as written have nothing cheaper to fall back on: they may
# take more, some ten seconds.  The library's largest program needs 3e5 in its longest step.
GENEROUS_OPERATIONS = 100_000_000
STEP_SECONDS, GENEROUS_SECONDS = 20.0, 120.0
Source = TypeVar("Source", CSource, CudaSource)


@dataclass(frozen=True, eq=False)
class Compiled(Generic[Source]):
    """Everything that one run of the pipeline made, in its order.

    *scop* is what was lowered; that of *plan* is rewritten, step after step of *steps*.
    """

    comprehension: Comprehension
    special: AnySpecialisation
    canonical: Coalesced
    scop: Scop
    steps: tuple[Step, ...]
    plan: Plan
    source: Source
    stages: Mapping[str, str] = field(default_factory=dict)  # as text
    is_fallback: bool = False  # a cheaper plan than the options ask for


class Backend(Generic[Source]):
    """The steps that depend on the target.

    What only a GPU's need is imported by them: it takes as long as planning for a CPU does.
    """

    target = "cpu"  # on which a failure shows again, wherever that is tried
    threads = 0
    kernels_cost = False  # whether another kernel costs a launch
    products_per_element = cpu_thresholds.PRODUCTS_PER_ELEMENT
    chip: Chip | None = None  # of a GPU
    libraries: Collection[str] = ()  # that statements may name
    reached: Reached | None = None  # the groups that the last search had found

    def why_flat(self, row: InterleavedRow) -> str | None:
        """Return why interleaved rows should be one index, or None (step 4)."""
        return None

    def why_in_columns(self, runs: Runs) -> str | None:
        """Return why sums of runs of neighbours should be by columns, or None (step 4)."""
        return None

    def why_in_moments(self, pass_bytes: int) -> str | None:
        """Return why mean and squares of these should be made in one pass, or None (step 4)."""
        return None

    def plan(self, scop: Scop, options: Options, level: FallbackLevel | None) -> Plan:
        """Return the kernels of *scop* (step 6)."""
        raise NotImplementedError

    def why_not_legal(self, plan: Plan) -> str | None:
        """Return what is wrong with *plan*, or None (step 8)."""
        return why_not_verified(plan, self.chip)

    def print(self, plan: Plan, level: FallbackLevel | None) -> Source:
        """Return the text of *plan* (step 7)."""
        raise NotImplementedError


class CpuBackend(Backend[CSource]):
    """C with OpenMP."""

    libraries = ("blas",)

    def __init__(self, cpu: Cpu, printed: Callable[[CSource], None] | None = None) -> None:
        self.cpu = cpu
        self.threads = cpu.threads
        self.printed = printed

    def _on(self, level: FallbackLevel | None) -> Cpu:
        is_serial = level is not None and level.scheme is Scheme.SERIAL
        return replace(self.cpu, threads=1) if is_serial else self.cpu

    def plan(self, scop: Scop, options: Options, level: FallbackLevel | None) -> Plan:
        return plan_scop(scop, options, self._on(level), level.scheme if level else None)

    def print(self, plan: Plan, level: FallbackLevel | None) -> CSource:
        source = print_plan(plan, self._on(level).threads)
        if self.printed is not None:
            self.printed(source)
        return source


class GpuBackend(Backend[CudaSource]):
    """CUDA."""

    target = "emulate"
    kernels_cost = True
    libraries = ("cublas", "cudnn")
    products_per_element = gpu_thresholds.PRODUCTS_PER_ELEMENT

    def __init__(
        self,
        gpu: Chip,
        alignments: Mapping[str, int],
        printed: Callable[[CudaSource], None] | None = None,
    ) -> None:
        self.chip = self.gpu = gpu
        self.alignments = alignments
        self.printed = printed

    def why_flat(self, row: InterleavedRow) -> str | None:
        return why_flat(self.gpu, row)

    def why_in_columns(self, runs: Runs) -> str | None:
        return why_in_columns(self.gpu, runs)

    def why_in_moments(self, pass_bytes: int) -> str | None:
        return why_in_moments(self.gpu, pass_bytes)

    def plan(self, scop: Scop, options: Options, level: FallbackLevel | None) -> Plan:
        with late_import():
            from tcdsl.plan.gpu_planner import plan_for_gpu

        if level is not None and level.is_reached:
            return plan_for_gpu(scop, options, self.gpu, reached=self.reached)
        with followed() as self.reached:
            return plan_for_gpu(scop, options, self.gpu, level.scheme if level else None)

    def print(self, plan: Plan, level: FallbackLevel | None) -> CudaSource:
        with late_import():
            from tcdsl.codegen.cuda.printer import print_cuda

        source = print_cuda(plan, self.alignments)
        if self.printed is not None:
            self.printed(source)
        return source


def compile_to_cuda(
    request: Request, gpu: Chip, printed: Callable[[CudaSource], None] | None = None
) -> Compiled[CudaSource]:
    """Return the CUDA of *request*.  The plan for open sizes is that at their greatest values.

    :arg printed: called with what was printed, before it is verified, and again where that fails:
        what it had last is what is returned.
    :raises CannotOpenError: there is no code for all values, or it takes too long to find.
    """
    return compile_with(request, GpuBackend(gpu, request.alignments, printed))


def compile_to_c(
    request: Request, cpu: Cpu, printed: Callable[[CSource], None] | None = None
) -> Compiled[CSource]:
    """Return the C of *request*.

    :arg printed: see :func:`compile_to_cuda`.
    :raises CannotOpenError: there is no code for all values, or it takes too long to find.
    """
    return compile_with(request, CpuBackend(cpu, printed))


def compile_with(request: Request, backend: Backend[Source]) -> Compiled[Source]:
    """Return what *backend* makes of *request*.

    :raises CannotOpenError: there is no code for all values, or it takes too long to find.
    """
    if request.opened:
        return _opened(request, backend)
    # What becomes garbage meanwhile is little; collecting would look at all that the process has.
    with COMPILE_LOCK, collector_paused():
        return _with_fallbacks(request, backend)


def _opened(request: Request, backend: Backend[Source]) -> Compiled[Source]:
    """Return the code for all values of the open sizes, within bounds where they have some."""
    # isl's parameters are printed into C by their names: sizes get such as are safe there.
    names, c = Names(), request.comprehension
    bounds = {name: each for name, each in request.opened.items() if each is not None}
    steps = {n: f"{n}{each.step}" for n, each in bounds.items() if each.step > 1}  # K8 for K / 8
    safe = {n: names.of(*(("steps", steps[n]) if n in steps else ("size", n))) for n in c.sizes}
    with COMPILE_LOCK:
        try:
            with bounded(OPEN_OPERATIONS):
                sizes = {name: n for name, n in request.special.sizes.items() if n is not None}
                general, context = leave_open(c, sizes, request.opened, safe, bounds)
                opened = replace(request, comprehension=general, special=context)
                compiled = _compile(opened, backend, _Steps())
        except (CannotOpenError, QuotaExceededError) as error:
            raise CannotOpenError(str(error)) from error
        except Exception as error:  # our own bugs: fixed sizes have fallback levels
            if is_users(error) or settings().debug:
                raise
            what = Failure("compilation", error).summary
            warn(f"each size of {c.name!r} is compiled by itself ({what}); {OUR_BUG}")
            raise CannotOpenError(str(error)) from error
    given = {new: (old, -bounds[old].step if old in bounds else -1) for old, new in safe.items()}
    integers = tuple(given[n] if dim < 0 else (n, dim) for n, dim in compiled.source.integers)
    return replace(compiled, source=replace(compiled.source, integers=integers))


def _with_fallbacks(request: Request, backend: Backend[Source]) -> Compiled[Source]:
    """Return the code of the first fallback level that gets through.

    :raises InternalError: the last did not; or, under ``TCDSL_DEBUG``, the first that fails.
    """
    name = request.comprehension.name
    is_written = request.options.scheduler == "source_order"
    pending = [USUAL, SERIAL] if is_written else [*FALLBACK_LEVELS]
    reasons: list[str] = []
    while pending:
        level = pending.pop(0)
        steps = _Steps(level)
        try:
            compiled = _compile(request, backend, steps)
            _warn_of(reasons)
            return replace(compiled, is_fallback=level is not USUAL)
        except QuotaExceededError as error:
            failure: Exception = error
        except Exception as error:  # our own bugs, whatever they are
            if is_users(error):
                raise
            failure = error
        is_quota = isinstance(failure, QuotaExceededError)
        if is_quota and level is USUAL and steps.stage == "planning" and _has_reached(backend):
            pending.insert(0, REACHED)
        below = pending[0] if pending else None
        if below is not None and is_quota:
            reason = (
                f"isl took {failure} for the {steps.stage} of {name!r}, which is now compiled "
                f"{below.what}: set TCDSL_ISL_OPERATIONS higher (0: no bound), or split the def"
            )
        else:
            internal = _internal(request, backend, Failure(steps.stage, failure, backend.target))
            if below is None or settings().debug:
                _warn_of(reasons)
                raise internal from failure
            reason = f"{internal.message}; it is now compiled {below.what}. {internal.hint}"
        reasons.append(reason)
    raise AssertionError("the last level returns or raises")


def _has_reached(backend: Backend[Any]) -> bool:
    return backend.reached is not None and bool(backend.reached.groups)


def _warn_of(reasons: list[str]) -> None:
    """Give one warning, however many levels failed."""
    if reasons:
        warn("\n".join(reasons))


def is_users(error: Exception) -> bool:
    """Return whether *error* is about the user's program or call, not about tcdsl."""
    return isinstance(error, TCError) and not isinstance(error, InternalError)


def _internal(request: Request, backend: Backend[Any], failure: Failure) -> TCError:
    """Return the InternalError for *failure*, whose hint names a script that reproduces it."""
    c = request.comprehension
    options = replace(request.options, threads=backend.threads)
    return INTERNAL(
        c.source, c.span,
        where=f"the {failure.stage} of {c.name!r}", what=failure.summary,
        repro=write_repro(replace(request, options=options), failure),
    )  # fmt: skip


class _Steps:
    """Bounds isl's work in each step of one level, and knows which step it is."""

    def __init__(self, level: FallbackLevel | None = None) -> None:
        """Bound the steps of *level*; None: somebody else bounds all of them."""
        self.level = level
        self.stage = "compilation"

    @contextmanager
    def step(self, stage: str, *, is_generous: bool = False) -> Iterator[None]:
        """Call what is done inside *stage*, and bound it.

        :raises QuotaExceededError: it took more than it may.
        """
        self.stage = stage
        if self.level is None:
            yield
            return
        operations, seconds = settings().isl_operations, STEP_SECONDS
        if is_generous or self.level.is_generous:
            seconds = GENEROUS_SECONDS
            operations = max(10 * operations, GENEROUS_OPERATIONS) if operations else 0
        with bounded(operations, seconds):
            yield


def _compile(request: Request, backend: Backend[Source], steps: _Steps) -> Compiled[Source]:
    """Run steps 4 to 8."""
    comprehension, special, options = request.comprehension, request.special, request.options
    scheme = steps.level.scheme if steps.level is not None else None
    if scheme in (Scheme.TEXTUAL, Scheme.SERIAL):
        options = replace(options, coalesce=False)
    with steps.step("canonicalisation"):
        wide = with_wide_indices(comprehension, special)
        paired, sized = wide, special
        if is_reassociated(options):
            paired, sized = in_pairs(wide, special, backend.products_per_element)
            if options.coalesce:
                made, own = in_columns(paired, sized, request.strides, backend.why_in_columns)
                if made is not paired and isinstance(own, Specialisation):
                    made, own = in_moments(made, own, backend.why_in_moments)
                paired, sized = made, own
        canonical = canonicalise(paired, sized, request.strides, options)
        if options.coalesce:
            canonical = flatten(canonical, backend.why_flat)
    with steps.step("lowering", is_generous=True):
        scop = lower_comprehension(
            canonical.comprehension, canonical.special, canonical.strides, options.check_indices
        )
        scop = with_lets_apart(
            scop, canonical.comprehension.statements, only_gathered=backend.kernels_cost
        )
        scop = with_libraries(scop, backend.libraries if options.libraries else ())
    if reason := why_not_open(scop):
        raise CannotOpenError(reason)
    with steps.step("lowering", is_generous=True):
        require_products(scop, comprehension.source, is_plain=options.summation == "plain")
    with steps.step("planning"), recorded() as transforms:
        plan = backend.plan(scop, options, steps.level)
    with steps.step("printing"):
        source = backend.print(plan, steps.level)
    with steps.step("verification", is_generous=True):
        reason = backend.why_not_legal(plan)
    if reason is not None:
        raise INTERNAL(where="verification", what=reason, repro="the program")
    merged = canonical.merged
    integers = tuple((n, merged[n][dim][-1] if dim >= 0 else dim) for n, dim in source.integers)
    source = replace(source, integers=integers)
    with steps.step("description", is_generous=True):
        stages = describe(comprehension, paired, sized, canonical, scop, plan)
    return Compiled(
        paired, sized, canonical, scop, tuple(transforms), plan, source,
        {**stages, "code": code_text(source)},
    )  # fmt: skip


def with_decisions(
    compiled: Compiled[Source], target: str, chip: Chip | None = None
) -> Compiled[Source]:
    """Return *compiled* with the stages "choices" and, if all are to be dumped, "candidates"."""
    texts = {"choices": choices_text(compiled.plan, target)}
    if settings().dump is not None:
        texts["candidates"] = candidates_of(compiled, target, chip)
    return replace(compiled, stages={**compiled.stages, **texts})


def candidates_of(compiled: Compiled[Source], target: str, chip: Chip | None = None) -> str:
    """Return the stage "candidates": what was weighed, with estimates for a GPU, *chip*.

    Estimates of all candidates take as long as planning does, so that nobody makes them who does
    not read them.
    """
    try:
        with COMPILE_LOCK, bounded(GENEROUS_OPERATIONS, STEP_SECONDS):
            return candidates_text(compiled.plan, target, chip)
    except Exception as error:  # our own bugs: no call fails for what is only to be read
        if settings().debug:
            raise
        warn(f"what else was weighed for {compiled.comprehension.name!r} is lost: {error}")
        return ""


def why_not_open(scop: Scop) -> str | None:
    """Return why code for all values of the open sizes would be poor, or None.

    The product of an open size and an index is not affine: what isl knows of ``A(S * i)`` with S
    a number would be lost.
    """
    sizes = open_names(scop.sizes)
    for statement in scop.statements:
        if sizes and statement.library:
            return f"{statement.library} takes the sizes of a call"
        for access in (*statement.writes, *statement.reads):
            for dim in access.inexact:
                subscript = access.subscripts[dim]
                if not loads_of(subscript) and set(sizes) & set(size_names_in(subscript)):
                    return f"{access.array} is subscripted by a product with an open size"
    return None


def canonicalise(
    comprehension: Comprehension, special: AnySpecialisation, strides: Strides, options: Options
) -> Coalesced:
    """Return *comprehension* over merged dimensions, unless the options keep them as written."""
    if options.coalesce:
        return coalesce(with_single_values(comprehension, special), special, strides)
    whole = {
        name: tuple((dim,) for dim in range(tensor.rank))
        for name, tensor in comprehension.tensors.items()
    }
    return Coalesced(comprehension, special, strides, whole, ({},) * len(comprehension.statements))
