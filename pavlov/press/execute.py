"""Run chapters, each in a fresh kernel of this interpreter, side by side; only whole results are kept."""

import json
import logging
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import nbformat
import papermill
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.exceptions import PapermillExecutionError

from .errors import BuildError, UserError
from .notebook import METADATA, Job, code_cells, has_tag, read

KERNEL = "python3"
TIMEOUT = {"quick": 600, "full": 7200}
# One thread a kernel: chapters run side by side, and sums come out in the same order everywhere.
THREADS = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB_MAXIMUM")}
SHOWN_LINES = 3


def execute(job: Job, work: Path, timeout: float) -> nbformat.NotebookNode:
    """Run one chapter; ``work`` holds the notebook while it runs, and afterwards if it fails.

    Raises :class:`BuildError` naming chapter, cell and error when a cell raises, hangs or kills its kernel.
    """
    work.parent.mkdir(parents=True, exist_ok=True)
    work.unlink(missing_ok=True)
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    try:
        executed = papermill.execute_notebook(
            deepcopy(read(job.chapter)),
            work,
            parameters=job.changed,
            kernel_name=KERNEL,
            language="python",
            progress_bar=False,
            execution_timeout=timeout,
            # The kernel's folder alone: papermill's `cwd` would move this process, other chapters and all.
            resources={"metadata": {"path": str(job.project.book)}},
            extra_arguments=["--IPKernelApp.log_level=50"],
        )
    except Exception as error:
        partial = nbformat.read(work, as_version=4) if work.is_file() else None
        raise BuildError(_failure(job, partial, error, timeout), partial) from error
    return _cleaned(executed, job)


def _failure(job: Job, partial, error: Exception, timeout: float) -> str:
    """Chapter, cell and error, and the end of the cell's source."""
    match error:
        case PapermillExecutionError():
            what = f"{error.ename}: {error.evalue}".strip()
        case CellTimeoutError():
            what = f"took longer than {timeout:g} s"
        case DeadKernelError():
            what = "the kernel died"
        case _:
            what = f"{type(error).__name__}: {error}"
    number, source = _last_started(partial)
    tail = "".join(f"\n    {line}" for line in source.rstrip().splitlines()[-SHOWN_LINES:])
    return f"{job.chapter.name}: code cell {number} failed: {what}{tail}"


def _last_started(partial) -> tuple[int, str]:
    """Number and source of the last code cell that papermill started (0 when the kernel never came up)."""
    cells = code_cells(partial) if partial else []
    started = [(n, c.source) for n, c in enumerate(cells, 1) if c.metadata.papermill.status != "pending"]
    return started[-1] if started else (0, "")


def _cleaned(notebook, job: Job):
    """The executed notebook without times, paths and random ids: the same bytes from run to run."""
    for cell in code_cells(notebook):
        if cell.source.strip() and cell.execution_count is None:
            raise BuildError(f"{job.chapter.name}: stopped before its last cell (sys.exit in a cell?)")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)
        if has_tag(cell, "injected-parameters"):
            cell.metadata["tags"].append("remove-cell")
    notebook.metadata.pop("papermill", None)
    parameters = {name: repr(value) for name, value in job.values.items()}
    notebook.metadata[METADATA] = {"fingerprint": job.fingerprint, "parameters": parameters}
    return notebook


def execute_all(jobs: list[Job], *, workers: int, timeout: float, progress) -> list[str]:
    """Run chapters side by side and keep each result as it comes; return the failures, told in words.

    ``progress`` is told ``started(name)``, ``finished(name, seconds)`` and ``failed(name)``.
    """
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        futures = [pool.submit(_outcome, job, timeout, progress) for job in jobs]
        return [failure for future in as_completed(futures) if (failure := future.result())]
    finally:
        # After Ctrl-C nothing is awaited: a kernel leaves when its parent does.
        pool.shutdown(wait=False, cancel_futures=True)


def _outcome(job: Job, timeout: float, progress) -> str | None:
    name, build = job.chapter.name, job.project.build
    work = build / "work" / f"{name}.ipynb"
    progress.started(name)
    begin = time.monotonic()
    try:
        notebook = execute(job, work, timeout)
    except BuildError as error:
        progress.failed(name)
        kept = _moved(work, build / "failed" / work.name)
        return f"{error}\n  kept for inspection: {kept.relative_to(job.project.root)}" if kept else str(error)
    work.write_text(nbformat.writes(notebook), encoding="utf-8")
    _moved(work, job.project.executed(job.chapter, job.values["profile"]))
    progress.finished(name, time.monotonic() - begin)
    return None


def _moved(source: Path, target: Path) -> Path | None:
    """Put a whole file in its place at once: a reader sees the old one or the new one."""
    if not source.is_file():
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(source, target)
    return target


@contextmanager
def own_kernel(project):
    """Make ``python3`` the kernel of this very interpreter, whatever is installed; it finds the project."""
    folder = project.build / "jupyter"
    spec = folder / "kernels" / KERNEL / "kernel.json"
    spec.parent.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(project.root), os.environ.get("PYTHONPATH")]))
    environment = THREADS | {
        "PYTHONPATH": path,
        "PYTHONHASHSEED": "0",
        "IPYTHONDIR": str(folder / "ipython"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    content = {"argv": argv, "display_name": "Python 3", "language": "python", "env": environment}
    half = spec.with_name(f"{os.getpid()}.part")  # another process may be reading it
    half.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(half, spec)
    before = os.environ.get("JUPYTER_PATH")
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [str(folder), before]))
    try:
        yield
    finally:
        os.environ.pop("JUPYTER_PATH")
        if before is not None:
            os.environ["JUPYTER_PATH"] = before


def require_device(device: str) -> None:
    """Refuse CUDA where there is none."""
    if device == "cuda" and not _cuda_is_available():
        raise UserError("device 'cuda' was asked for, but torch finds no CUDA device here: use --device cpu")


def _cuda_is_available() -> bool:
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return torch.cuda.is_available()
