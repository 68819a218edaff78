"""Which cases are timed, in which types, at which sizes, in which share."""

import argparse
from collections import Counter
from itertools import groupby

import pytest

from tcdsl.cli.bench import cases as bench_work
from tcdsl.cli.bench.cases import chosen_work, key_of, label_of
from tcdsl.cli.bench.panamera import SHAPES, TYPES
from tcdsl.errors import TCError
from tcdsl.library import Case, case, cases
from tcdsl.library.draws import Sizes


class Room:
    """A place that has room for everything."""

    def sizes(self, chosen: Case, dtype: str) -> tuple[Sizes, ...]:
        return chosen.sizes


def work(*words: str) -> list[bench_work.Work]:
    parser = argparse.ArgumentParser()
    bench_work.add_arguments(parser)
    return chosen_work(Room(), parser.parse_args(words))


def test_by_default_everything_in_float32() -> None:
    found = work()
    assert {key_of(item)[0] for item in found} == {one.name for one in cases()}
    assert {dtype for _, _, dtype in found} == {"float32", "bool", "int8"}
    assert len(found) == sum(len(one.sizes) for one in cases())


def test_types_are_listed_or_all_of_them() -> None:
    softmax = case("softmax")
    assert len(work("softmax", "--dtype", "float64,bfloat16")) == 2 * len(softmax.sizes)
    assert len(work("softmax", "--dtype", "all")) == len(softmax.dtypes) * len(softmax.sizes)
    assert work("all_or", "--dtype", "float32") == []
    with pytest.raises(TCError, match="there is no 'float31'"):
        work("--dtype", "float31")


def test_the_memory_bound_table() -> None:
    found = work("--table", "memory-bound")
    types = {family: Counter[str]() for family in ("reduction", "graph")}
    for one, _, dtype in found:
        types[one.family][dtype] += 1
    assert set(types["graph"]) == {"float32", "bfloat16"}
    assert set(types["reduction"]) == {
        "float32", "bool", "bfloat16", "float16", "float64", "int32", "int64",
    }  # fmt: skip
    order = list(dict.fromkeys(dtype for _, _, dtype in found))
    assert order[:3] == ["float32", "bool", "bfloat16"]  # what matters most comes first
    assert len({key_of(item) for item in found}) == len(found)
    in_bfloat16 = work("--table", "memory-bound", "--dtype", "bfloat16")
    assert [item for item in found if item[2] == "bfloat16"] == in_bfloat16


def test_the_table_of_contractions() -> None:
    found = work("--table", "contractions")
    assert {one.family for one, _, _ in found} == {"contraction"}
    order = list(dict.fromkeys(dtype for _, _, dtype in found))
    assert order == ["bfloat16", "float16", "float32", "int8"]
    assert len({key_of(item) for item in found}) == len(found)
    labels = {label_of(item) for item in found}
    for name in ("matmul", "tmm", "matmul_tn", "matmul_transposed"):
        for sizes in ("M=4096 N=4096 K=4096", "M=777 N=1555 K=3001", "M=64 N=96 K=200000"):
            assert f"{name} bfloat16 {sizes}" in labels
    assert not any("<=>" in one.source for one, _, _ in found), "kernels are our own"
    assert len(work("tmm", "--dtype", "float16")) < len(
        work("tmm", "--table", "contractions", "--dtype", "float16")
    )


def test_a_table_in_types_that_are_asked_for_has_whatever_cases_admit() -> None:
    asked = ("float16", "float64", "int32", "int64", "int8", "uint8", "bool")
    found = work("--table", "memory-bound", "--dtype", ",".join(asked))
    assert {dtype for _, _, dtype in found} == set(asked)
    assert {one.family for one, _, dtype in found if dtype == "float64"} == {"reduction", "graph"}
    expected = {
        (one.name, dtype)
        for one in cases() if one.family in ("reduction", "graph")
        for dtype in one.dtypes
    }  # fmt: skip
    everything = work("--table", "memory-bound", "--dtype", "all")
    assert {(one.name, dtype) for one, _, dtype in everything} == expected
    runs = [dtype for dtype, _ in groupby(dtype for _, _, dtype in everything)]
    assert len(runs) == len(set(runs))  # a type after another


def test_the_table_has_panameras_shapes() -> None:
    found = {label_of(item) for item in work("--table", "memory-bound")}
    for shapes in SHAPES:
        for name in shapes.cases:
            types = [dtype for dtype in TYPES if dtype in case(name).dtypes]
            assert {f"{name} {t} {sizes}" for t in types for sizes in shapes.sizes} <= found


def test_the_table_has_quacks_sizes() -> None:
    from tcdsl.cli.bench.aims import QUACK

    found = {
        (one.name, dtype, *sizes.values()) for one, sizes, dtype in work("--table", "memory-bound")
    }
    assert set(QUACK) <= found


def test_patterns_are_parts_of_labels() -> None:
    (one,) = work("--only", "softmax float32 M=64 N=1048576", "softmax")
    assert label_of(one) == "softmax float32 M=64 N=1048576"
    names = {item[0].name for item in work("--family", "graph", "--only", "soft*N=65536")}
    assert names == {"softmax"}
    both = work("--only", "row_sum ", "--only", "row_max ")
    assert {item[0].name for item in both} == {"row_sum", "row_max"}


def test_the_largest_size_is_that_of_most_elements() -> None:
    (one,) = work("all_sum", "--sizes", "largest")
    assert one[1] == {"N": 2**28}


def test_shards_share_the_work() -> None:
    everything = work("--family", "graph")
    shards = [work("--family", "graph", "--shard", f"{k}/3") for k in (1, 2, 3)]
    together = [item for shard in shards for item in shard]
    assert sorted(map(key_of, together)) == sorted(map(key_of, everything))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(TCError, match="is no share"):
        work("--shard", text)
