"""Register tiles of triangles and bands: whole tiles in loops of their own."""

import re
from collections.abc import Callable

from tcdsl.driver import Compiled

HEAD = "def f(float(M,K) a, float(K,N) b) -> (c) { c(m,n) +=! a(m,k) * b(k,n) "
GUARDS = {
    "lower": "where m in 0:M, k in 0:m+1 }",
    "upper": "where m in 0:M, k in m:K }",
    "band": "where k in 0:K, exists m - 20 <= k, exists k <= m + 20 }",
    "columns": "where n in 0:N, k in 0:n+1 }",
}  # fmt: skip


def test_whole_tiles_have_constant_bounds(compiled: Callable[..., Compiled]) -> None:
    for name in ("lower", "band"):
        body = compiled(HEAD + GUARDS[name], (160, 160), (160, 96)).source.body
        rows = [
            re.findall(r"unroll \d+\n *for \(int64_t ([^)]*)\)", part)[-1]
            for part in body.split(" = tc_mad_f32(")[:-1]
        ]
        whole = [row for row in rows if re.fullmatch(r"(c\d) = 0; \1 <= \d+; \1 \+= 1", row)]
        assert len(whole) == 1 and len(rows) in (2, 3), rows


def test_results(check_all: Callable[..., None]) -> None:
    sizes = [((160, 160), (160, 96)), ((131, 131), (131, 103)), ((1, 1), (1, 1)), ((3, 3), (3, 0))]
    check_all([(HEAD + guard, list(shapes)) for guard in GUARDS.values() for shapes in sizes])
