"""The documentation site: these pages, the gallery of tutorials, and the docstrings.

`make docs` builds it without the network; a warning is an error.
"""

import os
import re
import tomllib
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import torch
from sphinx.application import Sphinx

from lifelong.cli.main import main as command_line

ROOT = Path(__file__).resolve().parent.parent

project = "lifelong"
author = "The lifelong authors"
project_copyright = f"2026, {author}"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["build", "gallery", "pictures"]

html_theme = "furo"
html_title = f"lifelong {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#005f87", "color-brand-content": "#005f87"},
    "dark_css_variables": {"color-brand-primary": "#7cc4e8", "color-brand-content": "#7cc4e8"},
}

myst_enable_extensions = ["deflist", "attrs_block"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

default_role = "literal"  # single backticks in docstrings are code
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 3600,  # seconds of the machine that builds the site tell a reader nothing
    "abort_on_example_error": True,
    "capture_repr": (),  # what is printed is shown, not what a last line returns
    "copyfile_regex": r".*\.rst",
}

# Pages of the site that are files of the project: one text, in one place.
ROOT_FILES = {
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "reproduction": "REPRODUCTION.md",
    "security": "SECURITY.md",
}


def _from_the_root(_app: Sphinx, page: str, source: list[str]) -> None:
    """Put in the text of a file of the project; let links lead to its page, under its title."""
    text = source[0]
    if page in ROOT_FILES:
        text = (ROOT / ROOT_FILES[page]).read_text(encoding="utf-8")
        text = re.sub(r"\]\((?!docs/|https?:|#)", "](../", text).replace("](docs/", "](")
    for name, file in ROOT_FILES.items():
        text = text.replace(f"](../{file}", f"]({name}.md")
    text = text.replace("](../README.md", "](index.md")
    source[0] = re.sub(r"\[(?:docs/)?[\w-]+\.md\]\(([\w-]+\.md)\)", r"[](\1)", text)


def _with_help(_app: Sphinx, page: str, source: list[str]) -> None:
    """Put in what `lifelong COMMAND --help` prints."""
    if page == "cli":
        source[0] = re.sub(r"<!-- help (\w+) -->", lambda found: _help(found[1]), source[0])


def _help(command: str) -> str:
    os.environ["COLUMNS"] = "84"
    with redirect_stdout(StringIO()) as printed, suppress(SystemExit):
        command_line([command, "--help"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())
    return f"```text\n{text.strip()}\n```"


def setup(app: Sphinx) -> None:
    torch.set_num_threads(1)  # networks as small as those of the tutorials are slower with more
    app.connect("source-read", _from_the_root)
    app.connect("source-read", _with_help)
