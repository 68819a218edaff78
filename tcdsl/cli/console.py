"""What the commands share of the terminal: colours and progress there, plain text elsewhere."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

MINIMUM_WIDTH = 100  # of text that goes to a file or a pipe


def standard_output() -> Console:
    """Return a console on the present ``sys.stdout`` (tests replace it)."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal and console.width < MINIMUM_WIDTH:
        console.width = MINIMUM_WIDTH
    return console


class Steps:
    """A progress bar that counts to *total*, its text naming the step under way."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)
        self._started = False

    def begin(self, text: str) -> None:
        """Say that the next step, *text*, begins, and with it that the one before is done."""
        self._progress.update(self._task, description=text, advance=int(self._started))
        self._started = True


@contextmanager
def progress_steps(total: int) -> Iterator[Steps]:
    """Show a progress bar on stderr for the block's time; silent when that is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    ) as progress:  # fmt: skip
        yield Steps(progress, total)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], n_left: int = 1) -> str:
    """Return a Markdown table; all columns but the first *n_left* are right-aligned."""
    columns = []
    for number, cells in enumerate(zip(header, *rows, strict=True)):
        width = max(map(len, cells))
        title, *body = (f"{cell:{'<' if number < n_left else '>'}{width}}" for cell in cells)
        rule = "-" * width if number < n_left else "-" * (width - 1) + ":"
        columns.append((title, rule, *body))
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))
