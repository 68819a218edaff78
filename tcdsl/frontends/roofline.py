"""The roofline of a benchmark by matplotlib, for papers and slides: ``result.plot()``.

A notebook's display has the same picture without matplotlib (measurements.py).
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from tcdsl.options import BAD_ARGUMENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tcdsl.frontends.measurements import Measurements


def plot(found: "Measurements", axes: "Axes | None" = None) -> "Axes":
    """Return the roofline of *found*, on *axes* or on new ones.

    :raises OptionError: matplotlib is missing, or there is no roof to draw.
    """
    if find_spec("matplotlib") is None:
        raise BAD_ARGUMENT(argument="plot", what="matplotlib is not installed",
                           advice="pip install 'tcdsl[notebook]'")  # fmt: skip
    if found.ceilings is None or not found.operations:
        raise BAD_ARGUMENT(argument="plot", what="there is no roof for a call without arithmetic",
                           advice="look at the GB/s of the table")  # fmt: skip
    if axes is None:
        from matplotlib import pyplot

        _, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    ceilings = found.ceilings
    ridge = ceilings.peak_gflops / ceilings.copy_gbs
    low, high = min(found.intensity, ridge) / 5, max(found.intensity, ridge) * 5
    roof = [ceilings.roof_gflops(x) for x in (low, ridge, high)]
    label = f"{ceilings.copy_gbs:.3g} GB/s, {ceilings.peak_gflops:.3g} GFLOP/s"
    axes.loglog([low, ridge, high], roof, color="gray", label=label)
    for row in found.rows:
        axes.plot([found.intensity], [found.rate_gflops(row.name)], "o", label=row.name)
    axes.set_xlabel("operations a byte")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(found.title)
    axes.legend(fontsize="small")
    return axes
