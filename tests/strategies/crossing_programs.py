"""Random programs that reduce rows and columns of the same arrays, in any order."""

from random import Random

SIZES = ((1, 1), (2, 3), (5, 4), (7, 1), (1, 7), (8, 16), (13, 5), (17, 12), (31, 8), (40, 33))
DTYPES = ("float", "float", "float", "half", "bfloat16", "double")
OPERATORS = ("+=!", "+=!", "+=!", "max=!", "min=!")

Program = tuple[str, list[tuple[int, ...]]]


def crossing_program(random: Random) -> Program:
    """Return a program, and the shapes of its inputs."""
    return _Drawing(random).program()


class _Drawing:
    """One program: *rows* and *columns* are left-hand indices, *elements* those of the arrays."""

    def __init__(self, random: Random) -> None:
        self.random = random
        form = random.choice(("i,j", "i,j", "i,j", "b,i,j", "i,b,j"))
        self.elements = form
        self.rows = form.removesuffix(",j")
        kept = [name for name in self.rows.split(",") if random.random() < 0.3]
        if len(kept) == len(self.rows.split(",")):
            kept = kept[1:]
        self.columns = ",".join([*kept, "j"])
        self.known = {  # what an expression over all elements may read
            f"x({self.elements})": 3,
            f"z({self.elements})": 2,
            f"s({self.rows})": 1,
            "g(j)": 1,
        }
        self.outputs: list[str] = []
        self.named: list[str] = []
        self.statements: list[str] = []

    def program(self) -> Program:
        dtype, other = self.random.choice(DTYPES), self.random.choice(("float", "double"))
        kinds = [self.row, self.column]
        kinds += self.random.choices([self.row, self.column, self.pointwise, self.total], k=3)
        self.random.shuffle(kinds)
        for kind in kinds:
            kind()
        text = " ".join(self.statements)
        self.outputs += [n for n in self.named if n not in self.outputs and text.count(n) == 1]
        letters = {"i": "M", "j": "N", "b": "B"}
        shape = ",".join(letters[name] for name in self.elements.split(","))
        row = ",".join(letters[name] for name in self.rows.split(","))
        source = (
            f"def f({dtype}({shape}) x, {other}({shape}) z, {dtype}(N) g, float({row}) s)\n"
            f"    -> ({', '.join(self.outputs)}) {{\n    " + "\n    ".join(self.statements) + "\n}"
        )
        rows, columns = self.random.choice(SIZES)
        extents = {"i": rows, "j": columns, "b": self.random.choice((1, 2, 3))}
        full = tuple(extents[name] for name in self.elements.split(","))
        return source, [full, full, (columns,), full[:-1]]

    def fresh(self, letter: str) -> str:
        """Return a new name."""
        self.named.append(f"{letter}{len(self.named)}")
        return self.named[-1]

    def row(self) -> None:
        name = self.fresh("r")
        operator = self.random.choice(OPERATORS)
        self.statements.append(f"{name}({self.rows}) {operator} {self.expression()}")
        self.known[f"{name}({self.rows})"] = 3
        if self.random.random() < 0.5:
            self.outputs.append(name)

    def column(self) -> None:
        name = self.fresh("c")
        operator = self.random.choice(OPERATORS)
        self.statements.append(f"{name}({self.columns}) {operator} {self.expression()}")
        self.outputs.append(name)

    def pointwise(self) -> None:
        name = self.fresh("y")
        self.statements.append(f"{name}({self.elements}) = {self.expression()}")
        self.known[f"{name}({self.elements})"] = 3
        if self.random.random() < 0.6:
            self.outputs.append(name)

    def total(self) -> None:
        name = self.fresh("t")
        self.statements.append(f"{name} {self.random.choice(OPERATORS)} {self.expression()}")
        self.outputs.append(name)

    def expression(self) -> str:
        terms = self.random.choices(list(self.known), list(self.known.values()), k=3)
        if not any(term.endswith(f"({self.elements})") for term in terms[:2]):
            terms[0] = f"x({self.elements})"
        text = f"{terms[0]} {self.random.choice('+-*')} {terms[1]}"
        return text if self.random.random() < 0.5 else f"({text}) * 0.5 - {terms[2]}"
