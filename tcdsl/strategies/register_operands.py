"""Computed operands in registers: what a product multiplies is computed by the threads that do.

    C(m,n) +=! f(W(m,k), s(m), ...) * B(k,n)
    ---> for k / 128:
           producer:  W.tile = W[..], B.tile = B[..]      boxes, of W as it lies in memory
           warps:     F[m,k] = f(W.tile[m,k], s[m], ...)  in registers, fragments
                      part += F * B.tile                  wgmma, its first operand from registers

Nothing is computed to memory first (``computed_factors`` does that): the operand comes in the bytes
that it has in memory, half of bfloat16's for int8 weights.

**Who holds what.**  Four warps multiply 64 rows by 16 terms at once.  Of the 64 x 16 elements each
thread has four words of two halves (PTX ISA, "wgmma", register fragments of matrix A)::

    row r      warp r / 16 % 4      thread 4 (r % 8) + k % 8 / 2      word 2 (k / 8 % 2) + r / 8 % 2
    term k                                                            half k % 2

So a tile of 64 rows and K terms is K / 2 halves in each thread, in the order of r / 8 % 2, k / 8
and k % 2.  F is an ordinary statement whose loops have these coordinates; its array is placed in
registers, and what the instruction takes from them is compared with these coordinates where the
call is printed (``codegen/cuda/products``).

**When.**  Registers are of no other thread, so that F(r,k) must be computed by the thread that has
it.  It may be: all threads of a block read the tile of W in shared memory, and whatever else f
reads is in memory (scales s(m), s(m, k/32), r(k)) or made of indices (masks).  So f may be any
function of elements, if the largest of its arrays comes in boxes.  An element is computed once for
each tile of the other side's columns.  The rows of the product are those of the computed operand:
rows and columns change places where it is the columns' (``tensor_operands.axes_of``).

**Values.**  F has the type that tensor cores multiply, a half type that has every value of f
exactly (``computed_factors._holds``): the converted value is f's, as the reference computes it, in
the same operations, by the same printer.  A scale that is multiplied in float32 is a factor of the
sum, or rounded by a cast that the program has.  Beyond the array F is 0: that of W alone is 0 where
W is, which boxes are beyond it; else a condition says so.

**Order.**  The instruction reads registers until it is done, so that threads wait for it in the
step, before they compute the next part; other groups of four warps multiply meanwhile.  A stage has
been read then by all threads of the warp, and is released in the same step.
"""

from collections.abc import Sequence
from dataclasses import replace

from tcdsl.costmodel.chip import Feature
from tcdsl.costmodel.locality import array_strides, shape_of
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Select,
    Unary,
    walk,
)
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import DType
from tcdsl.poly.loop_tree import Coordinate
from tcdsl.poly.scop import Scop, Statement
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.caching import Buffer, Cached, cache_read
from tcdsl.rewrites.scop.computed_factors import (
    computed_factors,
    main_load,
    why_not_computed,
    with_factors,
)
from tcdsl.rewrites.scop.recomputation import moved
from tcdsl.strategies.fragments import At, operand_held, why_no_box
from tcdsl.strategies.joint_products import Factor, products_of
from tcdsl.strategies.problem import Problem, own_analysis
from tcdsl.strategies.schedule import Tensor
from tcdsl.strategies.tensor_tree import TensorKernel
from tcdsl.strategies.tile_copies import (
    around_of,
    in_order,
    with_producers_copy,
    with_turns,
)
from tcdsl.strategies.tile_folds import without_folds

_ZERO_OF_ZEROS = ("fmax", "fmin", "fabs", "relu", "max", "min", "abs")
OPERAND = "operand"  # of arrays that there are in registers alone


def is_in_registers(array: str) -> bool:
    """Return whether the operand *array* is computed in registers."""
    return f".{OPERAND}0" in array


@own_analysis
def with_operand(problem: Problem) -> Problem:
    """Return *problem* with the one computed factor of each product as an array; else as it is.

    The array's only writer is a statement of the scop that is in no kernel: the kernel of *problem*
    computes it (:func:`with_register_operand`).
    """
    names = products_of(without_folds(problem))
    if any(_why_not_operand(problem, name) is not None for name in names):
        return problem
    scop, shapes = problem.scop, dict(problem.shapes)
    for name in names:
        scop, before = with_factors(scop, name, OPERAND), shapes[name]
        shape = shape_of(scop, scop.by_name[name], before.roles)
        shapes[name] = replace(
            shape, lower=before.lower, extents=before.extents, ends=before.ends
        )  # fmt: skip
    return replace(problem, scop=scop, shapes=shapes)


