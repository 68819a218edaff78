"""What a call returns, for a type checker: arrays of NumPy for those, else of the inputs' library.

    reveal_type(prog.matmul(A, B))      numpy.ndarray, torch.Tensor, jax.Array, ...

How many outputs a def has is in its text, which a type checker does not read: the type is that of
one output.  A tuple of several unpacks alike, and each of its items is then ``Any`` (of NumPy) or
the array type.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from tcdsl.options import Options
from tcdsl.runtime.arrays import NDArray, Number


class DLPackArray(Protocol):
    """An array of another library."""

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


Array = TypeVar("Array", bound=DLPackArray)


class ArrayCall(Protocol):
    """A call with arrays and numbers; ``tcdsl.Function.__call__`` says what the arguments are."""

    @overload
    def __call__(
        self, *args: "NDArray | Number", out: Any = None, target: str | None = None,
        options: Options | None = None, **named: "NDArray | Number",
    ) -> NDArray: ...  # fmt: skip
    @overload
    def __call__(
        self, *args: "Array | Number", out: Any = None, target: str | None = None,
        options: Options | None = None, **named: "Array | Number",
    ) -> Array: ...  # fmt: skip
    @overload
    def __call__(
        self, *args: Any, out: Any = None, target: str | None = None,
        options: Options | None = None, **named: Any,
    ) -> Any: ...  # fmt: skip


class CompiledCall(Protocol):
    """A call of compiled code, whose arguments have no names and whose target is chosen."""

    @overload
    def __call__(self, *args: "NDArray | Number", out: Any = None) -> NDArray: ...
    @overload
    def __call__(self, *args: "Array | Number", out: Any = None) -> Array: ...
    @overload
    def __call__(self, *args: Any, out: Any = None) -> Any: ...


class StatementsCall(Protocol):
    """``tcdsl.compute``."""

    @overload
    def __call__(
        self, statements: str, /, *, out: Any = None, target: str | None = None,
        options: Options | None = None, **inputs: "NDArray | Number",
    ) -> NDArray: ...  # fmt: skip
    @overload
    def __call__(
        self, statements: str, /, *, out: Any = None, target: str | None = None,
        options: Options | None = None, **inputs: "Array | Number",
    ) -> Array: ...  # fmt: skip
    @overload
    def __call__(
        self, statements: str, /, *, out: Any = None, target: str | None = None,
        options: Options | None = None, **inputs: Any,
    ) -> Any: ...  # fmt: skip


class ArrayMethod(Protocol):
    """``__call__`` of a class, as a descriptor."""

    def __get__(self, instance: object, owner: type) -> ArrayCall: ...


class CompiledMethod(Protocol):
    """``__call__`` of compiled code, as a descriptor."""

    def __get__(self, instance: object, owner: type) -> CompiledCall: ...


if TYPE_CHECKING:

    def array_method(method: Callable[..., Any]) -> ArrayMethod: ...
    def compiled_method(method: Callable[..., Any]) -> CompiledMethod: ...
    def statements_call(function: Callable[..., Any]) -> StatementsCall: ...
else:

    def array_method(method):
        """Return *method* itself; a type checker sees the types of :class:`ArrayCall`."""
        return method

    compiled_method = statements_call = array_method
