"""Generated text without the braces that nobody needs.

    for (...) {                     for (...) {
      {                               const int c1 = threadIdx.x;
        const int c1 = ...    --->    y[c1] = x[c1];
        { y[c1] = x[c1]; }          }
      }
    }

A bare block is dissolved where it declares nothing, or where its names end with its parent's and
are not its parent's own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tcdsl.codegen.lines import like

_DECLARATION = re.compile(
    r"(const |float |double |int |bool |u?int\d+_t |tc_vec<|tc_pair<|__shared__ )"
)
_NAME = re.compile(r"(?:^|[ ,])([A-Za-z_]\w*)(?=(?:\[[0-9]+\])?(?: =|;))")
_INDENT = "  "


@dataclass(slots=True)
class Block:
    """What stands between two braces; a child is a line or a block."""

    head: str  # "{", or what stands before it
    children: list["str | Block"] = field(default_factory=list)

    @property
    def is_bare(self) -> bool:
        return self.head == "{"


def without_idle_braces(lines: list[str], depth: int) -> list[str]:
    """Return *lines* (see :func:`parsed`) without idle braces, indented from *depth* on."""
    root = parsed(lines)
    _dissolve(root)
    return _printed(root, depth)


def parsed(lines: Sequence[str]) -> Block:
    """Return *lines*, of which each brace ends its line or begins it, as a tree."""
    root = Block("")
    stack = [root]
    for line in (like(line, line.strip()) for line in lines):
        if line.startswith("}"):
            stack.pop()
            line = line[1:].lstrip()
        if line.endswith("{"):
            block = Block(line)
            stack[-1].children.append(block)
            stack.append(block)
        elif line:
            stack[-1].children.append(line)
    assert stack == [root], "braces do not match"
    return root


def _dissolve(block: Block) -> None:
    children: list[str | Block] = []
    for child in block.children:
        if isinstance(child, str):
            children.append(child)
            continue
        _dissolve(child)
        is_last = child is block.children[-1]
        own = _declared(child)
        if child.is_bare and (not own or (is_last and own.isdisjoint(_declared(block)))):
            children += child.children
        else:
            children.append(child)
    block.children = children


def _declared(block: Block) -> set[str]:
    """Return the names that *block* declares itself, outside any block in it."""
    found: set[str] = set()
    for line in block.children:
        if isinstance(line, str) and (match := _DECLARATION.match(line)):
            # const int i = ..., j = ...; float x; float y[4];
            found |= set(_NAME.findall(f"{line[match.end() - 1 :]} "))
    return found


def _printed(block: Block, depth: int) -> list[str]:
    lines: list[str] = []
    pad = _INDENT * depth
    for child in block.children:
        if isinstance(child, str):
            lines.append(like(child, pad + child))
            continue
        if child.head.startswith("else"):
            lines[-1] = f"{pad}}} {child.head}"
        else:
            lines.append(pad + child.head)
        lines += _printed(child, depth + 1)
        lines.append(f"{pad}}}")
    return lines
