"""Settings of Sphinx for the documentation site; `docs/site/build.py` calls it."""

from __future__ import annotations

import svod

project = "Svod"
author = "the Svod developers"
version = release = svod.__version__
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
html_theme = "furo"
html_title = f"Svod {release}"
html_show_sphinx = False
html_copy_source = False
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header", "myst.xref_missing", "misc.highlighting_failure"]
nitpicky = False
