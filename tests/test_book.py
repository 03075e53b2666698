"""The whole book: every chapter runs, every claim has its passed checks, every page opens offline."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient
from playwright.sync_api import sync_playwright

from pavlov.press.build import build, results_of
from pavlov.press.ledger import checks, ledger, summary_readme
from pavlov.press.notebook import code_cells, read
from pavlov.press.project import Project
from pavlov.press.terminal import Report

PROJECT = Project(ROOT)
HTML = PROJECT.build / "html"
PAGES = list(PROJECT.chapters)
NOTEBOOKS = list(PROJECT.notebooks)
WIDTHS = {"phone": 390, "desk": 1280}


@pytest.fixture(scope="session")
def book() -> Path:
    """The book as a reader gets it from `make book`."""
    return build(PROJECT, profile="quick", jobs=2, progress=Report())


@pytest.fixture(scope="session")
def results(book) -> dict:
    """The executed notebooks by chapter."""
    return results_of(PROJECT, "quick")


@pytest.fixture(scope="session")
def chromium():
    path = shutil.which("chromium") or "/usr/bin/chromium"
    if not Path(path).is_file():
        pytest.fail("the pages are tested in Chromium, which is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


# The sources


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_text_is_in_the_form_that_jupyter_saves(name):
    text = PROJECT.chapters[name].text
    assert jupytext.writes(jupytext.reads(text, fmt="md:myst"), fmt="md:myst") == text


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_code_of_a_chapter_passes_the_linter(name, tmp_path):
    notebook = tmp_path / f"{name}.ipynb"
    nbformat.write(read(PROJECT.chapters[name]), notebook)
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--config",
        ROOT / "pyproject.toml",
        "--output-format",
        "concise",
    ]
    done = subprocess.run([*command, notebook], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_chapter_runs_in_jupyter_as_it_is_opened_there():
    chapter = PROJECT.chapters[NOTEBOOKS[0]]
    notebook = jupytext.read(chapter.path)
    resources = {"metadata": {"path": str(PROJECT.book)}}
    NotebookClient(notebook, kernel_name="python3", resources=resources).execute()
    assert len(checks(notebook)) > 0


# The evidence


def test_every_claim_has_checks_and_all_passed(results):
    closed = ledger(PROJECT, results)
    assert closed.problems == []
    assert all(claim.passed for claim in closed.claims)


def test_every_check_rejects_a_rival(results):
    for claim in ledger(PROJECT, results).claims:
        for check in claim.checks:
            assert check["rivals"] or check["kind"] == "greater", (claim.id, check["name"])


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_chapter_is_silent_on_stderr_and_warns_of_nothing(results, name):
    streams = [out for cell in code_cells(results[name]) for out in cell.outputs if out.output_type == "stream"]
    assert [out.text for out in streams if out.name == "stderr"] == []


def test_the_readme_shows_the_ledger(results):
    shown = re.search(r"<!-- claims: .* -->\n(.*)<!-- /claims -->", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown[1] == summary_readme(ledger(PROJECT, results)), "paste `pavlov claims --markdown` into README.md"


# The pages


@pytest.fixture(params=WIDTHS)
def visit(request, book, chromium):
    """Open a page of the book, and collect what the browser complains of."""
    context = chromium.new_context(viewport={"width": WIDTHS[request.param], "height": 900})
    tab, complaints = context.new_page(), []
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on(
        "request",
        lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else complaints.append(r.url),
    )
    tab.on("requestfailed", lambda r: complaints.append(f"{r.url}: {r.failure}"))

    def open_page(name: str):
        tab.goto((HTML / f"{name}.html").as_uri())
        if tab.locator("script[src*=mathjax]").count():
            tab.wait_for_function("window.MathJax?.startup?.promise !== undefined")
            tab.evaluate("async () => { await MathJax.startup.promise }")
        return tab, complaints

    yield open_page
    context.close()


@pytest.mark.parametrize("name", [*PAGES, "search", "genindex"])
def test_a_page_is_whole_without_the_net(visit, name):
    tab, complaints = visit(name)
    assert complaints == []
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    assert tab.locator("mjx-merror, .problematic, .system-message").count() == 0
    assert tab.evaluate("[...document.images].filter(i => !i.alt.trim() || !i.naturalWidth).map(i => i.src)") == []
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert sorted({i for i in ids if ids.count(i) > 1}) == []


@pytest.mark.parametrize("name", PAGES)
def test_the_links_of_a_page_lead_somewhere(book, name):
    page = HTML / f"{name}.html"
    for link in re.findall(r'(?:href|src)="([^"#]+)', page.read_text(encoding="utf-8")):
        if not re.match(r"(https?|mailto|data):", link):
            assert (page.parent / link.partition("?")[0]).exists(), link


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_chapter_can_be_downloaded_as_text_and_as_notebook(book, name):
    assert (HTML / "_sources" / f"{name}.md").read_text(encoding="utf-8") == PROJECT.chapters[name].text
    nbformat.validate(nbformat.read(HTML / "_sources" / f"{name}.ipynb", as_version=4))


def test_figures_read_on_a_dark_page(book, chromium):
    tab = chromium.new_context(color_scheme="dark").new_page()
    for name in NOTEBOOKS:
        tab.goto((HTML / f"{name}.html").as_uri())
        styles = "i => [getComputedStyle(i).backgroundColor, getComputedStyle(i).filter]"
        for style in tab.evaluate(f"[...document.querySelectorAll('figure img')].map({styles})"):
            assert style == ["rgba(0, 0, 0, 0)", "invert(1) hue-rotate(180deg)"], name
