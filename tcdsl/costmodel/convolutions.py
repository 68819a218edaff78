"""A convolution as a library takes it: sizes, windows, layouts, types, and how long it takes.

    Y(n,f,p,q) = sum over c, r, s of X(n,c, s p + d r - b, ..) * W(f,c,r,s)       zeros outside of X

Its gradients have the same three tensors, of which another one is computed.  It is plain data, as
:class:`~tcdsl.costmodel.matrix_products.MatrixProduct` is.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import prod
from typing import Any

from tcdsl.costmodel.chip import Chip, Unit
from tcdsl.costmodel.estimate import Estimate
from tcdsl.costmodel.matrix_products import ALIGNMENT, CALL_S, SIZES, TILE, UNITS
from tcdsl.records import dataclass


class Computed(StrEnum):
    """Which of the tensors a convolution computes of the two others."""

    RESULT = "result"  # Y: the forward pass
    IMAGE = "image"  # X: the gradient by data
    FILTER = "filter"  # W: the gradient by weights


@dataclass(frozen=True, slots=True)
class Window:
    """A spatial dimension: ``image[step * result + dilation * window - padding]``."""

    image: int
    window: int
    result: int
    step: int = 1
    dilation: int = 1
    padding: int = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.image, self.window, self.result, self.step, self.dilation, self.padding

    @property
    def is_whole(self) -> bool:
        """Whether there are as many results as windows fit the image with zeros on both sides."""
        room = self.image + 2 * self.padding - self.dilation * (self.window - 1) - 1
        return room >= 0 and room // self.step + 1 == self.result


@dataclass(frozen=True, slots=True)
class Convolution:
    """The sizes, and the arrays of image, filter and result, which lie without gaps in memory.

    Channels are last, or second.  All arrays are of type *dtype*, sums of type *summed*;
    *accumulates*: what is computed is added to what was there.
    """

    computed: Computed
    images: int
    channels: int
    filters: int
    windows: tuple[Window, ...]
    image: str
    filter: str
    result: str
    dtype: str
    summed: str
    is_channels_last: bool
    accumulates: bool = False

    @property
    def kinds(self) -> tuple[Computed, Computed, Computed]:
        """Two operands, in the order in which calls have them, and what is computed of them."""
        first, second = (kind for kind in Computed if kind is not self.computed)
        return first, second, self.computed

    @property
    def arrays(self) -> tuple[str, str, str]:
        """The arrays of :attr:`kinds`."""
        every = {
            Computed.IMAGE: self.image, Computed.FILTER: self.filter, Computed.RESULT: self.result
        }  # fmt: skip
        first, second, computed = (every[kind] for kind in self.kinds)
        return first, second, computed

    def sizes(self, kind: Computed) -> tuple[int, ...]:
        """Return the sizes of a tensor, channels second."""
        match kind:
            case Computed.IMAGE:
                return self.images, self.channels, *(w.image for w in self.windows)
            case Computed.FILTER:
                return self.filters, self.channels, *(w.window for w in self.windows)
            case Computed.RESULT:
                return self.images, self.filters, *(w.result for w in self.windows)

    def strides(self, kind: Computed) -> tuple[int, ...]:
        """Return the strides of a tensor in elements, in the order of :meth:`sizes`."""
        sizes = self.sizes(kind)
        order = [*range(len(sizes))]
        if self.is_channels_last:
            order = [0, *order[2:], 1]
        found, step = dict[int, int](), 1
        for dim in reversed(order):
            found[dim] = step
            step *= sizes[dim]
        return tuple(found[dim] for dim in range(len(sizes)))

    @property
    def operations(self) -> int:
        """The multiplications, each with an addition, those with zeros outside included."""
        each = prod(w.result * w.window for w in self.windows)
        return self.images * self.channels * self.filters * each

    def described(self) -> str:
        """Return it as text: ``result of 32 images of 64 x 56 x 56, ..., float32``."""
        image, window = (
            " x ".join(map(str, self.sizes(kind)[1:])) for kind in (Computed.IMAGE, Computed.FILTER)
        )
        last = ", channels last" if self.is_channels_last else ""
        what = f"{self.images} images of {image}, {self.filters} filters of {window}"
        return f"{self.computed} of {what}, {self.dtype}{last}"

    def to_json(self, *, with_names: bool = True) -> list[Any]:
        """Return plain data, without the arrays' names if these are not wanted."""
        names = [self.image, self.filter, self.result] if with_names else ["", "", ""]
        return [
            str(self.computed), [self.images, self.channels, self.filters],
            [list(w.numbers) for w in self.windows], names, self.dtype, self.summed,
            self.is_channels_last, self.accumulates,
        ]  # fmt: skip

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "Convolution":
        computed, sizes, windows, names, dtype, summed, is_last, accumulates = data
        images, channels, filters = map(int, sizes)
        image, filter_, result = map(str, names)
        return cls(
            Computed(computed), images, channels, filters,
            tuple(Window(*map(int, w)) for w in windows), image, filter_, result,
            str(dtype), str(summed), bool(is_last), bool(accumulates),
        )  # fmt: skip


