"""What a call must do at least: bytes to move, operations to compute.

Bytes count every input and output once, whatever is computed in between.  Operations are those of
the program as written: one for each arithmetic sign and each function on floats, and one for each
term of a reduction.
"""

import math

import islpy as isl

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Comprehension,
    Expr,
    Index,
    Load,
    Specialisation,
    Statement,
    Unary,
    walk,
)

_ARITHMETIC = frozenset("+-*/%")
_FEW = 1 << 20  # instances that isl counts one by one in no time


def least_bytes(c: Comprehension, special: Specialisation) -> int:
    """Return the bytes of all inputs and outputs, one that is updated twice.

    Of an input of which only gathered elements are read, at most as many as are read.
    """
    gathered = gathered_reads(c, special)
    total = 0
    for names, is_read in ((c.inputs, True), (c.outputs, False)):
        for name in names:
            count = math.prod(special.shapes[name])
            if is_read and name in gathered:
                count = min(count, gathered[name])
            total += count * c.tensors[name].dtype.size_bytes
    return total


def gathered_reads(c: Comprehension, special: Specialisation) -> dict[str, int]:
    """Return how often each tensor is read whose every read has a subscript that is loaded."""
    reads: dict[str, int] = {}
    plain: set[str] = set()
    for statement, ranges in zip(c.statements, special.ranges, strict=True):
        expressions = (statement.value, *statement.conditions, *statement.subscripts)
        for load in (node for root in expressions for node in walk(root)):
            if not isinstance(load, Load):
                continue
            below = [node for subscript in load.subscripts for node in walk(subscript)]
            if not any(isinstance(node, Load) for node in below):
                plain.add(load.tensor)
                continue
            indices = {node.name for node in below if isinstance(node, Index)}
            count = math.prod(len(ranges[name]) for name in indices)
            reads[load.tensor] = reads.get(load.tensor, 0) + count
    return {name: count for name, count in reads.items() if name not in plain}


def operations(c: Comprehension, special: Specialisation) -> int:
    """Return how many operations a call has; of a domain that is too large to count, its box's."""
    return sum(
        _operations_each(statement) * _instances(statement, special, number)
        for number, statement in enumerate(c.statements)
    )


def _operations_each(statement: Statement) -> int:
    """Return the operations of one instance of *statement*."""
    count = sum(map(_is_operation, walk(statement.value)))
    return count + (statement.reduction is not None)


def _is_operation(node: Expr) -> bool:
    match node:
        case Binary(op=op, dtype=dtype):
            return op in _ARITHMETIC and dtype.is_float
        case Unary(op="-", dtype=dtype) | Call(dtype=dtype):
            return dtype.is_float
        case _:
            return False


def _instances(statement: Statement, special: Specialisation, number: int) -> int:
    box = math.prod(len(found) for found in special.ranges[number].values())
    domain = statement.domain
    if domain is None or domain.is_box() or box > _FEW:
        return box
    for position, name in enumerate(domain.get_var_names(isl.dim_type.param)):
        domain = domain.fix_val(isl.dim_type.param, position, isl.Val(special.sizes[str(name)]))
    return int(domain.count_val().to_python())
