"""What Inductor makes of an operator: a call that is prepared for the shapes in the graph.

    torch.ops.mylib._f_derived.default([x, w], [], "k0")
        --->  tcdsl_5f3a = tcdsl_call("mylib::_f_derived", "k0", (), (((16, 64), (64, 1)), ...))
              buf0 = tcdsl_5f3a(x, w)

Where a size is symbolic, and in code that is not Python's (AOTInductor, ``cpp_wrapper``), it stays
the operator.  Inductor's classes are none of PyTorch's public names: where they are not as they
were in the versions that this was tested with, operators are called as ever (:func:`register`).
"""

import hashlib
from typing import Any

from torch._inductor import ir, lowering
from torch._inductor.virtualized import V
from torch.utils import _pytree as pytree

_IMPORT = "from tcdsl.torch.ops import direct_call as tcdsl_call"


class _DirectKernel(ir.FallbackKernel):  # type: ignore[misc, unused-ignore]
    """A call of an operator."""

    def codegen(self, wrapper: Any) -> None:
        """Write the call."""
        found = self._prepared(wrapper)
        if found is None:
            super().codegen(wrapper)
            return
        root, line = found
        name = f"tcdsl_{hashlib.sha256(line.encode()).hexdigest()[:16]}"
        root.add_import_once(_IMPORT)
        root.add_import_once(f"{name} = {line}")
        self.codegen_comment(wrapper)
        for x in self.outputs:  # the call itself has looked at them
            x.skip_size_stride_alignment_checks = True
        inputs: Any = self.inputs  # an operator's are no lists, which others' may be
        tensors = ", ".join(x.codegen_reference() for x in inputs)
        wrapper.writeline(f"{self.get_name()} = {name}({tensors})")

    def _prepared(self, wrapper: Any) -> tuple[Any, str] | None:
        """Return the wrapper of the whole graph and what makes the call, as text, if it can be."""
        graph = V.graph
        if graph.cpp_wrapper or graph.aot_mode or getattr(graph, "fx_wrapper", False):
            return None
        root = wrapper
        while hasattr(root, "parent_wrapper"):
            root = root.parent_wrapper
        args, kwargs = self.unflatten_args(self.inputs, self.constant_args)
        layouts, results = _layouts(self.inputs), _layouts(self.outputs)
        others = _others(args)
        if kwargs or layouts is None or results is None or others is None:
            return None
        operator: Any = self.op_overload  # none only for other kinds of calls
        arguments = operator.name(), *others, layouts, results
        return root, f"tcdsl_call({', '.join(map(repr, arguments))})"


def _layouts(nodes: Any) -> tuple[tuple[Any, Any], ...] | None:
    """Return the shape and the strides of each of *nodes*; None: one is symbolic."""
    found = tuple((_numbers(x.get_size()), _numbers(x.get_stride())) for x in nodes)
    return None if any(None in layout for layout in found) else found


def _numbers(values: Any) -> tuple[int, ...] | None:
    """Return *values* as numbers; None: one is symbolic."""
    is_known = all(isinstance(v, int) or getattr(v, "is_Integer", False) for v in values)
    return tuple(int(v) for v in values) if is_known else None


def _others(args: Any) -> tuple[str, tuple[int, ...]] | None:
    """Return the path and the sizes among an operator's arguments; None: one is symbolic."""
    path = args[2] if len(args) == 3 and isinstance(args[2], str) else ""
    plain = args[1] if path else [arg for arg in args if not isinstance(arg, ir.IRNode)]
    sizes = _numbers(plain)
    return None if sizes is None else (path, sizes)


def register(operator: Any) -> None:
    """Let Inductor call *operator*, one of ours, directly."""
    lowering.make_fallback(operator)  # it is looked up among those, too

    def boxed(x: Any) -> Any:
        return ir.TensorBox.create(x) if isinstance(x, ir.IRNode) else x

    def lowered(*args: Any, **kwargs: Any) -> Any:
        return pytree.tree_map(boxed, _DirectKernel.create(operator, *args, **kwargs))

    lowering.lowerings[operator] = lowered
