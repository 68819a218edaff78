"""Imports in the middle of a program: the collector rests, and forks wait."""

import gc
import os
import subprocess
import sys
import threading

from tcdsl.runtime.imports import late_import


def test_the_collector_rests() -> None:
    assert gc.isenabled()
    with late_import(), late_import():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_fork_waits_for_an_import() -> None:
    program = """
import os, sys, threading, time
from tcdsl.runtime.imports import late_import
started, done = threading.Event(), []
def slowly():
    with late_import():
        started.set()
        time.sleep(0.3)  # as in the middle of a module
        done.append(True)
thread = threading.Thread(target=slowly); thread.start(); started.wait()
child = os.fork()
if child == 0:
    with late_import():  # nobody holds it here
        os._exit(0 if done else 3)
thread.join()
sys.exit(os.waitpid(child, 0)[1] != 0)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == 0


def test_it_may_be_forked_inside() -> None:
    with late_import():
        child = os.fork()
        if child == 0:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    others: list[bool] = []

    def import_too() -> None:
        with late_import():
            others.append(True)

    thread = threading.Thread(target=import_too)
    thread.start()
    thread.join(10)
    assert others == [True]
