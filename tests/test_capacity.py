"""Theorems 4 and 5 against quadrature, brute force and the literature's numbers."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import integrate

from pavlov import capacity, stimuli
from pavlov.montecarlo import Estimate


def test_interference_is_the_load():
    assert capacity.interference(1, 7) == 0
    assert capacity.interference(48, 64) == 47 / 64


@pytest.mark.parametrize(("d", "epsilon", "n"), [(64, 1, 65), (64, 0.5, 17), (100, 0.1, 2)])
def test_average_case_is_the_largest_number_within_the_error(d, epsilon, n):
    assert capacity.average_case(d, epsilon) == n
    assert capacity.interference(n, d) <= epsilon**2 < capacity.interference(n + 1, d)


@pytest.mark.parametrize("same_value", [False, True])
def test_measured_interference_agrees_and_rejects_a_theory_off_by_five_percent(same_value):
    got = capacity.measure_interference(30, 50, 10_000, 5, same_value=same_value)
    assert abs(got.mean - 29 / 50) < 5 * got.stderr
    assert abs(got.mean - 1.05 * 29 / 50) > 5 * got.stderr


@pytest.mark.parametrize("d", [2, 3, 5, 64, 1000])
def test_mean_overlap_agrees_with_quadrature(d):
    def moment(power):
        """With x = sin t, whose density is cos^(d-2) t."""
        return integrate.quad(lambda t: math.sin(t) ** power * math.cos(t) ** (d - 2), 0, math.pi / 2, epsrel=1e-13)[0]

    assert capacity.mean_overlap(d) == pytest.approx(moment(1) / moment(0), rel=1e-11)


@pytest.mark.parametrize("d", [1, 10, 10**6, 10**12])
def test_mean_overlap_stays_accurate_at_any_dimension(d):
    with mpmath.workdps(60):
        d = mpmath.mpf(d)
        exact = mpmath.gamma(d / 2) / mpmath.sqrt(mpmath.pi) / mpmath.gamma((d + 1) / 2)
    assert capacity.mean_overlap(int(d)) == pytest.approx(float(exact), rel=1e-12)


def test_the_guarantee_has_the_published_values():
    assert [capacity.guaranteed(d) for d in (64, 256, 1024, 4096)] == [4, 9, 21, 48]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-6, 0.05, 0.9])
@pytest.mark.parametrize("d", [2, 17, 512])
def test_the_guarantee_is_the_largest_number_that_satisfies_the_inequality(d, delta, epsilon):
    def holds(n):
        spread = math.sqrt(2 * (n - 1) * math.log(n / delta) / (d - 1))
        return (n - 1) * capacity.mean_overlap(d) + spread <= epsilon

    n = capacity.guaranteed(d, epsilon, delta)
    assert n == next(n for n in range(1, 10**6) if not holds(n + 1))


def test_one_dimension_guarantees_one_pair():
    assert capacity.guaranteed(1) == capacity.guaranteed_by_union(1) == 1


def test_the_failure_bound_is_delta_at_the_guarantee():
    n = capacity.guaranteed_load(300, 0.7, 0.01)
    assert capacity.failure_bound(n, 300, 0.7) == pytest.approx(0.01, rel=1e-9)
    assert capacity.failure_bound(1, 300) == 0
    assert capacity.failure_bound(1000, 300) == 1


def test_the_guarantee_approaches_its_asymptote_from_below():
    ratio = [(capacity.guaranteed_load(d) - 1) / (capacity.asymptote(d) - 1) for d in 4.0 ** np.arange(2, 21)]
    assert np.all(np.diff(ratio) > 0)
    assert 0.99 < ratio[-1] < 1


def test_the_union_bound_is_weaker():
    assert all(capacity.guaranteed_by_union(d) <= capacity.guaranteed(d) for d in (16, 100, 1000, 10_000))


def test_the_slope_is_the_derivative_of_the_guarantee():
    h = 1e-4
    low, high = (math.log(capacity.guaranteed_load(500 * math.exp(step)) - 1) for step in (-h, h))
    assert capacity.guarantee_slope(500) == pytest.approx((high - low) / (2 * h), rel=1e-6)


def test_recall_error_is_what_a_loop_over_pairs_says():
    generator = torch.Generator().manual_seed(0)
    keys, values = (stimuli.sphere(6, 4, generator=generator) for _ in range(2))
    loop = [sum(keys[i] @ keys[j] * values[i] for i in range(6) if i != j) for j in range(6)]
    torch.testing.assert_close(capacity.recall_error(keys, values), torch.stack(loop))


def test_overlap_sums_are_the_largest_errors_that_values_can_cause():
    generator = torch.Generator().manual_seed(0)
    keys, u = stimuli.sphere(7, 5, generator=generator), stimuli.sphere(1, 3, generator=generator)
    sums = capacity.overlap_sums(keys)
    worst = torch.stack([capacity.recall_error(keys, (keys @ key).sign()[:, None] * u)[j].norm()
                         for j, key in enumerate(keys)])  # fmt: skip
    torch.testing.assert_close(worst, sums)
    for _ in range(100):
        errors = capacity.recall_error(keys, stimuli.sphere(7, 3, generator=generator)).norm(dim=-1)
        assert (errors <= sums + 1e-12).all()


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_safe_counts_agree_with_a_loop(epsilon):
    keys = stimuli.sphere(20, 12, 16, generator=torch.Generator().manual_seed(1))

    def count(keys):
        safe = [n for n in range(1, 13) if float(capacity.overlap_sums(keys[:n]).max()) <= epsilon]
        return max(safe)

    assert capacity.safe_counts(keys, epsilon).tolist() == [count(k) for k in keys]


def test_measured_failures_stay_below_the_bound_and_pass_it_beyond_the_asymptote():
    failure = capacity.measure_failure(25, 100, 2000, 3)
    n = capacity.guaranteed(100)
    assert failure.mean[n - 1] + 5 * failure.stderr[n - 1] < 0.05
    assert failure.mean[24] > 0.9
    assert np.all(np.diff(failure.mean) >= 0)


def test_the_crossing_is_interpolated_and_has_the_error_of_the_probability():
    failure = Estimate(np.array([0.0, 0.02, 0.1]), np.array([0.001, 0.002, 0.004]), 100)
    got = capacity.crossing(failure, 0.06)
    assert got.mean == pytest.approx(2.5)
    assert got.stderr == pytest.approx(0.004 / 0.08)


def test_the_mean_of_overlap_sums_agrees_and_rejects_a_theory_off_by_five_percent():
    got = capacity.measure_overlap_sum(10, 33, 4000, 9)
    assert abs(got.mean - 9 * capacity.mean_overlap(33)) < 5 * got.stderr
    assert abs(got.mean - 1.05 * 9 * capacity.mean_overlap(33)) > 5 * got.stderr


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: capacity.interference(0, 4), "n must be at least 1, got 0"),
        (lambda: capacity.mean_overlap(0), "d must be at least 1, got 0"),
        (lambda: capacity.guaranteed(64, epsilon=0), "epsilon must be positive, got 0"),
        (lambda: capacity.guaranteed(64, epsilon=math.nan), "epsilon must be positive, got nan"),
        (lambda: capacity.guaranteed(64, delta=1), "delta must lie between 0 and 1, got 1"),
        (lambda: capacity.guarantee_slope(1), "d must be at least"),
        (lambda: capacity.measure_interference(3, 0, 10, 0), "d must be at least 1, got 0"),
        (lambda: capacity.recall_error(torch.ones(3, 2), torch.ones(2, 2)), "values must have 3 rows"),
        (lambda: capacity.crossing(Estimate(np.zeros(3), np.ones(3), 5)), "raise `most`"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
