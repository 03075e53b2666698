"""Interference statistics at N = d = 64: the batched trial against what one would write first.

One thread, one interleaved run: every round times every contender, and a ratio is the median over rounds of ratios
of times within a round. Run ``python benchmarks/montecarlo.py``.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

import time
from statistics import median

import numpy as np
import torch

from pavlov import capacity, stimuli

N = D = 64
TRIALS = 64  # in one batch
ROUNDS = 15


def unit(rng: np.random.Generator) -> np.ndarray:
    draw = rng.standard_normal((N, D))
    return draw / np.linalg.norm(draw, axis=1, keepdims=True)


def item_loop(rng: np.random.Generator) -> float:
    """One trial, one pair of items at a time."""
    keys, values = unit(rng), unit(rng)
    total = 0.0
    for j in range(N):
        error = np.zeros(D)
        for i in range(N):
            if i != j:
                error += (keys[i] @ keys[j]) * values[i]
        total += error @ error
    return total / N


def write_read_loop(rng: np.random.Generator) -> float:
    """One trial, one write and one read at a time: the memory as a recurrence."""
    keys, values = unit(rng), unit(rng)
    memory = np.zeros((D, D))
    for key, value in zip(keys, values, strict=True):
        memory += np.outer(value, key)
    errors = [memory @ key - value for key, value in zip(keys, values, strict=True)]
    return sum(error @ error for error in errors) / N


def trial_product(rng: np.random.Generator) -> float:
    """One trial, as matrix products."""
    keys, values = unit(rng), unit(rng)
    return float((((keys @ (keys.T @ values)) - values) ** 2).sum() / N)


def batched(keys: torch.Generator, values: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    return capacity.squared_errors(
        stimuli.sphere(TRIALS, N, D, generator=keys, dtype=dtype),
        stimuli.sphere(TRIALS, N, D, generator=values, dtype=dtype),
    )


def timed(run, repeats: int = 1) -> float:
    """Seconds a trial."""
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


def main() -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    keys, values = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    contenders = {
        "per-item loop": lambda: timed(lambda: item_loop(rng), 2),
        "write-and-read loop": lambda: timed(lambda: write_read_loop(rng), 8),
        "per-trial product": lambda: timed(lambda: trial_product(rng), 64),
    }
    for dtype in (torch.float64, torch.float32):
        name = str(dtype).removeprefix("torch.")
        ks, us = (stimuli.sphere(TRIALS, N, D, generator=keys, dtype=dtype) for _ in range(2))
        contenders |= {
            f"batched {name}": lambda t=dtype: timed(lambda: batched(keys, values, t)) / TRIALS,
            f"statistics alone {name}": lambda k=ks, u=us: timed(lambda: capacity.squared_errors(k, u)) / TRIALS,
            f"matrix products {name}": lambda k=ks, u=us: timed(lambda: k @ (u.mT @ k).mT) / TRIALS,
        }
    for run in contenders.values():
        run()  # warm up
    rounds = [{name: run() for name, run in contenders.items()} for _ in range(ROUNDS)]
    for name in contenders:
        print(f"{name:28} {1e6 * median(r[name] for r in rounds):10.1f} µs a trial")
    for name in ("float64", "float32"):
        for slow in ("per-item loop", "write-and-read loop", "per-trial product"):
            print(f"{slow} / batched {name}: {median(r[slow] / r[f'batched {name}'] for r in rounds):.1f}")
        for whole in ("statistics alone", "batched"):
            ratio = median(r[f"{whole} {name}"] / r[f"matrix products {name}"] for r in rounds)
            print(f"{whole} {name} / its matrix products: {ratio:.2f}")


if __name__ == "__main__":
    main()
