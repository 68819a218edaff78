"""Rules of operators, none of whose frames PyTorch's dynamo traces.

A frame that runs while dynamo watches is compiled by it: that of a rule, too, where an operator is
called by a function that dynamo has let run as it is (``torch.func.jvp(torch.compile(f), ...)``).
It would go on to the addresses of arrays, and fail there.  A call costs nothing more for it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import torch

Rule = TypeVar("Rule", bound=Callable[..., Any])


def untraced(rule: Rule) -> Rule:
    """Return *rule*; nobody traces it from now on, or what it calls."""
    code = getattr(rule, "__code__", None) or type(rule).__call__.__code__
    with suppress(AttributeError):  # these are none of PyTorch's public names
        frames = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
    return rule
