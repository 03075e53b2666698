"""The press on small books without science: what it refuses, what it survives, what it does again."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from conftest import HEADER, ROOT, claim, code_cell, publish, text_notebook, write_book

from pavlov.press import build as press
from pavlov.press import execute
from pavlov.press.errors import BuildError, UserError
from pavlov.press.ledger import ledger
from pavlov.press.notebook import plan
from pavlov.press.project import Project
from pavlov.press.stage import FIGURE, page, pages

FIGURE_CELL = f"""
import base64
from IPython.display import display
dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
figure = {{"name": "fig-dot", "caption": "A dot, $x^2$.", "alt": "One dot at 1.", "csv": "x\\n1\\n"}}
display({{"image/png": dot, "text/plain": "One dot at 1.", "{FIGURE}": figure}}, raw=True)
"""


class Log:
    """A report that remembers which chapters ran."""

    def __init__(self):
        self.ran, self.said = [], []

    def running(self, total):
        return open(os.devnull)

    def started(self, name):
        self.ran.append(name)

    def finished(self, name, seconds):
        pass

    def failed(self, name):
        pass

    def say(self, line):
        self.said.append(line)


def built(project: Project, *names, **options) -> Log:
    """Build in a fresh look at the project, and say what happened."""
    log = Log()
    press.build(Project(project.root), names, progress=log, **options)
    return log


def planned(project: Project, name: str, **options):
    """The job of a chapter in a fresh look at the project."""
    project = Project(project.root)
    return plan(project, project.notebook(name), **{"profile": "quick", "device": "cpu"} | options)


# The table of contents and the chapters' form


def test_chapters_come_in_the_order_of_the_table_of_contents(make_book):
    texts = {name: text_notebook(name) for name in ("b", "a")}
    assert list(make_book(texts).chapters) == ["index", "b", "a"]


def test_a_chapter_missing_from_the_toc_is_named(make_book):
    project = make_book({"a": text_notebook("a"), "b": text_notebook("b")}, toc=["a"])
    with pytest.raises(UserError, match=r"book/b\.md is not in _toc\.yml"):
        _ = project.chapters


@pytest.mark.parametrize(("toc", "message"), [(["a", "z"], r"no book/z\.md"), (["a", "a"], "'a' more than once")])
def test_a_wrong_entry_in_the_toc_is_named(make_book, toc, message):
    with pytest.raises(UserError, match=message):
        _ = make_book({"a": text_notebook("a")}, toc=toc).chapters


def test_code_cells_without_a_header_are_refused(make_book):
    with pytest.raises(UserError, match="a: has code cells but no jupytext header"):
        _ = make_book({"a": "# A\n\n" + code_cell("1")}).notebooks


@pytest.mark.parametrize("count", [0, 2])
def test_exactly_one_parameters_cell(make_book, count):
    text = HEADER + "# A\n\n" + code_cell("seed = 0", "parameters") * count
    with pytest.raises(UserError, match=f"a: needs exactly one code cell tagged `parameters`, has {count}"):
        planned(make_book({"a": text}), "a")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("seed = 0", "lacks profile, device"),
        ("seed = f(0)", "plain `name = literal` lines"),
        ("seed: int = 0", "plain `name = literal` lines"),
        ("seed = (", "plain `name = literal` lines"),
    ],
)
def test_parameters_are_plain_literals_and_complete(make_book, source, message):
    with pytest.raises(UserError, match=f"a: .*{message}"):
        planned(make_book({"a": text_notebook("a", parameters=source)}), "a")


# What is asked for


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"profile": "fast"}, "unknown profile 'fast': choose from full, quick"),
        ({"device": "tpu"}, "unknown device 'tpu': choose from cpu, cuda"),
        (
            {"extra": {"trial": 1}},
            "unknown parameter of a 'trial': choose from device, profile, rate, seed, trials",
        ),
        ({"extra": {"trials": "many"}}, "parameter trials of a is 'many', expected int like 10"),
        ({"extra": {"trials": 1.5}}, "parameter trials of a is 1.5, expected int like 10"),
        ({"extra": {"profile": "full"}}, "parameter profile is set with --profile"),
    ],
)
def test_a_wrong_name_or_value_is_refused_before_anything_runs(make_book, options, message):
    with pytest.raises(UserError, match=re.escape(message)):
        planned(make_book({"a": text_notebook("a")}), "a", **options)


def test_profile_and_command_line_set_parameters_in_this_order(make_book):
    project = make_book({"a": text_notebook("a")}, profiles={"full": {"a": {"trials": 99, "rate": 1}}})
    job = planned(project, "a", profile="full", seed=7, extra={"trials": 5})
    assert job.values == {"profile": "full", "seed": 7, "device": "cpu", "trials": 5, "rate": 1.0}
    assert planned(project, "a").changed == {}


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ({"fast": {}}, "unknown profile in book/profiles.yml 'fast'"),
        ({"full": {"z": {}}}, "unknown chapter under 'full' in book/profiles.yml 'z'"),
        ({"quick": {"a": {"trial": 1}}}, "unknown parameter of a 'trial'"),
    ],
)
def test_wrong_names_in_profiles_are_refused(make_book, profiles, message):
    with pytest.raises(UserError, match=re.escape(message)):
        planned(make_book({"a": text_notebook("a")}, profiles=profiles), "a")


def test_cuda_asked_for_and_absent(make_book, monkeypatch):
    monkeypatch.setattr(execute, "_cuda_is_available", lambda: False)
    with pytest.raises(UserError, match="finds no CUDA device"):
        built(make_book({"a": text_notebook("a")}), device="cuda")


# What results depend on


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("book/a.md", "Prose.", "Better prose.", False),
        ("book/a.md", "near.f()", "near.f() + 1", True),
        ("toy/near.py", "far.f()", "far.f() + 1", True),
        ("toy/far.py", "1", "2", True),
        ("toy/__init__.py", "", "x = 1", True),
        ("toy/other.py", "1", "2", False),
        ("requirements.txt", "1", "2", True),
    ],
)
def test_the_fingerprint_follows_code_modules_and_pins_but_not_prose(make_book, file, old, new, changes):
    modules = {
        "near": "from . import far\ndef f():\n    return far.f()",
        "far": "def f():\n    return 1",
        "other": "1",
    }
    project = make_book({"a": text_notebook("a", "from toy import near\nnear.f()")}, modules=modules)
    (project.root / "requirements.txt").write_text("toy==1")
    before, path = planned(project, "a").fingerprint, project.root / file
    path.write_text(path.read_text().replace(old, new, 1))
    assert (planned(project, "a").fingerprint != before) is changes


def test_the_fingerprint_follows_parameters(make_book):
    project = make_book({"a": text_notebook("a")})
    assert planned(project, "a", seed=0).fingerprint == planned(project, "a").fingerprint
    assert planned(project, "a", seed=1).fingerprint != planned(project, "a").fingerprint


# The ledger


def executed(*checks: dict) -> nbformat.NotebookNode:
    """An executed notebook that published these checks."""
    outputs = [nbformat.v4.new_output("display_data", {"application/vnd.pavlov.check+json": check}) for check in checks]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=outputs)])


def a_check(claim: str, passed: bool = True) -> dict:
    return {
        "claim": claim,
        "name": "n",
        "passed": passed,
        "measured": "1",
        "predicted": "1",
        "rivals": {},
        "text": "t",
    }


@pytest.mark.parametrize(
    ("checks", "problems"),
    [
        ([a_check("x")], []),
        ([], ["a: claim 'x' has no check"]),
        ([a_check("x"), a_check("y")], ["a: check 'n' is for claim 'y', not in book/claims.yml"]),
        ([a_check("x"), a_check("x", passed=False)], ["a: claim 'x': check 'n' failed: t"]),
    ],
)
def test_the_ledger_closes_only_over_passed_checks_of_registered_claims(make_book, checks, problems):
    project = make_book({"a": text_notebook("a")}, claims=[claim("x", "a")])
    assert ledger(project, {"a": executed(*checks)}).problems == problems


def test_a_check_in_another_chapter_than_its_claim(make_book):
    project = make_book({"a": text_notebook("a"), "b": text_notebook("b")}, claims=[claim("x", "a")])
    problems = ledger(project, {"a": executed(), "b": executed(a_check("x"))}).problems
    assert problems == ["b: check 'n' is for claim 'x' of chapter 'a'", "a: claim 'x' has no check"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chapter": "z"}, "unknown chapter of claim 'x' 'z': choose from a"),
        ({"verdict": "perhaps"}, "unknown verdict of claim 'x' 'perhaps'"),
        ({"statement": ""}, "claim 'x' lacks statement"),
    ],
)
def test_a_malformed_claim_is_refused(make_book, change, message):
    project = make_book({"a": text_notebook("a")}, claims=[claim("x", "a") | change])
    with pytest.raises(UserError, match=re.escape(message)):
        _ = project.claims


# One build that meets every kind of failure, in a path with a space and a non-ASCII letter


@pytest.fixture(scope="module")
def wrecked(tmp_path_factory):
    """A book of five chapters, four of which fail, beside somebody's broken `python3` kernel."""
    root = tmp_path_factory.mktemp("a b") / "livre é"
    where = "import os, sys, toy\nprint(sys.executable, os.getcwd(), toy.__file__, sep='|')\nprint(trials)"
    project = write_book(
        root,
        {
            "sound": text_notebook("sound", where),
            "raises": text_notebook("raises", "one = 1", "one / 0"),
            "hangs": text_notebook("hangs", "import time\ntime.sleep(60)"),
            "dies": text_notebook("dies", "import os\nos._exit(3)"),
            "leaves": text_notebook("leaves", "import sys\nsys.exit(0)", "1"),
        },
        profiles={"quick": {"sound": {"trials": 12}}},
    )
    foreign = root / "foreign" / "kernels" / "python3" / "kernel.json"
    foreign.parent.mkdir(parents=True)
    foreign.write_text('{"argv": ["false"], "display_name": "somebody\'s", "language": "python"}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(root / "foreign"))
        patch.setenv("JUPYTER_DATA_DIR", str(root / "foreign"))
        with pytest.raises(BuildError) as failure:
            built(project, timeout=3)
    return project, str(failure.value)


@pytest.mark.parametrize(
    "message",
    [
        "raises: code cell 3 failed: ZeroDivisionError: division by zero\n    one / 0",
        "hangs: code cell 2 failed: took longer than 3 s\n    import time\n    time.sleep(60)",
        "dies: code cell 2 failed: the kernel died\n    import os\n    os._exit(3)",
        "leaves: stopped before its last cell",
        "kept for inspection: _build/failed/raises.ipynb",
    ],
)
def test_a_failure_names_chapter_cell_and_error(wrecked, message):
    assert message in wrecked[1]


def test_a_failed_notebook_is_kept_aside_and_the_others_finish(wrecked):
    project, _ = wrecked
    assert sorted(p.stem for p in (project.build / "failed").iterdir()) == [
        "dies",
        "hangs",
        "leaves",
        "raises",
    ]
    assert [p.stem for p in (project.build / "executed" / "quick").iterdir()] == ["sound"]
    assert not (project.build / "html").exists()


def test_the_kernel_is_this_interpreter_in_the_book_with_the_project_and_its_parameters(wrecked):
    project, _ = wrecked
    notebook = nbformat.read(project.build / "executed" / "quick" / "sound.ipynb", as_version=4)
    where, trials = notebook.cells[-1].outputs[0].text.splitlines()
    assert where == f"{sys.executable}|{project.book}|{project.root / 'toy' / '__init__.py'}"
    assert trials == "12"


def test_executed_notebooks_are_valid_and_name_no_machine(wrecked):
    notebook = nbformat.read(wrecked[0].build / "executed" / "quick" / "sound.ipynb", as_version=4)
    nbformat.validate(notebook)
    notebook.cells[-1].outputs = []
    assert str(wrecked[0].root) not in nbformat.writes(notebook)


# A sound book, built again and again


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A book of two chapters, built once."""
    project = write_book(
        tmp_path_factory.mktemp("sound") / "livre é",
        {
            "a": text_notebook("a", "from toy import near\nnear.f()", publish("x"), FIGURE_CELL),
            "b": text_notebook(
                "b", "print('b')", prose="See {numref}`fig-dot`.\n\n```{literalinclude} toy/near.py\n```"
            ),
        },
        claims=[claim("x", "a")],
        modules={"near": "def f():\n    return 1\n"},
    )
    assert sorted(built(project).ran) == ["a", "b"]
    return project


def html(project: Project, name: str) -> str:
    return (project.build / "html" / f"{name}.html").read_text(encoding="utf-8")


def test_the_page_shows_figure_data_ledger_and_source(sound):
    assert 'alt="One dot at 1."' in html(sound, "a")
    assert "Fig. 1.1" in html(sound, "b")
    assert "One is" in html(sound, "index")
    assert 'href="_sources/a.md"' in html(sound, "a")
    assert (sound.build / "html" / "_sources" / "a.md").read_text() == (sound.book / "a.md").read_text()
    assert next((sound.build / "html" / "_downloads").rglob("fig-dot.csv")).read_text() == "x\n1\n"
    nbformat.validate(nbformat.read(sound.build / "html" / "_sources" / "a.ipynb", as_version=4))


def test_a_second_build_runs_nothing_and_prints_nothing(sound):
    printed = (sound.build / "html" / "a.html").stat().st_mtime_ns
    log = built(sound)
    assert (log.ran, log.said) == ([], ["the book is up to date"])
    assert (sound.build / "html" / "a.html").stat().st_mtime_ns == printed


def test_changed_prose_is_printed_without_running_anything(sound):
    path = sound.book / "a.md"
    path.write_text(path.read_text().replace("Prose.", "Prose, rewritten."))
    assert built(sound).ran == []
    assert "Prose, rewritten." in html(sound, "a")
    assert 'alt="One dot at 1."' in html(sound, "a")


def test_a_changed_module_runs_its_chapters_only_and_is_shown_anew(sound):
    (sound.root / "toy" / "near.py").write_text("def f():\n    return 2  # changed\n")
    assert built(sound).ran == ["a"]
    assert "# changed" in html(sound, "b")


def test_only_named_chapters_run_and_the_book_waits_for_the_others(sound):
    for name in ("a", "b"):
        path = sound.book / f"{name}.md"
        path.write_text(path.read_text() + "\n" + code_cell("'more'"))
    log = built(sound, "a")
    assert log.ran == ["a"]
    assert log.said[-1].startswith("not rendered: b must be run first")
    assert press.claims_of(Project(sound.root), "quick").problems == ["b: out of date (python -m pavlov build)"]


def test_a_warning_fails_the_pages_and_leaves_the_old_ones(sound):
    path, before = sound.book / "a.md", html(sound, "a")
    path.write_text(path.read_text() + "\nSee {ref}`nowhere`.\n")
    with pytest.raises(BuildError, match=r"a: cell \d+, line \d+: WARNING: undefined label: 'nowhere'"):
        built(sound)
    assert html(sound, "a") == before


def test_pages_come_from_the_text_as_it_is_and_the_outputs_as_they_were(sound):
    project = Project(sound.root)
    results = press.results_of(project, "quick")
    notebook, data = page(project.notebooks["a"], results["a"])
    assert data == {"data/a/fig-dot.csv": b"x\n1\n"}
    figure = next(cell for cell in notebook.cells if "mystnb" in cell.metadata)
    assert figure.metadata["mystnb"]["figure"]["caption"] == "A dot, $x^2$. {download}`Data <data/a/fig-dot.csv>`"
    assert {"_ledger/claims.md", "toy/near.py", "_extra/_sources/a.md"} <= set(
        pages(project, results, ledger(project, results))
    )


# A build that is killed, and two at once


def command(project: Project, *words: str) -> subprocess.Popen:
    """The command line in a process of its own, which heeds Ctrl-C even where its parent does not."""
    return subprocess.Popen(
        [sys.executable, "-m", "pavlov", *words],
        cwd=project.root,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_until(condition, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    status = Path(f"/proc/{pid}/stat")
    return status.is_file() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_build_leaves_nothing_to_trust_and_takes_its_kernels_along(make_book, end):
    waits = """
    import os, pathlib, time
    while not pathlib.Path("go").exists():
        pathlib.Path("pid.part").write_text(str(os.getpid()))
        os.replace("pid.part", "pid")
        time.sleep(0.05)
    """
    project = make_book({"a": text_notebook("a", waits)})
    first = command(project, "build")
    wait_until((project.book / "pid").exists)
    second = command(project, "build")
    assert "another build is at work" in second.communicate(timeout=60)[1]
    assert second.returncode == 2
    first.send_signal(end)
    first.communicate(timeout=10)
    kernel = int((project.book / "pid").read_text())
    wait_until(lambda: not is_alive(kernel), 10)
    assert not list((project.build / "executed").rglob("*"))
    (project.book / "go").touch()
    assert built(project).ran == ["a"]
    assert built(project).ran == []
