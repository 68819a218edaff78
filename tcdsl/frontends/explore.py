"""``tcdsl.explore(f, A, B)``: change options, and see what becomes of schedule, code and time.

In a notebook with ipywidgets the options are controls; without, and wherever a notebook is only
read, the same is a still picture.  In plain Python ``print`` shows it, and :meth:`Explorer.set`
changes an option:

    view = tcdsl.explore(softmax, x)
    view.set(tile=(32, 32)).set(fuse="none")
    print(view)
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from tcdsl.api import Function, choose_target, require_choices, require_function, require_target
from tcdsl.display.compilation import fresh_anchors
from tcdsl.display.error import error_html
from tcdsl.display.html import Child, Html, block, details, mime_bundle, table, tag
from tcdsl.errors import TCError
from tcdsl.executable import Executable
from tcdsl.frontends.ceilings import timer_of
from tcdsl.frontends.stages import StageText, view_of
from tcdsl.options import Options, changed
from tcdsl.poly.isl_utils import COMPILE_LOCK
from tcdsl.records import dataclass
from tcdsl.runtime.arrays import ArraySpec
from tcdsl.runtime.timing import Timing

SECONDS = 0.1  # of measuring, for each choice
_TIMED = ("cpu", "cuda")  # the others are for looking, and take seconds


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice of options, and what came of it: code, and on most targets a time, or an error."""

    target: str
    options: Options
    executable: Executable | None = None
    timing: Timing | None = None
    error: TCError | None = None

    @property
    def label(self) -> str:
        """What differs from the defaults: ``cpu, tile=(32, 32)``."""
        return ", ".join([self.target, *changed(self.options)])

    @property
    def time_text(self) -> str:
        """The time, or why there is none."""
        if self.error is not None:
            return self.error.code
        return str(self.timing) if self.timing else "not timed"


