"""Shuffles in one batch against a loop over trials, and what PH-attention's loop costs beside delta's chunks.

Run from the repository's root: ``python benchmarks/conditioning.py``. It prints two small tables and ends with 1 if the
batch is less than fifty times as fast as the loop.
"""

import sys
import time

import torch

from pavlov import conditioning, rules, stimuli

DESIGN = "!50A+/50AB-/50C+/50BC-"  # 200 trials
SHUFFLES = 1000


def seconds(work, repeats: int = 3) -> float:
    """The least time of a few."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def loop(rule, shuffles: int) -> None:
    """The same experiments, one shuffle and one trial at a time."""
    for seed in range(shuffles):
        [experiment] = conditioning.experiments(DESIGN, rule, seed=seed)
        del experiment


def shuffled_experiments() -> bool:
    """Seconds for every rule and 1,000 shuffles of a 200-trial design; the loop is timed on ten of them."""
    print(f"{'rule':16}{'batch, s':>10}{'loop, s':>10}{'times':>8}")
    total_batch = total_loop = 0.0
    for name in rules.RULES:
        batch = seconds(lambda name=name: conditioning.experiments(DESIGN, name, shuffles=SHUFFLES))
        looped = seconds(lambda name=name: loop(name, 10), 2) * SHUFFLES / 10
        total_batch, total_loop = total_batch + batch, total_loop + looped
        print(f"{name:16}{batch:10.3f}{looped:10.1f}{looped / batch:8.0f}")
    print(f"{'all':16}{total_batch:10.3f}{total_loop:10.1f}{total_loop / total_batch:8.0f}")
    return total_loop >= 50 * total_batch


def parallel_form(steps: int = 2048, d: int = 64) -> None:
    """Seconds for one sequence: PH-attention step by step, delta attention step by step and in chunks."""
    gen = torch.Generator().manual_seed(0)
    k, v = stimuli.sphere(steps, d, generator=gen), stimuli.sphere(steps, d, generator=gen)
    delta = rules.RULES["delta"]
    print(f"\none sequence of {steps} steps, d = {d}")
    for name, work in {
        "PH-attention, loop": lambda: rules.run(rules.PearceHall(), k, v, 0.5),
        "delta, loop": lambda: rules.run(delta, k, v, 0.5),
        "delta, chunks": lambda: delta.attention(k, k, v, 0.5),
    }.items():
        print(f"{name:20}{seconds(work):10.4f} s")


if __name__ == "__main__":
    torch.set_num_threads(1)
    fast = shuffled_experiments()
    parallel_form()
    sys.exit(not fast)
