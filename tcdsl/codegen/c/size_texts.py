"""Open sizes in C: names for sizes and strides, extents and origins as expressions of them.

    float(M,N) A with both open   --->   const int64_t M = integers[0];
                                         const int64_t N = integers[1];
                                         ... A[(i) * N + j] ...

What is a number stays a literal, so that code for fixed sizes has no names at all.
"""

from collections.abc import Sequence

from tcdsl.codegen.ast.build import as_factor, binary, call, cast, chain, code, index, paren
from tcdsl.codegen.ast.nodes import Code, Declare, Literal, Name, Type, Variable
from tcdsl.codegen.c.expressions import ExpressionPrinter, Scope
from tcdsl.codegen.names import Names
from tcdsl.lang.comprehension import Load
from tcdsl.lang.ranges.open_sizes import open_names
from tcdsl.lang.ranges.size_functions import extent_expr
from tcdsl.poly.isl_utils import Extent, dim_bounds, minus
from tcdsl.poly.scop import Array, Interleaved, Scop, Statement

Integer = tuple[str, int]  # (size, -1), or (array, the dimension whose stride it is)


class SizeTexts:
    """The texts of a scop's sizes; *integers* is what the call has to pass, in order."""

    def __init__(self, scop: Scop, names: Names) -> None:
        self.scop = scop
        self.names = names
        sizes = open_names(scop.sizes)
        for name in sizes:
            names.keep("size", name)  # isl prints it as it is: driver.py hands out safe ones
        strides = [
            (array.name, dim)
            for array in scop.arrays.values()
            for dim, stride in enumerate(array.strides or ())
            if stride is None
        ]
        self.integers: tuple[Integer, ...] = (*((name, -1) for name in sizes), *strides)
        nothing = Scope(index=Name, size=self._size, element=_no_element)
        self._printer = ExpressionPrinter(nothing)

    @property
    def open_sizes(self) -> tuple[str, ...]:
        """The open sizes, in the order in which a call gives them: the first of its integers."""
        return open_names(self.scop.sizes)

    @property
    def is_open(self) -> bool:
        return bool(self.open_sizes)

    def declarations(self) -> list[Declare]:
        """Return the declarations that name the integers of the call."""
        named = (
            Variable(self.name(integer), index("integers", position))
            for position, integer in enumerate(self.integers)
        )
        return [Declare(Type("int64_t"), (variable,), before="const ") for variable in named]

    def extent(self, value: Extent) -> Code:
        """Return *value* as C: a literal, or an expression that stands as a factor."""
        if isinstance(value, int):
            return Literal(str(value))
        return self._printer.subscript(extent_expr(value))

    def is_zero(self, value: Extent) -> bool:
        return isinstance(value, int) and value == 0

    def strides(self, array: Array, index_type: str = "i64") -> list[int | Code | Interleaved]:
        """Return the strides of *array* in elements, outermost first.

        :arg index_type: "i32" where all distances in the array fit 32 bits: so do those that sizes
            tell then.  Of addresses in 64 bits CUDA's compiler does not see that the elements of a
            vector are neighbours, and stores them one by one.
        """
        return [self._stride(array, dim, index_type) for dim in range(array.rank)]

    def _stride(self, array: Array, dim: int, index_type: str) -> int | Code | Interleaved:
        stride: int | Code | Interleaved
        if array.strides is None:
            stride = self._product(array.shape[dim + 1 :])
        else:
            own = array.strides[dim]
            if own is None:
                return Name(self.name((array.name, dim)))
            stride = own if isinstance(own, (int, Interleaved)) else self.extent(own)
        if index_type == "i64" or isinstance(stride, (int, Interleaved)):
            return stride
        return cast(f"int{index_type[1:]}_t", as_factor(stride))

    def elements(self, array: Array) -> int | Code:
        """Return the number of elements of *array*; an open one is at least 0."""
        if all(isinstance(extent, int) for extent in array.shape):
            return self._product(array.shape)
        factors = [
            code(extent) if isinstance(extent, int) else call("tc_max_i64", self.extent(extent), 0)
            for extent in array.shape
        ]
        return chain("*", factors)

    def instances(self, statement: Statement) -> Code:
        """Return the number of instances in the box around *statement*'s domain."""
        factors = []
        for dim in range(len(statement.indices)):
            low, end = dim_bounds(statement.domain, dim, self.scop.context)
            factors.append(self.extent(minus(end, low)))
        return chain("*", factors or [1])

    def _product(self, extents: Sequence[Extent]) -> int | Code:
        number = 1
        factors = []
        for extent in extents:
            if isinstance(extent, int):
                number *= extent
            else:
                factors.append(self.extent(extent))
        if not factors:
            return number
        product = chain("*", factors)
        return paren(product if number == 1 else binary(product, "*", number))

    def name(self, integer: Integer) -> str:
        name, dim = integer
        return self.names.of(*(("size", name) if dim < 0 else ("stride", f"{name}_stride{dim}")))

    def _size(self, name: str) -> Code:
        known = self.scop.sizes[name]
        return code(known if known is not None else self.names.of("size", name))


def _no_element(load: Load, _subscripts: tuple[Code, ...]) -> Code:
    raise AssertionError(f"an extent reads {load.tensor}")
