"""The command line: one line and status 2 for a mistake, status 1 for work that failed."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT, claim, publish, text_notebook, write_book

from pavlov.cli import main
from pavlov.press import execute


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A chapter whose check passes while `trials` is even, and one that always fails."""
    return write_book(
        tmp_path_factory.mktemp("cli") / "book",
        {
            "even": text_notebook("even", publish("x").replace("True", "trials % 2 == 0", 1)),
            "fails": text_notebook("fails", publish("y"), "one / 0"),
        },
        claims=[claim("x", "even"), claim("y", "fails")],
    )


@pytest.fixture
def pavlov(project, monkeypatch, capsys):
    """Run a command in the book's folder and return its status, stdout and stderr."""
    monkeypatch.chdir(project.book)

    def command(line: str):
        status = main(line.split())
        return status, *capsys.readouterr()

    return command


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run evn", "unknown chapter 'evn': choose from even, fails"),
        ("build even odd", "unknown chapter 'odd': choose from even, fails"),
        ("run index", "unknown chapter 'index': choose from even, fails"),
        ("build --profile fast", "'fast' is not one of 'quick', 'full'"),
        ("build --device tpu", "'tpu' is not one of 'cpu', 'cuda'"),
        ("build --device cuda", "torch finds no CUDA device here: use --device cpu"),
        ("build --jobs 0", "jobs is 0, expected 1 or more"),
        ("build --seed x", "'--seed'"),
        ("build --timeout 0", "timeout is 0, expected more than 0"),
        ("run even --seed -1", "seed is -1, expected 0 or more"),
        ("build --fast", "No such option: --fast"),
        ("bild", "'bild'"),
        ("run even -p trial 3", "unknown parameter of even 'trial': choose from"),
        ("run even -p trials many", "parameter trials of even is 'many', expected int like 10"),
        ("run even -p trials", "-p takes a name and a value"),
        ("run even -p device cuda", "parameter device is set with --device"),
    ],
)
def test_a_mistake_is_told_in_one_line(pavlov, monkeypatch, line, message):
    monkeypatch.setattr(execute, "_cuda_is_available", lambda: False)
    status, out, err = pavlov(line)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_run_prints_the_checks_of_a_chapter(pavlov):
    status, out, err = pavlov("run even -p trials 4 --seed 3")
    assert (status, err) == (0, "")
    assert all(word in out for word in ("one", "the double: 2", "passed"))


def test_run_ends_with_1_when_a_check_failed(pavlov):
    status, out, err = pavlov("run even -p trials 5")
    assert (status, err) == (1, "even: not every check passed\n")
    assert "failed" in out


def test_run_prints_the_checks_before_a_failed_cell(pavlov):
    status, out, err = pavlov("run fails")
    assert status == 1
    assert "the double: 2" in out
    assert err.startswith("fails: code cell 3 failed: NameError: name 'one' is not defined")
    assert "Traceback" not in err


def test_claims_and_list_tell_what_was_not_run(pavlov):
    status, out, err = pavlov("claims")
    assert status == 1
    assert "2 claims, 0 checks, 0 passed" in out
    assert err == "even: not run (python -m pavlov build)\nfails: not run (python -m pavlov build)\n"
    assert pavlov("list")[1].count("not run") == 2


def test_build_runs_what_it_can_and_ends_with_1(pavlov, project):
    status, out, err = pavlov("build")
    assert status == 1
    assert "even: done in" in out
    assert "fails: code cell 3 failed" in err
    assert "| One is $\\|1\\|$. | v1 | holds | [Even](book/even.md) |" in pavlov("claims --markdown")[1]
    assert "up to date" in pavlov("list")[1]


def test_no_book_here(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pavlov.press.project.__file__", str(tmp_path / "a" / "b" / "c.py"))
    assert main(["list"]) == 2
    assert "no book at" in capsys.readouterr().err


def test_without_the_books_tools_one_line_says_what_to_install():
    code = "import sys; sys.modules['papermill'] = None; from pavlov.cli import main; sys.exit(main(['list']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "pavlov: this needs the book's tools (papermill is missing): pip install 'pavlov[book]'\n"


DESIGN = "design --pairs 64 --depth 12 --error 0.5 --failure 0.05"


def test_design_prints_a_shape_its_neighbours_and_what_limits_it(pavlov):
    status, out, err = pavlov(DESIGN)
    assert (status, err) == (0, "")
    row = next(line.split() for line in out.splitlines() if line.startswith("recommended"))
    assert int(row[1]) == int(row[2]) * int(row[3])
    assert float(row[4]) <= 0.5
    assert "one head fewer" in out
    assert "misses" in out
    assert "what limits it: interference 95%, silent heads 5%" in out


def test_design_speaks_json(pavlov):
    status, out, err = pavlov(f"{DESIGN} --json")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["recommended"]["meets"] is True
    assert report["recommended"]["width"] == report["recommended"]["heads"] * report["recommended"]["d_k"]
    assert report["beside"]["one dimension fewer"]["meets"] is False


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("design --pairs 64 --depth 12", "Missing option '--error'"),
        ("design --pairs 64 --depth 0 --error 0.5", "--depth must be at least 1, got 0"),
        ("design --pairs 0 --depth 2 --error 0.5", "--pairs must be at least 1, got 0"),
        ("design --pairs 64 --depth 12 --error 0", "--error must be positive, got 0.0"),
        (f"{DESIGN} --heads 0", "--heads must be at least 1, got 0"),
        (f"{DESIGN} --heads 2", "allow 3 heads, or relax --error, or lower --failure=0.05 or --depth=12"),
        ("design --pairs 64 --depth 12 --error 0.5 --failure 1", "--failure must be in [0, 1), got 1.0"),
        ("design --pairs 64 --depth 12 --error 1e-9", "relax --error, or lower --pairs, depth or failure"),
        ("design --pairs many --depth 12 --error 0.5", "Invalid value for '--pairs'"),
        ("design --width 3", "No such option: --width; choose from --pairs, --depth, --error, --failure, --heads,"),
    ],
)
def test_an_impossible_design_is_told_in_one_line(pavlov, line, message):
    status, out, err = pavlov(line)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


# The conditioning laboratory


def test_condition_prints_the_strengths_and_draws_the_curves(tmp_path, capsys):
    plot = tmp_path / "curves.png"
    design = "10A+ | 10AB+ ; 10C+ | 10AB+"
    assert main(["condition", design, "--rule", "delta", "--plot", str(plot)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["group 1  A 0.806941  B 0.155620", "group 2  A 0.446313  B 0.446313  C 0.651322"]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["10AA+"], "stimulus A twice in one compound; to make it stronger, raise its alpha, at character 4: 10A»A+"),
        (["10A+ || 5A+"], "an empty phase"),
        (["10A+", "--rule", "rw"], "rule must be one of hebb"),
        (["10A+", "--beta", "3"], "beta must be in (0, 2)"),
        (["10A+", "--alpha", "A=x"], "--alpha is 'A=x'"),
        (["10A+", "--alpha", "-1"], "alpha must be at least 0"),
        (["10A+", "--plot", "no/such/folder.png"], "--plot no/such/folder.png"),
        (["10A+", "--plot", "curves.what"], "--plot curves.what"),
    ],
)
def test_a_mistake_in_a_design_is_told_in_one_line(words, message, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["condition", *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
