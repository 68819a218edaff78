"""A case: one program of the library with everything that a test or a benchmark needs of it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from importlib import import_module
from typing import Any, ClassVar, Literal, TypedDict

import numpy as np

from tcdsl.lang.types.dtypes import BY_NAME, DType, arithmetic, from_numpy
from tcdsl.library import texts
from tcdsl.library.draws import Array, Draw, Sizes, ordinary
from tcdsl.options import BAD_ARGUMENT
from tcdsl.records import dataclass
from tcdsl.runtime.documented import Documented

Family = Literal["reduction", "graph", "contraction", "sparse", "network"]
Formula = Callable[..., Any]  # arrays by parameter name -> one array, or a tuple of them

# What two CPU cores do in about a second, and hold without swapping.
_LARGE_BYTES = 512 * 2**20
_LARGE_FLOPS = 5e10

ELEMENT, COMPUTED = "element", "computed"

FLOATS = ("float32", "float64", "bfloat16")
ALL_FLOATS = (*FLOATS, "float16")
NUMBERS = (*ALL_FLOATS, "int32", "int64")

# How the modules of a family's formulas in other frameworks end.
_PEERS: Mapping[Family, str] = {
    "reduction": "peers",
    "graph": "peers",
    "contraction": "contractions",
    "sparse": "contractions",
    "network": "networks",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(metaclass=Documented):
    """A program with its sizes, its inputs and its expected results.

    *formula* is plain NumPy, independent of the compiler, of arrays by parameter name; it serves
    as the reference (in float64) and, unless *numpy_formula* is a faster one, as the peer.
    *multiply_adds* are products of sizes, such as "M N K", whose sum counts them approximately.
    *results* are the types of the outputs, where not all have the element type: ELEMENT, COMPUTED
    (that in which it is computed), or the name of a type.
    """

    _documented: ClassVar = (
        "dtypes", "family", "input_shapes", "make_inputs", "name", "params", "reference", "sizes",
        "small_sizes", "source",
    )  # fmt: skip

    name: str
    family: Family
    file: str  # programs/<file>.tc
    def_name: str
    formula: Formula
    sizes: tuple[Sizes, ...]
    small_sizes: tuple[Sizes, ...]
    dtypes: tuple[str, ...] = FLOATS
    draws: Mapping[str, Draw] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    multiply_adds: tuple[str, ...] = ()
    numpy_formula: Formula | None = None

    @property
    def source(self) -> str:
        """The program as it stands in the file: this def, after the defs that it calls."""
        return texts.program_text(self.file, self.def_name)

    @property
    def params(self) -> tuple[texts.Declaration, ...]:
        """The def's parameters, in order."""
        return texts.defs(self.file)[self.def_name].params

    @property
    def cpu_sizes(self) -> tuple[Sizes, ...]:
        """Those of *sizes* that are not too large for two CPU cores."""
        return tuple(sizes for sizes in self.sizes if not self.is_large(sizes))

    def is_large(self, sizes: Sizes) -> bool:
        """Return whether *sizes* are too much for two CPU cores, by bytes or by arithmetic."""
        input_bytes = 4 * sum(math.prod(shape) for shape in self.input_shapes(sizes).values())
        return input_bytes > _LARGE_BYTES or self.flops(sizes) > _LARGE_FLOPS

    def flops(self, sizes: Sizes) -> float:
        """Return about how many additions and multiplications the contractions at *sizes* have."""
        return 2.0 * sum(
            math.prod(extent(factor, sizes) for factor in product.split())
            for product in self.multiply_adds
        )

    def input_shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Return the shape of each parameter at *sizes*."""
        return {
            param.name: tuple(int(extent(dim, sizes)) for dim in param.dims)
            for param in self.params
        }

    def make_inputs(
        self, sizes: Sizes, rng: np.random.Generator, dtype: str = "float32"
    ) -> dict[str, Array]:
        """Return random inputs of element type *dtype*, by parameter name, in order."""
        shapes = self.input_shapes(sizes)
        return {
            param.name: self.draws.get(param.name, ordinary)(
                rng, shapes[param.name], BY_NAME[param.dtype_for(dtype)], sizes
            )
            for param in self.params
        }

    def reference(self, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        """Return the outputs, computed in float64 (integers in 64 bits) and rounded once."""
        return self._computed(self.formula, inputs, lambda _: np.dtype(np.float64))

    def numpy_peer(self, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
        """Return the outputs as a NumPy user would compute them; half types in float32."""
        return self._computed(
            self.numpy_formula or self.formula,
            inputs,
            lambda array: np.dtype(np.float32) if array.dtype.itemsize == 2 else array.dtype,
        )

    def torch(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the outputs as a PyTorch user would compute them, from tensors by name."""
        return _as_tuple(self.torch_formula(**inputs))

    @property
    def torch_formula(self) -> Formula:
        """What a PyTorch user would write, of tensors by parameter name."""
        return self._formula_of("torch")

    @property
    def jax_formula(self) -> Formula:
        """What a JAX user would write, of arrays by parameter name and numbers."""
        return self._formula_of("jax")

    def _formula_of(self, framework: str) -> Formula:
        # Frameworks are optional, and slow to import: only who asks for one pays.
        module = import_module(f"tcdsl.library.{framework}_{_PEERS[self.family]}")
        formula: Formula = getattr(module, self.name)
        return formula

    def _computed(
        self,
        formula: Formula,
        inputs: Mapping[str, Array],
        computing_dtype: Callable[[Array], np.dtype[Any]],
    ) -> tuple[Array, ...]:
        """Apply *formula* to *inputs*, whose floats are first converted to their computing type."""
        converted = {
            name: array.astype(computing_dtype(array), copy=False) if _is_float(array) else array
            for name, array in inputs.items()
        }
        # Padding by infinities and empty means are meant: 0/0 is NaN, and no cause for a warning.
        with np.errstate(all="ignore"):
            outputs = _as_tuple(formula(**converted))
            element = from_numpy(inputs[self.params[0].name].dtype)
            assert element is not None, "make_inputs gives only the language's types"
            return tuple(
                np.asarray(output).astype(_result_dtype(result, element).numpy, copy=False)
                for output, result in zip(
                    outputs, self.results or (ELEMENT,) * len(outputs), strict=True
                )
            )


