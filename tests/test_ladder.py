"""Theorem 6 against brute force, quadrature and high precision, at sizes that the pages do not use."""

import math

import numpy as np
import pytest
import torch

from pavlov import capacity, kernels, stimuli


def draws(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [stimuli.sphere(*shape, generator=generator) for shape in shapes]


def agrees(got, predicted, wrong):
    assert abs(got.mean - predicted) < 5 * got.stderr
    assert abs(got.mean - wrong) > 5 * got.stderr


def test_the_best_gain_is_the_minimum_over_gains():
    load = capacity.interference(50, 30)
    errors = [(1 - g) ** 2 + g**2 * load for g in np.linspace(0, 1, 10_001)]
    assert capacity.gain_error(50, 30) == pytest.approx(min(errors), abs=1e-7)
    agrees(capacity.measure_gain(50, 30, 1 / (1 + load), 2000, 4), capacity.gain_error(50, 30), load)


@pytest.mark.parametrize(("n", "d"), [(20, 24), (24, 24), (40, 24)])
def test_least_squares_is_the_pseudo_inverse(n, d):
    keys, values = draws((n, d), (n, 7))
    memory = (torch.linalg.pinv(keys) @ values).mT
    torch.testing.assert_close(capacity.least_squares_recall(keys, values), keys @ memory.mT - values)


def test_the_error_of_least_squares_is_exact():
    assert capacity.least_squares_error(20, 24) == 0
    agrees(capacity.measure_least_squares(40, 24, 1000, 2), 1 - 24 / 40, 1.05 * (1 - 24 / 40))


def test_a_ridge_memory_solves_its_normal_equations():
    keys, values = draws((9, 6), (9, 4))
    memory = torch.linalg.solve(keys.mT @ keys + 0.3 * torch.eye(6), keys.mT @ values)
    torch.testing.assert_close(capacity.least_squares_recall(keys, values, 0.3), keys @ memory - values)


@pytest.mark.parametrize(("n", "ridge"), [(100, 0.2), (200, 0.5), (300, 2.0), (600, 1e-3)])
def test_the_ridge_error_is_the_trace_of_a_large_gram_matrix(n, ridge):
    (keys,) = draws((n, 200))
    eigenvalues = torch.linalg.eigvalsh(keys @ keys.mT)
    trace = float((ridge**2 / (eigenvalues + ridge) ** 2).mean())
    assert capacity.ridge_error(n, 200, ridge) == pytest.approx(trace, rel=0.02)


def test_the_ridge_error_tends_to_that_of_least_squares():
    assert capacity.ridge_error(300, 200, 1e-9) == pytest.approx(1 / 3, rel=1e-6)
    assert capacity.ridge_error(100, 200, 1e-9) == pytest.approx(0, abs=1e-12)


def test_the_lead_over_a_competitor_has_mean_one_and_the_variance_stated():
    got = capacity.measure_gap(7, 5, 9, 100_000, 3)
    agrees(got[0], 1, 1.02)
    agrees(got[1], capacity.gap_variance(7, 5, 9), 0.95 * capacity.gap_variance(7, 5, 9))


def test_the_nearest_value_is_that_of_a_loop():
    keys, values = draws((3, 30, 6), (3, 30, 8))
    for k, v, got in zip(keys, values, capacity.nearest(keys, values, 11), strict=True):
        memory = sum(torch.outer(b, a) for a, b in zip(k, v, strict=True))
        assert got.tolist() == [int((v @ (memory @ key)).argmax()) for key in k[:11]]


@pytest.mark.parametrize(("n", "d", "m"), [(150, 48, 40), (300, 40, 90), (700, 96, 96)])
def test_identification_is_within_two_percent(n, d, m):
    got = capacity.measure_identification(n, d, m, 200, 8)[0]
    assert capacity.identification(n, d, m) == pytest.approx(got.mean, rel=0.02)


def test_identification_has_sane_limits():
    assert capacity.identification(1, 64, 64) == 1
    falling = [capacity.identification(n, 32, 32) for n in (2, 10, 50, 200, 1000)]
    assert np.all(np.diff(falling) < 0)
    assert all(0 < p <= 1 for p in falling)
    assert capacity.identification_every(50, 32, 32) < capacity.identification(50, 32, 32)


def test_the_leak_falls_at_the_rate_of_its_saddle_point():
    rate = -math.log(kernels.leak(2, 1000, 1000)) / 1000
    rho = (math.sqrt(5) - 1) / 2
    assert rate == pytest.approx(1 - rho - math.log(1 - rho**2) / 2, abs=1e-3)


def test_the_ladder_names_the_most_pairs_of_each_criterion():
    table = capacity.ladder(48, 80, epsilon=0.6, delta=0.1).set_index("criterion")["pairs"]
    assert table["guaranteed"] == capacity.guaranteed(48, 0.6, 0.1)
    assert table["mean square"] == capacity.average_case(48, 0.6)
    assert capacity.gain_error(table["best gain"], 48) <= 0.36 < capacity.gain_error(table["best gain"] + 1, 48)
    n = table["least squares, ε"]
    assert capacity.least_squares_error(n, 48) <= 0.36 < capacity.least_squares_error(n + 1, 48)
    assert capacity.ridge_error(table["ridge"], 48, 0.1) <= 0.36 < capacity.ridge_error(table["ridge"] + 1, 48, 0.1)
    n = table["identify one"]
    assert capacity.identification(n, 48, 80) >= 0.9 > capacity.identification(n + 1, 48, 80)
    leak = kernels.leak(table["softmax"], 48, math.sqrt(48))
    assert 2 * leak / (1 + leak) <= 0.6


def test_every_pair_is_within_the_error_about_as_often_as_predicted():
    got = capacity.measure_every_within(70, 64, 64, 1000, 0, epsilon=1.5)
    assert capacity.every_within(70, 64, 64, 1.5) == pytest.approx(got.mean, abs=0.05)


def test_the_slope_of_a_power_is_its_exponent():
    assert capacity.local_slope(lambda d: 3 * d**1.7, 100) == pytest.approx(1.7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: capacity.ladder(1, 64), "d must be at least 1"),
        (lambda: capacity.ladder(64, 64, epsilon=1), "epsilon must be below 1, got 1"),
        (lambda: capacity.ladder(64, 64, delta=0), "delta must lie between 0 and 1"),
        (lambda: capacity.ladder(64, 64, beta=-1.0), "beta must be positive, got -1"),
        (lambda: capacity.ridge_error(4, 4, 0), "ridge must be positive, got 0"),
        (lambda: capacity.identification(0, 4, 4), "n must be at least 1, got 0"),
        (lambda: capacity.identification(4, 4, 2), "at least"),
        (lambda: capacity.gap_variance(1, 4, 4), "at least"),
        (lambda: capacity.least_squares_error(4, 0), "d must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
