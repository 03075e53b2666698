"""Estimates are means with honest errors, and depend on the seed alone."""

import math
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import torch

from pavlov import montecarlo
from pavlov.montecarlo import Estimate, estimate


def normal(size, keys, values):
    return torch.randn(size, generator=keys, dtype=torch.float64) + 3


def pair(size, keys, values):
    return torch.stack([torch.rand(size, generator=keys), torch.rand(size, generator=values)], -1)


def test_mean_and_standard_error_are_those_of_all_trials_together():
    draws = []

    def recorded(size, keys, values):
        draws.append(normal(size, keys, values))
        return draws[-1]

    got = estimate(recorded, 1000, 0, block=64)
    every = torch.cat(draws).numpy()
    assert len(every) == got.n == 1000
    assert got.mean == pytest.approx(every.mean(), rel=1e-13)
    assert got.stderr == pytest.approx(every.std(ddof=1) / math.sqrt(1000), rel=1e-13)


def test_the_true_mean_lies_within_five_standard_errors():
    got = estimate(normal, 100_000, 1)
    assert abs(got.mean - 3) < 5 * got.stderr
    assert got.stderr == pytest.approx(1 / math.sqrt(100_000), rel=0.02)


def test_the_result_does_not_depend_on_batches_workers_or_executor():
    alone = estimate(pair, 500, 7, block=16)
    with ThreadPoolExecutor(3) as threads, ProcessPoolExecutor(2) as processes:
        others = [estimate(pair, 500, 7, block=16, batch=b, executor=e)
                  for b, e in [(1, None), (5, threads), (100, threads), (3, processes)]]  # fmt: skip
    for other in others:
        assert np.array_equal(alone.mean, other.mean)
        assert np.array_equal(alone.stderr, other.stderr)


def test_another_seed_gives_another_result_and_the_same_seed_the_same():
    assert estimate(normal, 100, 1) == estimate(normal, 100, 1) != estimate(normal, 100, 2)


def test_keys_and_values_are_drawn_from_separate_generators():
    def greedy(size, keys, values):
        torch.rand(1000, generator=keys)
        return torch.rand(size, generator=values)

    assert estimate(greedy, 100, 5).mean == estimate(lambda n, k, v: torch.rand(n, generator=v), 100, 5).mean


def test_blocks_do_not_repeat_one_another():
    got = [float(torch.rand(1, generator=montecarlo.generators(0, block)[0])) for block in range(100)]
    assert len(set(got)) == 100


def test_a_large_mean_does_not_cancel_a_small_spread():
    got = estimate(lambda n, k, v: 1e9 + torch.randn(n, generator=k, dtype=torch.float64), 10_000, 0)
    assert got.stderr == pytest.approx(0.01, rel=0.05)


def test_a_proportion_without_a_success_has_an_error():
    none = montecarlo.proportion(Estimate(0.0, 0.0, 1000))
    assert none.mean == 0
    assert none.stderr == pytest.approx(math.sqrt(2) / 1004, rel=0.01)


def test_a_block_fills_its_budget_and_holds_at_least_one_trial():
    assert montecarlo.block_size(10**12) == 1
    assert montecarlo.block_size(2**15, budget=2**20) == 32


def test_one_outcome_of_several_can_be_taken_out():
    assert Estimate(np.array([1.0, 2.0]), np.array([0.1, 0.2]), 9)[1] == Estimate(2.0, 0.2, 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 1}, "trials must be at least 2, got 1"),
        ({"block": 0}, "block must be at least 1, got 0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"trial": lambda n, k, v: torch.ones(3)}, "must return 10 rows"),
        ({"trial": lambda n, k, v: torch.full((n,), math.nan)}, "not finite"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        estimate(**{"trial": normal, "trials": 10, "seed": 0} | options)
