"""From text notebooks to a checked book, doing only what changed."""

import os
from contextlib import contextmanager
from pathlib import Path

import filelock

from .errors import BuildError, UserError
from .execute import TIMEOUT, execute, execute_all, own_kernel, require_device
from .ledger import Ledger, ledger
from .notebook import METADATA, is_current, plan, stored
from .project import Chapter, Project
from .render import is_rendered, render
from .stage import stage


def build(
    project: Project,
    names=(),
    *,
    profile="quick",
    device="cpu",
    seed=None,
    jobs=2,
    force=False,
    timeout=None,
    progress,
) -> Path | None:
    """Run the chapters whose results are out of date, check the ledger, and render the book.

    With ``names``, only these chapters are run; the book is then rendered if all the others have current
    results of the same profile, and None is returned if not. Raises :class:`BuildError` when a chapter, a
    claim or a page fails, :class:`UserError` before anything runs when a name or a value is wrong.
    """
    chapters = [project.notebook(name) for name in names] or list(project.notebooks.values())
    planned = [plan(project, chapter, profile=profile, device=device, seed=seed) for chapter in chapters]
    if jobs < 1:
        raise UserError(f"jobs is {jobs}, expected 1 or more")
    limit = _limit(timeout, profile)
    require_device(device)
    with _alone(project):
        due = [job for job in planned if force or not _is_done(job, profile)]
        with own_kernel(project), progress.running(len(due)):
            workers = min(jobs, os.cpu_count() or 1)
            failures = execute_all(due, workers=workers, timeout=limit, progress=progress)
        if failures:
            raise BuildError("\n".join(failures))
        results = results_of(project, profile)
        if missing := [name for name in project.notebooks if name not in results]:
            progress.say(f"not rendered: {', '.join(missing)} must be run first (build without naming chapters)")
            return None
        _print_book(project, results, progress)
        return project.build / "html" / "index.html"


def run(
    project: Project,
    name: str,
    *,
    profile="quick",
    device="cpu",
    seed=None,
    extra=None,
    timeout=None,
    progress,
):
    """Run one chapter aside from the book, with any parameters, and return its executed notebook."""
    job = plan(project, project.notebook(name), profile=profile, device=device, seed=seed, extra=extra)
    limit = _limit(timeout, profile)
    require_device(device)
    with own_kernel(project), progress.running(1):
        progress.started(name)
        return execute(job, project.build / "runs" / f"{name}.ipynb", limit)


def results_of(project: Project, profile: str) -> dict:
    """The executed notebooks, by chapter, that belong to the chapters as they are now."""
    found = {name: stored(project, chapter, profile) for name, chapter in project.notebooks.items()}
    return {name: nb for name, nb in found.items() if is_current(project, project.notebooks[name], nb)}


def state(project: Project, chapter: Chapter, profile: str) -> str:
    """What a list of the chapters says of one."""
    if not chapter.is_notebook:
        return "page"
    notebook = stored(project, chapter, profile)
    if notebook is None:
        return "not run"
    return "up to date" if is_current(project, chapter, notebook) else "out of date"


def claims_of(project: Project, profile: str) -> Ledger:
    """The ledger of the stored results; a chapter without current results is one of its problems."""
    results = results_of(project, profile)
    book = ledger(project, results)
    missing = [
        f"{name}: {state(project, chapter, profile)} (python -m pavlov build)"
        for name, chapter in project.notebooks.items()
        if name not in results
    ]
    book.problems = missing + [p for p in book.problems if p.partition(":")[0] in results]
    return book


def _limit(timeout: float | None, profile: str) -> float:
    """Seconds that a cell may take."""
    if timeout is not None and timeout <= 0:
        raise UserError(f"timeout is {timeout:g}, expected more than 0")
    return timeout or TIMEOUT[profile]


def _is_done(job, profile: str) -> bool:
    notebook = stored(job.project, job.chapter, profile)
    return notebook is not None and notebook.metadata[METADATA]["fingerprint"] == job.fingerprint


def _print_book(project: Project, results: dict, progress) -> None:
    book = ledger(project, results)
    if book.problems:
        raise BuildError("\n".join(["the ledger does not close:", *(f"  {problem}" for problem in book.problems)]))
    digest = stage(project, results, book)
    if is_rendered(project, digest):
        progress.say("the book is up to date")
        return
    progress.say("rendering the book")
    render(project, digest)


@contextmanager
def _alone(project: Project):
    """Only one build at a time works under ``_build``; the lock goes with its process, however that ends."""
    project.build.mkdir(exist_ok=True)
    lock = filelock.FileLock(project.build / "lock", timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise UserError(f"another build is at work in {project.build}: wait until it has finished") from None
    try:
        yield
    finally:
        lock.release()
