"""Grammar rules as text in EBNF: ``{ }`` any number of times, ``[ ]`` at most once."""

from tcdsl_site.grammar_rules import Rule
from tcdsl_site.syntax import (
    NOTHING,
    Choice,
    Class,
    Literal,
    Name,
    Optional,
    Repeat,
    Sequence,
    Syntax,
)

WIDTH = 92


def rule_text(rule: Rule) -> str:
    """Return *rule*, an alternative a line where they are long or have notes."""
    texts = [expression(part) for part in rule.alternatives]
    head = f"{rule.name} = "
    one_line = head + " | ".join(texts)
    if not rule.notes and len(one_line) <= WIDTH:
        return one_line
    if not rule.notes:
        return head + _filled(texts, len(head))
    indent = " " * (len(head) - 2)
    lines = [head + texts[0], *(f"{indent}| {text}" for text in texts[1:])]
    width = max(map(len, lines))
    notes = (*rule.notes, *("" for _ in lines[len(rule.notes) :]))
    return "\n".join(
        f"{line:<{width}}   (* {note} *)" if note else line
        for line, note in zip(lines, notes, strict=False)
    )


def _filled(texts: list[str], indent: int) -> str:
    """Return alternatives, as many a line as fit."""
    lines, line = [], texts[0]
    for text in texts[1:]:
        if indent + len(line) + len(text) + 3 > WIDTH:
            lines.append(line)
            line = f"{' ' * (indent - 2)}| {text}"
        else:
            line += f" | {text}"
    return "\n".join([*lines, line])


def expression(body: Syntax) -> str:
    """Return *body* as EBNF."""
    match body:
        case Literal(text):
            return f"'{text}'" if '"' in text else f'"{text}"'
        case Class(text):
            return f"/{text}/"  # its brackets are not EBNF's
        case Name(text):
            return text
        case Sequence(parts):
            return " ".join(map(_operand, parts))
        case Choice(parts):
            return " | ".join(map(expression, parts))
        case Optional(Repeat(part, separator)) if separator == NOTHING:
            return f"{{ {expression(part)} }}"
        case Optional(part):
            return f"[ {expression(part)} ]"
        case Repeat(part, separator):
            rest = f"{_operand(separator)} " if separator != NOTHING else ""
            return f"{_operand(part)} {{ {rest}{_operand(part)} }}"


def _operand(body: Syntax) -> str:
    """Return *body* as a part of a sequence."""
    text = expression(body)
    return f"( {text} )" if isinstance(body, Choice) else text
