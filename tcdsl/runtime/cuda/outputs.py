"""The outputs of a call on a device: the caller's arrays, checked, or new ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from tcdsl.errors import BAD_OUT, WRONG_DEVICE, WRONG_DTYPE
from tcdsl.lang.types.dtypes import DType
from tcdsl.records import dataclass
from tcdsl.runtime.arguments import why_not_output
from tcdsl.runtime.arrays import WIDEST_ACCESS, ArraySpec, describe
from tcdsl.runtime.cuda.device import Context
from tcdsl.runtime.cuda.libraries import Library, library
from tcdsl.runtime.cuda.operands import Operand, reach_bytes
from tcdsl.runtime.results import Results
from tcdsl.runtime.warm_path import output_signature, remember, signature


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a program at certain sizes."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    alignment: int  # bytes of which its address must be a multiple
    is_read_first: bool  # elements that are not written keep what they hold

    @property
    def spec(self) -> ArraySpec:
        return ArraySpec(self.dtype, self.shape, ())


@dataclass(slots=True)
class Target:
    """Where an output of one call goes: *x* is what the caller gets, at *address*."""

    output: Output
    x: Any
    address: int
    is_given: bool
    spec: ArraySpec  # of *x*


class Outputs:
    """The outputs of calls whose arrays are of one library and on one device."""

    def __init__(
        self,
        results: Results,
        alignments: Mapping[str, int],
        chosen: Library,
        context: Context,
    ) -> None:
        self.results = results
        self.outputs = [
            Output(name, shape, dtype, alignments.get(name, 1), name in results.needed)
            for name, shape, dtype in results.outputs
        ]
        self.are_empty = all(0 in output.shape for output in self.outputs)
        self._context = context
        self._library = chosen
        self.maker_of = [chosen.maker_of(o.dtype, context) for o in self.outputs]
        self.makers = [make(o.shape) for make, o in zip(self.maker_of, self.outputs, strict=True)]
        # Of each output: the signatures of arrays that the kernels may write.
        self.fitting: list[dict[Any, bool]] = [{} for _ in self.outputs]
        self._dense = [ArraySpec(o.dtype, o.shape, ()) for o in self.outputs]
        self._known: dict[Any, ArraySpec] = {}

    def fresh(self, args: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """Return a new array for each output, and their addresses."""
        like = _first_array(args)
        objects = [make(like) for make in self.makers]
        pointer = self._library.pointer
        return objects, [pointer(x) for x in objects]

    def targets(self, args: Sequence[Any], given: Mapping[str, Any]) -> list[Target]:
        """Return the caller's array for each output, checked, or a new one.

        :raises ShapeError: one cannot be written, or two of them share memory.
        :raises TargetError: one is somewhere else.
        """
        like = _first_array(args)
        targets = []
        for position, output in enumerate(self.outputs):
            make, dense = self.makers[position], self._dense[position]
            if output.name not in given:
                x = make(like)
                targets.append(Target(output, x, self._library.pointer(x), False, dense))
                continue
            x = given[output.name]
            spec = self._checked(output, x)
            address = library(spec.library).pointer(x)
            targets.append(Target(output, x, address, True, spec))
            self._learn(position, targets[-1])
        if len(given) > 1:
            _require_apart([target for target in targets if target.is_given])
        return targets

    def _learn(self, position: int, target: Target) -> None:
        """Remember that arrays like *target*'s need no closer look, if that is so."""
        key = output_signature(target.x)
        is_plain = target.spec.is_contiguous and library(target.spec.library) is self._library
        alignment = target.output.alignment
        # An address is known modulo WIDEST_ACCESS by the signature.
        if key is None or not is_plain or alignment > WIDEST_ACCESS or target.address % alignment:
            return
        remember(self.fitting[position], key, True)

    def _checked(self, output: Output, x: Any) -> ArraySpec:
        """Return what *x* is, once for each signature of it."""
        key = output.name, signature((x,)), getattr(x, "requires_grad", False)
        known = self._known.get(key)
        if known is not None:
            return known
        what = f"out {output.name!r}"
        spec = describe(x, what)
        if spec.dtype != output.dtype:
            raise WRONG_DTYPE(what=what, declared=output.dtype, found=spec.dtype)
        reason = why_not_output(x, spec, output.shape)
        if reason is not None:
            why, advice = reason
            raise BAD_OUT(what=what, why=why, advice=advice)
        if spec.device not in (self._context.name, "cuda"):
            raise WRONG_DEVICE(what=what, device=spec.device, target=self._context.name)
        return remember(self._known, key, spec)

    def may_write(
        self, target: Target, operands: Sequence[Operand], pointers: Sequence[int]
    ) -> bool:
        """Return whether the kernels may write the caller's array while they read the inputs."""
        if target.address % target.output.alignment or not target.spec.is_contiguous:
            return False
        start, end = target.address, target.address + target.spec.size_bytes
        for operand, pointer in zip(operands, pointers, strict=True):
            if not operand.is_direct:
                continue  # it is read before, by a copy
            low, high = operand.reach_bytes
            is_itself = pointer == start and operand.spec.is_contiguous
            if is_itself and operand.is_updated and operand.name == target.output.name:
                continue
            if start < pointer + high and pointer + low < end:
                return False
        return True


def _first_array(args: Sequence[Any]) -> Any:
    return next((x for x in args if not isinstance(x, (bool, int, float))), None)


def _require_apart(targets: Sequence[Target]) -> None:
    """Raise BAD_OUT if two of the caller's outputs share memory (their outermost bounds)."""
    spans: list[tuple[int, int, str]] = []
    for target in targets:
        low, high = reach_bytes(target.spec)
        start, end = target.address + low, target.address + high
        for other_start, other_end, other in spans:
            if start < other_end and other_start < end:
                raise BAD_OUT(
                    what=f"out {target.output.name!r}", why=f"it shares memory with out {other!r}",
                    advice="give each output memory of its own",
                )  # fmt: skip
        spans.append((start, end, target.output.name))
