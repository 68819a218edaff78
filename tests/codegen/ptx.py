"""What PTX loads through the read-only cache: a dataflow analysis from parameters to addresses.

    ld.param.u64      %rd1, [f_param_0];      rd1 may be parameter 0
    cvta.to.global    %rd5, %rd1;             so may rd5
    selp.b64          %rd9, %rd5, %rd6, %p1;  rd9 may be parameter 0 or 1
    ld.global.nc.f32  %f4, [%rd9];            wrong, if the kernel stores to either

A register may be whatever any instruction puts into it: the order of the instructions does not
matter, so what is found missing nowhere is missing.  Pointers that are stored to memory of a thread
or block (nobody does) are in whatever is loaded from such memory.  Addresses may also be those of
the module's variables: CUDA's mathematical functions have tables, such as a sine's coefficients.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tcdsl.codegen.cuda.batch import batched
from tcdsl.codegen.cuda.source import CudaSource, Launch
from tcdsl.codegen.device.cuda import FUNCTIONS, header_text, parts_for
from tcdsl.runtime.nvrtc import _load, compile_cuda, cuda_flags, find_cuda_compiler

_ENTRY = re.compile(r"^\.visible \.entry (\w+)\((.*?)\)(.*?)^\}", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*")
_INSTRUCTION = re.compile(
    r"(?:@!?[%\w]+\s+)?([a-z]\w*(?:[.:]+\w+)*)\s+([^;{}]*(?:\{[^{}]*\}[^;{}]*)*);"
)
_VARIABLE = re.compile(
    r"^\.(?:\w+ \.)*(?:global|const) [^;={]*?(\w+)(?:\[\d*\])? *[;=]", re.MULTILINE
)
_NAME = re.compile(r"%?\b[A-Za-z_]\w*")  # of a register, or of a variable
_PARAMETER = re.compile(r"_param_(\d+)")
Origin = int | str  # the number of a parameter, the name of a variable

_MEMORY = "memory"  # of a thread, or of a block
_IN_MEMORY = ("local", "shared")
_STORES = ("st", "atom", "red")


@dataclass(frozen=True, slots=True)
class _Instruction:
    """*name* with *operands*, the first of which it writes unless it is a store."""

    name: tuple[str, ...]  # ("ld", "global", "nc", "f32")
    operands: tuple[str, ...]
    text: str

    @property
    def is_store(self) -> bool:
        return self.name[0] in _STORES

    @property
    def address(self) -> str:
        return next((text for text in self.operands if text.startswith("[")), "")

    @property
    def is_read_only_load(self) -> bool:
        return self.name[0] == "ld" and "nc" in self.name


@dataclass(frozen=True)
class PtxKernel:
    """One kernel: which of its parameters, or of the module's variables, its addresses may be."""

    name: str
    body: str
    variables: frozenset[str] = frozenset()  # of the module: tables of mathematical functions

    @cached_property
    def instructions(self) -> tuple[_Instruction, ...]:
        found = []
        for match in _INSTRUCTION.finditer(_COMMENT.sub("", self.body)):
            # Commas in {} and [] are no commas between operands.
            operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^\s,][^,]*", match[2])
            name = tuple(re.split(r"[.:]+", match[1]))
            found.append(_Instruction(name, tuple(operands), " ".join(match[0].split())))
        return tuple(found)

    @cached_property
    def _may_be(self) -> Mapping[str, frozenset[Origin]]:
        """Return { register -> the parameters and variables that it may be an address in }."""
        edges = [edge for instruction in self.instructions for edge in _flow(instruction)]
        found: defaultdict[str, frozenset[Origin]] = defaultdict(frozenset)
        users = defaultdict(list)
        for source, target in edges:
            users[source].append(target)
        found.update((name, frozenset({name})) for name in self.variables)
        waiting = list(self.variables)
        for instruction in self.instructions:
            if instruction.name[:2] == ("ld", "param"):
                number = _PARAMETER.search(instruction.address)
                for register in _NAME.findall(instruction.operands[0]):
                    found[register] |= {int(number[1])} if number else set()
                    waiting.append(register)
        while waiting:
            source = waiting.pop()
            for target in users[source]:
                if not found[source] <= found[target]:
                    found[target] |= found[source]
                    waiting.append(target)
        return found

    def _of_address(self, instruction: _Instruction) -> frozenset[Origin]:
        names = _NAME.findall(instruction.address)
        return frozenset().union(*(self._may_be[name] for name in names))

    @property
    def stored(self) -> frozenset[Origin]:
        """The parameters and variables through which the kernel may store."""
        stores = (i for i in self.instructions if i.is_store and not set(_IN_MEMORY) & set(i.name))
        return frozenset().union(*map(self._of_address, stores))

    @property
    def read_only_loads(self) -> Iterator[tuple[str, frozenset[Origin]]]:
        """The loads through the read-only cache, and what they may be from."""
        for instruction in self.instructions:
            if instruction.is_read_only_load:
                yield instruction.text, self._of_address(instruction)


