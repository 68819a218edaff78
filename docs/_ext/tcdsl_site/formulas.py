"""Formulas as MathML, which browsers draw themselves: the page loads no script from elsewhere."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

_logger = logging.getLogger(__name__)
# Brackets of a size that LaTeX is told: MathML's grow with what they hold.
_SIZE = re.compile(r"\\(?:big|Big|bigg|Bigg)[lmr]?(?![A-Za-z])")


def mathml(formula: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    """Return *formula*, written in LaTeX, as MathML; what cannot be read stays as it is written."""
    try:
        return str(tex2mathml(_SIZE.sub("", formula.astext()), as_block=as_block))
    except MathError as error:
        _logger.warning("the formula %r: %s", formula.astext(), error, location=formula)
        return f"<code>{formula.astext()}</code>"


def _inline(writer: HTML5Translator, formula: nodes.math) -> None:
    writer.body.append(mathml(formula, as_block=False))
    raise nodes.SkipNode


def _block(writer: HTML5Translator, formula: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{mathml(formula, as_block=True)}</div>\n')
    raise nodes.SkipNode


def add_renderer(app: Sphinx) -> None:
    """Make MathML a way to draw formulas."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
