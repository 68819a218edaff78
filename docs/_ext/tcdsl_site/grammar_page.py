"""The grammar's sections as Markdown: rules in EBNF, then a diagram of each."""

from tcdsl_site.ebnf import rule_text
from tcdsl_site.grammar_rules import Rule, Section, sections
from tcdsl_site.railroad import diagram


def grammar(text: str, *, with_diagrams: bool = False) -> str:
    """Return the page's part for the Lark grammar *text*."""
    return "\n".join(_section(section, with_diagrams) for section in sections(text))


def _section(section: Section, with_diagrams: bool) -> str:
    rules = "\n".join(map(rule_text, section.rules))
    figures = "\n".join(map(_figure, section.rules))
    title = section.title[0].upper() + section.title[1:]
    text = section.text.replace("*", r"\*").replace("_", r"\_")
    diagrams = f"\n```{{raw}} html\n{figures}\n```\n" if with_diagrams else ""
    return f"## {title}\n\n{text}\n\n```grammar\n{rules}\n```\n{diagrams}"


def _figure(rule: Rule) -> str:
    return (
        f'<figure class="tc-figure" id="rule-{rule.name}"><figcaption>{rule.name}</figcaption>'
        f"{diagram(rule.body, rule_text(rule))}</figure>"
    )