def _why_not_operand(problem: Problem, name: str) -> str | None:
    """Return why no factor of the product *name* is computed in registers, or None."""
    gpu, statement = problem.gpu, problem.shapes[name].statement
    if not (gpu.has(Feature.WARPGROUP_PRODUCTS) and gpu.has(Feature.BULK_COPY)):
        return f"{gpu.arch} multiplies nothing from registers"
    if problem.chunks is not None or (reason := why_not_computed(problem.scop, statement)):
        return reason if problem.chunks is None else "it is in chunks of rows"
    found = computed_factors(problem.scop, statement)
    if len(found) != 1:
        return "both of its factors are computed"
    (factor,) = found
    if not factor.dtype.is_half:
        return "its factor has more values than a half type"
    load = main_load(problem.scop, factor.operand.expr)
    reads = [
        r for r in statement.reads if (r.array, r.subscripts) == (load.tensor, load.subscripts)
    ]
    array = problem.scop.arrays[load.tensor]
    if not all(read.is_exact for read in reads) or array.shift is not None:
        return f"{load.tensor} is gathered"
    if reason := why_no_box(array):
        return reason
    if array_strides(array)[-1] != 1:
        return f"neighbours in {load.tensor} are not next to one another"
    dims = factor.operand.dims
    names = {index for index in dims if Index(index) in load.subscripts}
    return None if names == set(dims) else f"{load.tensor} has not all of the factor's indices"


@own_analysis
def raw_load(problem: Problem) -> Load | None:
    """Return what comes in boxes of the operand in registers, if there is one."""
    writer = _writer(problem.scop, problem.shapes[problem.lead].statement)
    return None if writer is None or writer.value is None else main_load(problem.scop, writer.value)


def raw_bytes(problem: Problem) -> int:
    """Return the bytes of an element of that, 0 if there is none."""
    load = raw_load(problem)
    return 0 if load is None else problem.scop.arrays[load.tensor].dtype.size_bytes


def is_along(problem: Problem) -> bool:
    """Return whether neighbours of that are along the terms, as those of the operand are."""
    load, statement = raw_load(problem), problem.shapes[problem.lead].statement
    reads = (r for r in statement.reads if is_in_registers(r.array))
    last = {s for read in reads for s in read.subscripts[-1:]}
    return load is not None and any(Index(i) in last for i in statement.reduced)


def reads_of(problem: Problem) -> tuple[str, ...]:
    """Return the arrays that the lead's operand in registers is computed of."""
    writer = _writer(problem.scop, problem.shapes[problem.lead].statement)
    return () if writer is None else tuple(read.array for read in writer.reads)


def count_operations(problem: Problem) -> int:
    """Return how many operations an element of the operand in registers takes."""
    writer = _writer(problem.scop, problem.shapes[problem.lead].statement)
    if writer is None or writer.value is None:
        return 0
    return sum(isinstance(node, Binary | Call | Cast | Select) for node in walk(writer.value))


def _writer(scop: Scop, statement: Statement) -> Statement | None:
    """Return what computes the operand in registers of the product *statement*."""
    arrays = {read.array for read in statement.reads if is_in_registers(read.array)}
    return next((s for s in scop.statements if s.write.array in arrays), None)


# --- the kernel ----------------------------------------------------------------------------------


def with_register_operand(kernel: TensorKernel, product: Tensor, factor: Factor) -> TensorKernel:
    """Return *kernel* with the *factor* of its product in registers, and what it is computed of."""
    ((lead, number),), array, scop = factor.uses, factor.array, kernel.scop
    writer = next(s for s in scop.statements if s.write.array == array)
    statement = scop.by_name[lead]
    read = statement.reads[number]
    around = {lead: tuple(coordinate for coordinate, _ in around_of(kernel, lead))}
    name = f"{array}.tile{number}{lead}"
    (term_dim,) = (own.term for own in product.terms if own.product == lead)
    dims = product.row[lead], term_dim
    order = _order(read.subscripts, [statement.indices[dim] for dim in dims])
    cached = cache_read(scop, array, around, Buffer(name, order, is_padded=True), {read.subscripts})
    scop, load = _computed(cached.scop, cached.copy, writer)
    own = replace(scop.by_name[lead], register_operand=cached.array)
    scop = scop.with_statements(tuple(own if s.name == lead else s for s in scop.statements))
    kernel = with_turns(replace(kernel, scop=scop), cached, lead)
    row, term = (At(cached.elements[dim]) for dim in order[-2:])
    kernel = replace(
        kernel, levels={**kernel.levels, cached.copy: operand_held(product.tiles, row, term)}
    )
    kernel = _with_raw_tile(kernel, (lead, *product.products), cached, load)
    inside = in_order((*kernel.inside, cached.copy), product.products, is_shifted=False)
    return replace(kernel, inside=inside)


