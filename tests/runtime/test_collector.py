"""The garbage collector, paused and not left so."""

import gc
import subprocess
import sys

import pytest

from tcdsl.runtime.collector import collector_paused


def test_it_is_on_again_also_after_an_error() -> None:
    assert gc.isenabled()
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), collector_paused():
        raise KeyError
    assert gc.isenabled()


def test_whoever_has_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_importing_and_defining_collect_little_and_leave_it_on() -> None:
    code = """
import gc
import numpy
collections = []
gc.collect()
gc.callbacks.append(lambda phase, info: collections.append(info["generation"]))
import tcdsl
tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }")
assert gc.isenabled() and collections.count(2) == 0, collections
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