def _flow(instruction: _Instruction) -> Iterator[tuple[str, str]]:
    """Yield (from, to) for what *instruction* may copy, from register to register."""
    operands = instruction.operands
    if instruction.is_store:
        if set(_IN_MEMORY) & set(instruction.name):
            sources = _NAME.findall(" ".join(operands[1:]))
            yield from ((source, _MEMORY) for source in sources)
        return
    targets = _NAME.findall(operands[0]) if operands else []
    sources = _NAME.findall(" ".join(operands[1:]))
    if instruction.name[0] == "ld":  # a number, no address
        sources = [_MEMORY] if set(_IN_MEMORY) & set(instruction.name) else []
    yield from ((source, target) for source in sources for target in targets)


def ptx_kernels(text: str) -> list[PtxKernel]:
    """Return the kernels of *text*, as NVRTC writes it."""
    variables = frozenset(_VARIABLE.findall(text))
    return [PtxKernel(match[1], match[3], variables) for match in _ENTRY.finditer(text)]


def stale_loads(text: str, launches: Iterable[Launch] = ()) -> list[str]:
    """Return what is loaded through the read-only cache though it may change meanwhile.

    That is what a kernel of *text* stores through, and variables that another one stores; of the
    kernels of *launches* also what is not declared ``const ... __restrict__``: others may write it
    after this one has begun.
    """
    declared = {launch.name: [p.declaration for p in launch.parameters] for launch in launches}
    found, kernels = [], ptx_kernels(text)
    variables = {o for kernel in kernels for o in kernel.stored if isinstance(o, str)}
    for kernel in kernels:
        changing = {*kernel.stored, *variables}
        for number, declaration in enumerate(declared.get(kernel.name, ())):
            if not (declaration.startswith("const ") and "__restrict__" in declaration):
                changing.add(number)
        for load, origins in kernel.read_only_loads:
            if not origins:
                found.append(f"{kernel.name}: {load} is from no parameter that is known")
            elif wrong := sorted(origins & changing, key=str):
                found.append(f"{kernel.name}: {load} may be from {wrong}")
    return found


def cubin_and_ptx(text: str, arch: str) -> tuple[bytes, str]:
    """Return what NVRTC makes of *text*, in one go, which takes hardly longer than one of them."""
    compiler = find_cuda_compiler()
    if compiler.is_nvcc:
        codes = [compile_cuda(text, arch), compile_cuda(text, arch, ptx=True)]
    else:
        flags = (f"--gpu-architecture={arch}", *cuda_flags())
        codes, log = _load(compiler.path).compile_to(text, flags, ("CUBIN", "PTX"))
        assert codes, log
    cubin, ptx = codes
    return cubin, ptx.decode().rstrip("\0")


def stale_loads_of(sources: Sequence[CudaSource]) -> list[str]:
    """Return what is wrong in *sources*, compiled in one go."""
    whole = batched(sources).whole
    header = header_text(parts_for(whole.functions & FUNCTIONS.keys()))
    ptx = compile_cuda(f"{header}\n{whole.text}", "sm_90", ptx=True).decode().rstrip("\0")
    assert len(ptx_kernels(ptx)) == len(whole.kernels)
    return stale_loads(ptx, whole.kernels)