def _order(subscripts: Sequence[Expr], last: Sequence[str]) -> tuple[int, ...]:
    """Return the dimensions of an operand as its tile has them: of the indices *last* last."""
    dims = [
        next(d for d, one in enumerate(subscripts) if Index(index) in walk(one)) for index in last
    ]
    return (*(dim for dim in range(len(subscripts)) if dim not in dims), *dims)


def _computed(scop: Scop, copy: str, writer: Statement) -> tuple[Scop, Load]:
    """Return *scop* whose statement *copy* computes what *writer* stored, and its main load."""
    array, value = writer.write.array, writer.value
    assert value is not None
    main, found = main_load(scop, value), list[tuple[Expr, Expr]]()

    def change(node: Expr) -> Expr:
        match node:
            case Load(tensor=tensor, subscripts=subscripts) if tensor == array:
                at = dict(zip(writer.indices, subscripts, strict=True))
                found.append((moved(value, at), moved(main, at)))
                own = found[0][0]
                return own if own.dtype == node.dtype else Cast(own, node.dtype)
            case Cast(operand=Cast(operand=own), dtype=dtype) if own.dtype == dtype and any(
                own == one for one, _ in found
            ):
                return own  # the type between has its values
        return node

    old = scop.by_name[copy]
    assert old.value is not None
    arrays = {name: one for name, one in scop.arrays.items() if name != array}
    new = rewrite(old.value, change)
    load = found[0][1]
    assert isinstance(load, Load)
    is_padded = isinstance(old.value, Select)  # and no mask of the operand's own
    if is_padded and isinstance(new, Select) and _is_zero_with(new.if_true, load):
        new = new.if_true if _ends_with(scop, writer, main) else new  # where boxes have zeros
    done = replace(old, value=_unrounded(new, scop.arrays[old.write.array].dtype))
    statements = [done if s is old else s for s in scop.statements if s is not writer]
    scop = replace(scop, arrays=arrays, statements=tuple(statements))
    done = with_own_reads(scop, done)
    statements = [done if s.name == copy else s for s in scop.statements]
    return scop.with_statements(tuple(statements)), load


def _ends_with(scop: Scop, writer: Statement, main: Expr) -> bool:
    """Return whether the operand of *writer* ends where the array of its *main* load does.

    What is beyond it is 0 then: elsewhere it may be infinite, which times 0 is not.
    """
    assert isinstance(main, Load)
    ends = dict(zip(writer.indices, scop.arrays[writer.write.array].shape, strict=True)).items()
    extents = zip(main.subscripts, scop.arrays[main.tensor].shape, strict=True)
    return all(isinstance(index, Index) and (index.name, end) in ends for index, end in extents)


def _unrounded(value: Expr, dtype: DType) -> Expr:
    """Return *value* before it is rounded to *dtype*, in which it is stored in any case."""
    match value:
        case Cast(operand=Cast(operand=own, dtype=inner), dtype=wide):
            return own if inner == dtype and own.dtype == wide else value
        case Select(if_true=one, if_false=other):
            one, other = _unrounded(one, dtype), _unrounded(other, dtype)
            return replace(value, if_true=one, if_false=other)
    return value


def _is_zero_with(value: Expr, load: Load) -> bool:
    """Return whether *value* reads *load* alone, and is 0 where that is."""
    match value:
        case Load():
            return value == load
        case Const(value=number):
            return number == 0
        case Cast(operand=inner) | Unary(op="-", operand=inner):
            return _is_zero_with(inner, load)
        case Select(if_true=one, if_false=other):
            nodes = walk(value.condition)
            return (
                not any(isinstance(node, Load) for node in nodes)
                and _is_zero_with(one, load)
                and _is_zero_with(other, load)
            )
        case Binary(op="+" | "-", left=left, right=right):
            return _is_zero_with(left, load) and _is_zero_with(right, load)
        case Call(function=function, args=args) if function in _ZERO_OF_ZEROS:
            return all(_is_zero_with(argument, load) for argument in args)
    return False


def _with_raw_tile(
    kernel: TensorKernel, products: Sequence[str], operand: Cached, load: Load
) -> TensorKernel:
    """Return *kernel* with a producer's copies of the tiles that *operand* is computed of.

    :arg products: that which reads it, then all of them.
    """
    around = {operand.copy: tuple(map(Coordinate, operand.outer))}
    tile = Buffer(f"{operand.array}.raw", is_padded=True)
    cached = cache_read(kernel.scop, load.tensor, around, tile, {load.subscripts})
    return with_producers_copy(kernel, cached, products)
