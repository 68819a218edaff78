"""The public names: define, compute, Program, Function.

prog = tcdsl.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
C = prog.mm(A, B)
"""

from tcdsl.api.function import Function
from tcdsl.api.program import Program, define, require_function
from tcdsl.api.requirements import choose_target, require_choices, require_target, shortened
from tcdsl.api.statements import compute

__all__ = [
    "Function", "Program", "choose_target", "compute", "define", "require_choices",
    "require_function", "require_target", "shortened",
]  # fmt: skip