class Details(TypedDict, total=False):
    """What not every case has of its own, by the names of :class:`Case`."""

    dtypes: tuple[str, ...]
    results: tuple[str, ...]
    numpy_formula: Formula


def source_for(case: Case, dtype: str) -> str:
    """Return the program of *case* with elements of type *dtype*.

    :raises OptionError: (TC064) *case* is not a case, or there is no such type.
    """
    if not isinstance(case, Case):
        advice = "give library.case(name)"
        raise BAD_ARGUMENT(argument="source_for", what=f"{case!r} is no case", advice=advice)
    if dtype not in BY_NAME:
        what, advice = f"there is no type {dtype!r}", f"the types are {', '.join(BY_NAME)}"
        raise BAD_ARGUMENT(argument="source_for", what=what, advice=advice)
    return texts.with_element(case.source, dtype)


def extent(dim: str, sizes: Sizes) -> float:
    """Return the value of a size symbol or of a number in digits."""
    return sizes[dim] if dim in sizes else float(dim)


def grid(names: str, *rows: tuple[int, ...]) -> tuple[Sizes, ...]:
    """Return one dict of sizes a row: ``grid("M N", (3, 4))`` is ``({"M": 3, "N": 4},)``."""
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


def _result_dtype(result: str, element: DType) -> DType:
    if result == ELEMENT:
        return element
    return arithmetic(element) if result == COMPUTED else BY_NAME[result]


def _is_float(array: Array) -> bool:
    dtype = from_numpy(array.dtype)
    return dtype is not None and dtype.is_float


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
