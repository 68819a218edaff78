from pathlib import Path

import numpy as np
import pytest

from tcdsl.cli.demo import photographs

pytest.importorskip("PIL")


def test_weights_sum_to_one_and_slopes_to_zero() -> None:
    weight = photographs.gaussian(9, 4.0)
    assert weight.dtype == np.float32
    assert weight.sum() == pytest.approx(1)
    assert np.array_equal(weight, weight[::-1])
    slope = photographs.gaussian_slope(2, 1.0)
    assert slope.sum() == pytest.approx(0, abs=1e-6)
    assert np.array_equal(slope, -slope[::-1])


def test_a_flat_picture_stays_and_has_no_edges() -> None:
    grey = np.full((31, 37, 3), 100, np.uint8)
    pictures = photographs.treat(grey)
    assert np.array_equal(pictures["blur"], grey)
    assert pictures["edges"].shape == (31, 37)


def test_a_step_becomes_a_line() -> None:
    step = np.zeros((20, 24, 3), np.uint8)
    step[:, 12:] = 200
    pictures = photographs.treat(step)
    assert pictures["edges"].dtype == np.uint8
    assert (pictures["edges"][:, 11:13] == 255).all()
    assert (pictures["edges"][:, :8] == 0).all()
    across = pictures["blur"][10, :, 0].astype(int)
    assert (np.diff(across) >= 0).all()
    assert across[0] < 5
    assert across[-1] > 195


def test_every_picture_is_written_and_all_beside_each_other(tmp_path: Path) -> None:
    from PIL import Image

    pictures = {"original": np.zeros((4, 5, 3), np.uint8), "edges": np.zeros((4, 5), np.uint8)}
    paths = photographs.save("flower", pictures, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [
        "flower-original.png", "flower-edges.png", "flower-side-by-side.png",
    ]  # fmt: skip
    assert [Image.open(path).size for path in paths] == [(5, 4), (5, 4), (18, 4)]


def test_the_photographs_are_there() -> None:
    pytest.importorskip("sklearn")
    for name in photographs.NAMES:
        picture = photographs.load(name)
        assert picture.shape == (427, 640, 3)
        assert picture.dtype == np.uint8
