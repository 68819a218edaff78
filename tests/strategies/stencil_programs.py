"""Chains of stencils: the classics, and random ones."""

import random
from collections.abc import Iterator

Case = tuple[str, list[tuple[int, ...]]]

HARRIS = """
def harris(float(H, W, 3) image, float k) -> (response) {
    gray(y, x) = 0.299 * image(y, x, 0) + 0.587 * image(y, x, 1) + 0.114 * image(y, x, 2)
    ix(y, x) = (gray(y, x + 2) - gray(y, x)) + 2.0 * (gray(y + 1, x + 2) - gray(y + 1, x))
        + (gray(y + 2, x + 2) - gray(y + 2, x))
    iy(y, x) = (gray(y + 2, x) - gray(y, x)) + 2.0 * (gray(y + 2, x + 1) - gray(y, x + 1))
        + (gray(y + 2, x + 2) - gray(y, x + 2))
    ixx(y, x) = ix(y, x) * ix(y, x)
    iyy(y, x) = iy(y, x) * iy(y, x)
    ixy(y, x) = ix(y, x) * iy(y, x)
    sxx(y, x) +=! ixx(y + dy, x + dx) where dy in 0:3, dx in 0:3
    syy(y, x) +=! iyy(y + dy, x + dx) where dy in 0:3, dx in 0:3
    sxy(y, x) +=! ixy(y + dy, x + dx) where dy in 0:3, dx in 0:3
    det(y, x) = sxx(y, x) * syy(y, x) - sxy(y, x) * sxy(y, x)
    trace(y, x) = sxx(y, x) + syy(y, x)
    response(y, x) = det(y, x) - k * trace(y, x) * trace(y, x)
}
"""
UNSHARP = """
def unsharp(float(C, H, W) image, float(5) w) -> (sharp) {
    across(c, y, x) +=! image(c, y, x + k) * w(k)
    blur(c, y, x) +=! across(c, y + k, x) * w(k)
    detail(c, y, x) = image(c, y + 2, x + 2) - blur(c, y, x)
    sharp(c, y, x) = fabs(detail(c, y, x)) < 0.1 ? image(c, y + 2, x + 2)
        : image(c, y + 2, x + 2) + 2.0 * detail(c, y, x)
}
"""
CHANNELS = """
def channels(float(H, W, 3) image, float weight) -> (sharp) {
    across(i, j, c) = (image(i, j, c) + image(i, j + 1, c) + image(i, j + 2, c)) / 3
    blur(i, j, c) = (across(i, j, c) + across(i + 1, j, c) + across(i + 2, j, c)) / 3
    sharp(i, j, c) = fabs(image(i + 1, j + 1, c) - blur(i, j, c)) < 0.1 ? image(i + 1, j + 1, c)
        : image(i + 1, j + 1, c) * (1 + weight) - blur(i, j, c) * weight
}
"""
BLURS = """
def blurs(float(H, W) a) -> (d) {
    b(y, x) +=! a(y + j, x + i) / 9 where i in 0:3, j in 0:3
    c(y, x) +=! b(y + j, x + i) / 9 where i in 0:3, j in 0:3
    d(y, x) +=! c(y + j, x + i) / 9 where i in 0:3, j in 0:3
}
"""
JACOBI = """
def jacobi(float(N, N) a) -> (d) {
    b(i, j) = 0.2 * (a(i, j) + a(i - 1, j) + a(i + 1, j) + a(i, j - 1) + a(i, j + 1))
    c(i, j) = 0.2 * (b(i, j) + b(i - 1, j) + b(i + 1, j) + b(i, j - 1) + b(i, j + 1))
    d(i, j) = 0.2 * (c(i, j) + c(i - 1, j) + c(i + 1, j) + c(i, j - 1) + c(i, j + 1))
}
"""
JACOBI_3D = """
def jacobi(float(N, M, K) a) -> (c) {
    b(i, j, k) = 0.5 * a(i, j, k) + 0.25 * (a(i - 1, j, k) + a(i + 1, j, k) - a(i, j - 1, k))
        + 0.125 * (a(i, j + 1, k) + a(i, j, k - 1) + a(i, j, k + 1))
    c(i, j, k) = 0.5 * b(i, j, k) + 0.25 * (b(i - 1, j, k) + b(i + 1, j, k) - b(i, j - 1, k))
        + 0.125 * (b(i, j + 1, k) + b(i, j, k - 1) + b(i, j, k + 1))
}
"""
LIFE = """
def life(int32(H, W) a) -> (c, b) {
    n(i, j) +=! a((i + di - 1 + H) % H, (j + dj - 1 + W) % W)
        where i in 0:H, j in 0:W, di in 0:3, dj in 0:3
    b(i, j) = n(i, j) == 3 || (n(i, j) == 4 && a(i, j) == 1) ? 1 : 0
    up(i, j) = b(i, j) + (i > 0 ? b(i - 1, j) : 0) + (i + 1 < H ? b(i + 1, j) : 0)
    m(i, j) = up(i, j) + (j > 0 ? up(i, j - 1) : 0) + (j + 1 < W ? up(i, j + 1) : 0)
    c(i, j) = m(i, j) == 3 || (m(i, j) == 4 && b(i, j) == 1) ? 1 : 0
}
"""
EDGES = """
def edges(float(N) x) -> (z, y) {
    y(i) = x(i - 1) + x(i + 1)
    y(i) = x(i) where i in 0:1
    y(i) = 2 * x(i) where i in N-1:N
    z(i) = (i > 0 ? y(i - 1) : y(i)) - (i + 1 < N ? y(i + 1) : y(i))
}
"""
HALVES = """
def halves(float16(N, M) x, bfloat16(N, M) w) -> (y, z) {
    a(i, j) = x(i, j) * w(i, j)
    y(i, j) = a(i, j) - a(i, j + 3)
    z(i, j) = y(i + 1, j) * y(i, j + 1) + a(i, j)
}
"""
SHIFTED_BATCH = """
def shifted(float(N, M) x) -> (y) {
    t(i, j) = x(i + 2, j)
    y(i, j) = t(i, j + 1) - t(i, j)
}
"""
TORUS = """
def torus(float(H, W) u, float(H, W) v) -> (y, z) {
    a(i, j) = u(i, j) + v((i + H - 1) % H, j) where i in 0:H
    b(j, i) = u(i, (j + 1) % W) - 0.5 * v((i + H - 1) % H, (j + W - 2) % W) + i
        where i in 0:H, j in 0:W
    c(i, j) = a(i, (j + 1) % W) * b(j, (i + H - 1) % H) + a(i, j) where i in 0:H, j in 0:W
    y(i, j) = c((i + 1) % H, j) - c(i, (j + W - 1) % W) where i in 0:H, j in 0:W
    z(i, j) = c((i + 2) % H, (j + W - 1) % W) + b(j, i) where i in 0:H, j in 0:W
}
"""
RING = """
def ring(float(N) x) -> (y) {
    t(i) = x((i + 3) % N) - x(i) where i in 0:N
    s(i) = t((i + N - 1) % N) + t((i + 1) % N) where i in 0:N
    y(i) = s((i + N - 2) % N) * s(i) where i in 1:N
}
"""
# Program, and shapes that are smaller than the halo, of one tile, primes, and several tiles.
CLASSICS: list[tuple[str, list[list[tuple[int, ...]]]]] = [
    (HARRIS, [[(h, w, 3), ()] for h, w in ((5, 5), (6, 9), (23, 31), (40, 37))]),
    (UNSHARP, [[(c, h, w), (5,)] for c, h, w in ((1, 5, 5), (3, 11, 17), (2, 37, 29))]),
    (CHANNELS, [[(h, w, 3), ()] for h, w in ((3, 35), (7, 40), (19, 53))]),
    (BLURS, [[(h, w)] for h, w in ((7, 7), (8, 13), (30, 41))]),
    (JACOBI, [[(n, n)] for n in (7, 8, 19, 41)]),
    (JACOBI_3D, [[shape] for shape in ((5, 5, 5), (5, 8, 23), (13, 11, 19))]),
    (LIFE, [[(h, w)] for h, w in ((1, 1), (2, 3), (17, 23), (31, 8))]),
    (EDGES, [[(n,)] for n in (3, 4, 16, 53)]),
    (TORUS, [[(h, w)] * 2 for h, w in ((3, 2), (7, 11), (23, 37), (8, 64))]),
    (RING, [[(n,)] for n in (3, 5, 16, 53)]),
    (SHIFTED_BATCH, [[shape] for shape in ((3, 2), (3, 19), (7, 40))]),
    (HALVES, [[(n, m)] * 2 for n, m in ((2, 4), (13, 29), (33, 20))]),
]