class Explorer:
    """The present choice, and all that have been tried; made by :func:`explore`."""

    def __init__(
        self, function: Function, inputs: tuple[Any, ...], out: Any, target: str, options: Options
    ) -> None:
        self.function = function
        self._inputs = inputs
        self._out = out
        self._listeners: list[Callable[[], None]] = []
        self._widget: Any = None
        self.trials: list[Trial] = []
        self._try(target, options)

    @property
    def current(self) -> Trial:
        """The last choice."""
        return self.trials[-1]

    @property
    def best(self) -> Trial | None:
        """The fastest choice so far."""
        timed = [trial for trial in self.trials if trial.timing is not None]
        return min(timed, key=lambda t: t.timing.median_us if t.timing else 0, default=None)

    def set(self, *, target: str | None = None, **changes: Any) -> "Explorer":
        """Change options, compile and time; return the view itself.

        What does not compile is shown as an error, and tried again with the next change.

        :arg changes: fields of ``tcdsl.Options``.
        :raises OptionError: an option has no such value.
        :raises TargetError: (TC065) there is no such target.
        """
        if target is not None:
            require_target(target)
        options = replace(self.current.options, **changes)
        self._try(target or self.current.target, options)
        for listener in self._listeners:
            listener()
        return self

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* after each change."""
        self._listeners.append(listener)

    def _try(self, target: str, options: Options) -> None:
        self.trials.append(tried(self.function, self._inputs, self._out, target, options))

    # --- what it shows -----------------------------------------------------------------------

    def __repr__(self) -> str:
        now = self.current
        lines = [f"{self.function.__name__} on {now.label}: {now.time_text}", ""]
        if now.error is not None:
            lines.append(str(now.error))
        if now.executable is not None:
            lines.append(now.executable.explain().rstrip())
        return "\n".join([*lines, "", "tried so far:", *map(_line, self.trials)])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return mime_bundle(self.html(), repr(self))

    def _ipython_display_(self) -> None:
        """Show the controls, and below them the still picture, which live controls hide.

        What cannot show controls (GitHub, nbviewer, a page without a network) has the picture, of
        the last choice: it follows the controls.
        """
        from tcdsl.frontends.still import display_both  # IPython is there: it has called this

        display_both(self)

    def widget(self) -> Any:
        """Return the controls, always the same ones; None where ipywidgets is not installed."""
        if self._widget is None and find_spec("ipywidgets") is not None:
            from tcdsl.frontends.explore_widgets import controls

            self._widget = controls(self)
        return self._widget

    def html(self) -> list[Child]:
        """Return the present choice and those tried so far, as they are now."""
        now = self.current
        head = [tag("strong", self.function.__name__), f" on {now.label}: {now.time_text}"]
        return [tag("p", head), choice_html(now), tag("h4", "tried so far"), trials_html(self)]


def explore(
    function: Function,
    *inputs: Any,
    out: Any = None,
    target: str | None = None,
    options: Options | None = None,
) -> Explorer:
    """Return an interactive view of the code of *function* for arrays like *inputs*.

    :arg function: a function of a program.
    :arg inputs: arrays, or ``tcdsl.spec(...)``, for which nothing can be timed.
    :arg out: arrays for the results, as in a call.
    :arg target: the initial target; by default that of the arrays' device.
    :arg options: the initial options; by default those of *function*.
    :raises OptionError: (TC064) *function* is not a function; (TC060) *options* are invalid.
    :raises ShapeError: *inputs* do not fit *function*.
    :raises TargetError: (TC065) there is no such target.
    """
    require_function(function, "explore", ("specs", "specialise", "compile"))
    require_choices(target, options)
    chosen = choose_target(target, function.specs(inputs))
    function.specialise(*inputs)  # what does not fit is the caller's mistake, not an option's
    return Explorer(function, inputs, out, chosen, options or function.options)


def tried(
    function: Function, inputs: tuple[Any, ...], out: Any, target: str, options: Options
) -> Trial:
    """Return what becomes of *function* with these options."""
    trial = Trial(target, options)
    try:
        executable = function.compile(*inputs, target=target, options=options)
        trial = replace(trial, executable=executable)
        if target in _TIMED and not any(isinstance(value, ArraySpec) for value in inputs):
            result = executable(*inputs, out=out)
            call = executable.bind(*inputs, out=result if out is None else out)
            trial = replace(trial, timing=timer_of(target)(call, SECONDS))
    except TCError as error:
        trial = replace(trial, error=error)
    return trial


def _line(trial: Trial) -> str:
    return f"  {trial.time_text:>16}  {trial.label}"


# --- as HTML -----------------------------------------------------------------------------------


def choice_html(trial: Trial) -> Html:
    """Return the kernels, the schedule and the code of a choice, or its error."""
    parts: list[Child] = []
    if trial.error is not None:
        parts += error_html(trial.error)
    if trial.executable is not None:
        executable = trial.executable
        parts += [
            kernels_html(executable.kernels),
            *(
                details(name, stage_html(executable, name), is_open=name == "schedule")
                for name in ("schedule", "code")
            ),
        ]
    return tag("div", parts)


def stage_html(executable: Executable, name: str) -> Html:
    """Return a stage as a part of a display."""
    stage = view_of(executable, name)
    if isinstance(stage, StageText):
        return block(stage.text)
    with COMPILE_LOCK:
        return stage.body(fresh_anchors(), False)


def kernels_html(kernels: tuple[Mapping[str, Any], ...]) -> Html:
    """Return what each kernel uses of the machine, and why it looks as it does."""
    is_gpu = any({"grid", "memset_bytes", "library"} & kernel.keys() for kernel in kernels)
    head = ["kernel", *(("grid", "block", "shared memory") if is_gpu else ()), "why"]
    rows = []
    for kernel in kernels:
        why = tag("div", [tag("div", reason) for reason in kernel.get("why", ())])
        rows.append([kernel["name"], *(_used(kernel) if is_gpu else ()), why])
    return table(head, rows)


def _used(kernel: Mapping[str, Any]) -> list[str]:
    if "grid" not in kernel:  # a memset, or a library's call
        return ["-"] * 3
    grid, block = (_extents(kernel[name]) for name in ("grid", "block"))
    return [grid, block, f"{kernel['shared']:,} B"]


def _extents(extents: tuple[int, ...]) -> str:
    """Return a grid or block without the ones at its end."""
    last = max((axis for axis, extent in enumerate(extents) if extent != 1), default=0)
    return " x ".join(map(str, extents[: last + 1]))


def trials_html(explorer: Explorer) -> Html:
    """Return all choices with their times as bars, the fastest in another colour."""
    timed = [t.timing.median_us for t in explorer.trials if t.timing]
    longest = max(timed, default=1.0)
    rows = []
    for trial in explorer.trials:
        width = 100 * trial.timing.median_us / longest if trial.timing else 0
        paint = "good" if trial is explorer.best else "block"
        bar = tag("span", "", class_=f"bar ink-{paint}", style=_bar_style(width))
        is_now = trial is explorer.current
        name = tag("strong", trial.label) if is_now else trial.label
        rows.append([name, trial.time_text, bar])
    return table(["options", "time", ""], rows)


def _bar_style(percent: float) -> str:
    """Return the style of a bar, which sanitised hosts leave out: the numbers stand beside it."""
    return (
        f"display:inline-block;width:{1.2 * percent:.0f}px;height:.7em;background:currentColor;"
        "border-radius:2px"
    )
