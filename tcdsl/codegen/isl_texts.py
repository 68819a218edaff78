"""What isl wrote of loops and leaves, as CUDA: its macros are functions of the device library.

min(c0, floord(c1, 32))    --->    tc_imin(c0, tc_floordiv(c1, 32))
"""

import re

from tcdsl.codegen import loop_ast


def cuda_text(text: str) -> str:
    """Return isl's C with the device library's functions in place of its macros."""
    for name, function in (("floord", "tc_floordiv"), ("min", "tc_imin"), ("max", "tc_imax")):
        text = re.sub(rf"\b{name}\(", f"{function}(", text)
    return text


def step_text(node: loop_ast.For) -> str:
    """Return the step from one iteration of *node* to the next."""
    return f"{node.variable}++" if node.step == "1" else f"{node.variable} += {node.step}"


def cuda_leaf(leaf: loop_ast.Leaf) -> loop_ast.Leaf:
    """Return *leaf* with its iterators and local indices as CUDA."""
    return loop_ast.Leaf(
        leaf.statement,
        tuple(map(cuda_text, leaf.iterators)),
        {key: tuple(map(cuda_text, texts)) for key, texts in leaf.local.items()},
        leaf.values,
        leaf.kept,
    )
