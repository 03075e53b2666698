"""Lay out the pages: fresh prose with stored outputs, figures with caption and data, ledger and sources."""

import hashlib
import os
from copy import deepcopy
from pathlib import Path

import nbformat

from .errors import BuildError
from .ledger import CHECK, Ledger, claims_page, summary_page
from .notebook import METADATA, code_cells, has_tag, read
from .project import Chapter, Project

FIGURE = "application/vnd.pavlov.figure+json"
# What lies in book/ for the press and not for the page.
NOT_STAGED = {".md", ".ipynb", ".yml", ".pyc"}


def stage(project: Project, notebooks: dict, book: Ledger) -> str:
    """Write the stage, touching only files whose bytes change; return the digest of what is rendered."""
    files = pages(project, notebooks, book)
    _sync(project.build / "stage", files)
    settings = {name: (project.root / name).read_bytes() for name in ("_config.yml", "_toc.yml")}
    digest = hashlib.sha256(project.pins.encode())
    for name, content in sorted((files | settings).items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def pages(project: Project, notebooks: dict, book: Ledger) -> dict[str, bytes]:
    """Every file of the stage, by its path there."""
    files = {
        "_ledger/summary.md": summary_page(book).encode(),
        "_ledger/claims.md": claims_page(book).encode(),
        "_ledger/runs.md": _runs(project, notebooks).encode(),
    }
    for path in sorted(project.book.rglob("*")):
        if path.is_file() and path.suffix not in NOT_STAGED and ".ipynb_checkpoints" not in path.parts:
            files[path.relative_to(project.book).as_posix()] = path.read_bytes()
    # The page shows the package's own source, and says anew what it shows when that changes.
    for path in sorted((project.root / project.package).rglob("*.py")):
        files[path.relative_to(project.root).as_posix()] = path.read_bytes()
    for name, chapter in project.chapters.items():
        # `html_extra_path` puts the text notebook where the page's download button looks for it.
        files[f"_extra/_sources/{name}.md"] = chapter.path.read_bytes()
        if chapter.is_notebook:
            notebook, data = page(chapter, notebooks[name])
            files[f"{name}.ipynb"] = nbformat.writes(notebook).encode()
            files |= data
        else:
            files[f"{name}.md"] = chapter.path.read_bytes()
    return files


def page(chapter: Chapter, executed) -> tuple[nbformat.NotebookNode, dict[str, bytes]]:
    """A chapter as it is now with the outputs it had when run, and the data of its figures."""
    notebook = deepcopy(read(chapter))
    for cell, ran in zip(code_cells(notebook), code_cells(executed), strict=True):
        cell["outputs"], cell["execution_count"] = ran.outputs, ran.execution_count
    after = 1 + next(n for n, cell in enumerate(notebook.cells) if has_tag(cell, "parameters"))
    injected = [cell for cell in executed.cells if has_tag(cell, "injected-parameters")]
    notebook.cells[after:after] = [cell | {"id": "injected"} for cell in injected]
    notebook.metadata.pop("jupytext", None)
    notebook.metadata["language_info"] = executed.metadata["language_info"]
    notebook.metadata[METADATA] = executed.metadata[METADATA]
    data = {}
    for cell in code_cells(notebook):
        data |= _set_figure(chapter, cell)
        for output in cell.outputs:
            output.get("data", {}).pop(CHECK, None)  # the page has the check's Markdown
    return notebook, data


def _set_figure(chapter: Chapter, cell) -> dict[str, bytes]:
    """Turn a figure's output into a numbered figure with computed caption, alt text and data beside it."""
    figures = [out for out in cell.outputs if FIGURE in out.get("data", {})]
    if not figures:
        return {}
    if len([out for out in cell.outputs if "image/png" in out.get("data", {})]) > 1:
        raise BuildError(f"{chapter.name}: a cell shows more than one image; give each figure a cell of its own")
    figure = figures[0].data.pop(FIGURE)
    path = f"data/{chapter.name}/{figure['name']}.csv"
    caption = f"{figure['caption'].strip()} {{download}}`Data <{path}>`"
    cell.metadata["mystnb"] = {
        "figure": {"name": figure["name"], "caption": caption},
        "image": {"alt": figure["alt"]},
    }
    return {path: figure["csv"].encode()}


def _runs(project: Project, notebooks: dict) -> str:
    """A MyST table of what was run with which parameters."""
    lines = ["| Chapter | Parameters |", "|---|---|"]
    for name, notebook in notebooks.items():
        values = notebook.metadata[METADATA]["parameters"].items()
        lines.append(f"| {{doc}}`{name}` | {', '.join(f'`{key} = {value}`' for key, value in values)} |")
    return "\n".join(lines) + "\n"


def _sync(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder hold exactly these files."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(folder).as_posix() not in files:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    for name, content in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            half = path.with_name(path.name + ".part")
            half.write_bytes(content)
            os.replace(half, path)
