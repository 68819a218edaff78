"""Which cases ``tcdsl bench`` times, at which sizes, in which types, in which of several runs."""

import argparse
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Protocol, get_args

from tcdsl.cli.bench.report import Key, sizes_text
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.library import Case, Family, cases
from tcdsl.library.case import grid
from tcdsl.library.draws import Sizes
from tcdsl.options import BAD_ARGUMENT

Work = tuple[Case, Mapping[str, int], str]  # a case, its sizes, the element type

# What a table has of each family: element types, in the order in which they are timed.
TABLES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "memory-bound": {
        "reduction": (
            "float32", "bool", "bfloat16", "float16", "float64", "int32", "int64",
        ),
        "graph": ("float32", "bfloat16"),
    },
    "contractions": {"contraction": ("bfloat16", "float16", "float32", "int8")},
}  # fmt: skip
# Squares between the library's, odd ones, few rows of many terms, few results of long sums.
_PRODUCTS = grid(
    "M N K", (2048, 2048, 2048), (777, 1555, 3001), (96, 8192, 8192), (64, 96, 200_000)
)
# Sizes at which an earlier version was behind: odd, long and narrow, short rows of many.
_MISSED = {
    "row_sum": grid("M N", (50_003, 1100), (9_000_001, 5)),
    "column_sum": grid("M N", (1100, 50_003), (9_000_001, 5)),
    "softmax": grid("M N", (700_000, 96)),
    "layernorm": grid("M N", (20_000, 3000)),
}
# What a table has beside the sizes of the library.
MORE_SIZES: Mapping[str, Mapping[str, tuple[Sizes, ...]]] = {
    "memory-bound": _MISSED,
    "contractions": dict.fromkeys(("matmul", "tmm", "matmul_tn", "matmul_transposed"), _PRODUCTS),
}


class HasSizes(Protocol):
    """Where calls run: it has room for some sizes."""

    def sizes(self, case: Case, dtype: str) -> tuple[Mapping[str, int], ...]: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the work to *parser*."""
    parser.add_argument("cases", nargs="*", metavar="CASE", help="library cases (default: all)")
    parser.add_argument("--family", choices=get_args(Family))
    parser.add_argument("--table", choices=tuple(TABLES),
                        help="some families, in the types that matter")  # fmt: skip
    parser.add_argument(
        "--dtype", metavar="A,B",
        help="element types, or 'all' (default: the table's, or float32 where a case admits it)",
    )  # fmt: skip
    parser.add_argument("--sizes", choices=("all", "largest"), default="all",
                        help="of those that fit this machine (default: all)")  # fmt: skip
    parser.add_argument("--only", metavar="PATTERN", action="append", default=[],
                        help="part of 'softmax float32 M=64 N=1048576', with * and ?")  # fmt: skip
    parser.add_argument("--shard", metavar="K/N", help="every N-th of them, from the K-th on")


def chosen_work(place: HasSizes, arguments: argparse.Namespace) -> list[Work]:
    """Return every (case, sizes, element type) to time, a type after another."""
    found = [
        item
        for case in chosen_cases(arguments)
        for dtype in chosen_dtypes(case, arguments)
        for item in _at_sizes(place, case, dtype, arguments)
        if _is_wanted(item, arguments.only)
    ]
    if arguments.only and not found:
        raise BAD_ARGUMENT(argument="--only", what="no case is called so",
                           advice="give part of a label: 'softmax*N=65536'")  # fmt: skip
    if arguments.table:
        order = tuple(dict.fromkeys((*_types_of(arguments.table), *BY_NAME)))
        found.sort(key=lambda item: order.index(item[2]))
    return shard_of(found, arguments.shard)


class _EverySize:
    """A place that has room for every size."""

    def sizes(self, case: Case, dtype: str) -> tuple[Mapping[str, int], ...]:
        return case.sizes


def listed_cases(arguments: argparse.Namespace) -> list[Case]:
    """Return the cases of which something is timed where there is room for every size."""
    names = {case.name for case, _, _ in chosen_work(_EverySize(), arguments)}
    return [case for case in chosen_cases(arguments) if case.name in names]


def chosen_cases(arguments: argparse.Namespace) -> tuple[Case, ...]:
    """Return the cases asked for, in the library's order."""
    known = {case.name: case for case in cases(arguments.family)}
    for name in arguments.cases:
        if name not in known:
            raise BAD_ARGUMENT(
                argument="CASE", what=f"the library has no {name!r}",
                advice=did_you_mean(name, known) or "tcdsl bench --list prints what it has",
            )  # fmt: skip
    return tuple(known[name] for name in (arguments.cases or known))


