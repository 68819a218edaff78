"""All stages of a compilation on one page, which is one file: it needs no other, and no network.

Explanation, Traffic, Candidates, Program, code, Plan                   open
Comprehension, Polyhedral program, Transforms, Schedule, Choices        folded
"""

from tcdsl.display.compilation import FOLDED, Compilation
from tcdsl.display.html import Anchors, Html, details, tag
from tcdsl.display.style import ROOT_CLASS, page_style_text, style_text
from tcdsl.poly.isl_utils import COMPILE_LOCK
from tcdsl.version import __version__


def report_page(compilation: Compilation) -> str:
    """Return the page of all stages."""
    anchors = Anchors()
    stages = compilation.in_reading_order()
    with COMPILE_LOCK:
        sections = [
            tag(
                "section",
                details(
                    tag("h2", stage.title), tag("p", stage.what, class_="note"),
                    stage.body(anchors, True), is_open=stage.name not in FOLDED,
                ),
                id=anchors("stage", stage.name),
            )
            for stage in stages
        ]  # fmt: skip
    contents = [tag("li", anchors.link(stage.title, "stage", stage.name)) for stage in stages]
    name = compilation.definition.name
    body = tag(
        "div",
        tag("nav", tag("h1", name), compilation.facts(), tag("ul", contents), _theme_button(),
            aria_label="contents"),
        tag("main", sections),
        tag("footer", f"tcdsl {__version__}", class_="note"),
        class_="report",
    )  # fmt: skip
    head = tag(
        "head", tag("meta", charset="utf-8"), tag("title", f"{name}: tcdsl"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(style_text() + page_style_text())),
    )  # fmt: skip
    end = tag("script", Html(_SCRIPT))
    page = tag("html", head, tag("body", body, end, class_=ROOT_CLASS), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _theme_button() -> Html:
    title = "light, dark, or as the system has it"
    return tag("button", "theme", type="button", id="theme", title=title)


# Marks all that belongs to the statement under the pointer, and switches the theme: the page is
# whole without it.
_SCRIPT = """
"use strict";
const root = document.documentElement, themes = ["", "dark", "light"];
let theme = 0;
document.getElementById("theme").addEventListener("click", () => {
  theme = (theme + 1) % themes.length;
  if (themes[theme]) root.dataset.theme = themes[theme]; else delete root.dataset.theme;
});
let marked = [];
document.addEventListener("mouseover", event => {
  const own = event.target.closest("[data-s]");
  for (const element of marked) element.classList.remove("marked");
  marked = [];
  if (!own) return;
  const names = own.dataset.s.split(" ");
  for (const element of document.querySelectorAll("[data-s]"))
    if (element.dataset.s.split(" ").some(name => names.includes(name))) {
      element.classList.add("marked");
      marked.push(element);
    }
});
addEventListener("hashchange", () => {
  let element = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const target = element;
  const folded = target && target.querySelector(":scope > details");
  if (folded) folded.open = true;
  for (; element; element = element.parentElement)
    if (element.tagName === "DETAILS") element.open = true;
  if (target) target.scrollIntoView();
});
"""
