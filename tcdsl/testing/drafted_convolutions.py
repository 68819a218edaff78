"""Convolutions in the making, of one to three dimensions, and their gradients.

    forward    t(n, f, h) +=! (2*h + r - 1 >= 0 && 2*h + r - 1 < S0 ? a0(n, c, 2*h + r - 1) : 0)
                              * a1(f, c, r)
    weights    t(f, c, r) +=! a0(n, f, h) * (... ? a1(n, c, 2*h + r - 1) : 0)
    data       t(n, c, x) +=! ((x + 1 - r) % 2 == 0 && ... ? a0(n, f, (x + 1 - r) / 2) : 0)
                              * a1(f, c, r)
    scattered  t(n, c, 2*h + r) +=! a0(n, f, h) * a1(f, c, r)

Each dimension has a stride, a dilation and a padding; images, channels, filters and groups may be
missing, so that each channel may be alone.
"""

from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.records import dataclass
from tcdsl.testing.draft import Extent, Written
from tcdsl.testing.drafted_products import Axes, Axis, Products, element

TAPS = (3, 1, 2, 5, 7)


@dataclass(frozen=True, slots=True)
class Spatial:
    """A dimension of a convolution: result *at* reads ``stride * at + dilation * tap - pad``."""

    at: Axis
    tap: Axis
    stride: int
    dilation: int
    pad: int

    @property
    def reach(self) -> int:
        """How many elements an unpadded image has at least."""
        taps = self.dilation * (self.tap.value - 1) + 1
        return taps + self.stride * (self.at.value - 1) if self.at.value else taps - 1

    @property
    def position(self) -> str:
        after = f" - {self.pad}" if self.pad else ""
        return f"{_times(self.stride, self.at)} + {_times(self.dilation, self.tap)}{after}"


@dataclass(frozen=True, slots=True)
class Layer:
    """The axes of a convolution; each of the first four is there or is not."""

    images: Axes
    groups: Axes
    filters: Axes
    channels: Axes
    dims: tuple[Spatial, ...]

    @property
    def at(self) -> Axes:
        return tuple(dim.at for dim in self.dims)

    @property
    def taps(self) -> Axes:
        return tuple(dim.tap for dim in self.dims)

    @property
    def weights(self) -> Axes:
        return self.groups + self.filters + self.channels + self.taps


def _times(factor: int, axis: Axis) -> str:
    return axis.name if factor == 1 else f"{factor}*{axis.name}"


def _layer(d: Products, *, has_pads: bool) -> Layer:
    rank = d.choose(2, 1, 2, 3)
    taps = []
    for name in "rst"[:rank]:
        taps.append(d.axis(name, d.choose(*(tap for tap in TAPS if tap <= max(1, d.room)))))
        d.room //= taps[-1].value
    groups = d.axes("g" if d.rarely(3) else "", (2, 3, 4, 8, 5, 17))
    filters = d.axes("f" if not groups or d.choose(True, False) else "")
    channels = d.axes("c" if not groups or d.choose(True, False) else "")
    at = d.axes("hwy"[:rank])
    images = d.axes(d.choose("n", "n", ""))
    dims = tuple(
        Spatial(
            place, tap, d.choose(1, 1, 2, 3), d.choose(1, 1, 2),
            d.choose(0, 1, 2) if has_pads else 0,
        )
        for place, tap in zip(at, taps, strict=True)
    )  # fmt: skip
    return Layer(images, groups, filters, channels, dims)


def _image(d: Products, layer: Layer, *, may_infer: bool) -> Written:
    """Return the read of the image: windows, guarded where they are padded."""
    dims = {axis.name: (axis.size, axis.name) for axis in layer.images + layer.groups}
    dims |= {axis.name: (axis.size, axis.name) for axis in layer.channels}
    d.bound.update(dims)
    guards = []
    # What is read under a condition bounds no index.
    may_infer = may_infer and not any(dim.pad for dim in layer.dims)
    for dim in layer.dims:
        size, guard = _window(d, dim, may_infer=may_infer)
        dims[dim.at.name] = size, dim.position
        guards += guard
    order = d._draw(d._st.permutations(list(dims))) if d.rarely(2) else list(dims)
    array = d.parameter([dims[name][0] for name in order], d.dtype)
    read = Written(element(array.name, [dims[name][1] for name in order]), d.dtype)
    if guards:
        form = "({} ? {} : 0)"
        if d.dtype.is_float and d.choose(True, False):
            form, read = "({} ? float({}) : 0.0)", Written(read.text, FLOAT32)
        return Written(form.format(" && ".join(guards), read.text), read.dtype)
    return d.computed(read, layer.channels) if d.rarely(4) else read


