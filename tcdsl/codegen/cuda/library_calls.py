"""Kernels in whose place a library's call runs.

    kernel S0:  C[m,n] = 0;  C[m,n] += A[m,k] * B[k,n]   --->   cublasLtMatmul(A, B, C)

As with memsets (``memsets.py``) the plan keeps the kernel's loops, so that whatever verifies it
sees what is read and written.  What the call computes is found anew in the statements that the
kernel has after all rewrites.
"""

from tcdsl.codegen.cuda.plan import PlanText
from tcdsl.codegen.cuda.source import LibraryCall, Parameter, ParameterKind
from tcdsl.costmodel.library_products import operands_of, workspace_bytes
from tcdsl.errors import INTERNAL
from tcdsl.poly.loop_tree import statements_of
from tcdsl.schedule.plan import Kernel
from tcdsl.strategies.library_kernels import product_of


def library_call(text: PlanText, kernel: Kernel) -> LibraryCall | None:
    """Return the call that stands for *kernel*, None if the kernel is none's.

    :raises InternalError: its statements are no product of the library's any more.
    """
    if not kernel.library:
        return None
    statements = [text.scop.by_name[name] for name in statements_of(kernel.tree)]
    product = product_of(text.scop, statements, kernel.library)
    if isinstance(product, str):
        what = f"the call of {kernel.library} for {kernel.name} is no product: {product}"
        raise INTERNAL(where="printing", what=what, repro="the program")
    operands = []
    for array, is_read_only in zip(operands_of(product), (True, True, False), strict=True):
        assert array not in text.plan.placements, "a library's operands are in memory"
        operands.append(text.parameter(text.scop.arrays[array], is_read_only=is_read_only))
    size_bytes = workspace_bytes(product)
    operands.append(
        Parameter("void *workspace", ParameterKind.SCRATCH, "", text.library_offset)
    )  # fmt: skip
    precision = text.plan.precision
    return LibraryCall(
        kernel.library, product, tuple(operands), size_bytes, precision, kernel.name, kernel.why
    )
