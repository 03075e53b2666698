"""Error through layers and heads: enumeration where it is possible, simulation elsewhere, and what must be refused."""

import itertools
import math
import random

import numpy as np
import pytest
import torch
from scipy import stats

from pavlov import moments, montecarlo, propagation

SEED = 11


def simulate(n, d, depth, **shape) -> montecarlo.Estimate:
    """The error after the last layer, to one percent."""
    trials = 400
    while True:
        estimate = propagation.measure_error(n, d, depth, trials, SEED, **shape)
        mean, stderr = float(estimate.mean[-1]), float(estimate.stderr[-1])
        if stderr <= 0.01 * mean:
            return montecarlo.Estimate(mean, stderr, trials)
        trials = int(trials * max(2, 1.5 * (stderr / mean / 0.01) ** 2))


def settings(seed: int, number: int) -> list[dict]:
    """Random networks: as many tied as not, most with several heads that may fail."""
    draw = random.Random(seed)
    return [
        {
            "n": draw.randint(2, 48),
            "d": draw.randint(4, 40),
            "depth": draw.randint(1, 4 if tied else 7),
            "heads": draw.randint(2, 6),
            "failure": draw.choice([0.0, draw.uniform(0.01, 0.25)]),
            "tied": tied,
        }
        for tied in itertools.islice(itertools.cycle([False, True]), number)
    ]


@pytest.mark.parametrize("network", settings(5, 20), ids=str)
def test_the_error_is_what_simulation_gives(network):
    measured = simulate(**network)
    assert measured.stderr <= 0.01 * measured.mean
    assert abs(measured.mean - propagation.error(**network)) <= 5 * measured.stderr


@pytest.mark.parametrize(
    "network",
    [
        {"n": 12, "d": 9, "depth": 7, "heads": 3, "failure": 0.0, "tied": True},
        {"n": 20, "d": 40, "depth": 7, "heads": 3, "failure": 0.1, "tied": True},
        {"n": 24, "d": 32, "depth": 6, "heads": 1, "failure": 0.05, "tied": True},
    ],
    ids=str,
)
def test_deep_tied_layers_are_close_to_simulation(network):
    measured = simulate(**network)
    assert abs(measured.mean - propagation.error(**network)) <= 5 * measured.stderr


def enumerated_error(n: int, depth: int, heads: int, failure: float) -> float:
    """Tied layers of one-dimensional heads, averaged over all keys and over all patterns of silence."""
    keys = torch.tensor(list(itertools.product((1.0, -1.0), repeat=heads * n)), dtype=torch.float64)
    keys = keys.reshape(-1, heads, n, 1)
    grams = keys @ keys.mT
    total = 0.0
    for awake in itertools.product((0, 1), repeat=heads * depth):
        weight = math.prod(1 - failure if b else failure for b in awake)
        signal = torch.eye(n, dtype=torch.float64)
        for layer in np.reshape(awake, (depth, heads)):
            signal = torch.einsum("r,srij->sij", torch.tensor(layer, dtype=torch.float64), grams) @ signal / heads
            signal = signal / (1 - failure)
        total += weight * (signal - torch.eye(n)).square().sum(-2).mean().item()
    return total


@pytest.mark.parametrize(
    ("n", "depth", "heads", "failure"),
    [(3, 1, 2, 0.3), (3, 3, 2, 0.25), (2, 4, 2, 0.1), (4, 2, 3, 0.5), (3, 4, 1, 0.2), (3, 4, 2, 0.0)],
)
def test_tied_layers_are_what_enumeration_gives(n, depth, heads, failure):
    predicted = propagation.error(n, 1, depth, heads=heads, failure=failure, tied=True)
    assert predicted == pytest.approx(enumerated_error(n, depth, heads, failure), rel=1e-12)


def test_one_layer_cannot_tell_tied_from_untied():
    for heads, failure in [(1, 0.0), (3, 0.2)]:
        fresh, tied = (propagation.error(9, 5, 1, heads=heads, failure=failure, tied=t) for t in (False, True))
        assert tied == pytest.approx(fresh, rel=1e-12)


@pytest.mark.parametrize(("n", "d"), [(16, 8), (10, 7)])
def test_the_extrapolated_law_is_the_exact_one_at_the_next_depth(n, d):
    def mean(power):
        return sum(math.comb(power, m) * moments.walk_moment(n, d, 2, m) for m in range(power + 1) if m != 1)

    exact = mean(10) - 2 * mean(5) + 1
    assert propagation.error(n, d, 5, heads=2, tied=True) == pytest.approx(exact, rel=1e-3)


def test_to_first_order_tied_errors_add_coherently():
    for depth in (2, 5):
        tied, fresh = (propagation.error(2, 100_000, depth, tied=t) for t in (True, False))
        assert tied / fresh == pytest.approx(depth, rel=1e-3)


