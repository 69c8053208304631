"""Sphinx's settings. Nothing on the site comes from elsewhere: it can be read from a folder, offline."""

from __future__ import annotations

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

import dl4all

project = "dl4all"
author = copyright = "The dl4all authors"
version = release = dl4all.__version__

extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
primary_domain = "py"
default_role = "code"
maximum_signature_line_length = 90
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True

myst_heading_anchors = 4  # links to headings, as on code hosts
myst_enable_extensions = ["fieldlist"]

html_theme = "furo"
html_title = f"dl4all {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True


def resolve_exactly(app: Sphinx, doctree: nodes.document) -> None:
    """Link types in signatures to what they name in full, not to whatever ends in the same word."""
    for reference in doctree.findall(addnodes.pending_xref):
        if reference.get("refdomain") == "py":
            reference.attributes.pop("refspecific", None)


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", resolve_exactly)
