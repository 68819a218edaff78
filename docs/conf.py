"""How the documentation site is built: sphinx-build -W --keep-going -n docs build/site"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from tcdsl.version import __version__

project = "tcdsl"
author = "the tcdsl authors"
project_copyright = f"{author}, under the MIT licence"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "tcdsl_site"]
exclude_patterns = ["_ext", "_static"]
nitpicky = True
# The types of a signature are linked where they are ours; nothing is fetched to link the others.
nitpick_ignore_regex = [("py:.*", r"(?!tcdsl\.).*"), ("py:.*", r"tcdsl\..*\..*")]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks come executed: see tcdsl_site.notebooks
nb_merge_streams = True
suppress_warnings = ["mystnb.unknown_mime_type"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True

smartquotes = False  # texts speak of code, where "x" is not “x”
templates_path: list[str] = []
html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"tcdsl {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b6e6e",
        "color-brand-content": "#0b6e6e",
        "font-stack--monospace": "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5fd0c5",
        "color-brand-content": "#5fd0c5",
    },
}
pygments_style = "tango"
pygments_dark_style = "github-dark"
copybutton_exclude = ".linenos, .gp, .go"
