r"""Estimates with standard errors.

An experiment is a function ``trial(size, keys, values)`` that runs ``size`` independent trials at once and returns
their outcomes along the leading axis. It gets two generators, one for keys and one for values, so that a change to
one leaves the other's draws alone.

Trials come in *blocks*. A block is seeded by the pair (seed, its number) and is computed whole, by one call. So the
result depends on the seed, the number of trials and the block's size, and on nothing else: neither on how many
blocks a worker takes at once, nor on how many workers there are, nor in which order they finish.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np
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