# What cuDNN reaches of a unit's rate, without transforms (benchmarks/cudnn_calls.py on an H200):
# nine passes of 3.7e9 multiplications take 20 to 46 us in bfloat16, 28 at the mean; six in float32
# 226 to 459, 352 at the mean.
TENSOR_SHARE, FMA_SHARE = 0.35, 0.41
WHOLE_CHANNELS = 8  # of half types, 16 bytes
SECOND_COPIES = 2  # of images and results with channels second, which tensor cores' kernels reorder
MOST_WORKSPACE = 256 << 20


def why_not_surely(product: Convolution) -> str | None:
    """Return why a library may have no algorithm for *product*, or None: a plan must not fail.

    Of other types, ranks and channels a call is for those who name it.
    """
    if product.dtype == "float64" or len(product.windows) != 2:
        return "of this type and rank it may have no algorithm"
    channels = product.channels, product.filters
    if product.dtype != "float32" and any(count % WHOLE_CHANNELS for count in channels):
        return f"its channels or filters are no multiples of {WHOLE_CHANNELS}"
    return None


def bytes_of(product: Convolution) -> tuple[float, float]:
    """Return the bytes that *product* reads and writes at least."""
    sizes = {kind: float(SIZES[product.dtype] * prod(product.sizes(kind))) for kind in Computed}
    written = sizes.pop(product.computed)
    return sum(sizes.values()) + (written if product.accumulates else 0.0), written


def workspace_bytes(product: Convolution) -> int:
    """Return the memory that a call may use: for tensors in another order, and parts of sums."""
    wanted = (1 << 20) + 2 * int(sum(bytes_of(product)))
    return min(MOST_WORKSPACE, -(-wanted // ALIGNMENT) * ALIGNMENT)


def estimated(product: Convolution, chip: Chip, precision: str = "float32") -> Estimate:
    """Return how long a library's call takes: units or memory, the launch, and the host.

    :arg precision: of float32, see ``Options``.
    """
    unit = UNITS[product.dtype]
    if unit is Unit.FMA_F32 and precision == "tf32":
        unit = Unit.TENSOR_TF32
    rate = chip.rate(unit) or chip.rate(Unit.FMA_F32)
    share = FMA_SHARE if unit in (Unit.FMA_F32, Unit.FMA_F64) else TENSOR_SHARE
    rows, columns, terms = _matrix(product)
    tiles = -(-rows // TILE) * -(-columns // TILE)
    filled = min(1.0, tiles * max(1, terms // TILE) / chip.multiprocessors)
    moved = sum(bytes_of(product))
    if unit is not Unit.FMA_F32 and not product.is_channels_last:
        moved *= 1 + SECOND_COPIES
    times = {
        "launch": chip.launch_s,
        "memory": moved / chip.dram_copy_bytes_per_s,
        str(unit): product.operations / (share * rate * filled),
        "host": CALL_S,
    }
    busy = max(times["memory"], times[str(unit)])
    return Estimate(max(CALL_S, times["launch"] + chip.dram_latency_s + busy), times)


def _matrix(product: Convolution) -> tuple[int, int, int]:
    """Return the rows, columns and terms of the matrix product that *product* is."""
    sizes = [prod(product.sizes(kind)) for kind in Computed]
    pixels = {
        Computed.RESULT: product.images * prod(w.result for w in product.windows),
        Computed.IMAGE: product.images * prod(w.image for w in product.windows),
        Computed.FILTER: product.filters,
    }
    rows = pixels[product.computed]
    columns = sizes[list(Computed).index(product.computed)] // rows
    return rows, columns, max(1, product.operations // (rows * columns))
