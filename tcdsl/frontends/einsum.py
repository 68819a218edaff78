"""Einsum: Einstein notation on arrays.

    subscripts, shapes, types  --->  a def of the language  --->  compiled as any other

Three or more operands become pairwise statements with temporaries, in the order that opt_einsum
finds for the shapes of the call.  Operands of different types are converted to the promoted type
of all; on bool the sum is ``or`` and the product ``and``, as in NumPy.  Half types are summed, and
kept in temporaries, as float32.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, overload

from tcdsl.api import Function, define, require_choices
from tcdsl.errors import BAD_ARGUMENTS, NOT_AN_ARRAY, UNSUPPORTED_DTYPE, ShapeError
from tcdsl.executable import Executable, Run
from tcdsl.frontends.einsum_text import program_text
from tcdsl.frontends.subscripts import SOURCE_NAME, Subscripts, bind, from_sublists, parse
from tcdsl.lang.types.dtypes import ALL, BOOL, BY_NAME, FLOAT32, FLOAT64, INT64, DType, promote
from tcdsl.options import Options
from tcdsl.runtime.arrays import ArraySpec, NDArray, describe
from tcdsl.runtime.typed_calls import Array, array_method
from tcdsl.runtime.warm_path import chosen_target, remember, signature


# A type checker sees these; a list of operands and subscripts by turns is NumPy's other form.
@overload
def einsum(subscripts: str, /, *, dtype: Any = None, optimize: Any = True) -> "Einsum": ...
@overload
def einsum(
    subscripts: str, first: NDArray | list[Any], /, *operands: NDArray | list[Any],
    out: Any = None, dtype: Any = None, optimize: Any = True, target: str | None = None,
    options: Options | None = None,
) -> NDArray: ...  # fmt: skip
@overload
def einsum(
    subscripts: str, first: Array, /, *operands: Array, out: Any = None, dtype: Any = None,
    optimize: Any = True, target: str | None = None, options: Options | None = None,
) -> Array: ...  # fmt: skip
@overload
def einsum(
    subscripts: Any, /, *operands: Any, out: Any = None, dtype: Any = None, optimize: Any = True,
    target: str | None = None, options: Options | None = None,
) -> Any: ...  # fmt: skip


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: Any = None,
    dtype: Any = None,
    optimize: Any = True,
    target: str | None = None,
    options: Options | None = None,
) -> Any:
    """Evaluate an Einstein summation, as ``numpy.einsum`` does.

    Without operands it returns the function.  It also accepts NumPy's other form,
    ``einsum(A, [0, 1], B, [1, 2], [0, 2])``.

    :arg dtype: the type to compute in and to return (a name, or NumPy's); default: promoted.
    :arg optimize: as in opt_einsum: True, a strategy or a path; False for a single statement.
    :raises TCError: with its position in the subscript string.
    """
    if not isinstance(subscripts, str):
        if not operands:
            raise _not_subscripts()
        subscripts, arrays = from_sublists((subscripts, *operands))
        operands = tuple(arrays)
    key = (subscripts, dtype, optimize if isinstance(optimize, bool | str) else repr(optimize))
    function = _functions.get(key)
    if function is None:
        made = Einsum(parse(subscripts), dtype, optimize)
        function = remember(_functions, key, made)
    if not operands:
        return function
    return function(*operands, out=out, target=target, options=options)


_functions: dict[Any, "Einsum"] = {}


def _not_subscripts() -> Exception:
    return NOT_AN_ARRAY(
        what="the first argument", found="no string of subscripts, and no operand",
        advice="call einsum('ij,jk->ik', A, B), or einsum(A, [0, 1], B, [1, 2], [0, 2])",
    )  # fmt: skip


class Einsum:
    """An einsum as a function; it is compiled for the types and shapes that it is called with."""

    def __init__(self, subscripts: Subscripts, dtype: Any = None, optimize: Any = True) -> None:
        self.subscripts = subscripts
        self.optimize = optimize
        self.dtype = None if dtype is None else _dtype_named(dtype)
        self.__name__ = "einsum"
        self.__doc__ = f"The einsum {subscripts}."
        self._runs: dict[Any, Run] = {}
        self._functions: dict[str, Function] = {}

    def __repr__(self) -> str:
        return f"<tcdsl.einsum {str(self.subscripts)!r}>"

    def __reduce__(self) -> Any:
        return Einsum, (self.subscripts, self.dtype, self.optimize)

    @array_method
    def __call__(
        self,
        *operands: Any,
        out: Any = None,
        target: str | None = None,
        options: Options | None = None,
    ) -> Any:
        """Return the value for *operands*; the arguments are those of ``tcdsl.Function``."""
        if target is not None or options is not None:
            require_choices(target, options)
        try:
            key = (signature(operands), chosen_target(target), options)
        except ShapeError:  # lists, which NumPy takes too; if it is something else, it stays so
            operands = self._arrays(operands)
            key = (signature(operands), chosen_target(target), options)
        run = self._runs.get(key)
        if run is None:
            run = self.compile(*operands, target=target, options=options).runner(operands)
            run = remember(self._runs, key, run)
        return run(operands, out)

    def compile(
        self, *operands: Any, target: str | None = None, options: Options | None = None
    ) -> Executable:
        """Return the code for operands like these: arrays, or ``tcdsl.spec(shape, dtype)``."""
        operands = self._arrays(operands)
        return self.function(*operands).compile(*operands, target=target, options=options)

    def output_shapes(self, *operands: Any) -> dict[str, tuple[int, ...]]:
        """Return the shape of the output for operands like these."""
        operands = self._arrays(operands)
        return self.function(*operands).output_shapes(*operands)

    def ranges(self, *operands: Any) -> list[dict[str, range]]:
        """Return the range of each index, one dict a statement."""
        operands = self._arrays(operands)
        return self.function(*operands).ranges(*operands)

    def reference(self, *operands: Any, out: Any = None) -> Any:
        """Return what the reference computes with NumPy."""
        return self(*operands, out=out, target="reference")

    def function(self, *operands: Any) -> Function:
        """Return the def for operands like these, whose ranks and types are fixed."""
        text = self.source_for(*operands)
        function = self._functions.get(text)
        if function is None:
            made = define(text, SOURCE_NAME)["einsum"]
            function = remember(self._functions, text, made)
        return function

    def source_for(self, *operands: Any) -> str:
        """Return the text of the def for operands like these."""
        operands = self._arrays(operands)
        specs = [describe(x, f"operand {position}") for position, x in enumerate(operands)]
        bound = bind(self.subscripts, [spec.shape for spec in specs])
        dtypes, result = operand_types(operands, specs)
        result = self.dtype or result
        return program_text(str(self.subscripts), bound, dtypes, result, self.optimize)

    @property
    def source(self) -> str:
        """The text of the def for float32 operands, any ``...`` standing for no dimensions.

        Operands are as large as one another; :meth:`source_for` takes them into account.
        """
        # Two, so that no dimension is broadcast and none is trivial.
        shapes = [(2,) * term.n_labels for term in self.subscripts.operands]
        bound = bind(self.subscripts, shapes)
        dtypes = [FLOAT32] * len(shapes)
        result = self.dtype or FLOAT32
        return program_text(str(self.subscripts), bound, dtypes, result, self.optimize)

    def _arrays(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Return *operands*, lists as arrays; their number must fit."""
        expected = len(self.subscripts.operands)
        if len(operands) != expected:
            raise BAD_ARGUMENTS(
                self.subscripts.source, self.subscripts.operands[-1].span,
                name="einsum", expected=expected, got=len(operands),
                s="" if expected == 1 else "s", signature=str(self.subscripts),
            )  # fmt: skip
        return tuple(_array(x, f"operand {k}") for k, x in enumerate(operands))


def _array(x: Any, what: str) -> Any:
    if not isinstance(x, list | tuple):
        describe(x, what)  # an error about what is no array then says which one it is
        return x
    import numpy as np

    try:
        return np.asarray(x)
    except ValueError as error:
        raise NOT_AN_ARRAY(what=what, found="a ragged list", advice=str(error)) from None


def _dtype_named(dtype: Any) -> DType:
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    known = BY_NAME.get(str(name).removeprefix("torch."))
    if known is None:
        advice = f"use one of {', '.join(map(str, ALL))}"
        raise UNSUPPORTED_DTYPE(what="the result", dtype=name, advice=advice)
    return known


# --- types ---------------------------------------------------------------------------------


def operand_types(operands: Sequence[Any], specs: Sequence[ArraySpec]) -> tuple[list[DType], DType]:
    """Return the type of each operand as declared, and the promoted one of all.

    A Python number takes the type of the others where it can: it is no wider than its kind asks.
    """
    # numpy.float64 is a float, too, but has a type of its own.
    is_weak = [isinstance(x, bool | int | float) and not hasattr(x, "dtype") for x in operands]
    strong = [spec.dtype for spec, weak in zip(specs, is_weak, strict=True) if not weak]
    result = reduce(promote, strong) if strong else BOOL
    for x, weak in zip(operands, is_weak, strict=True):
        if weak and isinstance(x, float) and not result.is_float:
            result = FLOAT64
        elif weak and not isinstance(x, bool) and result == BOOL:
            result = INT64
    dtypes = [result if weak else spec.dtype for spec, weak in zip(specs, is_weak, strict=True)]
    return dtypes, result