def test_the_split_of_the_width_matters_to_failures_only():
    assert propagation.error(30, 64, 6) == pytest.approx(propagation.error(30, 4, 6, heads=16), rel=1e-12)
    split = [propagation.error(30, 64 // r, 6, heads=r, failure=0.1) for r in (1, 4, 16, 64)]
    assert split == sorted(split, reverse=True)


@pytest.mark.parametrize("depth", [1, 7, 100])
def test_capacity_is_the_largest_number_that_stays_within_the_error(depth):
    for epsilon in (0.3, 1.0):
        n = propagation.capacity(16, depth, heads=50, epsilon=epsilon)
        assert propagation.error(n, 16, depth, heads=50) <= epsilon**2 < propagation.error(n + 1, 16, depth, heads=50)


@pytest.mark.parametrize("gain", [0.1, 1.0, 3.0])
def test_residual_layers_are_what_simulation_gives(gain):
    measured = propagation.measure_error(16, 12, 5, 4000, SEED, gain=gain, heads=2)
    predicted = np.array([propagation.residual_error(16, 12, depth, gain=gain, heads=2) for depth in range(1, 6)])
    assert np.all(abs(measured.mean - predicted) <= 5 * measured.stderr)


@pytest.mark.parametrize(
    ("n", "d", "heads", "wrong"), [(64, 16, 9, 0), (3, 2, 2, 0), (9, 8, 7, 2), (20, 3, 4, 1), (7, 1, 3, 0)]
)
def test_signs_are_wrong_as_often_as_predicted(n, d, heads, wrong):
    measured = propagation.measure_signs(n, d, heads, 6000, SEED, wrong=wrong)
    predicted = [f(n, d, heads, wrong=wrong) for f in (propagation.average_error, propagation.vote_error)]
    assert np.all(abs(measured.mean - predicted) <= 5 * measured.stderr)


def test_signs_of_small_memories_are_known():
    assert propagation.average_error(1, 3, 2) == 0
    assert propagation.average_error(2, 5, 3) == pytest.approx(0, abs=1e-12)  # one other key never exceeds the signal
    assert propagation.average_error(2, 1, 1) == 0.25  # the other key is against in half of the draws, and ties
    assert propagation.average_error(5, 4, 3, wrong=3) == pytest.approx(1 - propagation.average_error(5, 4, 3))
    assert propagation.vote_error(8, 4, 1) == propagation.average_error(8, 4, 1)


@pytest.mark.parametrize(("n", "d", "heads"), [(1000, 100, 3), (1000, 101, 3), (4000, 1000, 2)])
def test_many_items_give_the_gaussian_law(n, d, heads):
    gaussian = stats.norm.sf(math.sqrt(heads * d / (n - 1)))
    assert propagation.average_error(n, d, heads) == pytest.approx(gaussian, rel=2e-3)


def test_voting_needs_up_to_twice_the_heads():
    ratios = [average / vote for average, vote in map(propagation.exponents, (1e-3, 0.1, 1, 3, 30))]
    assert ratios[0] == pytest.approx(math.pi / 2, rel=1e-3)
    assert ratios == sorted(ratios)
    assert 1.95 < ratios[-1] < 2


@pytest.mark.parametrize(("n", "d"), [(20, 8), (24, 16)])
def test_layers_that_decode_err_as_predicted_from_one_layer(n, d):
    first = propagation.measure_decoding(n, d, 1, 20_000, SEED)
    deep = propagation.measure_decoding(n, d, 4, 20_000, SEED + 1)
    p, stderr = float(first.mean[0]), float(first.stderr[0])
    predicted = np.array([propagation.cleanup_error(p, depth, n) for depth in range(1, 5)])
    slope = np.arange(1, 5)  # an upper bound on the derivative in p
    assert np.all(abs(deep.mean - predicted) <= 5 * np.hypot(deep.stderr, slope * stderr))
    assert propagation.decode_error(n, d) >= p


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: propagation.error(4, 4, 0), "depth must be at least 1, got 0"),
        (lambda: propagation.error(0, 4, 1), "n must be at least 1, got 0"),
        (lambda: propagation.error(4, 4, 1, heads=0), "heads must be at least 1, got 0"),
        (lambda: propagation.error(4, 4, 1, failure=1.0), r"failure must be in \[0, 1\), got 1.0"),
        (lambda: propagation.error(4, 4, 1, failure=-0.1), r"failure must be in \[0, 1\), got -0.1"),
        (lambda: propagation.error(4, 4, 1, failure=math.nan), r"failure must be in \[0, 1\), got nan"),
        (lambda: propagation.capacity(4, 2, epsilon=0), "epsilon must be positive, got 0"),
        (lambda: propagation.residual_error(4, 4, 1, gain=-1), "gain must not be negative, got -1"),
        (lambda: propagation.average_error(4, 4, 3, wrong=4), "wrong must lie between 0 and heads = 3, got 4"),
        (lambda: propagation.vote_error(4, 0, 3), "d must be at least 1, got 0"),
        (lambda: propagation.cleanup_error(1.5, 2), "one_layer must lie between 0 and 1, got 1.5"),
        (lambda: propagation.exponents(0), "x must be positive, got 0"),
    ],
)
def test_a_number_out_of_range_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_size_that_is_no_whole_number_is_refused():
    with pytest.raises(TypeError, match=r"depth must be a whole number, got 2.5"):
        propagation.error(4, 4, 2.5)
