"""A small book for the tests of the press, made as they want it."""

import shutil
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from pavlov.press.project import Project

ROOT = Path(__file__).parents[1]

HEADER = """\
---
jupytext:
  notebook_metadata_filter: -jupytext.text_representation.jupytext_version
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
"""
PARAMETERS = 'profile = "quick"\nseed = 0\ndevice = "cpu"\ntrials = 10\nrate = 0.5'


def code_cell(source: str, tags: str = "") -> str:
    """A code cell in MyST Markdown."""
    option = f":tags: [{tags}]\n\n" if tags else ""
    return f"```{{code-cell}}\n{option}{dedent(source).strip()}\n```\n"


def text_notebook(name: str, *sources: str, prose: str = "Prose.", parameters: str = PARAMETERS) -> str:
    """A text notebook with a parameters cell and these code cells."""
    cells = [code_cell(parameters, "parameters"), *map(code_cell, sources)]
    return "\n".join([HEADER, f"# {name.capitalize()}\n\n## Part\n\n{prose}\n", *cells])


def publish(claim: str, passed: bool = True) -> str:
    """The code of a cell that publishes a check, as a chapter's check does."""
    check = {
        "claim": claim,
        "name": "one",
        "kind": "equal",
        "passed": passed,
        "measured": "1",
        "predicted": "1",
    }
    check |= {"rivals": {"the double": "2"}, "text": "1 = 1"}
    bundle = {"application/vnd.pavlov.check+json": check, "text/markdown": "$1 = 1$", "text/plain": "1 = 1"}
    return f"from IPython.display import display\ndisplay({bundle!r}, raw=True)"


def claim(name: str, chapter: str) -> dict:
    """An entry of claims.yml."""
    return {"id": name, "chapter": chapter, "source": "v1", "statement": "One is $|1|$.", "verdict": "holds"}


def write_book(root: Path, chapters: dict[str, str], *, claims=(), profiles=None, modules=None, toc=None) -> Project:
    """A project with these chapters (name → text) beside a plain ``index``, and a package named ``toy``."""
    book, package = root / "book", root / "toy"
    book.mkdir(parents=True)
    package.mkdir()
    shutil.copytree(ROOT / "book" / "assets", book / "assets")
    shutil.copy(ROOT / "_config.yml", root)
    (root / "pyproject.toml").write_text('[project]\nname = "toy"\n')
    (book / "references.bib").write_text("")
    index = "# Toy\n\n```{include} _ledger/summary.md\n```\n\n```{include} _ledger/claims.md\n```\n"
    for name, text in ({"index": index} | chapters).items():
        (book / f"{name}.md").write_text(text, encoding="utf-8")
    for name, text in ({"__init__": ""} | (modules or {})).items():
        (package / f"{name}.py").write_text(text)
    (book / "claims.yml").write_text(yaml.safe_dump(list(claims)))
    (book / "profiles.yml").write_text(yaml.safe_dump(profiles or {}))
    listed = [{"file": name} for name in (chapters if toc is None else toc)]
    contents = {
        "format": "jb-book",
        "root": "index",
        "parts": [{"caption": "All", "numbered": True, "chapters": listed}],
    }
    (root / "_toc.yml").write_text(yaml.safe_dump(contents))
    return Project(root)


@pytest.fixture
def make_book(tmp_path):
    """Write a book of its own for one test."""
    return lambda chapters, **options: write_book(tmp_path / "a livre é", chapters, **options)
