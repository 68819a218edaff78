"""The style sheet of all displays: colours as variables, for light and for dark themes.

Everything is scoped under the root's class, written twice where hosts style the same elements.
The root sets ground and ink both, so that it can be read whatever the page around it looks like.
Which theme it is: what the system prefers, unless the host says otherwise (JupyterLab, VS Code,
Sphinx themes, Colab mark their page).

Drawings name a colour by a class (``fill-tile``) and have one that reads on both grounds as an
attribute (``plain``), for hosts that remove styles.
"""

from collections.abc import Mapping
from functools import cache

from tcdsl.records import dataclass

ROOT_CLASS = "tcdsl"


@dataclass(frozen=True, slots=True)
class Colour:
    """A colour on a light and on a dark ground, and one for a ground that is not known."""

    light: str
    dark: str
    plain: str


COLOURS: Mapping[str, Colour] = {
    "ground": Colour("#ffffff", "#16191d", "none"),
    "panel": Colour("#f5f6f8", "#1f242a", "none"),
    "ink": Colour("#1c2126", "#dde3ea", "currentColor"),
    "muted": Colour("#5b6672", "#98a4b1", "#7b8794"),
    "line": Colour("#d5dae0", "#39424c", "#9aa5b1"),
    "link": Colour("#0b5cad", "#74b4f5", "#3a86d1"),
    "good": Colour("#1d7a3a", "#63c985", "#2f9e55"),
    "bad": Colour("#b3261e", "#ff8a80", "#d9534a"),
    "mark": Colour("#fff0b3", "#4a3f12", "#d9b93b"),
    # Code.
    "keyword": Colour("#8a2da5", "#d59cf0", "#a659c4"),
    "type": Colour("#00696b", "#63cfcf", "#1f9a9a"),
    "number": Colour("#9a4b00", "#f0ad6a", "#c47a2b"),
    "comment": Colour("#5c6b5e", "#93a896", "#7b8f7e"),
    "call": Colour("#0b5cad", "#86bdf7", "#3a86d1"),
    # Kinds of loops, and who runs them.
    "serial": Colour("#5b6672", "#a3afbc", "#7b8794"),
    "parallel": Colour("#1d7a3a", "#63c985", "#2f9e55"),
    "vector": Colour("#8a2da5", "#d59cf0", "#a659c4"),
    "unroll": Colour("#9a4b00", "#f0ad6a", "#c47a2b"),
    "lanes": Colour("#a0246b", "#f08cc0", "#c9559a"),
    "block": Colour("#0b5cad", "#74b4f5", "#3a86d1"),
    "thread": Colour("#00696b", "#63cfcf", "#1f9a9a"),
    "collective": Colour("#5a4fcf", "#b3acff", "#7a6fe0"),
    "last": Colour("#b3261e", "#ff8a80", "#d9534a"),
    # Where an array lives.
    "registers": Colour("#1d7a3a", "#63c985", "#2f9e55"),
    "shared": Colour("#9a4b00", "#f0ad6a", "#c47a2b"),
    "scratch": Colour("#8a2da5", "#d59cf0", "#a659c4"),
    "argument": Colour("#0b5cad", "#74b4f5", "#3a86d1"),
    # Drawings of iteration domains.
    "point": Colour("#3b4754", "#b9c4d0", "#7b8794"),
    "tile": Colour("#0b5cad", "#74b4f5", "#3a86d1"),
    "flow": Colour("#b3261e", "#ff8a80", "#d9534a"),
    "relaxed": Colour("#9a4b00", "#f0ad6a", "#c47a2b"),
}

# A page that says which theme it has, whatever the system prefers.
_DARK_HOSTS = (
    '[data-jp-theme-light="false"]', ".vscode-dark", ".vscode-high-contrast",
    '[data-theme="dark"]', 'html[theme="dark"]',
)  # fmt: skip
_LIGHT_HOSTS = (
    '[data-jp-theme-light="true"]', ".vscode-light", ".vscode-high-contrast-light",
    '[data-theme="light"]', 'html[theme="light"]',
)  # fmt: skip

