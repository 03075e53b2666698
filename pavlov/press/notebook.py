"""One chapter as a notebook: its cells, its parameters, the fingerprint of all that its results depend on."""

import ast
import hashlib
import json
import platform
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import grimp
import jupytext
import nbformat
from IPython.core.inputtransformer2 import TransformerManager

from .errors import UserError, choices
from .project import PROFILES, Chapter, Project

REQUIRED = ("profile", "seed", "device")
DEVICES = ("cpu", "cuda")
METADATA = "pavlov"


@cache
def read(chapter: Chapter) -> nbformat.NotebookNode:
    """The cells of a text notebook, with ids that are the same at each reading."""
    try:
        notebook = jupytext.reads(chapter.text, fmt="md:myst")
    except Exception as error:
        raise UserError(f"{chapter.name}: not a MyST notebook: {' '.join(str(error).split())}") from None
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    return notebook


def has_tag(cell, tag: str) -> bool:
    """Whether a cell carries a tag."""
    return tag in cell.metadata.get("tags", [])


def code_cells(notebook) -> list:
    """The code cells as their author wrote them, without the one that papermill injects."""
    return [c for c in notebook.cells if c.cell_type == "code" and not has_tag(c, "injected-parameters")]


@cache
def defaults(chapter: Chapter) -> dict:
    """The names and literals of the one cell tagged ``parameters``."""
    cells = [cell for cell in code_cells(read(chapter)) if has_tag(cell, "parameters")]
    if len(cells) != 1:
        raise UserError(f"{chapter.name}: needs exactly one code cell tagged `parameters`, has {len(cells)}")
    values = dict(_assignments(chapter, cells[0].source))
    missing = [name for name in REQUIRED if name not in values]
    if missing:
        raise UserError(f"{chapter.name}: its `parameters` cell lacks {', '.join(missing)}")
    return values


def _assignments(chapter: Chapter, source: str):
    lines = source.splitlines()
    try:
        for statement in ast.parse(source).body:
            if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
                raise ValueError(lines[statement.lineno - 1])
            yield statement.targets[0].id, ast.literal_eval(statement.value)
    except (ValueError, SyntaxError) as error:
        raise UserError(
            f"{chapter.name}: the `parameters` cell takes plain `name = literal` lines only: {error}"
        ) from None


@dataclass(frozen=True, eq=False)
class Job:
    """A chapter with the values that all its parameters shall have."""

    project: Project
    chapter: Chapter
    values: dict

    @property
    def changed(self) -> dict:
        """The values that differ from those the chapter states, and so must be injected."""
        stated = defaults(self.chapter)
        return {name: value for name, value in self.values.items() if value != stated[name]}

    @property
    def fingerprint(self) -> str:
        """A hash of what the results depend on: code, modules, pins, parameters, Python; not the prose."""
        evidence = {
            "code": [(c.source, has_tag(c, "raises-exception")) for c in code_cells(read(self.chapter))],
            "modules": modules(self.project, self.chapter),
            "pins": self.project.pins,
            "parameters": {name: repr(value) for name, value in self.values.items()},
            "python": platform.python_version(),
        }
        return hashlib.sha256(json.dumps(evidence, sort_keys=True).encode()).hexdigest()


def plan(project: Project, chapter: Chapter, *, profile: str, device: str, seed=None, extra=None) -> Job:
    """The job that a command asks for; every wrong name and value is found here, before anything runs."""
    if profile not in PROFILES:
        raise choices("profile", profile, PROFILES)
    if device not in DEVICES:
        raise choices("device", device, DEVICES)
    if seed is not None and seed < 0:
        raise UserError(f"seed is {seed}, expected 0 or more")
    for name in ("profile", "device"):
        if name in (extra or {}):
            raise UserError(f"parameter {name} is set with --{name}")
    asked = {"profile": profile, "device": device} | ({} if seed is None else {"seed": seed})
    asked |= project.profiles[profile].get(chapter.name) or {}
    return Job(project, chapter, defaults(chapter) | _checked(chapter, asked | (extra or {})))


def _checked(chapter: Chapter, asked: dict) -> dict:
    """The asked values, each with a known name and the type of the default that it replaces."""
    stated = defaults(chapter)
    for name, value in asked.items():
        if name not in stated:
            raise choices(f"parameter of {chapter.name}", name, stated)
        if type(stated[name]) is float and type(value) is int:
            asked[name] = float(value)
        elif stated[name] is not None and type(value) is not type(stated[name]):
            kind = type(stated[name]).__name__
            raise UserError(f"parameter {name} of {chapter.name} is {value!r}, expected {kind} like {stated[name]!r}")
    return asked


def stored(project: Project, chapter: Chapter, profile: str):
    """The executed notebook of a chapter, or None."""
    path = project.executed(chapter, profile)
    return nbformat.read(path, as_version=4) if path.is_file() else None


def is_current(project: Project, chapter: Chapter, notebook) -> bool:
    """Whether stored results belong to the chapter, modules and pins as they are now."""
    if notebook is None:
        return False
    record = notebook.metadata[METADATA]
    values = {name: ast.literal_eval(text) for name, text in record["parameters"].items()}
    return Job(project, chapter, values).fingerprint == record["fingerprint"]


def modules(project: Project, chapter: Chapter) -> dict[str, str]:
    """The project's modules that a chapter imports, directly or not, with the hash of each source."""
    graph = _import_graph(project)
    named = {name for cell in code_cells(read(chapter)) for name in _imports(cell.source)}
    # Importing any module runs the package's own __init__ first.
    direct = {project.package} | (named & graph.modules)
    reached = direct.union(*(graph.find_upstream_modules(module) for module in direct))
    return {module: hashlib.sha256(_source(project, module).read_bytes()).hexdigest() for module in sorted(reached)}


def _imports(source: str):
    """The modules that a cell may import; one that does not parse fails when it runs, and is never stored."""
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _import_graph(project: Project):
    with _importable(project):
        return grimp.build_graph(project.package, cache_dir=None)


@contextmanager
def _importable(project: Project):
    sys.path.insert(0, str(project.root))
    try:
        yield
    finally:
        sys.path.remove(str(project.root))


def _source(project: Project, module: str):
    path = project.root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
