"""A def for many inputs at once: a leading index in every tensor that depends on them.

    C(m, n) +=! A(m, k) * B(k, n)     batched over A:
        --->  C(batch, m, n) +=! A(batch, m, k) * B(k, n) where batch in 0:BATCH

A tensor is batched if it is a batched input, or a statement that writes it reads a batched tensor.
The new index is alone in its dimension, so that the ranges of the others stay what they were.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from tcdsl.derivatives.names import Names, names_of
from tcdsl.lang.comprehension import Comprehension, Expr, Index, Load, Statement, walk
from tcdsl.lang.rewrite import rewrite_statement, stored_as
from tcdsl.lang.syntax import ast
from tcdsl.lang.syntax.printer import print_program, size_param, typed_param, untyped_statement
from tcdsl.lang.types.dtypes import INT32
from tcdsl.records import dataclass


def batched_tensors(c: Comprehension, inputs: Collection[str]) -> frozenset[str]:
    """Return the tensors of *c* that have a value for each batch if *inputs* have."""
    found = set(inputs)
    while True:
        more = {s.target for s in c.statements if s.target not in found and found & _read(s)}
        if not more:
            return frozenset(found)
        found |= more


def _read(statement: Statement) -> set[str]:
    exprs: list[Expr] = [statement.value, *statement.subscripts, *statement.conditions]
    for bounds in statement.data_ranges:
        exprs += [bounds.lower, bounds.upper]
    return {node.tensor for expr in exprs for node in walk(expr) if isinstance(node, Load)}


def batched_text(c: Comprehension, batched: Collection[str]) -> str:
    """Return the text of *c* with one more dimension, the first, in each of *batched*.

    :arg batched: what :func:`batched_tensors` gives; all inputs in it are batched.
    """
    names = Names({*names_of(c), *c.tensors})
    size, index = names.fresh("BATCH"), names.fresh("batch")
    # Temporaries of a called def have its name in front of theirs, which no text can.
    plain = {name: names.fresh(name.replace(".", "_")) for name in c.tensors if "." in name}
    return _Batching(c, frozenset(batched), size, index, plain).text()


@dataclass(frozen=True, slots=True, eq=False)
class _Batching:
    c: Comprehension
    batched: frozenset[str]
    size: str
    index: str
    plain: Mapping[str, str]  # the names of tensors that need others

    def text(self) -> str:
        c = self.c
        definition = ast.Def(
            c.name,
            tuple(
                self._param(name) if name in c.tensors else size_param(name)
                for name in c.parameters
            ),
            tuple(self._param(name) for name in c.outputs),
            tuple(self._statement(statement) for statement in self._typed()),
        )
        return print_program(ast.Program((definition,), c.source))

    def _param(self, name: str) -> ast.Param:
        param = typed_param(self.c.tensors[name])
        if name not in self.batched or param.dtype is None:
            return param
        return ast.Param(name, param.dtype, (self.size, *param.dims))

    def _typed(self) -> list[Statement]:
        """Return the statements; the first of each undeclared tensor gives it its type."""
        c = self.c
        begun = {n for n in (*c.inputs, *c.outputs) if typed_param(c.tensors[n]).dtype is not None}
        found = []
        for statement in c.statements:
            if statement.target not in begun:
                begun.add(statement.target)
                op = "=" if statement.reduction is None else statement.reduction.operator
                dtype = c.tensors[statement.target].dtype
                statement = replace(statement, value=stored_as(statement.value, dtype, op))
            found.append(statement)
        return found

    def _statement(self, statement: Statement) -> ast.Assign:
        plain = untyped_statement(rewrite_statement(statement, self._indexed))
        plain = replace(plain, target=self.plain.get(plain.target, plain.target))
        if statement.target not in self.batched:
            return plain
        run = ast.InRange(self.index, ast.Number(0, INT32), ast.Name(self.size))
        subscripts = (ast.Name(self.index), *plain.subscripts)
        return replace(plain, subscripts=subscripts, clauses=(run, *plain.clauses))

    def _indexed(self, node: Expr) -> Expr:
        if not isinstance(node, Load):
            return node
        first = (Index(self.index),) if node.tensor in self.batched else ()
        name = self.plain.get(node.tensor, node.tensor)
        return replace(node, tensor=name, subscripts=(*first, *node.subscripts))
