"""The nodes of generated C and CUDA.

    code  = Literal                     0x1p-3f
          | Name                        c0
          | Member(code, field)         threadIdx.x
          | Unary(op, code)             -a   !a   &a[i]
          | Cast(type, code)            (int)a
          | Binary(op, code, code)      a + b
          | Choice(code, code, code)    a ? b : c
          | Call(name, code*, type*)    tc_fold_x<tc_op_add_f32, 32, 1>(a)
          | Index(code, code)           a[i]
          | Paren(code)                 (a)
          | Vector(type, code*)         tc_vec<float, 2>{{a, b}}
    type  = Type(name, type*)           tc_vec<float, 4>

    node  = Declare(type, Variable*)    const int i = 4 * c0, j = c1;
          | Shared(type, name, size)    __shared__ TC_VARIABLE(float, x, [4], 4);
          | Assign(code, code)          y[i] = 0.0f;
          | Evaluate(code)              __syncthreads();
          | If(code, node*, node*)      if (a) { ... } else { ... }
          | For(type, name, ...)        for (int c0 = 0; c0 < 4; c0++) { ... }
          | Scope(node*)                { ... }
          | Comment                     // ...

Nothing adds parentheses: whoever builds an expression writes those that it needs.  A :class:`Call`
knows which threads wait for one another in it, every node the statement of the scop that it is of;
what a node reads and writes, names and calls, ``walk.py`` finds.
"""

from tcdsl.records import dataclass

# --- expressions ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Type:
    """A type, or an argument of a template."""

    name: str
    arguments: tuple["Type", ...] = ()


@dataclass(frozen=True, slots=True)
class Literal:
    """A number."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, an array, a parameter."""

    text: str


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a structure."""

    structure: "Code"
    field: str


@dataclass(frozen=True, slots=True)
class Unary:
    """An operator before its operand."""

    op: str
    operand: "Code"


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion."""

    type: Type
    operand: "Code"


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator between its operands."""

    op: str
    left: "Code"
    right: "Code"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of two values."""

    condition: "Code"
    then: "Code"
    otherwise: "Code"


@dataclass(frozen=True, slots=True)
class Call:
    """A call; *participants* are the axes whose threads wait for one another in it.

    They are among x, y, z and c, the rank in a cluster.
    """

    function: str
    arguments: tuple["Code", ...] = ()
    template: tuple[Type, ...] = ()
    participants: str = ""


@dataclass(frozen=True, slots=True)
class Index:
    """An element of an array."""

    array: "Code"
    index: "Code"


@dataclass(frozen=True, slots=True)
class Paren:
    """An expression in parentheses."""

    inner: "Code"


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector of the given values."""

    type: Type
    values: tuple["Code", ...]


Code = (
    Literal | Name | Member | Unary | Cast | Binary | Choice | Call | Index | Paren | Vector
)  # fmt: skip

# --- statements -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variable:
    """What a declaration declares: ``*const name[size] = value``; a *size* of "" is not told."""

    name: str
    value: Code | None = None
    size: str | None = None
    pointer: str = ""  # "*", "*const ", "*restrict "


@dataclass(frozen=True, slots=True)
class Declare:
    """A declaration; *before* and *after* are its qualifiers and attributes."""

    type: Type
    variables: tuple[Variable, ...]
    before: str = ""
    after: str = ""
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Shared:
    """A variable of all threads of a block, its place a multiple of *alignment* bytes.

    *size* is its elements, None for a variable that is no array; "" is what the launch says.
    """

    type: Type
    name: str
    size: str | None
    alignment: int
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Assign:
    """``target = value;``"""

    target: Code
    value: Code
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Evaluate:
    """An expression for its effect."""

    code: Code
    statement: str = ""


@dataclass(frozen=True, slots=True)
class If:
    """A guard; *is_short* writes it in the line of the only node in it.

    *is_role*: of warps that have a role of their own, and meet no others in it.
    """

    condition: Code
    then: tuple["Node", ...]
    otherwise: tuple["Node", ...] = ()
    comment: str = ""
    is_short: bool = False
    statement: str = ""
    is_role: bool = False


@dataclass(frozen=True, slots=True)
class For:
    """``for (type variable = first; condition; variable += step)``; without a step, ``++``.

    Its *pragma* stands above it.  *collapsed*: of so many loops, this one and those right in it,
    threads share the iterations; 0: this is no parallel loop.
    """

    type: Type
    variable: str
    first: Code
    condition: Code
    step: Code | None
    body: tuple["Node", ...]
    pragma: str = ""
    is_short: bool = False
    statement: str = ""
    collapsed: int = 0


@dataclass(frozen=True, slots=True)
class Scope:
    """Nodes between braces."""

    body: tuple["Node", ...]
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Comment:
    """A line for people."""

    text: str
    statement: str = ""


Node = Declare | Shared | Assign | Evaluate | If | For | Scope | Comment
