"""The head of one def: what a call needs to know of it before it is compiled, as plain data.

    def mm(float(M,K) A, float(K,N) B) -> (C) { ... }
        --->    sizes M, K, N; inputs A, B; outputs C; of each tensor the type and what is declared

The typed comprehension (:mod:`tcdsl.lang.comprehension`) is a head with the statements and their
ranges, which are isl's.  Nothing here imports isl, and a head can be written down: a call whose
code is in the disk cache needs no more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod
from typing import Any

from tcdsl.lang.types.dtypes import BY_NAME, DType
from tcdsl.records import dataclass
from tcdsl.source import NOWHERE, Source, Span

Dim = str | int  # a size symbol, a number, or a product of such: "M*P"


def product_of(factors: Sequence[Dim]) -> Dim:
    """Return the extent that is the product of *factors*: a number if they all are."""
    if all(isinstance(factor, int) for factor in factors):
        return prod(int(factor) for factor in factors)
    return "*".join(map(str, factors))


def factors_of(dim: Dim) -> tuple[Dim, ...]:
    """Return the factors of an extent: ("M", 2) for "M*2"."""
    if isinstance(dim, int):
        return (dim,)
    return tuple(int(part) if part.isdigit() else part for part in dim.split("*"))


def symbols_of(dim: Dim | None) -> tuple[str, ...]:
    """Return the size symbols in an extent."""
    factors = () if dim is None else factors_of(dim)
    return tuple(factor for factor in factors if isinstance(factor, str))


def extent_at(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Return the value of an extent at *sizes*."""
    return prod(sizes[f] if isinstance(f, str) else f for f in factors_of(dim))


MAX_OPEN = 2**31 - 1  # what a size may be that code leaves open


@dataclass(frozen=True, slots=True, eq=False)
class TensorHead:
    """What is declared of a tensor of the def.

    *dims* are the declared extents: size symbols, integers, or products of them (:data:`Dim`); None
    where range inference finds them.
    """

    name: str
    dtype: DType
    dims: tuple[str | int | None, ...]
    is_input: bool  # a parameter
    is_output: bool  # returned; neither of both: a temporary
    # An output that is no parameter, whose elements are read, kept or updated before they are
    # written: the caller must give ``out=``.
    needs_out: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False)

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """One def from outside."""

    name: str
    source: Source
    sizes: tuple[str, ...]  # size symbols, in order of first appearance
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, TensorHead]
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    # As lang/types/signature.py has it, kept as text: the inferred shapes are isl's.  It is that of
    # the user's def, also where a rewrite has merged dimensions since.
    signature: str = field(default="", compare=False, repr=False, kw_only=True)
    # ``size C`` parameters, with their places: numbers that a call gives among its arguments.
    size_parameters: Mapping[str, Span] = field(
        default_factory=dict, compare=False, repr=False, kw_only=True
    )
    # The names of *inputs* and *size_parameters* in the order of a call's arguments, if there are
    # any of the latter.
    order: tuple[str, ...] = field(default=(), compare=False, repr=False, kw_only=True)
    # What is legal and probably not meant, each with its place: issued by ``define``.
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False, kw_only=True)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of a call's arguments, in order: arrays and sizes."""
        return self.order or self.inputs

    @property
    def is_deferred(self) -> bool:
        """Whether the ranges are inferred for the sizes of each call, not for all sizes at once."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Return the head as JSON, without its source."""
        return {
            "name": self.name,
            "sizes": list(self.sizes),
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "tensors": [
                [t.name, t.dtype.name, list(t.dims), t.is_input, t.is_output, t.needs_out,
                 t.span.start, t.span.end]
                for t in self.tensors.values()
            ],
            "span": [self.span.start, self.span.end],
            "signature": self.signature,
            "warnings": list(self.warnings),
            "size_parameters": [
                [name, span.start, span.end] for name, span in self.size_parameters.items()
            ],
            "order": list(self.order),
        }  # fmt: skip

    @staticmethod
    def from_json(data: Mapping[str, Any], source: Source) -> "Head":
        """Return the head that :meth:`to_json` gave for a def of *source*.

        :raises KeyError, TypeError, ValueError: *data* is something else.
        """
        tensors = {}
        for name, dtype, dims, is_input, is_output, needs_out, start, end in data["tensors"]:
            tensors[name] = TensorHead(
                name, BY_NAME[dtype], tuple(dims), is_input, is_output, needs_out, Span(start, end)
            )
        sizes = {name: Span(start, end) for name, start, end in data["size_parameters"]}
        start, end = data["span"]
        return Head(
            data["name"], source, tuple(data["sizes"]), tuple(data["inputs"]),
            tuple(data["outputs"]), tensors, span=Span(start, end), signature=data["signature"],
            warnings=tuple(data["warnings"]), size_parameters=sizes, order=tuple(data["order"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Extents:
    """The values of the sizes, and the shapes that they give the tensors."""

    sizes: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
