"""Plans as CUDA: a __global__ function a kernel, mapped loops as strides over blocks and threads.

What only fills an array is no function, but a memset (``memsets.py``).

    THREAD.x[256] j in 0:n     if (threadIdx.x < n) { const int j = threadIdx.x; ... }   n <= 256
                               for (int j = threadIdx.x; j < n; j += 256) ...            else

Loops above the threads' have bounds that no thread number is in: the threads of a block run them
together, and meet every barrier.  A collective below a guarded thread loop is called by all
threads, and the guard moves to what is around the call.

From the whole to its parts, of which each knows only those below it::

    cuda_printer       the text of a plan, the function of a kernel
    cuda_overlap       which kernels begin before others have ended, and where they wait
    cuda_loops         sequences, guards, last blocks, and which of these a loop is
    cuda_sums            loops whose sums are cut into blocks
    cuda_turns           loops over blocks and threads
    cuda_lanes           short loops: written out, folded at once, vectors
    cuda_leaves        the guards and indices of a statement
    cuda_statements    the statement
    cuda_kernel        what they all write to: lines, declarations, who runs a loop
    cuda_changing      which loads must not be merged with others
    cuda_plan          what kernels share: names, sizes, the workspace
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from tcdsl.codegen import loop_ast
from tcdsl.codegen.cuda_loops import LoopPrinter
from tcdsl.codegen.cuda_overlap import Start, starts_of
from tcdsl.codegen.cuda_plan import PlanText
from tcdsl.codegen.cuda_source import AnyLaunch, CudaSource, Memset, Overlap
from tcdsl.codegen.lines import Line, statements_of_lines
from tcdsl.codegen.memsets import memset_of
from tcdsl.codegen.opened_loops import lost_loops, unopened_loops
from tcdsl.codegen.tidy import without_idle_braces
from tcdsl.codegen.uniformity import why_not_uniform
from tcdsl.errors import INTERNAL
from tcdsl.poly.loop_tree import MAPPED, statements_of
from tcdsl.transforms.plan import Kernel, Plan, arrays_of

_FIRST = """\
/* The least number from low on that leaves the remainder me, divided by width. */
static __device__ __forceinline__ int64_t tcdsl_first(int64_t low, int me, int width)
{
  const int64_t step = (me - low) % width;
  return low + (step < 0 ? step + width : step);
}

"""

_CLAMP = """\
static __device__ __forceinline__ int64_t tcdsl_clamp(int64_t index, int64_t extent)
{
  return (uint64_t)index < (uint64_t)extent ? index : 0;
}

"""


def print_cuda(plan: Plan, known_alignments: Mapping[str, int] | None = None) -> CudaSource:
    """Return *plan* as CUDA.

    :arg known_alignments: bytes of which arguments' pointers are multiples; 16 for others.
    """
    return _PlanPrinter(plan, known_alignments or {}).print()


class _PlanPrinter(PlanText):
    """Prints all kernels of a plan."""

    def print(self) -> CudaSource:
        lines: list[str] = []
        launches: list[AnyLaunch] = []
        kernels = self.plan.kernels
        memsets = [self._memset(kernel) for kernel in kernels]
        steps = [k if m is None else None for k, m in zip(kernels, memsets, strict=True)]
        starts = [*starts_of(self, steps), Start(Overlap.ORDERED)]  # a program may follow
        for number, (kernel, memset) in enumerate(zip(kernels, memsets, strict=True)):
            if memset is not None:
                first = next(statements_of(kernel.tree))
                lines += [Line(f"// {kernel.name}: {why}", first) for why in memset.why] + [""]
                launches.append(memset)
                continue
            printer = _KernelPrinter(self, kernel, number, starts[number])
            lines += printer.print(starts[number + 1])
            launches.append(printer.launch)
        text = "\n".join(lines)
        for function, helper in (("tcdsl_clamp(", _CLAMP), ("tcdsl_first(", _FIRST)):
            if function in text:
                lines[:0] = [helper.removesuffix("\n")]
        text = "\n".join(lines)
        functions = frozenset(re.findall(r"\btc_[a-z0-9_]+", text))
        return CudaSource(
            text, functions, tuple(launches), self.workspace_bytes, tuple(self.sites),
            self.sizes.integers, self.alignments, tuple(statements_of_lines(lines)),
        )  # fmt: skip

    def _memset(self, kernel: Kernel) -> Memset | None:
        """Return the memset that does what *kernel* does, or None."""
        names = arrays_of(self.plan, kernel)
        if len(names) != 1 or names[0] in self.plan.placements:
            return None
        return memset_of(self.scop, kernel, self.parameter(self.scop.arrays[names[0]]))


class _KernelPrinter(LoopPrinter):
    """Prints one kernel."""

    def print(self, follower: Start) -> list[str]:
        """Return the lines of the kernel, an item may hold several; *follower* begins next."""
        tree, placements = self.kernel.tree, self.placements
        ast = loop_ast.generate(self.scop, tree, placements, self._asked)
        self.sums = self._blocked_sums(ast)
        self._declare_locals([None, *unopened_loops(ast)], 1)
        self._node(ast, 1, (), [])
        self.lines[:0] = self._shared()  # their alignment is known now
        body = without_idle_braces(self.lines, 1)
        x, y, z = self.mapped.block
        cluster = self.mapped.cluster
        sizes = map(self.parent.sizes.name, self.parent.sizes.integers)
        uniform = [*sizes, self.names.of("ticket", "tickets"), *self._unchanged()]
        reason = why_not_uniform(body, self.mapped.threads, uniform) or self._why_not_once()
        if reason is not None:
            raise INTERNAL(where=f"printing {self.name}", what=reason, repro="the program")
        parameters = ",\n    ".join(p.declaration for p in self.launch.parameters)
        dims = f"__cluster_dims__(1, 1, {cluster}) " if cluster > 1 else ""
        beside = f", {self.kernel.beside}" if self.kernel.beside else ""
        bounds = f"__launch_bounds__({x * y * z}{beside})"
        why = map("// {}".format, self.launch.why)
        head = [
            f"// {self.kernel.name}: {_times(self.launch.grid)} blocks of"
            f" {_times(self.mapped.block)} threads",
            *why,
            f'extern "C" __global__ void {dims}{bounds} {self.name}(',
            f"    {parameters})",
        ]
        if cluster > 1:
            count = f"<{len(self.slots.numbers)}>" if self.slots.numbers else ""
            body = [f"  tc_cluster_begin{count}();", *body, f"  tc_cluster_end{count}();"]
        body = self.start.in_body(body, partial(self.names.of, "array"), follower)
        return [*head, "{", *body, "}", ""]

    def _unchanged(self) -> list[str]:
        """Return the arrays in memory that the kernel only reads: all threads find the same."""
        written = {w.array for name in self.mapped.paths for w in self.scop.by_name[name].writes}
        read = {r.array for name in self.mapped.paths for r in self.scop.by_name[name].reads}
        names = sorted(read - written - self.placements.keys())
        return [self.names.of("array", name) for name in names]

    def _asked(self, ast: loop_ast.AstNode) -> Collection[str]:
        """Return the loops whose coordinates leaves tell: who runs them, what is prefetched."""
        ahead = {name for found in self.ahead.values() for p in found for name in p.factors}
        lost = {name for name in lost_loops(ast) if self.loops[name].kind in MAPPED}
        return ahead | {name for name in lost if self._has_many(self.loops[name])}


def _times(dims: Sequence[int]) -> str:
    kept = list(dims)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return " x ".join(map(str, kept))
