"""Rules against the operators, textbook algebra and exact enumeration; their theory against brute force."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pavlov import rules, stimuli
from pavlov.montecarlo import estimate

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch")


def pairs(n, d, m, seed=0, batch=()):
    gen = torch.Generator().manual_seed(seed)
    return stimuli.sphere(*batch, n, d, generator=gen), stimuli.sphere(*batch, n, m, generator=gen)


@pytest.mark.parametrize("name", ["hebb", "decay", "delta", "gated_delta"])
@pytest.mark.parametrize("form", ["parallel", "recurrent", "chunkwise"])
def test_a_rule_with_a_parallel_form_equals_the_operator(name, form):
    k, v = pairs(37, 9, 4, batch=(2, 3))
    rule = rules.RULES[name]
    _, state = rules.run(rule, k, v, 0.7)
    out, operator = rule.attention(k, k, v, 0.7, form=form)
    torch.testing.assert_close(state["S"], operator, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(out[..., -1, :], rules.read(state["S"], k[..., -1, :]), rtol=1e-12, atol=1e-12)


def test_a_rule_between_hebb_and_delta_has_no_parallel_form():
    k, v = pairs(3, 2, 2)
    with pytest.raises(ValueError, match="needs omega 0 or 1"):
        rules.Local(omega=0.5).attention(k, k, v, 1.0)


def test_oja_is_leaky_hebb_for_two_valued_values():
    k, _ = pairs(50, 8, 4)
    v = stimuli.signs(50, 4, generator=torch.Generator().manual_seed(1))
    _, oja = rules.run(rules.Oja(), k, v, 0.6)
    _, leaky = rules.run(rules.Local(gamma=1 - 0.6 / 4, omega=0.0), k, v, 0.6)
    torch.testing.assert_close(oja["S"], leaky["S"], rtol=1e-12, atol=1e-12)


def test_kalman_is_ridge_regression():
    k, v = pairs(20, 7, 3)
    _, state = rules.run(rules.Kalman(ridge=0.3), k, v)
    ridge = torch.linalg.solve(k.mT @ k + 0.3 * torch.eye(7, dtype=k.dtype), k.mT @ v).mT
    torch.testing.assert_close(state["S"], ridge, rtol=1e-10, atol=1e-12)


def test_kalman_recalls_d_pairs_and_one_pass_of_delta_does_not():
    k, v = pairs(12, 12, 5)
    _, kalman = rules.run(rules.Kalman(ridge=1e-10), k, v)
    _, delta = rules.run(rules.RULES["delta"], k, v, 1.0)
    assert (k @ kalman["S"].mT - v).norm() < 1e-4
    assert (k @ delta["S"].mT - v).norm() > 0.5


def test_many_passes_of_delta_reach_the_pseudo_inverse():
    k, v = pairs(10, 30, 4)
    _, state = rules.run(rules.RULES["delta"], k.repeat(300, 1), v.repeat(300, 1), 1.0)
    torch.testing.assert_close(state["S"], v.mT @ torch.linalg.pinv(k).mT, rtol=1e-9, atol=1e-9)


def test_pearce_hall_without_learning_of_associability_is_delta():
    k, v = pairs(30, 6, 3)
    _, ours = rules.run(rules.PearceHall(kappa=0.0), k, v, 0.8)
    _, delta = rules.run(rules.RULES["delta"], k, v, 0.8)
    torch.testing.assert_close(ours["S"], delta["S"])


def test_two_timescales_without_fading_are_delta():
    k, v = pairs(30, 6, 3)
    _, ours = rules.run(rules.TwoTimescales(gamma=1.0), k, v, 0.8)
    _, delta = rules.run(rules.RULES["delta"], k, v, 0.8)
    torch.testing.assert_close(ours["S"], delta["S"])


def test_bcm_writes_the_power_and_the_value_with_the_wrong_sign():
    k = torch.tensor([[1.0]], dtype=torch.float64)
    plus, minus = (
        rules.BCM().write({"S": torch.zeros(1, 1), "theta": torch.tensor([0.2])}, k[0], torch.tensor([x]), 1.0)["S"]
        for x in (1.0, -1.0)
    )
    assert float(plus) == pytest.approx(1 - 0.2)
    assert float(minus) == pytest.approx(1 + 0.2)


@pytest.mark.parametrize(("rate", "factor"), [(0.5, 0.5), (1.5, -0.5), (1.9, -0.9)])
def test_the_error_of_a_repeated_pair_shrinks_by_one_minus_the_rate(rate, factor):
    k, v = pairs(1, 5, 1)
    before, _ = rules.run(rules.RULES["delta"], k.expand(4, 5), v.expand(4, 1), rate)
    error = (v - before)[:, 0]
    assert (error[1:] / error[:-1]).tolist() == pytest.approx([factor] * 3)


def exact_delta(n, d, beta):
    """Mean square error over every choice of keys ± e_i, in fractions: the second moment is I/d, the fourth is not."""
    keys = [(i, s) for i in range(d) for s in (1, -1)]
    total = [Fraction(0)] * n
    for draw in itertools.product(keys, repeat=n):
        memory = [[Fraction(0)] * d for _ in range(n)]  # values are one-hot: row r answers pair r
        for t, (i, s) in enumerate(draw):
            for r in range(n):
                memory[r][i] += beta * ((r == t) - memory[r][i] * s) * s
        for t, (i, s) in enumerate(draw):
            total[n - 1 - t] += sum((memory[r][i] * s - (r == t)) ** 2 for r in range(n))
    return [x / len(keys) ** n for x in total]


def test_the_palimpsest_by_enumeration_in_one_dimension():
    """On the sphere S^0 the keys are ±1, and every moment is that of the theory."""
    for beta in (Fraction(1, 2), Fraction(1), Fraction(3, 2)):
        exact = exact_delta(4, 1, beta)
        assert rules.delta_error(4, 1, float(beta)) == pytest.approx([float(x) for x in exact], abs=1e-12)


@pytest.mark.parametrize(
    ("n", "d", "beta", "d_v"), [(23, 11, 0.7, 3), (30, 17, 1.3, 5), (9, 2, 1.0, 1), (5, 40, 1.9, 4)]
)
def test_the_delta_palimpsest_by_brute_force(n, d, beta, d_v):
    measured = estimate(rules.age_errors(rules.RULES["delta"], n, d, beta, d_v=d_v), 8000, 3, block=512)
    assert np.all(np.abs(measured.mean - rules.delta_error(n, d, beta)) <= 5 * measured.stderr + 1e-12)


@pytest.mark.parametrize(("n", "d", "gamma"), [(23, 11, 0.8), (30, 17, 1.0), (9, 3, 0.0)])
def test_the_decay_palimpsest_by_brute_force(n, d, gamma):
    measured = estimate(rules.age_errors(rules.Local(gamma, 0.0), n, d, d_v=3), 8000, 4, block=512)
    assert np.all(np.abs(measured.mean - rules.decay_error(n, d, gamma)) <= 5 * measured.stderr + 1e-12)


def test_a_theory_that_is_five_percent_off_is_noticed():
    measured = estimate(rules.age_errors(rules.RULES["delta"], 23, 11, 0.7, d_v=3), 8000, 3, block=512)
    assert np.any(np.abs(measured.mean - 1.05 * rules.delta_error(23, 11, 0.7)) > 5 * measured.stderr)


def test_decay_of_one_is_hebb():
    assert rules.decay_error(20, 7, 1.0) == pytest.approx(np.full(20, 19 / 7))


def test_the_norm_of_the_delta_memory():
    assert rules.delta_norm(9, 5) == pytest.approx(5 * (1 - (1 - 1 / 5) ** np.arange(10)))


@settings(deadline=None, max_examples=20)
@given(st.floats(0.1, 1.9), st.floats(0.1, 2.5))
def test_the_limit_is_the_recursion_at_large_d(beta, load):
    d = 4000
    n = max(1, round(load * d))
    limit = rules.delta_limit(np.arange(n) / d, n / d, beta)
    assert np.abs(rules.delta_error(n, d, beta) - limit).max() < 40 / d


def test_random_order_reaches_the_mean_that_kaczmarz_predicts():
    k, v = pairs(4, 6, 2)

    def trial(size, keys, values):
        draw = torch.randint(0, 4, (size, 15), generator=keys)
        return rules.run(rules.RULES["delta"], k[draw], v[draw], 0.9)[1]["S"]

    measured = estimate(trial, 4000, 5, block=500)
    assert np.all(np.abs(measured.mean - rules.kaczmarz_mean(k, v, 15, 0.9).numpy()) <= 5 * measured.stderr + 1e-12)


@pytest.mark.parametrize("name", rules.RULES)
def test_trials_in_one_batch_are_as_alone_and_keep_dtype(name):
    k, v = pairs(9, 5, 3, batch=(4,))
    k, v = k.float(), v.float()
    _, together = rules.run(rules.RULES[name], k, v, 0.5)
    _, alone = rules.run(rules.RULES[name], k[2], v[2], 0.5)
    assert together["S"].dtype == torch.float32
    torch.testing.assert_close(together["S"][2], alone["S"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rules.rule("delt"), "rule must be one of hebb"),
        (lambda: rules.rule("delta", ridge=1), "no option 'ridge'"),
        (lambda: rules.rule("decay", gamma=1.1), r"gamma must be in \[0, 1\], got 1.1"),
        (lambda: rules.rule("kalman", ridge=0), "ridge must be positive, got 0"),
        (lambda: rules.delta_error(4, 4, 2.0), r"beta must be in \(0, 2\)"),
        (lambda: rules.delta_error(0, 4), "n must be at least 1, got 0"),
        (lambda: rules.decay_error(4, 0, 0.5), "d must be at least 1, got 0"),
        (lambda: rules.decay_error(4, 4, -0.5), r"gamma must be in \[0, 1\]"),
    ],
)
def test_a_bad_argument_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_options_make_a_new_rule():
    assert rules.rule("kalman", ridge=2.0) == replace(rules.RULES["kalman"], ridge=2.0)
