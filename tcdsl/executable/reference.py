"""The target "reference", which computes with NumPy, independent of all compilation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tcdsl.executable.base import Executable
from tcdsl.interp.oracle import evaluate
from tcdsl.options import Options
from tcdsl.runtime.arrays import ArraySpec, NDArray, as_numpy
from tcdsl.runtime.lazy_defs import SizedDef


class ReferenceExecutable(Executable):
    """The NumPy reference as a target."""

    def __init__(self, sized: SizedDef, specs: Mapping[str, ArraySpec], options: Options) -> None:
        super().__init__(sized, sized.special, specs, "reference", options)

    def launch(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        named = {
            name: value if isinstance(value, np.ndarray) else as_numpy(value)
            for name, value in zip(self.comprehension.inputs, inputs, strict=True)
        }
        start = dict(zip(self.comprehension.outputs, results, strict=True))
        values = evaluate(self.comprehension, self.special, named, start)
        for name, result in start.items():
            np.copyto(result, values[name])