def chosen_dtypes(case: Case, arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the element types to time *case* in."""
    asked = arguments.dtype.split(",") if arguments.dtype else []
    for dtype in asked:
        if dtype not in BY_NAME and dtype != "all":
            raise BAD_ARGUMENT(argument="--dtype", what=f"there is no {dtype!r}",
                               advice=f"use all, or {', '.join(BY_NAME)}")  # fmt: skip
    in_table = TABLES[arguments.table].get(case.family, ()) if arguments.table else None
    if in_table == ():
        return ()
    if asked:
        return tuple(dtype for dtype in case.dtypes if dtype in asked or "all" in asked)
    if in_table:
        return tuple(dtype for dtype in in_table if dtype in case.dtypes)
    return ("float32",) if "float32" in case.dtypes else case.dtypes[:1]


def elements(case: Case, sizes: Mapping[str, int]) -> int:
    """Return how many elements the case's inputs have at *sizes*."""
    return sum(math.prod(shape) for shape in case.input_shapes(sizes).values())


def key_of(work: Work) -> Key:
    """Return what names *work* in a file."""
    case, sizes, dtype = work
    return case.name, sizes_text(sizes), dtype


def label_of(work: Work) -> str:
    """Return what is matched with ``--only``, such as ``softmax float32 M=64 N=1048576``."""
    name, sizes, dtype = key_of(work)
    return f"{name} {dtype} {sizes}"


def shard_of(found: Sequence[Work], text: str | None) -> list[Work]:
    """Return every N-th of *found* for a *text* of K/N, K from 1 on: shares of about equal work."""
    if text is None:
        return list(found)
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    number, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= count:
        raise BAD_ARGUMENT(argument="--shard", what=f"{text!r} is no share",
                           advice="use 1/3, 2/3 and 3/3 for three runs")  # fmt: skip
    return list(found[number - 1 :: count])


def with_more_sizes(case: Case, tables: Iterable[str]) -> Case:
    """Return *case* with the sizes that *tables* have beside the library's."""
    more = (sizes for table in tables for sizes in MORE_SIZES.get(table, {}).get(case.name, ()))
    return replace(case, sizes=(*case.sizes, *(s for s in more if s not in case.sizes)))


def _at_sizes(
    place: HasSizes, case: Case, dtype: str, arguments: argparse.Namespace
) -> Iterator[Work]:
    known = with_more_sizes(case, (arguments.table,))
    chosen = place.sizes(known, dtype)
    if chosen and arguments.sizes == "largest":
        chosen = (max(chosen, key=lambda sizes: elements(case, sizes)),)
    yield from ((case, sizes, dtype) for sizes in chosen)


def _is_wanted(work: Work, patterns: Sequence[str]) -> bool:
    """Return whether any of *patterns* is in the label, or there is none."""
    label = label_of(work)
    return not patterns or any(fnmatchcase(label, f"*{pattern}*") for pattern in patterns)


def _types_of(table: str) -> Iterable[str]:
    """Return the types that *table* has without being asked, in its order."""
    return dict.fromkeys(dtype for types in TABLES[table].values() for dtype in types)
