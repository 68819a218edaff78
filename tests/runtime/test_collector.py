"""The garbage collector, paused and not left so."""

import gc
import subprocess
import sys

import pytest

from tcdsl.runtime.collector import call_old, collector_paused


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


def test_objects_that_are_called_old_are_no_young_ones_and_garbage_is_found_at_last() -> None:
    gc.collect()
    ring: list[object] = []
    ring.append(ring)
    assert any(one is ring for one in gc.get_objects(0))
    call_old()
    assert not any(one is ring for one in gc.get_objects(0))
    number = id(ring)
    del ring
    gc.collect()
    assert not any(id(one) == number for one in gc.get_objects())


def test_what_a_program_has_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        call_old()
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()


def test_imports_of_many_modules_leave_the_collector_nothing_to_look_at() -> None:
    code = """
import gc
from tcdsl.runtime.imports import late_import
with late_import():
    import tcdsl.plan.gpu_planner
assert gc.isenabled() and len(gc.get_objects(0)) < 1000
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
