"""Theorem 7 against loops, exact enumeration, quadrature and brute force."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import integrate

from pavlov import capacity, geometry, kernels, stimuli


def draw(*shape, seed=0):
    return stimuli.gaussian(*shape, generator=torch.Generator().manual_seed(seed))


def power_law(d, exponent=1.0):
    spectrum = torch.arange(1, d + 1, dtype=torch.float64) ** -exponent
    return spectrum / spectrum.sum()


# Estimators


@pytest.mark.parametrize("n", [2, 5, 40])
def test_overlap_power_and_dimension_are_means_over_pairs(n):
    keys = draw(n, 3)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    power = sum(float(keys[i] @ keys[j]) ** 2 for i, j in pairs) / len(pairs)
    lengths = sum(float(keys[i] @ keys[i] * (keys[j] @ keys[j])) for i, j in pairs) / len(pairs)
    assert float(geometry.overlap_power(keys)) == pytest.approx(power, rel=1e-12)
    assert float(geometry.effective_dimension(keys)) == pytest.approx(lengths / power, rel=1e-12)


@pytest.mark.parametrize("n", [6, 50])
def test_of_a_population_they_are_the_traces(n):
    keys = draw(n, 4)
    C = keys.T @ keys / n
    assert float(geometry.overlap_power(keys, population=True)) == pytest.approx(float((C @ C).trace()))
    dimension = float(C.trace() ** 2 / (C @ C).trace())
    assert float(geometry.effective_dimension(keys, population=True)) == pytest.approx(dimension)


def test_dimension_of_known_sets():
    assert float(geometry.effective_dimension(torch.ones(5, 3))) == pytest.approx(1)
    assert float(geometry.effective_dimension(stimuli.one_hot(6, 6), population=True)) == 6
    assert float(geometry.effective_dimension(stimuli.one_hot(6, 6))) == math.inf
    assert float(geometry.effective_dimension(stimuli.tight_frame(50, 8), population=True)) == pytest.approx(8)
    assert float(geometry.effective_dimension(7 * draw(4000, 16))) == pytest.approx(16, rel=0.05)


def test_the_mean_overlap_power_of_few_keys_is_unbiased():
    spectrum = power_law(48)
    keys = stimuli.anisotropic(20_000, 4, 48, spectrum=spectrum, generator=torch.Generator().manual_seed(0))
    got = geometry.overlap_power(keys)
    exact, stderr = float(spectrum.square().sum()), float(got.std()) / math.sqrt(len(got))
    assert abs(float(got.mean()) - exact) < 5 * stderr
    assert stderr < 0.01 * exact


@pytest.mark.parametrize("n", [2, 3, 7])
def test_interference_of_the_stored_keys_is_that_of_a_loop(n):
    keys, values = draw(n, 4), draw(n, 3, seed=1)
    got = geometry.interference(keys, values)
    incoherent = coherent = 0.0
    for j, i, other in itertools.product(range(n), repeat=3):
        if j not in (i, other):
            product = float((keys[i] @ keys[j]) * (keys[other] @ keys[j]) * (values[i] @ values[other])) / n
            incoherent, coherent = (incoherent + product, coherent) if i == other else (incoherent, coherent + product)
    assert [float(x) for x in got] == pytest.approx([incoherent + coherent, incoherent, coherent], abs=1e-12)


def test_queries_of_their_own_see_every_pair_and_are_scaled_to_n():
    keys, values, queries = draw(6, 4), draw(6, 3, seed=1), draw(5, 4, seed=2)
    got = geometry.interference(keys, values, queries, n=9)
    overlap = queries @ keys.T  # (5, 6)
    incoherent = (overlap.square() * values.square().sum(-1)).mean() * 8
    terms = torch.einsum("qi,ql,im,lm->qil", overlap, overlap, values, values)
    coherent = (terms.sum() - terms.diagonal(dim1=1, dim2=2).sum()) / (5 * 6 * 5) * 8 * 7
    assert float(got.incoherent) == pytest.approx(float(incoherent))
    assert float(got.coherent) == pytest.approx(float(coherent))
    assert float(got.power) == pytest.approx(float(incoherent + coherent))


def test_as_many_queries_as_keys_leave_their_own_pair_out():
    keys, values = draw(5, 4), draw(5, 3, seed=1)
    same = [float(x) for x in geometry.interference(keys, values, keys.clone())]
    assert same == pytest.approx([float(x) for x in geometry.interference(keys, values)])


def test_interference_is_batched():
    keys, values = draw(2, 3, 8, 4), draw(2, 3, 8, 5, seed=1)
    got = geometry.interference(keys, values)
    assert got.power.shape == (2, 3)
    assert float(got.power[1, 2]) == pytest.approx(float(geometry.interference(keys[1, 2], values[1, 2]).power))


def test_a_small_sample_predicts_the_interference_of_a_large_memory():
    """Values that depend on their keys, keys that share a mean: 12 pairs at a time predict 200 in the mean."""
    generator = torch.Generator().manual_seed(3)
    W = stimuli.gaussian(5, 8, generator=generator)

    def pairs(size, n, seed):
        keys = draw(size, n, 8, seed=seed) * torch.linspace(0.2, 1.5, 8, dtype=torch.float64) + 0.3
        return keys, torch.tanh(keys @ W.mT)

    small = geometry.interference(*pairs(20_000, 12, 4), n=200)
    large = geometry.interference(*pairs(300, 200, 5))
    for predicted, measured in zip(small, large, strict=True):
        stderr = math.hypot(*(float(x.std()) / math.sqrt(len(x)) for x in (predicted, measured)))
        assert abs(float(predicted.mean() - measured.mean())) < 5 * stderr
        assert stderr < 0.02 * float(measured.mean())


def test_the_jackknife_of_a_mean_is_its_standard_error():
    x = draw(40)
    got = geometry.jackknife(torch.mean, x, groups=40)
    assert got.mean == pytest.approx(float(x.mean()))
    assert got.stderr == pytest.approx(float(x.std()) / math.sqrt(40))


def test_the_jackknife_covers_the_spread_of_the_effective_dimension():
    samples = stimuli.anisotropic(200, 200, 32, spectrum=power_law(32), generator=torch.Generator().manual_seed(1))
    estimates = [geometry.jackknife(geometry.effective_dimension, keys) for keys in samples]
    spread = np.std([e.mean for e in estimates])
    assert np.mean([e.stderr for e in estimates]) == pytest.approx(spread, rel=0.25)


# Remedies


def test_centring_and_whitening():
    keys = draw(500, 6) @ draw(6, 6, seed=1) + 2
    assert geometry.centred(keys).mean(0).abs().max() < 1e-12
    torch.testing.assert_close(geometry.centred(keys, torch.ones(6, dtype=keys.dtype)), keys - 1)
    white = geometry.whitened(keys)
    torch.testing.assert_close(white.T @ white / 500, torch.eye(6, dtype=keys.dtype))
    flat = torch.cat([keys, torch.zeros_like(keys)], -1)
    assert float(geometry.effective_dimension(geometry.whitened(flat), population=True)) == pytest.approx(6)


# The law


def test_the_law_is_exact_for_every_small_population():
    """Averaged over all draws of four pairs from three keys and two values, in fractions."""
    third = Fraction(1, 3)
    keys = [(Fraction(3, 5), Fraction(4, 5)), (Fraction(1), Fraction(0)), (Fraction(5, 13), Fraction(12, 13))]
    values = [(Fraction(3, 5), Fraction(4, 5)), (Fraction(4, 5), Fraction(-3, 5))]

    def dot(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    n, total, count = 4, Fraction(0), 0
    for ks in itertools.product(keys, repeat=n):
        overlap = [dot(ks[0], k) for k in ks[1:]]
        for vs in itertools.product(values, repeat=n - 1):
            error = [sum(r * v[a] for r, v in zip(overlap, vs, strict=True)) for a in (0, 1)]
            total, count = total + dot(error, error), count + 1
    C = [[third * sum(k[a] * k[b] for k in keys) for b in (0, 1)] for a in (0, 1)]
    mu = [third * sum(k[a] for k in keys) for a in (0, 1)]
    bias = sum((sum(v[a] for v in values) / 2) ** 2 for a in (0, 1))
    power = sum(x * x for row in C for x in row)
    aligned = sum(mu[a] * C[a][b] * mu[b] for a in (0, 1) for b in (0, 1))
    assert total / count == geometry.law(n, power, aligned, bias)


@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_rectified_keys_interfere_as_predicted(bias):
    n, d = 24, 16
    exact = geometry.rectified(d)

    def pairs(size, keys, values):
        return stimuli.rectified(size, n, d, generator=keys), geometry.biased(size, n, d, bias=bias, generator=values)

    got = geometry.measure_interference(pairs, 6000, 2)
    predicted = geometry.law(n, exact.overlap_power, exact.aligned, bias)
    assert abs(got.mean - predicted) < 5 * got.stderr
    assert abs(got.mean - 1.05 * predicted) > 5 * got.stderr


def test_rectified_moments_agree_with_quadrature_in_two_dimensions():
    """The angle of a draw is uniform: a quarter keeps both entries, half keeps one, a quarter is reflected."""
    mean = (2 * integrate.quad(math.cos, 0, math.pi / 2)[0] + math.pi / 2 * 1) / (2 * math.pi)
    product = 2 * integrate.quad(lambda t: math.cos(t) * math.sin(t), 0, math.pi / 2)[0] / (2 * math.pi)
    C, mu = np.array([[0.5, product], [product, 0.5]]), np.array([mean, mean])
    assert geometry.rectified(2) == pytest.approx((mu @ mu, (C @ C).trace(), mu @ C @ mu), rel=1e-12)


def test_rectified_moments_agree_with_a_large_sample_and_reach_their_limits():
    keys = stimuli.rectified(200_000, 5, generator=torch.Generator().manual_seed(0))
    C, mu = keys.T @ keys / len(keys), keys.mean(0)
    sample = (float(mu @ mu), float((C @ C).trace()), float(mu @ C @ mu))
    assert geometry.rectified(5) == pytest.approx(sample, rel=0.01)
    assert geometry.rectified(100_000) == pytest.approx((1 / math.pi, 1 / math.pi**2, 1 / math.pi**2), rel=1e-3)


def test_centred_moments_are_those_of_the_covariance():
    keys = stimuli.rectified(50_000, 4, generator=torch.Generator().manual_seed(0))
    sigma = torch.cov(keys.T)
    assert geometry.rectified(4).centred().overlap_power == pytest.approx(float((sigma @ sigma).trace()), rel=0.03)


def test_feature_overlap_in_closed_form():
    assert geometry.feature_overlap(kernels.relu) == pytest.approx(1 / math.pi, rel=1e-9)
    tail = [math.exp(a * a / 2) * math.erfc(a / math.sqrt(2)) / 2 for a in (1, 2)]  # ∫_{x<0} e^{ax} of a normal
    first, second = 1 / math.sqrt(2 * math.pi) + 0.5 + tail[0], 1 + 2 / math.sqrt(2 * math.pi) + tail[1]
    assert geometry.feature_overlap(kernels.elu_plus_one) == pytest.approx(first**2 / second, rel=1e-9)
    assert geometry.feature_overlap(lambda x: x) == pytest.approx(0, abs=1e-20)


def test_feature_overlap_is_what_high_dimension_shows():
    a, b = (kernels.elu_plus_one(draw(200_000, seed=s)) for s in (0, 1))
    assert float(a @ b / (a.norm() * b.norm())) == pytest.approx(
        geometry.feature_overlap(kernels.elu_plus_one), rel=0.01
    )


# The guarantee


@pytest.mark.parametrize(("d_eff", "epsilon", "delta"), [(1, 1.0, 0.05), (30.5, 0.7, 0.01), (4000, 2.0, 0.5)])
def test_the_guarantee_is_the_largest_number_that_satisfies_the_inequality(d_eff, epsilon, delta):
    def holds(n):
        return ((n - 1) + math.sqrt(2 * (n - 1) * math.log(n / delta))) / math.sqrt(d_eff) <= epsilon

    n = geometry.guaranteed(d_eff, epsilon, delta)
    assert holds(n)
    assert not holds(n + 1)


def test_keys_with_a_spectrum_keep_the_guarantee():
    spectrum = power_law(2000, 0.5)
    d_eff = 1 / float(spectrum.square().sum())
    n = geometry.guaranteed(d_eff)
    assert n > 2
    keys = stimuli.anisotropic(2000, n, 2000, spectrum=spectrum, generator=torch.Generator().manual_seed(0))
    failed = float((capacity.safe_counts(keys) < n).double().mean())
    assert failed + 5 * math.sqrt(0.05 / 2000) < 0.05


def test_biased_values_have_length_one_and_the_stated_mean():
    values = geometry.biased(3, 4000, 5, bias=0.3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(values.norm(dim=-1), torch.ones(3, 4000, dtype=values.dtype))
    assert values.mean((0, 1)).square().sum().item() == pytest.approx(0.3, abs=0.01)


GOOD = torch.ones(3, 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: geometry.effective_dimension(torch.ones(1, 4)), ValueError, "keys must have at least 2 rows, got 1"),
        (lambda: geometry.effective_dimension(torch.ones(4)), ValueError, "keys must have shape"),
        (lambda: geometry.effective_dimension(torch.zeros(3, 4)), ValueError, "must not all be zero"),
        (lambda: geometry.effective_dimension(torch.ones(3, 4, dtype=torch.int64)), TypeError, "keys must be a float"),
        (lambda: geometry.effective_dimension([[1.0]]), TypeError, "keys must be a floating-point tensor, got list"),
        (lambda: geometry.overlap_power(GOOD * math.nan), ValueError, "keys must be finite, got 6 entries"),
        (lambda: geometry.interference(GOOD, torch.ones(2, 2)), ValueError, "values must have 3 rows"),
        (lambda: geometry.interference(GOOD, GOOD * math.inf), ValueError, "values must be finite"),
        (lambda: geometry.interference(GOOD, GOOD, torch.ones(3, 5)), ValueError, "queries must have 2 columns"),
        (lambda: geometry.interference(GOOD, GOOD, n=0), ValueError, "n must be at least 1, got 0"),
        (lambda: geometry.interference(GOOD[:2], GOOD[:2], n=3), ValueError, "at least 3 rows to predict n = 3"),
        (lambda: geometry.jackknife(torch.mean, GOOD, groups=4), ValueError, "groups must be at least 2 and at most"),
        (lambda: geometry.jackknife(torch.mean, GOOD, GOOD[:2]), ValueError, "same number of rows"),
        (lambda: geometry.law(0, 1, 1, 1), ValueError, "n must be at least 1, got 0"),
        (lambda: geometry.rectified(1), ValueError, "d must be at least 2, got 1"),
        (lambda: geometry.guaranteed(0.5), ValueError, "d_eff must be at least 1, got 0.5"),
        (lambda: geometry.guaranteed(9, epsilon=0), ValueError, "epsilon must be positive, got 0"),
        (lambda: geometry.guaranteed(9, delta=1), ValueError, "delta must lie between 0 and 1, got 1"),
        (lambda: geometry.biased(1, 1, 2, bias=2, generator=torch.Generator()), ValueError, "bias must lie"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
