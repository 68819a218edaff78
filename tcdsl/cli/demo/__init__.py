"""``tcdsl demo``: photographs, a neural network that learns digits, and a table of times.

Everything computed is a comprehension; scikit-learn brings the pictures and the digits, Pillow
writes PNG.  All seeds are fixed.
"""

import argparse
import time
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from tcdsl.cli.console import markdown_table, progress_steps, standard_output
from tcdsl.cli.demo import digits, photographs, times
from tcdsl.errors import Entry, TargetError
from tcdsl.runtime.timing import format_us

NEEDED = {"sklearn": "scikit-learn", "PIL": "pillow"}
GOAL = 0.95  # of the held-out digits, to be recognised

NO_DEMO_PACKAGES = Entry(
    "TC069", TargetError, "the demo needs {missing}", "python -m pip install {missing}"
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to *parser*."""
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("demo-output"),
        help="where the pictures go (default: demo-output)",
    )  # fmt: skip


def require_packages() -> None:
    """Raise a TargetError that names the packages missing, if any is."""
    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise NO_DEMO_PACKAGES(missing=" ".join(missing))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return 0 if the network reached its goal."""
    require_packages()
    console = standard_output()
    start = time.perf_counter()
    show_photographs(console, arguments.out)
    accuracy = show_digits(console)
    show_times(console)
    console.print(f"\nAll of it took {time.perf_counter() - start:.0f} s.")
    return 0 if accuracy >= GOAL else 1


def show_photographs(console: Console, folder: Path) -> None:
    """Blur and find the edges of each photograph; write the pictures into *folder*."""
    console.print("[bold]1. Photographs")
    console.print(photographs.PROGRAM, style="dim", markup=False)
    with progress_steps(len(photographs.NAMES)) as steps:
        for name in photographs.NAMES:
            steps.begin(name)
            pictures = photographs.treat(photographs.load(name))
            for path in photographs.save(name, pictures, folder):
                console.print(f"  {path}", markup=False)


def show_digits(console: Console) -> float:
    """Train the network; return the share of held-out digits that it recognises."""
    console.print("\n[bold]2. A two-layer network learns handwritten digits")
    console.print(digits.PROGRAM, style="dim", markup=False)
    data = digits.load()
    with progress_steps(digits.EPOCHS) as steps:
        network = digits.Network(data)
        for epoch in range(digits.EPOCHS):
            steps.begin(f"epoch {epoch + 1}")
            loss = network.train_epoch()
            if (epoch + 1) % digits.REPORT_EVERY == 0:
                accuracy = network.accuracy()
                console.print(
                    f"  epoch {epoch + 1:3}: loss {loss:.4f}, held-out accuracy {accuracy:.1%}"
                )
    accuracy = network.accuracy()
    verdict = "reached" if accuracy >= GOAL else "NOT reached"
    console.print(
        f"  {accuracy:.1%} of {len(data.test_labels)} held-out digits recognised"
        f" (goal {GOAL:.0%}: {verdict})"
    )
    return accuracy


def show_times(console: Console) -> None:
    """Print the medians of tcdsl's and NumPy's times for the same operations."""
    console.print("\n[bold]3. Times: the same operation in tcdsl and in NumPy")
    rows = []
    with progress_steps(len(times.OPERATIONS)) as steps:
        for name, make in times.OPERATIONS.items():
            steps.begin(name)
            ours_us, numpy_us = times.compare(make())
            ratio = f"{numpy_us / ours_us:.1f}x"
            rows.append((name, format_us(ours_us), format_us(numpy_us), ratio))
    console.print(markdown_table(("operation", "tcdsl", "NumPy", "speed-up"), rows), markup=False)
