"""The book as files: its chapters in the order of ``_toc.yml``, its profiles and its registered claims."""

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from .errors import UserError, choices

PROFILES = ("quick", "full")
CLAIM_FIELDS = ("id", "chapter", "source", "statement", "verdict")
VERDICTS = ("holds", "holds only when", "does not hold")
HEADER = re.compile(r"\A---\n(.*?\n)---\n", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Chapter:
    """One page of the book: a text notebook, or plain MyST Markdown."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def title(self) -> str:
        heading = re.search(r"^# (.+)$", self.text, re.MULTILINE)
        return heading.group(1).strip() if heading else self.name

    @cached_property
    def is_notebook(self) -> bool:
        """A notebook says so in its header, so that Jupyter opens it as one."""
        header = HEADER.match(self.text)
        named = bool(header) and bool(re.search(r"^(jupytext|kernelspec):", header.group(1), re.MULTILINE))
        if not named and re.search(r"^(```|:::)\{code-cell\}", self.text, re.MULTILINE):
            raise UserError(f"{self.name}: has code cells but no jupytext header, so Jupyter would not open it")
        return named


class Project:
    """A folder with ``_config.yml``, ``_toc.yml``, ``book/`` and the package that its chapters import."""

    def __init__(self, root: Path | str):
        self.root = Path(root).resolve()
        self.book = self.root / "book"
        self.build = self.root / "_build"

    @classmethod
    def find(cls, start: Path | str = ".") -> "Project":
        """The project around ``start``, or else the one this package lies in."""
        start = Path(start).resolve()
        for folder in (start, *start.parents, Path(__file__).parents[2]):
            if (folder / "_toc.yml").is_file() and (folder / "book").is_dir():
                return cls(folder)
        raise UserError(f"no book at {start}: run this in a clone of the repository, where _toc.yml is")

    @cached_property
    def chapters(self) -> dict[str, Chapter]:
        """Every page by name, in the order of ``_toc.yml``."""
        names = list(_files(_load(self.root / "_toc.yml")))
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"_toc.yml lists '{name}' more than once")
            if not (self.book / f"{name}.md").is_file():
                raise UserError(f"_toc.yml lists '{name}', but there is no book/{name}.md")
        for path in sorted(self.book.glob("*.md")):
            if path.stem not in names:
                raise UserError(f"book/{path.name} is not in _toc.yml: list it there, or remove it")
        return {name: Chapter(name, self.book / f"{name}.md") for name in names}

    @cached_property
    def notebooks(self) -> dict[str, Chapter]:
        """The chapters that run."""
        return {name: chapter for name, chapter in self.chapters.items() if chapter.is_notebook}

    def notebook(self, name: str) -> Chapter:
        """One chapter that runs, by name."""
        if name not in self.notebooks:
            raise choices("chapter", name, self.notebooks)
        return self.notebooks[name]

    @cached_property
    def profiles(self) -> dict[str, dict[str, dict]]:
        """``book/profiles.yml``: profile → chapter → parameter → value."""
        profiles = _load(self.book / "profiles.yml", default={})
        for profile, chapters in profiles.items():
            if profile not in PROFILES:
                raise choices("profile in book/profiles.yml", profile, PROFILES)
            for name in chapters or {}:
                if name not in self.notebooks:
                    raise choices(f"chapter under '{profile}' in book/profiles.yml", name, self.notebooks)
        return {profile: profiles.get(profile) or {} for profile in PROFILES}

    @cached_property
    def claims(self) -> dict[str, dict]:
        """``book/claims.yml``: the registered claims by id."""
        claims = {}
        for entry in _load(self.book / "claims.yml", default=[]):
            missing = [field for field in CLAIM_FIELDS if not entry.get(field)]
            if missing:
                raise UserError(f"book/claims.yml: claim '{entry.get('id')}' lacks {', '.join(missing)}")
            if entry["id"] in claims:
                raise UserError(f"book/claims.yml registers '{entry['id']}' more than once")
            if entry["chapter"] not in self.notebooks:
                raise choices(f"chapter of claim '{entry['id']}'", entry["chapter"], self.notebooks)
            if not str(entry["verdict"]).startswith(VERDICTS):
                raise choices(f"verdict of claim '{entry['id']}'", entry["verdict"], VERDICTS)
            claims[entry["id"]] = entry
        return claims

    @cached_property
    def package(self) -> str:
        """The name of the package that the chapters import."""
        return tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]

    @cached_property
    def pins(self) -> str:
        """The pinned dependencies: other pins, other results."""
        path = self.root / "requirements.txt"
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    def executed(self, chapter: Chapter, profile: str) -> Path:
        """Where the results of a chapter are kept."""
        return self.build / "executed" / profile / f"{chapter.name}.ipynb"


def _load(path: Path, default=None):
    """The content of a YAML file; a malformed one is told in one line."""
    if default is not None and not path.is_file():
        return default
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8")) or default
    except yaml.YAMLError as error:
        raise UserError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from None


def _files(node):
    """The files that a table of contents names, in order."""
    if isinstance(node, list):
        for item in node:
            yield from _files(item)
    elif isinstance(node, dict):
        yield from (node[key] for key in ("root", "file") if key in node)
        for key in ("parts", "chapters", "sections"):
            yield from _files(node.get(key))