_RULES = """
.tcdsl{background:var(--tc-ground);color:var(--tc-ink);font:14px/1.5 system-ui,sans-serif;
padding:.6em .8em;border-radius:6px;text-align:left;overflow-wrap:break-word}
.tcdsl *{box-sizing:border-box}
.tcdsl a{color:var(--tc-link);text-decoration:none}
.tcdsl a:hover{text-decoration:underline}
.tcdsl p,.tcdsl ul{margin:.3em 0}
.tcdsl h2,.tcdsl h3,.tcdsl h4{color:inherit;line-height:1.3;margin:.9em 0 .3em;font-weight:600}
.tcdsl h2{font-size:1.25em}.tcdsl h3{font-size:1.08em}.tcdsl h4{font-size:1em}
.tcdsl.tcdsl code,.tcdsl.tcdsl pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,
monospace;background:none;color:inherit;padding:0;border:0}
.tcdsl.tcdsl pre{background:var(--tc-panel);border:1px solid var(--tc-line);border-radius:4px;
padding:.5em .7em;margin:.4em 0;overflow-x:auto;white-space:pre}
.tcdsl.tcdsl pre.source{border-left:4px solid var(--tc-link)}
.tcdsl .scroll{overflow-x:auto;margin:.4em 0}
.tcdsl.tcdsl table tr:nth-child(n){background:none}
.tcdsl.tcdsl table{table-layout:auto;border:0;border-collapse:collapse;margin:0;font-size:inherit;
color:inherit;background:none}
.tcdsl.tcdsl th,.tcdsl.tcdsl td{border:0;border-bottom:1px solid var(--tc-line);
padding:.2em .8em .2em 0;text-align:left;vertical-align:top;background:none;color:inherit;
white-space:normal}
.tcdsl.tcdsl th{white-space:nowrap;font-weight:600;color:var(--tc-muted)}
.tcdsl .number{display:block;text-align:right;font-variant-numeric:tabular-nums}
.tcdsl details{margin:.2em 0}
.tcdsl details>:not(summary){margin-left:1.1em}
.tcdsl summary{cursor:pointer}
.tcdsl .badge{display:inline-block;border:1px solid currentColor;border-radius:3px;padding:0 .35em;
font-size:.82em;line-height:1.45;white-space:nowrap}
.tcdsl .note{color:var(--tc-muted)}
.tcdsl .row{display:flex;flex-wrap:wrap;gap:.4em 1.6em;align-items:flex-start}
.tcdsl .row>*{min-width:0;max-width:100%}
.tcdsl svg{max-width:100%;height:auto;display:block;background:none}
.tcdsl svg text{font-family:system-ui,sans-serif}
.tcdsl :target{background:var(--tc-mark)}
.tcdsl .plain{list-style:none;padding-left:0}
.tcdsl .range{white-space:nowrap}
.tcdsl .iterations{margin-left:.7em}
.tcdsl .mark{margin:0 .5em;font:11px ui-monospace,monospace;opacity:.75}
.tcdsl .pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24em),1fr));
gap:.2em 1.4em}
.tcdsl .pair>*{min-width:0;overflow-x:auto}
.tcdsl .tree{white-space:nowrap;overflow-x:auto}
.tcdsl .tree ul{list-style:none;margin:0 0 0 .3em;padding-left:.9em;
border-left:1px solid var(--tc-line)}
.tcdsl .tree details{margin:0}
.tcdsl .tree ul,.tcdsl .tree li{line-height:1.6}
.tcdsl dl{margin:.2em 0}
.tcdsl .row>dl{flex:1 1 20em;max-width:46em}
.tcdsl .row>.row{flex:0 1 auto}
.tcdsl dl>div{display:flex;gap:.8em;margin:.15em 0;align-items:baseline}
.tcdsl dt{flex:0 0 5.2em;color:var(--tc-muted);font-weight:400}
.tcdsl dd{margin:0;min-width:0;overflow-wrap:anywhere}
.tcdsl figure{margin:.3em 0;max-width:100%}
.tcdsl .row>figure{min-width:min(100%,21em)}
.tcdsl figcaption{max-width:24em;font-size:.88em}
.tcdsl meter{width:7em;height:.8em}
.tcdsl .wide td:nth-child(n+2){min-width:9em}
.tcdsl .wide td:first-child{white-space:nowrap}
.tcdsl.tcdsl pre.code{padding-left:0}
.tcdsl .line{display:block;padding-right:.7em}
.tcdsl .gutter{color:var(--tc-muted);user-select:none;display:inline-block;min-width:3.6em;
text-align:right}
.tcdsl a.statement{color:inherit;text-decoration:underline dotted var(--tc-link);
text-underline-offset:3px}
.tcdsl .marked{background:var(--tc-mark)}
"""

