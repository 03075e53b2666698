"""A Sphinx extension with what the theme leaves to be mended on our pages."""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

NUMBERED = re.compile(r"thm-(\d+)$")


def setup(app: Sphinx) -> dict:
    """Connect the mendings; the theme's own handlers must have run before ours."""
    app.connect("env-check-consistency", number_theorems)
    app.connect("doctree-resolved", drop_repeated_ids)
    app.connect("html-page-context", link_text_notebook, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def number_theorems(app: Sphinx, env: BuildEnvironment) -> None:
    """A theorem labelled ``thm-4`` is Theorem 4, on every page and in the code, wherever its chapter stands."""
    for counters in env.toc_fignumbers.values():
        for numbers in counters.values():
            for label in numbers:
                if match := NUMBERED.match(label):
                    numbers[label] = (int(match[1]),)


def drop_repeated_ids(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """An id must be the only one of its page, but proofs, and citations in docstrings, all come with the same ones."""
    seen = {"proof-content"}  # the contents of every theorem; nothing refers to it
    for node in doctree.findall(nodes.Element):
        if ids := node.get("ids"):
            node["ids"] = [name for name in ids if name not in seen]
            seen.update(ids)


def link_text_notebook(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Offer the text notebook, which is the chapter's source, beside the executed one."""
    for group in context.get("header_buttons", []):
        if group.get("label") == "download-buttons" and str(context.get("sourcename", "")).endswith(".ipynb"):
            group["buttons"].insert(
                0,
                {
                    "type": "link",
                    "url": f"{context['pathto']('_sources', 1)}/{pagename}.md",
                    "text": ".md",
                    "tooltip": "Download the text notebook",
                    "icon": "fas fa-file",
                    "label": "download-text-notebook-button",
                },
            )
