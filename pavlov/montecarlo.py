r"""Estimates with standard errors.

An experiment is a function ``trial(size, keys, values)`` that runs ``size`` independent trials at once and returns
their outcomes along the leading axis. It gets two generators, one for keys and one for values, so that a change to
one leaves the other's draws alone.

Trials come in *blocks*. A block is seeded by the pair (seed, its number) and is computed whole, by one call. So the
result depends on the seed, the number of trials and the block's size, and on nothing else: neither on how many
blocks a worker takes at once, nor on how many workers there are, nor in which order they finish.
"""

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

Trial = Callable[[int, torch.Generator, torch.Generator], Tensor]


@dataclass(frozen=True)
class Estimate:
    r"""A mean with its standard error, :math:`s/\sqrt{n}` for ``n`` independent trials.

    ``mean`` and ``stderr`` are numbers, or arrays of one shape when a trial has several outcomes.
    """

    mean: float | np.ndarray
    stderr: float | np.ndarray
    n: int

    def __getitem__(self, index) -> "Estimate":
        """One outcome of several."""
        return Estimate(self.mean[index], self.stderr[index], self.n)

    def __format__(self, spec: str) -> str:
        spec = spec or ".4g"
        return f"{self.mean:{spec}} ± {self.stderr:.1g}"


def generators(seed: int, block: int, device: str | torch.device = "cpu") -> list[torch.Generator]:
    """Two independent generators, for keys and for values, that belong to one block of one seed."""
    states = np.random.SeedSequence([seed, block]).generate_state(2, np.uint64)
    return [torch.Generator(device).manual_seed(int(state >> 1)) for state in states]


