"""Products of which a guard leaves nothing: copies of the operand that nobody reads met in memory.

What is read lives from its copy to its use; what is not was one buffer for several steps.
"""

from collections.abc import Callable

from tcdsl.costmodel.chip import Chip

SOURCE = """def f(float(C,H,W) x, float(F,C,R,S) w) -> (y) {
    y(h, f, u) +=! (h + 2*r - 2 >= 0 && h + 2*r - 2 < H && u + s - 2 >= 0 && u + s - 2 < W
        ? x(c, h + 2*r - 2, u + s - 2) : 0.0) * w(f, c, r, s) where h in 0:1, u in 0:1
}"""


def test_a_window_outside_of_the_image(
    check_emulated: Callable[..., None], small_chip: Chip
) -> None:
    check_emulated([(SOURCE, [(2, 11, 1), (17, 2, 7, 2)])], gpu=small_chip)