class _Draft:
    """A random chain, as it is drawn."""

    def __init__(self, r: random.Random) -> None:
        self.r = r
        self.axes = ["i", "j", "k"][: r.choice((1, 2, 2, 3))]
        self.batch = [axis for axis in self.axes[1:] if r.random() < 0.2]
        self.sizes = {axis: r.choice((9, 13, 17, 24)) for axis in self.axes}
        self.arrays = ["x"]
        self.lines: list[str] = []

    def read(self, name: str) -> str:
        far = (0, 0, 0, 1, 2) if self.r.random() < 0.8 else (-1, 0, 1)
        at = [
            axis if axis in self.batch or not (c := self.r.choice(far)) else f"{axis} + ({c})"
            for axis in self.axes
        ]
        load = f"{name}({', '.join(at)})"
        axis = self.axes[0]
        if name == "x" and self.r.random() < 0.3:
            back = ", ".join(f"{a} - 1" if a == axis else a for a in self.axes)
            return f"({axis} > 0 ? {name}({back}) : {name}({', '.join(self.axes)}))"
        return load

    def stage(self) -> None:
        name = f"t{len(self.lines)}"
        recent = self.arrays[-3:]
        left = f"{name}({', '.join(self.axes)})"
        if self.r.random() < 0.3:
            axis = self.r.choice([a for a in self.axes if a not in self.batch] or self.axes)
            at = ", ".join(f"{a} + r" if a == axis else a for a in self.axes)
            op = self.r.choice(("+=!", "max=!"))
            self.lines.append(f"{left} {op} {self.r.choice(recent)}({at}) where r in 0:3")
        else:
            reads = [self.read(self.r.choice(recent)) for _ in range(self.r.randint(1, 3))]
            self.lines.append(f"{left} = {' - 0.5 * '.join(reads)}")
        self.arrays.append(name)

    def finished(self) -> Case:
        results = [name for name in self.arrays[1:-1] if self.r.random() < 0.25]
        dims = ", ".join("NMK"[: len(self.axes)])
        kind = self.r.choice(("float", "float", "double", "float16"))
        body = "".join(f"    {line}\n" for line in self.lines)
        head = f"def f({kind}({dims}) x) -> ({', '.join([*results, self.arrays[-1]])})"
        return f"{head} {{\n{body}}}\n", [tuple(self.sizes.values())]


def random_chains(seed: int, count: int) -> Iterator[Case]:
    """Yield *count* chains of two to six stages, the same for the same *seed*."""
    r = random.Random(seed)
    for _ in range(count):
        draft = _Draft(r)
        for _ in range(r.randint(2, 6)):
            draft.stage()
        yield draft.finished()
