"""A plugin for pytest: the processor seconds of each test, and of the processes that it starts.

    python -m pytest -p benchmarks.times_of_tests --times build/times -m "slow and not gpu"
    python benchmarks/times_of_tests.py build/times

The first appends a line a test to build/times.WORKER.  The second adds them up by file; "own" is
the test's process (planning, and emulated kernels as they run), "others" are compilers and scripts.
``--part 1/5`` runs a fifth of the tests, chosen by their names.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Generator
from hashlib import sha256
from os import environ
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", default="build/times", help="files to append to, without .WORKER")
    parser.addoption("--part", default="1/1", help="which part of how many")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, parts = map(int, config.getoption("part").split("/"))

    def is_chosen(item: pytest.Item) -> bool:
        return int(sha256(item.nodeid.encode()).hexdigest(), 16) % parts == part - 1

    config.hook.pytest_deselected(items=[item for item in items if not is_chosen(item)])
    items[:] = [item for item in items if is_chosen(item)]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = _seconds()
    done = yield
    spent = [round(b - a, 3) for a, b in zip(before, _seconds(), strict=True)]
    path = Path(f"{item.config.getoption('times')}.{environ.get('PYTEST_XDIST_WORKER', 'main')}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps([item.nodeid, *spent]) + "\n")
    return done


def _seconds() -> list[float]:
    used = map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN))
    return [usage.ru_utime + usage.ru_stime for usage in used]


def main(times: str) -> None:
    """Print the files whose tests took longest, and the sum of all."""
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for path in Path(times).parent.glob(f"{Path(times).name}.*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, own, others = json.loads(line)
            for key in (name.partition("::")[0], "all"):
                found[key] = [a + b for a, b in zip(found[key], (1, own, others), strict=True)]
    print(f"{'tests':>6} {'own s':>8} {'others s':>8}")
    for name, (count, own, others) in sorted(found.items(), key=lambda pair: -sum(pair[1][1:])):
        print(f"{count:6.0f} {own:8.1f} {others:8.1f} {name}")


if __name__ == "__main__":
    main(sys.argv[1])
