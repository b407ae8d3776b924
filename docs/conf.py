"""Configuration of the documentation site; `make docs` builds it."""

from importlib.metadata import version as installed

project = "bagwise"
author = "The bagwise developers"
copyright = author
release = installed("bagwise")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "auto_examples/*.md5", "GALLERY_HEADER.rst"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
# Links to files of the repository that are no pages of the site.
suppress_warnings = ["config.cache"]

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"

templates_path = ["_templates"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "show_memory": False,
    "download_all_examples": False,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "bagwise"
html_static_path: list[str] = []
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def skip_plumbing(app, what, name, obj, skip, options):
    """Leave out what scikit-learn adds to every estimator for its own use."""
    plumbing = name == "get_metadata_routing" or name == "set_output" or name.endswith("_request")
    return True if plumbing else None


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", skip_plumbing)
