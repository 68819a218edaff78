"""Small kernels, each of which one unit or one latency of a GPU limits (``tcdsl calibrate``).

What they compute is stored if it is one number of four billion, so that nothing can be left out.
A chase is a chain of loads, each of whose addresses needs the value before it: a number of a linear
congruential generator, plus what was loaded, which is 0.
"""

# Nodes of a chase are so far apart that no two share what the cache fetches at once.
NODE_BYTES = 256
UNROLLED = 16  # steps of arithmetic, of each of CHAINS
CHAINS = 8
CLUSTER = 8
KEPT = "if (sum == 0x9e3779b9u) *out = sum;"

_MEMORY = """
typedef unsigned long long u64;
#define EVERY(i, n) \\
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += step)
#define FOLD(v) ((v).x ^ (v).y ^ (v).z ^ (v).w)

// n vectors, a power of two, as often as total / n says: eight loads of a thread are on their way.
extern "C" __global__ void read_many(const uint4 *x, u64 n, u64 total, unsigned *out) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    unsigned sum = 0;
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 7 * step < total; i += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] = __ldcg(x + (i + k * step & n - 1));
#pragma unroll
        for (int k = 0; k < 8; ++k) sum ^= FOLD(v[k]);
        asm volatile("" ::: "memory");  // what was loaded before is loaded again
    }
    for (; i < total; i += step) { const uint4 v = __ldcg(x + (i & n - 1)); sum ^= FOLD(v); }
    KEPT
}
extern "C" __global__ void read_one(const uint4 *x, u64 n, unsigned *out) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    unsigned sum = 0;
#pragma unroll 1
    EVERY(i, n) {
        const uint4 v = __ldcg(x + i);
        sum ^= FOLD(v);
    }
    KEPT
}
extern "C" __global__ void copy_all(uint4 *y, const uint4 *x, u64 n) {
    const u64 step = (u64)gridDim.x * blockDim.x;
#pragma unroll 4
    EVERY(i, n) y[i] = __ldg(x + i);
}
extern "C" __global__ void chase(const unsigned *x, u64 nodes, u64 steps, unsigned *out) {
    unsigned i = 1;
    for (u64 k = 0; k < steps; ++k)
        i = i * 1664525u + 1013904223u + __ldcg(x + (i >> 4 & (nodes - 1)) * (NODE_BYTES / 4));
    *out = i;
}
extern "C" __global__ void chase_shared(u64 steps, unsigned *out) {
    __shared__ unsigned s[1024];
    for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = i * 5 + 1 & 1023;
    __syncthreads();
    unsigned i = threadIdx.x;
    for (u64 k = 0; k < steps; ++k) i = s[i];
    *out = i;
}
extern "C" __global__ void read_shared(u64 steps, unsigned *out) {
    __shared__ uint4 s[1024];
    for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = make_uint4(i, i, i, i);
    __syncthreads();
    unsigned sum = 0, at = threadIdx.x;
    for (u64 k = 0; k < steps; ++k) {
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
            const uint4 v = s[(at + 32 * u) & 1023];
            sum ^= FOLD(v);
        }
        at += sum & 32;
    }
    KEPT
}
"""

_WAITING = """
extern "C" __global__ void nothing() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
extern "C" __global__ void block_barriers(u64 steps) {
    for (u64 k = 0; k < steps; ++k) __syncthreads();
}
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) cluster_barriers(u64 steps) {
    for (u64 k = 0; k < steps; ++k)
        asm volatile("barrier.cluster.arrive.aligned;\\nbarrier.cluster.wait.aligned;"
                     ::: "memory");
}
#endif
// One block a multiprocessor: all of them run at once.  A launch leaves a multiple of its blocks.
extern "C" __global__ void grid_barriers(unsigned *count, u64 steps) {
    for (u64 k = 0; k < steps; ++k) {
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            const unsigned all = (atomicAdd(count, 1u) / gridDim.x + 1) * gridDim.x;
            while (*(volatile unsigned *)count < all) {}
            __threadfence();
        }
        __syncthreads();
    }
}
extern "C" __global__ void atomics(unsigned *x, u64 steps, unsigned *out) {
    unsigned old = 0;
    for (u64 k = 0; k < steps; ++k) old = atomicAdd(x, old);
    *out = old;
}
extern "C" __global__ void same_atomics(unsigned *x, u64 steps) {
    if (threadIdx.x == 0)
        for (u64 k = 0; k < steps; ++k) atomicAdd(x, 1u);
}
"""

# The operation of a step, on a[c] and b; of what type; and what a step counts as.
ARITHMETIC = {
    "fma_f32": ("float", "a[c] = __fmaf_rn(a[c], b, b);", 1),
    "fma_f64": ("double", "a[c] = __fma_rn(a[c], b, b);", 1),
    "fma_f16": (
        "unsigned", 'asm volatile("fma.rn.f16x2 %0, %0, %1, %1;" : "+r"(a[c]) : "r"(b));', 2,
    ),
    "int32": ("unsigned", "a[c] = a[c] * b + b;", 1),
    "special": ("float", 'asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(a[c]));', 1),
}  # fmt: skip
_ARITHMETIC = """
extern "C" __global__ void NAME(u64 steps, TYPE b, u64 *cycles, unsigned *out) {
    TYPE a[CHAINS];
    for (int c = 0; c < CHAINS; ++c) a[c] = (TYPE)(threadIdx.x + c);
    const u64 start = clock64();
    for (u64 k = 0; k < steps; ++k) {
#pragma unroll
        for (int u = 0; u < UNROLLED; ++u) {
#pragma unroll
            for (int c = 0; c < CHAINS; ++c) { STEP }
        }
    }
    unsigned sum = 0;
    for (int c = 0; c < CHAINS; ++c) sum ^= (unsigned)a[c];
    if (blockIdx.x == 0 && threadIdx.x == 0) *cycles = clock64() - start;
    KEPT
}
"""


def kernels_text() -> str:
    """Return the CUDA of all kernels."""
    arithmetic = [
        _ARITHMETIC.replace("NAME", name).replace("TYPE", kind).replace("STEP", step)
        for name, (kind, step, _) in ARITHMETIC.items()
    ]
    text = "".join((_MEMORY, _WAITING, *arithmetic)).replace("KEPT", KEPT)
    sizes = {"UNROLLED": UNROLLED, "CHAINS": CHAINS, "NODE_BYTES": NODE_BYTES, "CLUSTER": CLUSTER}
    for name, value in sizes.items():
        text = text.replace(name, str(value))
    return text
