"""Imports run one way: chapters → claims, figures → science; the press knows no science."""

import re
import sys
import tomllib

import grimp
import pytest
from conftest import ROOT
from importlinter.cli import lint_imports

EVIDENCE = {"pavlov.claims", "pavlov.figures"}
MACHINERY = {"pavlov.cli", "pavlov.__main__", "pavlov.press"}


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("pavlov", include_external_packages=True, cache_dir=None)


def science(graph) -> set[str]:
    """Every module that a chapter may show as theory."""
    modules = {name for name in graph.modules if name.startswith("pavlov.") and not name.startswith("pavlov.press.")}
    return modules - EVIDENCE - MACHINERY


def test_the_contracts_of_pyproject_hold(capsys):
    assert lint_imports(str(ROOT / "pyproject.toml"), no_cache=True) == 0, capsys.readouterr().out


def test_the_press_imports_nothing_of_the_package_but_itself(graph):
    inner = {name for name in graph.modules if name.startswith("pavlov.press")}
    imported = set().union(*(graph.find_modules_directly_imported_by(module) for module in inner))
    assert {name for name in imported if name.startswith("pavlov")} <= inner


def test_the_science_needs_only_the_packages_dependencies(graph):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["dependencies"] + project["optional-dependencies"]["distributed"]
    allowed = {re.match(r"[\w-]+", line).group() for line in declared} | sys.stdlib_module_names | {"pavlov"}
    imported = set().union(*(graph.find_modules_directly_imported_by(module) for module in science(graph)))
    assert {name.partition(".")[0] for name in imported} <= allowed