def block_size(numbers: int, budget: int = 2**21) -> int:
    """Trials in a block, when one trial holds so many ``numbers``: enough to fill the budget, at least one.

    The default keeps a block of float64 at 16 MiB, which is large enough to amortise a call and small enough to
    stay near the processor's cache.
    """
    return max(1, min(1024, budget // numbers))


def estimate(
    trial: Trial,
    trials: int,
    seed: int,
    *,
    block: int = 64,
    device: str | torch.device = "cpu",
    executor: Executor | None = None,
    batch: int = 8,
) -> Estimate:
    r"""The mean outcome over ``trials`` independent trials, with its standard error.

    Args:
        trial: ``trial(size, keys, values)`` returns a tensor ``(size, ...)`` of outcomes.
        trials: how many; at least two, since one has no standard error.
        seed: a non-negative integer. The same seed gives the same estimate, bit for bit.
        block: trials per call of ``trial``, the unit of randomness (see :func:`block_size`).
        device: where the generators, and so the stimuli, live.
        executor: any :class:`concurrent.futures.Executor`; without one the blocks run here.
        batch: blocks in one task of the executor. It never changes the result.

    Raises:
        ValueError: if ``trials < 2``, ``block < 1``, ``batch < 1`` or ``seed < 0``, or if a trial's outcome is
            not finite or does not have ``size`` rows.
    """
    for name, value, least in [
        ("trials", trials, 2),
        ("block", block, 1),
        ("batch", batch, 1),
        ("seed", seed, 0),
    ]:
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    sizes = [min(block, trials - start) for start in range(0, trials, block)]
    tasks = [list(enumerate(sizes))[i : i + batch] for i in range(0, len(sizes), batch)]
    run = partial(_run_blocks, trial, seed, torch.device(device))
    results = (executor.map if executor else map)(run, tasks)
    return _pooled(moments for task in results for moments in task)


def _run_blocks(trial: Trial, seed: int, device: torch.device, blocks: list[tuple[int, int]]) -> list[tuple]:
    return [_moments(trial, size, *generators(seed, number, device)) for number, size in blocks]


def _moments(trial: Trial, size: int, keys: torch.Generator, values: torch.Generator) -> tuple:
    """Count, mean and sum of squared deviations of one block, in float64."""
    outcome = trial(size, keys, values).to(torch.float64)
    if outcome.shape[:1] != (size,):
        raise ValueError(f"trial must return {size} rows, one a trial, got shape {tuple(outcome.shape)}")
    if not torch.isfinite(outcome).all():
        raise ValueError("trial returned an outcome that is not finite; check the range of its parameters")
    mean = outcome.mean(0)
    return size, mean.cpu().numpy(), (outcome - mean).square().sum(0).cpu().numpy()


def _pooled(blocks: Iterable[tuple]) -> Estimate:
    """Merge the blocks' moments in their order: the update of Chan, Golub and LeVeque, which does not cancel."""
    n, mean, spread = 0, 0.0, 0.0
    for size, block_mean, block_spread in blocks:
        step = block_mean - mean
        spread = spread + block_spread + step**2 * (n * size / (n + size))
        mean = mean + step * (size / (n + size))
        n += size
    stderr = np.sqrt(spread / (n - 1) / n)
    return Estimate(float(mean), float(stderr), n) if np.ndim(mean) == 0 else Estimate(mean, stderr, n)


def proportion(successes: Estimate) -> Estimate:
    r"""An estimated probability whose standard error stays honest near 0 and 1.

    A thousand trials without a success do not prove that there is none. Agresti and Coull's correction adds two
    successes and two failures to find the error, :math:`\sqrt{\tilde p(1 - \tilde p)/(n + 4)}`.
    """
    n = successes.n + 4
    p = (np.asarray(successes.mean) * successes.n + 2) / n
    stderr = np.sqrt(p * (1 - p) / n)
    return Estimate(successes.mean, float(stderr) if stderr.ndim == 0 else stderr, successes.n)


# Sweeps


class SweepFailed(RuntimeError):
    """Some points of a sweep failed. The others are finished, and kept in the sweep's file if it has one.

    Attributes:
        errors: from a point's number in the grid to its exception.
        table: the finished points, as :func:`sweep` would have returned them.
    """

    def __init__(self, points: list[dict], errors: dict[int, BaseException], table: pd.DataFrame):
        lines = [f"{points[number]}: {type(error).__name__}: {error}" for number, error in sorted(errors.items())]
        super().__init__(f"{len(errors)} of {len(points)} points failed, the others are kept\n" + "\n".join(lines))
        self.errors, self.table = errors, table


def sweep(
    point: Callable[..., Mapping],
    grid: Mapping[str, Sequence],
    *,
    file: str | Path | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Run an experiment at every point of a grid.

    A point's outcome must depend on its parameters alone, a seed among them. Then the table does not depend on who
    computes it, nor on how often the sweep was killed and started again: finished points are read from ``file``,
    which is replaced as a whole after each, so that it is never half written.

    Args:
        point: ``point(**parameters)`` returns an :class:`Estimate`, a number, or a mapping from names to these. For
            worker processes it must be importable or a ``functools.partial`` of what is.
        grid: from each parameter's name to its values: numbers, strings, truth values or ``None``.
        file: where finished points are kept, as JSON; floats keep every bit.
        executor: any :class:`concurrent.futures.Executor`, such as Dask's ``client.get_executor()``.
        workers: processes to start where no executor is given; with one, points run here. A process that dies
            costs its own point only: the pool is replaced, and points that ran beside it run again alone.
        progress: called with the numbers of finished and of all points. A terminal shows a bar if it is not given.

    Returns:
        One row a point, in the grid's order (the last parameter varies fastest): its parameters, then its outcomes.
        The estimate ``x`` has the columns ``x``, ``x_stderr`` and ``x_trials``; an unnamed
        one has ``mean``, ``stderr`` and ``trials``.

    Raises:
        ValueError: if the grid is empty or repeats a point, ``workers < 1``, or the file belongs to another sweep.
        TypeError: if a value of the grid or an outcome is not a scalar.
        SweepFailed: after all others are finished, if a point raised an error or its worker died.
    """
    points = _points(grid)
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    store = _Store(file, point, grid)
    waiting = [number for number in range(len(points)) if number not in store.rows]
    errors: dict[int, BaseException] = {}
    task = partial(_row, point)
    with _Bar(progress) as report:
        report(len(store.rows), len(points))
        for number, row in _outcomes(task, points, waiting, executor, workers):
            if isinstance(row, BaseException):
                errors[number] = row
            else:
                store.add(number, row)
            report(len(store.rows), len(points))
    finished = sorted(store.rows)
    table = pd.DataFrame([points[number] | store.rows[number] for number in finished])
    if errors:
        raise SweepFailed(points, errors, table) from next(iter(errors.values()))
    return table


def _points(grid: Mapping[str, Sequence]) -> list[dict]:
    values = {name: [_scalar(value, f"grid[{name!r}]") for value in choices] for name, choices in grid.items()}
    if not values or not all(values.values()):
        raise ValueError(f"grid must give every parameter at least one value, got {dict(grid)}")
    for name, choices in values.items():
        if len(set(choices)) < len(choices):
            raise ValueError(f"grid[{name!r}] must not repeat a value, got {choices}")
    return [dict(zip(values, choice, strict=True)) for choice in itertools.product(*values.values())]


def _scalar(value, name: str):
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, bool | int | float | str | None):
        raise TypeError(f"{name} must be a number, a string, a truth value or None, got {type(value).__name__}")
    return value


def _row(point: Callable[..., Mapping], parameters: dict) -> dict:
    """One point's outcomes as named scalars."""
    outcome = point(**parameters)
    row = {}
    for name, value in (outcome if isinstance(outcome, Mapping) else {"mean": outcome}).items():
        if isinstance(value, Estimate):
            prefix = "" if name == "mean" else f"{name}_"
            row |= {name: value.mean, f"{prefix}stderr": value.stderr, f"{prefix}trials": value.n}
        else:
            row[name] = value
    if clash := row.keys() & parameters.keys():
        raise ValueError(f"outcomes must not be named as parameters are, got {sorted(clash)}")
    return {name: _scalar(value, f"outcome {name!r}") for name, value in row.items()}


class _Store:
    """The finished rows by number, and their file."""

    def __init__(self, file: str | Path | None, point: Callable, grid: Mapping):
        self.file = Path(file) if file is not None else None
        inner = point
        while isinstance(inner, partial):
            inner = inner.func
        name = getattr(inner, "__qualname__", type(inner).__name__)
        bound = repr((point.args, point.keywords)) if isinstance(point, partial) else ""
        axes = {axis: [_scalar(value, axis) for value in values] for axis, values in grid.items()}
        self.identity = json.loads(json.dumps({"point": name + bound, "grid": axes}))
        self.rows: dict[int, dict] = {}
        if self.file and self.file.exists():
            self._read()

    def _read(self) -> None:
        try:
            kept = json.loads(self.file.read_text())
            identity, rows = kept["sweep"], kept["rows"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"file must hold a sweep, but {self.file} does not; remove it or name another") from error
        if identity != self.identity:
            raise ValueError(f"file must belong to this sweep, but {self.file} holds another; remove it")
        self.rows = {int(number): row for number, row in rows.items()}

    def add(self, number: int, row: dict) -> None:
        self.rows[number] = json.loads(json.dumps(row))  # the same whether it comes from a worker or from the file
        if self.file:
            part = self.file.with_name(f"{self.file.name}.{os.getpid()}.part")
            with part.open("w") as stream:
                json.dump({"sweep": self.identity, "rows": self.rows}, stream)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(self.file)


def _outcomes(task, points: list[dict], waiting: list[int], executor, workers: int) -> Iterator[tuple]:
    """Each waiting point's number with its row or its exception, as they finish."""
    if executor is not None:
        yield from _submitted(task, points, waiting, executor, len(waiting))
    elif workers == 1:
        for number in waiting:
            yield number, _caught(task, points[number])
    else:
        yield from _pooled_outcomes(task, points, waiting, workers)


def _caught(task, parameters: dict):
    try:
        return task(parameters)
    except Exception as error:
        return error


def _submitted(task, points: list[dict], waiting: list[int], executor: Executor, ahead: int) -> Iterator[tuple]:
    """Keep so many points submitted ahead; a pool that has broken gives every point left its error."""
    queue, running = iter(waiting), {}

    def submit(number: int) -> None:
        try:
            running[executor.submit(task, points[number])] = number
        except Exception as error:  # the pool broke or was shut down
            future = Future()
            future.set_exception(error)
            running[future] = number

    for number in itertools.islice(queue, ahead):
        submit(number)
    while running:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            number = running.pop(future)
            error = future.exception()
            yield number, error if error is not None else future.result()
            for following in itertools.islice(queue, 1):
                submit(following)


def _pooled_outcomes(task, points: list[dict], waiting: list[int], workers: int) -> Iterator[tuple]:
    """Run on processes of our own. After a death only the points then running are suspects, and each runs alone."""
    while waiting:
        left, suspects = set(waiting), []
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            for number, row in _submitted(task, points, waiting, pool, workers):
                if isinstance(row, BrokenExecutor):
                    suspects.append(number)
                    if len(suspects) >= workers:
                        break
                else:
                    left.discard(number)
                    yield number, row
        for number in suspects:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
                yield from _submitted(task, points, [number], alone, 1)
            left.discard(number)
        waiting = [number for number in waiting if number in left]


class _Bar:
    """A progress callback: the caller's, or a bar on a terminal, or nothing."""

    def __init__(self, progress: Callable[[int, int], None] | None):
        self.progress, self.display = progress, None

    def __enter__(self) -> Callable[[int, int], None]:
        if self.progress is None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self.display = Progress(console=Console(stderr=True))
            self.display.start()
            task = self.display.add_task("sweep")
            return lambda done, total: self.display.update(task, completed=done, total=total)
        return self.progress or (lambda done, total: None)

    def __exit__(self, *_) -> None:
        if self.display:
            self.display.stop()
