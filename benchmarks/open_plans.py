"""Which plans change where one size of a program is left open, and why: on an H200, none is needed.

    python benchmarks/open_plans.py [--only '*conv*'] [--dtype float32] [--seconds 300]

For each program of the library, and each of its sizes: the templates of the kernels of the size's
class beside those of the greatest size of the class, where they differ; or why there is no code.
The last line says of how many.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tcdsl import library
from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import Compiled, compile_to_cuda, with_decisions
from tcdsl.errors import TCError
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.open_sizes import CannotOpenError
from tcdsl.lang.ranges.roles_of_sizes import reduced_sizes, steps_of
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.request import Request
from tcdsl.lang.size_class import SizeClass
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.runtime.size_classes import classes_of
from tcdsl.source import Source

CHIP = load_chip("h200")


def compiled(
    c: Comprehension, sizes: Mapping[str, int], opened: Mapping[str, SizeClass]
) -> Compiled[Any]:
    """Return the code of *c* at *sizes*, or for a class of them."""
    request = Request(c, specialise(c, sizes), opened=opened)
    return with_decisions(compile_to_cuda(request, CHIP), "cuda", CHIP)


def templates(code: Compiled[Any]) -> list[str]:
    """Return the templates of the kernels of *code*."""
    kernels = json.loads(code.stages["choices"])["kernels"]
    return [str(kernel.get("template") or "?") for kernel in kernels]


def compared(case: library.Case, dtype: str, sizes: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield for each size that can be left open its name, and what changes: "" for nothing."""
    c = analyse(parse_program(Source(library.source_for(case, dtype))))[-1]
    bound = bind_sizes(c, case.input_shapes(dict(sizes)))
    if c.is_deferred:
        return
    for name in c.sizes:
        opened = classes_of(bound, [name], reduced_sizes(c), steps_of(c, bound, [name]))
        if opened is None or bound[name] < 2:
            continue
        try:
            fixed = templates(compiled(c, {**bound, name: opened[name].greatest}, {}))
        except TCError as error:  # the greatest is no size of the program
            yield name, f"none for the greatest: {type(error).__name__}"
            continue
        try:
            found = templates(compiled(c, bound, opened))
        except CannotOpenError as error:
            yield name, f"refused: {' '.join(str(error).split())[:150]}"
            continue
        yield name, "" if found == fixed else f"{' + '.join(fixed)} -> {' + '.join(found)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seconds", type=float, default=300)
    given = parser.parse_args()
    end, counts = time.monotonic() + given.seconds, Counter[str]()
    for case in library.cases():
        if not fnmatchcase(case.name, given.only) or given.dtype not in case.dtypes:
            continue
        for sizes in case.sizes[:1]:
            if time.monotonic() > end:
                counts["out of time"] += 1
                continue
            for name, change in compared(case, given.dtype, sizes):
                counts["other, or none" if change else "the same"] += 1
                if change:
                    print(f"{case.name} {dict(sizes)}: {name}: {change}", flush=True)
    print(", ".join(f"{what} {count}" for what, count in counts.items()))


if __name__ == "__main__":
    main()