# Of a page of its own.
_PAGE_RULES = """
html{scroll-padding-top:1em}
body.tcdsl{margin:0;padding:0;border-radius:0;min-height:100vh}
.report{display:grid;grid-template-columns:15em minmax(0,1fr);gap:0 2em;max-width:100em;
margin:0 auto;padding:1em 1.4em;border-radius:0}
.report nav{position:sticky;top:1em;align-self:start;max-height:calc(100vh - 2em);overflow-y:auto}
.report nav h1{font-size:1.3em;margin:0 0 .3em;overflow-wrap:anywhere}
.report nav ul{list-style:none;padding:0}
.report nav li{margin:.25em 0}
.report nav .facts code{display:none}
.report button{font:inherit;font-size:.85em;color:var(--tc-muted);background:var(--tc-panel);
border:1px solid var(--tc-line);border-radius:4px;padding:.1em .7em;cursor:pointer}
.report section{border-bottom:1px solid var(--tc-line);padding:.2em 0 .8em}
.report section:target{background:none}
.report section>details>:not(summary){margin-left:0}
.report summary h2{display:inline}
.report footer{grid-column:2;padding:1em 0}
@media (max-width:52em){.report{display:block;padding:.6em .8em}
.report nav{position:static;max-height:none}
.report nav ul{display:flex;flex-wrap:wrap;gap:0 1em}}
@media print{.report{display:block}.report nav{position:static}}
"""


def page_style_text() -> str:
    """Return the rules that a page of its own has beside the style sheet."""
    return _PAGE_RULES.strip() + "\n"


@cache
def style_text() -> str:
    """Return the style sheet."""
    light = _variables({name: colour.light for name, colour in COLOURS.items()})
    dark = _variables({name: colour.dark for name, colour in COLOURS.items()})
    root = f".{ROOT_CLASS}"
    paints = "".join(
        f"{root} .fill-{name}{{fill:var(--tc-{name})}}{root} .stroke-{name}"
        f"{{stroke:var(--tc-{name})}}{root} .ink-{name}{{color:var(--tc-{name})}}\n"
        for name in COLOURS
    )
    return "".join([
        f"{root}{{color-scheme:light;{light}}}\n",
        f"@media (prefers-color-scheme:dark){{{root}{{color-scheme:dark;{dark}}}}}\n",
        f"{_under(_LIGHT_HOSTS)}{{color-scheme:light;{light}}}\n",
        f"{_under(_DARK_HOSTS)}{{color-scheme:dark;{dark}}}\n",
        paints,
        _RULES.strip(),
        "\n",
    ])  # fmt: skip


def _variables(values: Mapping[str, str]) -> str:
    return "".join(f"--tc-{name}:{value};" for name, value in values.items())


def _under(hosts: tuple[str, ...]) -> str:
    return ",".join(f"{host} .{ROOT_CLASS}" for host in hosts)
