"""What was weighed for a kernel that a library's call stands for: the call, and kernels of ours."""

from typing import Any

from tcdsl.costmodel.library_products import bytes_of, estimated
from tcdsl.strategies.choices import candidates_of
from tcdsl.strategies.library_kernels import computed_by
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Schedule


def library_candidates(problem: Problem, kernel: Schedule) -> list[dict[str, Any]]:
    """Return the call as it was estimated, then the candidates of ours (``Executable.candidates``).

    Nobody measured the call: its time is from rates of the chip.
    """
    (name,) = problem.group.members
    product = computed_by(kernel.library, problem.scop, problem.scop.by_name[name])
    assert not isinstance(product, str), product
    predicted = estimated(product, problem.gpu, problem.options.precision)
    call = {
        "template": kernel.template, "config": {"library": kernel.library}, "is_chosen": True,
        "predicted_us": 1e6 * predicted.seconds, "limiter": predicted.limiter,
        "moved_bytes": sum(bytes_of(product)), "operations": float(product.operations),
    }  # fmt: skip
    return [call, *candidates_of(problem, {"template": kernel.template})]
