"""Theorem 2 against direct sums, quadrature, brute force and arithmetic of many digits."""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import integrate

from pavlov import kernels, stimuli
from pavlov.attention import softmax_attention


def draw(*shape, seed=0):
    return stimuli.gaussian(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("phi", [kernels.relu, kernels.elu_plus_one, kernels.taylor])
def test_kernel_attention_is_the_weighted_mean_of_the_values(phi):
    q, k, v = draw(2, 7, 3).abs(), draw(2, 7, 3, seed=1).abs(), draw(2, 7, 4, seed=2)
    got = kernels.kernel_attention(q, k, v, phi)
    for t in range(7):
        weight = torch.stack([(phi(q[:, t]) * phi(k[:, i])).sum(-1) for i in range(t + 1)], -1)
        expected = (weight[..., None] * v[:, : t + 1]).sum(-2) / weight.sum(-1, keepdim=True)
        torch.testing.assert_close(got[:, t], expected)


def test_elu_plus_one_is_elu_plus_one_and_has_a_finite_gradient():
    x = torch.tensor([-800.0, -1.0, 0.0, 2.0, 800.0], dtype=torch.float64, requires_grad=True)
    y = kernels.elu_plus_one(x)
    torch.testing.assert_close(y, torch.nn.functional.elu(x) + 1)
    y.sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("order", [0, 1, 2, 5])
def test_taylor_features_have_the_truncated_kernel(order):
    q, k, beta = draw(5, 3), draw(5, 3, seed=1), 0.7
    got = (kernels.taylor(q, order, beta) * kernels.taylor(k, order, beta)).sum(-1)
    x = beta * (q * k).sum(-1)
    torch.testing.assert_close(got, sum(x**p / math.factorial(p) for p in range(order + 1)))


def test_enough_taylor_features_are_softmax():
    q, k, v = (stimuli.unit(draw(9, 2, seed=s)) for s in range(3))
    got = kernels.kernel_attention(q, k, v, lambda x: kernels.taylor(x, 15))
    torch.testing.assert_close(got, softmax_attention(q, k, v, scale=1.0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("x", [-9.0, -1.0, -1e-3, 0.0, 0.5, 30.0])
@pytest.mark.parametrize("order", [0, 2, 7])
def test_truncation_agrees_with_forty_digits(x, order):
    with mpmath.workdps(40):
        kept = mpmath.fsum(mpmath.mpf(x) ** p / mpmath.factorial(p) for p in range(order + 1))
        exact = float(1 - kept * mpmath.exp(-mpmath.mpf(x)))
    assert kernels.truncation(x, order) == pytest.approx(exact, rel=1e-11, abs=1e-300)
    assert kernels.truncation(np.array([x, x]), order) == pytest.approx([exact, exact], rel=1e-11, abs=1e-300)


@pytest.mark.parametrize("order", [0, 1, 4])
def test_the_worst_argument_of_a_truncated_kernel_is_the_most_negative(order):
    worst = np.abs(kernels.truncation(np.linspace(-2, 2, 401), order)).argmax()
    assert worst == 0


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_the_answer_moves_by_no_more_than_the_bound(beta):
    q, k, v = (stimuli.unit(draw(200, 12, 2, seed=s)) for s in range(3))
    exact = softmax_attention(q, k, v, scale=beta)
    for order in (3, 6, 9):
        bound = kernels.truncation_bound(beta, order)
        got = kernels.kernel_attention(q, k, v, lambda x, r=order: kernels.taylor(x, r, beta))
        assert float((got - exact).norm(dim=-1).max()) <= bound + 1e-13 or math.isinf(bound)


def test_the_taylor_order_is_the_least():
    for beta in (0.5, 4.0, 32.0):
        order = kernels.taylor_order(beta, 0.1)
        assert kernels.truncation_bound(beta, order) <= 0.1 < kernels.truncation_bound(beta, order - 1)


def test_taylor_features_are_counted_without_repeats():
    assert kernels.taylor_features(3, 2) == len({tuple(sorted((a, b))) for a in range(4) for b in range(4)})


@pytest.mark.parametrize("m", [3, 5, 12])
def test_orthogonal_projections_are_orthogonal_in_blocks_and_normal_alone(m):
    w = kernels.projections(4000, m, 5, generator=torch.Generator().manual_seed(0), orthogonal=True)
    assert w.shape == (4000, m, 5)
    gram = w @ w.mT
    for start in range(0, m, 5):
        block = gram[:, start : start + 5, start : start + 5]
        assert (block - torch.diag_embed(block.diagonal(dim1=-2, dim2=-1))).abs().max() < 1e-10
    assert w.mean((0, 1)).abs().max() < 5 / math.sqrt(4000)
    assert float(w.square().sum(-1).mean()) == pytest.approx(5, rel=0.03)
    covariance = (w.mT @ w).mean(0) / m
    torch.testing.assert_close(covariance, torch.eye(5, dtype=w.dtype), rtol=0, atol=0.06)


@pytest.mark.parametrize(("m", "orthogonal"), [(4, False), (4, True), (12, True), (3, True)])
def test_random_features_are_unbiased_and_have_the_stated_variance(m, orthogonal):
    q, k = torch.tensor([1.0, 0, 0, 0]).double(), torch.tensor([-0.6, 0.8, 0, 0]).double()
    beta, trials = 0.9, 150_000
    got = kernels.measure_random_features(q, k, m, trials, 3, beta=beta, orthogonal=orthogonal)
    predicted = kernels.relative_variance(-0.6, beta, m, d=4 if orthogonal else None)
    assert abs(got.mean[0] - 1) < 5 * got.stderr[0]
    assert abs(got.mean[1] - predicted) < 5 * got.stderr[1]
    assert abs(got.mean[1] - 1.1 * predicted) > 5 * got.stderr[1]


def test_orthogonal_features_vary_less_and_more_so_in_few_dimensions():
    saved = [1 - kernels.relative_variance(0.3, 0.5, 64, d=d) / kernels.relative_variance(0.3, 0.5, 64)
             for d in (4, 16, 64)]  # fmt: skip
    assert all(s > 0 for s in saved)


@pytest.mark.parametrize(("d", "s"), [(4, 0.8), (7, 3.0), (64, 40.0)])
def test_the_covariance_of_an_orthogonal_pair_agrees_with_quadrature(d, s):
    """Two orthogonal projections add up to a vector of chi length (2d degrees) in a random direction."""
    with mpmath.workdps(30):
        half = mpmath.mpf(d) / 2

        def integrand(r):
            density = 2 * r ** (2 * d - 1) * mpmath.exp(-r * r / 2) / (2**d * mpmath.gamma(d))
            return density * mpmath.hyp0f1(half, s * r * r / 4)

        pair = mpmath.quad(integrand, [0, math.sqrt(d), math.sqrt(2 * d), math.sqrt(2 * d) + 10, 60]) * mpmath.exp(-s)
    beta, m = s / 2, 2
    variance = kernels.relative_variance(0.0, beta, m, d=d)
    assert variance == pytest.approx((math.exp(s) - 1) / 2 - (1 - float(pair)) / 2, rel=1e-9)


def test_one_feature_has_the_stated_median():
    w = kernels.projections(100_001, 1, 2, generator=torch.Generator().manual_seed(0))
    q = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    ratio = kernels.positive_features(q, w, 2.0).square().flatten() / math.exp(2)
    assert float(ratio.log().median()) == pytest.approx(math.log(kernels.median_feature(2.0)), abs=0.05)


@pytest.mark.parametrize(("d", "beta"), [(1, 2.0), (2, 0.1), (3, 5.0), (64, 8.0), (64, 64.0), (1024, 32.0)])
def test_the_leak_agrees_with_the_bessel_function_and_with_quadrature(d, beta):
    with mpmath.workdps(40):
        half, b = mpmath.mpf(d) / 2, mpmath.mpf(beta)
        bessel = mpmath.gamma(half) * (2 / b) ** (half - 1) * mpmath.besseli(half - 1, b) * mpmath.exp(-b)
    assert kernels.leak(11, d, beta) == pytest.approx(10 * float(bessel), rel=1e-12)
    if d > 1:

        def moment(f):
            return integrate.quad(lambda t: f(math.sin(t)) * math.cos(t) ** (d - 2), -math.pi / 2, math.pi / 2,
                                  epsabs=0, epsrel=1e-12, limit=500)[0]  # fmt: skip

        by_quadrature = moment(lambda rho: math.exp(beta * (rho - 1))) / moment(lambda rho: 1)
        assert kernels.leak(2, d, beta) == pytest.approx(by_quadrature, rel=1e-9)


@pytest.mark.parametrize(("d", "beta"), [(10**6, 1000.0), (4096, 4096.0), (2, 1e5)])
def test_the_leak_neither_overflows_nor_stops_early(d, beta):
    with mpmath.workdps(30):
        exact = float(mpmath.log(mpmath.hyp0f1(mpmath.mpf(d) / 2, mpmath.mpf(beta) ** 2 / 4)))
    assert kernels.log_leak(d, beta) + beta == pytest.approx(exact, rel=1e-10)


def test_the_leak_agrees_with_brute_force_and_bounds_the_weight():
    got = kernels.measure_leak(40, 20, 3.0, 20_000, 1)
    predicted = kernels.leak(40, 20, 3.0)
    assert abs(got.mean[0] - predicted) < 5 * got.stderr[0]
    assert abs(got.mean[0] - 1.05 * predicted) > 5 * got.stderr[0]
    assert got.mean[1] + 5 * got.stderr[1] > 1 / (1 + predicted)


def test_one_pair_does_not_leak():
    assert kernels.leak(1, 8, 2.0) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kernels.leak(4, 4, 0), "beta must be positive, got 0"),
        (lambda: kernels.leak(4, 4, math.nan), "beta must be positive, got nan"),
        (lambda: kernels.leak(4, 0, 1), "d must be at least 1, got 0"),
        (lambda: kernels.leak(0, 4, 1), "n must be at least 1, got 0"),
        (lambda: kernels.projections(0, 4, generator=torch.Generator()), "m must be at least 1, got 0"),
        (lambda: kernels.taylor(torch.ones(2), -1), "order must be at least 0, got -1"),
        (lambda: kernels.taylor(torch.ones(2), 2, -1.0), "beta must be positive, got -1"),
        (lambda: kernels.positive_features(torch.ones(1, 2), torch.ones(1, 2), 0), "beta must be positive"),
        (lambda: kernels.relative_variance(1.5, 1, 1), "overlap must lie between -1 and 1, got 1.5"),
        (lambda: kernels.relative_variance(1, 1, 0), "m must be at least 1, got 0"),
        (lambda: kernels.relative_variance(1, 1, 5, d=4), "m must be a multiple of d = 4"),
        (lambda: kernels.features_needed(1, error=0), "error must be positive, got 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
