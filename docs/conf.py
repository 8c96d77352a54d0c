"""Sphinx configuration: builds without a network, from the sources beside it."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
# Document the tree this file belongs to, whatever is installed.
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent / "papers" / "src")]
# Pages of modules and notebooks that no longer exist would break the build.
for made in ("reference", "notebooks"):
    shutil.rmtree(HERE / made / "generated", ignore_errors=True)

from nbconvert import MarkdownExporter  # noqa: E402
from pydantic import BaseModel  # noqa: E402

import dpadmm  # noqa: E402
from dpadmm.algorithms import REGISTRY  # noqa: E402

project = "dpadmm"
author = "the dpadmm developers"
project_copyright = "the dpadmm developers"
version = release = dpadmm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "_templates"]
# Signatures name classes by their last word, and two modules may use the same one.
suppress_warnings = ["ref.python"]
templates_path = ["_templates"]

html_theme = "furo"
html_title = f"dpadmm {release}"
html_static_path = ["_static"]
html_copy_source = False
html_show_sphinx = False

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 3

autosummary_generate = True
# Not installed beside the rest: it pins older libraries.
autodoc_mock_imports = ["flwr"]
# Packages list their modules, whatever they re-export.
autosummary_ignore_module_all = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Shown by their names rather than spelt out.
autodoc_type_aliases = {name: name for name in ("Array", "ArrayLike", "Rows", "Words")}
autodoc_default_options = {"show-inheritance": True}
# Methods and attributes are listed by autodoc itself.
numpydoc_show_class_members = False
numpydoc_attributes_as_param_list = True


def _algorithm_table() -> str:
    """One line per registered algorithm, so that a new one shows without editing a page."""
    lines = ["| name | runs | privacy | from |", "|---|---|---|---|"]
    for name, algorithm in REGISTRY.items():
        page = HERE / "papers" / f"{name}.md"
        shown = f"[`{name}`](/papers/{name}.md)" if page.exists() else f"`{name}`"
        runs = "around a server" if algorithm.needs_server else "on a graph of the parties"
        if algorithm.hears_everybody:
            runs = "around a server, or on any connected graph"
        privacy = "under a budget" if algorithm.private else "none"
        lines.append(f"| {shown} | {runs} | {privacy} | {algorithm.paper} |")
    return "\n".join(lines)


myst_substitutions = {"algorithm_table": _algorithm_table()}


def _write_notebooks() -> None:
    """Each notebook as a page, with the outputs that are stored in it: nothing is run here."""
    pages = HERE / "notebooks" / "generated"
    for notebook in sorted((HERE.parent / "examples").glob("*.ipynb")):
        name = notebook.stem
        places = {"unique_key": name, "output_files_dir": name}
        text, made = MarkdownExporter().from_filename(str(notebook), resources=places)
        # Links of the notebook lead from its folder, those of the page from the page's.
        text = text.replace("](../docs/", "](../../").replace(
            "](../CONTRIBUTING", "](../../contributing"
        )
        text = re.sub(r"\]\(([\w-]+)\.ipynb\)", r"](\1.md)", text)
        (pages / name).mkdir(parents=True)
        (pages / f"{name}.md").write_text(text, encoding="utf-8")
        for place, content in made["outputs"].items():
            (pages / place).write_bytes(content)


_write_notebooks()


def _skip(app, what, name, obj, skip, options):
    """Leave out what Python, pydantic and scikit-learn write into a class by themselves."""
    by_python = (getattr(obj, "__doc__", None) or "").startswith("Alias for field number")
    by_pydantic = name == "model_config"
    by_sklearn = what == "class" and name.startswith("set_") and name.endswith("_request")
    return True if by_python or by_pydantic or by_sklearn else None


def _plain_signature(app, what, name, obj, options, signature, return_annotation):
    """Show the fields of a pydantic model without their validators."""
    if not (what == "class" and issubclass(obj, BaseModel) and signature):
        return None
    found = inspect.signature(obj)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in found.parameters.values()
    ]
    return str(found.replace(parameters=bare, return_annotation=found.empty)), None


def setup(app):
    # It copies files at the end and does nothing else, but does not say that pages may be read by
    # several processes.
    app.extensions["sphinx-mathjax-offline"].parallel_read_safe = True
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _plain_signature)
