"""Configuration of the documentation site; `make docs` builds it."""

import os
import sys
from importlib.metadata import version as installed
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import draw_house
import error_list
import parameters

project = "bagwise"
author = "The bagwise developers"
copyright = author
release = installed("bagwise")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "auto_examples/*.md5", "GALLERY_HEADER.rst"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_param = False  # arguments that share a text are shown together
toc_object_entries_show_parents = "hide"

templates_path = ["_templates"]

# Examples whose package or data are missing are shown, but not run.
shared = Path(os.environ.get("BAGWISE_SHARED") or "nowhere")
runnable = {
    "attention_and_gp": find_spec("torch") is not None,
    "conformers": find_spec("rdkit") is not None,
    "nuclei_heatmap": (shared / "data" / "colon_nuclei.npz").is_file(),
}
left_out = "|".join(name for name, there in runnable.items() if not there)

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": rf"/plot_(?!{left_out})" if left_out else "/plot_",
    "within_subsection_order": "FileNameSortKey",
    "show_memory": False,
    "default_thumb_file": str(Path(__file__).parent / "_static" / "bag.svg"),
    "download_all_examples": False,
    "write_computation_times": False,  # a page that loads tables from elsewhere
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "bagwise"
html_static_path = ["_static"]
html_css_files = ["bagwise.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "header_links_before_dropdown": 8,
    "navigation_with_keys": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars: dict[str, list[str]] = {"index": []}  # has nothing to navigate to


def skip_plumbing(app, what, name, obj, skip, options):
    """Leave out what scikit-learn adds to every estimator for its own use."""
    plumbing = name == "get_metadata_routing" or name == "set_output" or name.endswith("_request")
    return True if plumbing else None


def draw(app, config):
    """Draw the picture that `architecture.md` shows, and list what `errors.md` does."""
    draw_house.write(Path(app.srcdir) / "generated" / "house.svg")
    error_list.write(Path(app.srcdir) / "generated" / "errors.txt")


def setup(app):
    """Called by Sphinx."""
    app.connect("config-inited", draw)
    app.connect("autodoc-skip-member", skip_plumbing)
    app.connect("autodoc-process-docstring", parameters.rewrite, priority=400)
