"""Try the installed package from outside the checkout: everything that needs no GPU.

    python try_wheel.py        in an environment with tcdsl[testing] and IPython, not editable

Every target, the report page, what notebooks show, the magics, the installed command, and
``tcdsl.testing``: each reads files that a package can lack though the checkout has them.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from IPython.core.interactiveshell import InteractiveShell

import tcdsl
import tcdsl.library

SOURCE = """
def matmul(float(M, K) A, float(K, N) B) -> (C) {
    C(m, n) +=! A(m, k) * B(k, n)
}
def softmax(half(M, N) x) -> (y) {
    top(m) max=! x(m, n)
    power(m, n) = exp(x(m, n) - top(m))
    total(m) +=! power(m, n)
    y(m, n) = power(m, n) / total(m)
}
"""
TARGETS = ("cpu", "emulate", "reference")
HERE = Path(tcdsl.__file__).parent
A, B = (np.arange(35, dtype=np.float32).reshape(shape) for shape in ((5, 7), (7, 5)))
X = np.linspace(-3, 3, 64, dtype=np.float16).reshape(4, 16)


def try_targets(program: tcdsl.Program) -> None:
    for target in TARGETS:
        np.testing.assert_array_equal(program.matmul(A, B, target=target), A @ B)
        sums = program.softmax(X, target=target).astype(np.float32).sum(axis=1)
        np.testing.assert_allclose(sums, 1, atol=0.01)
    np.testing.assert_array_equal(tcdsl.einsum("ij,jk->ik", A, B), A @ B)
    for case in tcdsl.library.cases():
        assert tcdsl.define(case.source).names


def try_displays(program: tcdsl.Program, folder: Path) -> None:
    shown = [program, program.matmul, tcdsl.explore(program.matmul, A, B, target="cpu")]
    for target in ("cpu", "emulate"):
        executable = program.softmax.compile(X, target=target)
        shown += [executable, *(getattr(executable.compilation, stage) for stage in STAGES)]
        executable.report(folder / f"{target}.html")
        page = (folder / f"{target}.html").read_text(encoding="utf-8")
        assert "<svg" in page and ("__global__" in page) == (target == "emulate")
    for value in shown:
        bundle = value._repr_mimebundle_()
        assert "<" in bundle["text/html"] and bundle["text/plain"], value


STAGES = ("program", "comprehension", "scop", "transforms", "schedule", "plan", "code", "explain")


def try_magics() -> None:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "tcdsl")
    shell.run_cell_magic("tcdsl", "", SOURCE)
    np.testing.assert_array_equal(shell.user_ns["matmul"](A, B), A @ B)


def try_command(folder: Path) -> None:
    (folder / "two.tc").write_text(SOURCE, encoding="utf-8")
    sizes = ("--size", "M=8", "--size", "N=9")
    for words, expected in (
        (("--version",), tcdsl.__version__),
        (("run", "two.tc", "softmax", *sizes, "--check"), "agrees"),
        (("run", "two.tc", "softmax", *sizes, "--check", "--target", "emulate"), "agrees"),
        (("show", "two.tc", "matmul", "--size", "K=3", *sizes, "--target", "emulate"), "__global"),
        (("show", "two.tc", "softmax", *sizes, "--html", "page.html"), "wrote page.html"),
        (("doctor",), "C compiler"),
        (("cache",), "entries"),
    ):
        command = [Path(sys.executable).parent / "tcdsl", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and expected in done.stdout, (words, done)


def try_testing(program: tcdsl.Program) -> None:
    tcdsl.testing.check(program.softmax, X, targets=("cpu", "emulate"))

    @settings(max_examples=5, deadline=None, derandomize=True)
    @given(tcdsl.testing.programs())
    def random_program(drawn: tuple[str, dict[str, np.ndarray]]) -> None:
        source, inputs = drawn
        definition = tcdsl.define(source)
        tcdsl.testing.check(definition[definition.names[-1]], *inputs.values(), targets=("cpu",))

    random_program()


def main() -> None:
    assert not (HERE.parent / "setup.cfg").exists(), (
        "this tries the checkout, not what is installed"
    )
    program = tcdsl.define(SOURCE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try_targets(program)
        try_displays(program, folder)
        try_magics()
        try_command(folder)
        try_testing(program)
    print("the installed package works:", HERE)


if __name__ == "__main__":
    main()