def _window(d: Products, dim: Spatial, *, may_infer: bool) -> tuple[Extent, list[str]]:
    """Return the extent of an image along *dim*, and what keeps positions inside."""
    if not dim.pad:
        if may_infer and d.choose(True, False):  # the range of the results follows from it
            d.bound.add(dim.at.name)
            slack = d.number(0, dim.stride - 1) if dim.at.value else dim.stride - 1
            return d.fresh(dim.reach + slack), []
        return d.fresh(dim.reach + d.number(0, 3)), []
    length = max(1, dim.reach - dim.pad - d.number(0, dim.pad))
    size = dim.at.size if length == dim.at.value else d.fresh(length)
    return size, [f"{dim.position} >= 0", f"{dim.position} < {size.text}"]


def convolution(d: Products) -> None:
    """Sum over channels and taps."""
    layer = _layer(d, has_pads=True)
    value = d.product(_image(d, layer, may_infer=True), d.operand(layer.weights))
    left = d.shuffled(layer.images + layer.groups + layer.filters + layer.at)
    d.statement(left, "+=!", value, layer.channels + layer.taps)


def weight_gradient(d: Products) -> None:
    """Sum over images and places: a small result of a long sum."""
    layer = _layer(d, has_pads=True)
    results = d.operand(layer.images + layer.groups + layer.filters + layer.at)
    value = d.product(results, _image(d, layer, may_infer=False))
    d.statement(d.shuffled(layer.weights), "+=!", value, layer.images + layer.at)


def data_gradient(d: Products) -> None:
    """Sum over filters and taps: each element collects from the results that read it."""
    layer = _layer(d, has_pads=True)
    places = tuple(_place(name, dim) for name, dim in zip("xyz", layer.dims, strict=False))
    outer = layer.images + layer.groups + layer.filters
    d.bound.update(axis.name for axis in outer)
    guards, subscripts = [], []
    for place, dim in zip(places, layer.dims, strict=True):
        at = f"{place.name} + {dim.pad} - {_times(dim.dilation, dim.tap)}"
        guards += [f"{at} >= 0", f"{at} < {dim.stride * dim.at.value}"]
        if dim.stride > 1:
            guards.append(f"({at}) % {dim.stride} == 0")
            at = f"({at}) / {dim.stride}"
        subscripts.append(at)
    array = d.parameter([axis.size for axis in outer + layer.at], d.dtype)
    read = element(array.name, [*(axis.name for axis in outer), *subscripts])
    value = Written(f"({' && '.join(guards)} ? {read} : 0)", d.dtype)
    value = d.product(value, d.operand(layer.weights))
    left = d.shuffled(layer.images + layer.groups + layer.channels + places)
    d.statement(left, "+=!", value, layer.filters + layer.taps)


def _place(name: str, dim: Spatial) -> Axis:
    """Return the axis of an image's elements along *dim*."""
    size = max(1, dim.reach - 2 * dim.pad)
    return Axis(name, Extent(str(size), size))


def _reached(name: str, dim: Spatial) -> Axis:
    """Return the axis of the elements that results along *dim* reach: none, if there are none."""
    return _place(name, dim) if dim.at.value else Axis(name, Extent("0", 0))


def scattered(d: Products) -> None:
    """The same sums, each result adding to the elements that it read; no element is left out."""
    layer = _layer(d, has_pads=False)
    dims = tuple(
        Spatial(dim.at, dim.tap, min(dim.stride, dim.tap.value), 1, 0) if dim.stride > 1 else dim
        for dim in layer.dims
    )
    places = tuple(_reached(name, dim) for name, dim in zip("xyz", dims, strict=False))
    outer = layer.images + layer.groups + layer.channels
    value = d.product(
        d.operand(layer.images + layer.groups + layer.filters + layer.at), d.operand(layer.weights)
    )
    target = [axis.name for axis in outer] + [dim.position for dim in dims]
    indices = outer + layer.filters + layer.at + layer.taps
    d.statement(outer + places, "+=!", value, indices, target)


CONVOLUTIONS = (weight_gradient, data_gradient, scattered)
