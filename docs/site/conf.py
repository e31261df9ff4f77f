# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How Sphinx builds the site. ``make docs-site`` assembles the sources first (tools/docs_site/build.py)."""

import os
from pathlib import Path

from nki_mlir.version import __version__

project = "nki_mlir"
author = "the nki_mlir authors"
version = release = __version__
html_title = f"nki_mlir {__version__}"
extensions = ["myst_nb", "sphinx_design", "tools.docs_site.directives"]
exclude_patterns = ["notebooks", "examples"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
nb_execution_mode = os.environ.get("SITE_EXECUTE", "force")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"             # notices of frameworks
nb_number_source_lines = False

html_theme = os.environ["SITE_THEME"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []} if html_theme == "furo" else {}
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
# Blocks of MLIR have no lexer; text is not guessed at.
highlight_language = "none"
pygments_style = "friendly"
pygments_dark_style = "github-dark"
