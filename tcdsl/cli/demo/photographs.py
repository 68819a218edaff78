"""Blur and edge detection of photographs, each one comprehension."""

from pathlib import Path
from typing import Any

import numpy as np

import tcdsl

NAMES = ("china", "flower")

PROGRAM = """
# A picture's border is repeated outside, so that the result has the picture's size.
def blur(uint8(H, W, C) picture, float(K) weight) -> (uint8 soft) {
    across(y, x, c) +=! float(picture(y, x + j, c)) * weight(j)
    smooth(y, x, c) +=! across(y + i, x, c) * weight(i)
    soft(y, x, c) = uint8(smooth(y, x, c) + 0.5)
}

def edges(uint8(H, W, C) picture, float(K, K) slope) -> (strength) {
    grey(y, x) +=! float(picture(y, x, c)) / float(C)
    down(y, x) +=! grey(y + i, x + j) * slope(i, j)
    right(y, x) +=! grey(y + i, x + j) * slope(j, i)
    strength(y, x) = sqrt(down(y, x) * down(y, x) + right(y, x) * right(y, x))
}
"""

Array = np.ndarray[Any, Any]

BLUR_RADIUS = 9
BLUR_WIDTH = 4.0  # standard deviation, pixels
SLOPE_RADIUS = 2
SLOPE_WIDTH = 1.0
# The share of pixels that may saturate, so that a few strong edges do not dim all others.
BRIGHTEST = 0.01


def load(name: str) -> Array:
    """Return scikit-learn's photograph *name*: uint8, (height, width, 3)."""
    from sklearn.datasets import load_sample_image  # an extra, and slow to import

    return np.ascontiguousarray(load_sample_image(f"{name}.jpg"))


def gaussian(radius: int, width: float) -> Array:
    """Return the weights exp(-d^2 / 2 width^2), |d| <= radius, their sum 1."""
    distance = np.arange(-radius, radius + 1)
    weight = np.exp(-0.5 * (distance / width) ** 2)
    return np.asarray(weight / weight.sum(), np.float32)


def gaussian_slope(radius: int, width: float) -> Array:
    """Return the derivative, along the first axis, of a two-dimensional Gaussian."""
    weight = gaussian(radius, width)
    distance = np.arange(-radius, radius + 1) / width**2
    return np.multiply.outer(weight * distance, weight).astype(np.float32)


def with_border(picture: Array, radius: int) -> Array:
    """Return *picture* with its outermost pixels repeated *radius* times on each side."""
    return np.pad(picture, ((radius, radius), (radius, radius), (0, 0)), mode="edge")


def as_picture(strength: Array) -> Array:
    """Return *strength* (not negative) as grey values, the strongest hundredth white."""
    white = np.quantile(strength, 1 - BRIGHTEST)
    return np.asarray(np.round(255 * np.minimum(strength / white, 1) ** 0.7), np.uint8)


def treat(picture: Array) -> dict[str, Array]:
    """Return the pictures to show: the original, its blur and its edges."""
    program = tcdsl.define(PROGRAM)
    soft = program.blur(with_border(picture, BLUR_RADIUS), gaussian(BLUR_RADIUS, BLUR_WIDTH))
    strength = program.edges(
        with_border(picture, SLOPE_RADIUS), gaussian_slope(SLOPE_RADIUS, SLOPE_WIDTH)
    )
    return {"original": picture, "blur": soft, "edges": as_picture(strength)}


def side_by_side(pictures: dict[str, Array], gap: int = 8) -> Array:
    """Return the pictures in one row, *gap* white pixels between them."""
    coloured = [
        p if p.ndim == 3 else np.repeat(p[:, :, None], 3, axis=2) for p in pictures.values()
    ]
    white = np.full((coloured[0].shape[0], gap, 3), 255, np.uint8)
    row = [piece for picture in coloured for piece in (picture, white)][:-1]
    return np.concatenate(row, axis=1)


def save(name: str, pictures: dict[str, Array], folder: Path) -> list[Path]:
    """Write each picture, and all of them side by side, as PNG; return the files' paths."""
    from PIL import Image  # an extra

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind, picture in {**pictures, "side-by-side": side_by_side(pictures)}.items():
        path = folder / f"{name}-{kind}.png"
        Image.fromarray(picture).save(path)
        paths.append(path)
    return paths
