"""Products of which threads compute an operand, in registers (strategies/register_operands.py)."""

Shapes = list[tuple[int, ...]]
Y = "-> (bfloat16(M,N) y)"
INT8 = (
    f"bfloat16(M,K) x, int8(N,K) w, float(N) s) {Y} {{ y(m,n) +=! x(m,k) * (float(w(n,k)) * s(n))"
)
GROUPS = (
    f"bfloat16(M,K) x, int8(N,K) w, float(N,G) s) {Y}"
    " { y(m,n) +=! x(m,k) * bfloat16(float(w(n,k)) * s(n, k / 32)) where k in 0:K"
)
RELU_TO_K = "y(m,n) +=! x(m,k) * fmax(w(n,k), 0.0) where k in 0:K"
FORMS = {
    "int8": INT8,
    "groups": GROUPS,
    "int8, turned": f"bfloat16(M,K) x, int8(K,N) w) {Y} {{ y(m,n) +=! x(m,k) * float(w(k,n))",
    "uint8 beside float16": "half(M,K) x, uint8(N,K) w) -> (y) { y(m,n) +=! x(m,k) * float(w(n,k))",
    "float8": "bfloat16(K,M) x, float8_e4m3(N,K) w) -> (y) { y(m,n) +=! x(k,m) * w(n,k)",
    "zero points": (
        "bfloat16(M,K) x, uint8(N,K) w, uint8(N) z) -> (y)"
        " { y(m,n) +=! x(m,k) * bfloat16(float(w(n,k)) - float(z(n)))"
    ),
    "relu": f"bfloat16(M,K) x, bfloat16(K,N) w) {Y} {{ y(m,n) +=! fmax(x(m,k), 0.0) * w(k,n)",
    "relu, turned": "half(K,M) x, half(N,K) w) -> (y) { y(m,n) +=! fmax(x(k,m), 0.0) * w(n,k)",
    "mask": f"bfloat16(M,K) x, bfloat16(K,N) w) {Y} {{ y(m,n) +=! (k <= m ? x(m,k) : 0.0) * w(k,n)",
    "scale of terms": (
        "bfloat16(M,K) x, bfloat16(K,N) w, bfloat16(K) r) -> (y)"
        " { y(m,n) +=! bfloat16(x(m,k) * r(k)) * w(k,n)"
    ),
    "cast": "bfloat16(M,K) x, float(N,K) w) -> (y) { y(m,n) +=! x(m,k) * bfloat16(w(n,k))",
    "batches": (
        "bfloat16(B,M,K) x, int8(B,N,K) w) -> (y) { y(b,m,n) +=! x(b,m,k) * float(w(b,n,k))"
    ),
    "bias after it": (
        f"bfloat16(M,K) x, int8(N,K) w, float(N) s, float(N) c) {Y}"
        " { t(m,n) +=! x(m,k) * (float(w(n,k)) * s(n))  y(m,n) = relu(t(m,n) + c(n))"
    ),
    "gated": (
        f"bfloat16(M,K) x, int8(N,K) w, int8(N,K) v, float(N) s, float(N) t) {Y}"
        " { a(m,n) +=! x(m,k) * (float(w(n,k)) * s(n))  b(m,n) +=! x(m,k) * (float(v(n,k)) * t(n))"
        "  y(m,n) = float(a(m,n)) * sigmoid(float(a(m,n))) * b(m,n)"
    ),
}  # fmt: skip
# Of a form, sizes that end within tiles, and within steps.
CASES: list[tuple[str, Shapes]] = [
    ("int8", [(100, 256), (192, 256), (192,)]),
    ("groups", [(9, 288), (80, 288), (80, 9)]),
    ("zero points", [(5, 400), (80, 400), (80,)]),
    ("relu", [(100, 200), (200, 136)]),
    ("int8, turned", [(200, 144), (144, 208)]),
    ("uint8 beside float16", [(70, 272), (80, 272)]),
    ("float8", [(272, 72), (80, 272)]),
    ("relu, turned", [(200, 104), (136, 200)]),
    ("mask", [(104, 200), (200, 136)]),
    ("scale of terms", [(70, 136), (136, 80), (136,)]),
    ("cast", [(70, 136), (80, 136)]),
    ("batches", [(2, 70, 144), (2, 80, 144)]),
    ("bias after it", [(40, 160), (72, 160), (72,), (72,)]),
    ("gated", [(70, 272), (136, 272), (136, 272), (136,), (136,)]),
]


def source_of(form: str) -> str:
    return f"def f({FORMS[form]} }}"
