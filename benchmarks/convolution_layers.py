"""Convolution layers of networks, as benchmarks/convolutions.py takes them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: N images of C channels and H x H pixels, F filters of T x T taps.

    *depthwise*, each channel has a filter of its own.
    """

    N: int
    H: int
    C: int
    F: int
    T: int = 1
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    depthwise: bool = False

    @property
    def P(self) -> int:
        """How many rows and columns the results have."""
        return (self.H + 2 * self.pad - self.dilation * (self.T - 1) - 1) // self.stride + 1

    @property
    def operations(self) -> float:
        channels = 1 if self.depthwise else self.C
        return 2.0 * self.N * self.P**2 * self.F * channels * self.T**2

    @property
    def label(self) -> str:
        """Its taps, stride, pixels and channels."""
        stride = f"s{self.stride}" if self.stride > 1 else ""
        channels = f"each of {self.C}" if self.depthwise else f"{self.C} to {self.F}"
        return f"{self.T}x{self.T}{stride} {self.H} {channels}"


LAYERS: Mapping[str, Layer] = {
    "3x3 56": Layer(32, 56, 64, 64, 3, 1, 1),
    "3x3 28": Layer(32, 28, 128, 128, 3, 1, 1),
    "3x3 14": Layer(32, 14, 256, 256, 3, 1, 1),
    "3x3 7": Layer(32, 7, 512, 512, 3, 1, 1),
    "1x1 56": Layer(32, 56, 64, 256),
    "1x1 14": Layer(32, 14, 1024, 256),
    "7x7s2": Layer(32, 224, 3, 64, 7, 2, 3),
    "3x3s2 56": Layer(32, 56, 128, 128, 3, 2, 1),
    "3x3d2 28": Layer(32, 28, 128, 128, 3, 1, 2, 2),
}


def _resnet50(images: int) -> Iterator[Layer]:
    yield Layer(images, 224, 3, 64, 7, 2, 3)
    channels, pixels = 64, 56
    for width, blocks, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            stride = first if block == 0 else 1
            yield Layer(images, pixels, channels, width)
            yield Layer(images, pixels, width, width, 3, stride, 1)
            if block == 0:
                yield Layer(images, pixels, channels, 4 * width, 1, stride)
            pixels //= stride
            yield Layer(images, pixels, width, 4 * width)
            channels = 4 * width


def _vgg16(images: int) -> Iterator[Layer]:
    channels, pixels = 3, 224
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            yield Layer(images, pixels, channels, width, 3, 1, 1)
            channels = width
        pixels //= 2


def _mobilenet_v2(images: int) -> Iterator[Layer]:
    yield Layer(images, 224, 3, 32, 3, 2, 1)
    channels, pixels = 32, 112
    stages = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    )  # fmt: skip
    for factor, width, blocks, first in stages:
        for block in range(blocks):
            stride, inside = first if block == 0 else 1, factor * channels
            if factor > 1:
                yield Layer(images, pixels, channels, inside)
            yield Layer(images, pixels, inside, inside, 3, stride, 1, depthwise=True)
            pixels //= stride
            yield Layer(images, pixels, inside, width)
            channels = width
    yield Layer(images, pixels, channels, 1280)


def counted(layers: Iterator[Layer]) -> dict[Layer, int]:
    """Return { layer -> how many there are of it }."""
    found: dict[Layer, int] = {}
    for layer in layers:
        found[layer] = found.get(layer, 0) + 1
    return found


def networks(images: int) -> dict[str, dict[Layer, int]]:
    """Return the layers of each network, for so many *images* of 224 x 224 pixels."""
    return {
        "resnet50": counted(_resnet50(images)), "vgg16": counted(_vgg16(images)),
        "mobilenet_v2": counted(_mobilenet_v2(images)),
    }  # fmt: skip
