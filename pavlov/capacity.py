r"""How many pairs one head stores, by every criterion in use (theorems 4, 5 and 6).

The memory of ``n`` pairs is :math:`S = \sum_i v_i k_i^\top`. At a stored key it answers with the value and a sum of
the others, weighted by how much their keys overlap:

.. math:: S k_j = v_j + e_j, \qquad e_j = \sum_{i \ne j} \rho_{ij} v_i, \qquad \rho_{ij} = k_i \cdot k_j

On average :math:`\mathbb{E}\lVert e_j \rVert^2 = (n-1)/d` exactly, so a fixed mean-square error allows
:math:`n \propto d`. For a guarantee, values may conspire: then :math:`\lVert e_j \rVert` reaches
:math:`A_j = \sum_{i \ne j} |\rho_{ij}|`, whose mean is :math:`(n-1) c_d \approx (n-1)\sqrt{2/\pi d}`, and only
:math:`n \propto \sqrt d` pairs are safe. Both are statements about one memory; they differ in the question.

Unless said otherwise keys are uniform on the sphere :math:`S^{d-1}` and values are unit vectors independent of them.
"""

import math
from functools import partial

import numpy as np
import pandas as pd
import torch
from scipy import special
from scipy.optimize import brentq
from torch import Tensor

from pavlov import kernels, montecarlo, stimuli
from pavlov.montecarlo import Estimate

# Theorem 4: the mean square


def interference(n: int, d: int) -> float:
    r"""The mean square error of recall, or load (theorem 4).

    .. math:: \alpha = \mathbb{E}\lVert S k_j - v_j \rVert^2 = \frac{n-1}{d}

    It is exact for any unit values that do not depend on the keys.

    Args:
        n: stored pairs.
        d: dimension of the keys.

    Raises:
        ValueError: if ``n < 1`` or ``d < 1``.
    """
    _require(n=n, d=d)
    return (n - 1) / d


def average_case(d: int, epsilon: float = 1.0) -> int:
    r"""The most pairs whose root-mean-square error is at most ε: :math:`\lfloor 1 + \epsilon^2 d \rfloor` (theorem 4).

    Raises:
        ValueError: if ``d < 1`` or ``epsilon <= 0``.
    """
    _require(d=d, epsilon=epsilon)
    return math.floor(1 + epsilon**2 * d)


def welch_bound(n: int, d: int) -> float:
    r"""The least mean square interference that any ``n`` unit keys can have: :math:`\max(0, n/d - 1)` (theorem 4).

    The mean is over the stored pairs, for values that are mutually orthogonal. Tight frames attain it.

    Raises:
        ValueError: if ``n < 1`` or ``d < 1``.

    Source: :cite:t:`welch1974lower`.
    """
    _require(n=n, d=d)
    return max(0.0, n / d - 1)


# Theorem 5: the guarantee


def mean_overlap(d: int) -> float:
    r"""How much two random keys overlap, in the mean (theorem 5).

    .. math:: c_d = \mathbb{E}|\rho| = \frac{\Gamma(d/2)}{\sqrt\pi\,\Gamma((d+1)/2)} = \frac{B(d/2, 1/2)}{\pi}
              = \sqrt{\frac{2}{\pi d}}\,(1 + O(1/d))

    The Beta function stays accurate at a dimension of millions, where a ratio of Gamma functions does not.

    Raises:
        ValueError: if ``d < 1``.
    """
    _require(d=d)
    return float(special.beta(d / 2, 1 / 2)) / math.pi


def failure_bound(n: float, d: int, epsilon: float = 1.0) -> float:
    r"""A bound on the probability that *some* values make *some* pair err by more than ε (theorem 5).

    .. math:: \mathbb{P}\big(\max_j A_j > \epsilon\big) \le n \exp\Big(-\frac{(d-1)\,t^2}{2(n-1)}\Big),
              \qquad t = \epsilon - (n-1)c_d > 0

    It is one where :math:`t \le 0`, and never more than one.

    Raises:
        ValueError: if ``n < 1``, ``d < 1`` or ``epsilon <= 0``.
    """
    _require(n=n, d=d, epsilon=epsilon)
    slack = epsilon - (n - 1) * mean_overlap(d)
    if n == 1:
        return 0.0
    return min(1.0, n * math.exp(-(d - 1) * slack**2 / (2 * (n - 1)))) if slack > 0 else 1.0


def guaranteed(d: int, epsilon: float = 1.0, delta: float = 0.05) -> int:
    r"""Pairs recalled within ε whatever their values, with probability 1 − δ: the √d theorem (theorem 5).

    It is the largest ``n`` with

    .. math:: (n-1)\,c_d + \sqrt{\frac{2(n-1)\ln(n/\delta)}{d-1}} \le \epsilon .

    Args:
        d: dimension of the keys.
        epsilon: the error allowed, for values of length one.
        delta: the probability of drawing keys for which the guarantee fails.

    Raises:
        ValueError: if ``d < 1``, ``epsilon <= 0`` or ``delta`` is not between 0 and 1.
    """
    return math.floor(guaranteed_load(d, epsilon, delta))


def guaranteed_load(d: int, epsilon: float = 1.0, delta: float = 0.05) -> float:
    """The real number whose floor is :func:`guaranteed`: smooth in ``d``, for slopes and asymptotics.

    Args and errors as :func:`guaranteed`.
    """
    _require(d=d, epsilon=epsilon, delta=delta)
    if d == 1:
        return 1.0  # every other key overlaps fully

    def excess(others: float) -> float:
        spread = math.sqrt(2 * others * math.log((others + 1) / delta) / (d - 1))
        return others * mean_overlap(d) + spread - epsilon

    return 1 + brentq(excess, 0, epsilon / mean_overlap(d), xtol=1e-12)


def guarantee_slope(d: int, epsilon: float = 1.0, delta: float = 0.05) -> float:
    r"""The local slope of the guarantee on logarithmic axes, :math:`\mathrm d\ln(n-1) / \mathrm d\ln d` (theorem 5).

    With :math:`x = n - 1`, :math:`s` the second term of the inequality in :func:`guaranteed` and :math:`\psi` the
    digamma function,

    .. math:: \frac{\mathrm d \ln x}{\mathrm d \ln d}
              = \frac{-x\,d\,c_d' + \frac{s}{2}\frac{d}{d-1}}{x c_d + \frac{s}{2}\big(1 + \frac{x}{n\ln(n/\delta)}\big)}
              \approx \frac12 + \frac{s}{4\epsilon},
              \qquad c_d' = \tfrac12 c_d\,\big(\psi(\tfrac d2) - \psi(\tfrac{d+1}2)\big).

    Args and errors as :func:`guaranteed`, and ``d >= 2``.
    """
    _require(d=d - 1)
    n, c = guaranteed_load(d, epsilon, delta), mean_overlap(d)
    x, log = n - 1, math.log(n / delta)
    s = epsilon - x * c
    dc = c * float(special.digamma(d / 2) - special.digamma((d + 1) / 2)) / 2
    return (-x * d * dc + s / 2 * d / (d - 1)) / (x * c + s / 2 * (1 + x / (n * log)))


def guaranteed_by_union(d: int, epsilon: float = 1.0, delta: float = 0.05) -> int:
    r"""The weaker guarantee that most readers expect: bound every overlap, then add up (theorem 5, remark).

    With probability 1 − δ no overlap exceeds :math:`\sqrt{2\ln(n^2/\delta)/(d-1)}`, so ``n`` pairs are safe if
    :math:`(n-1)\sqrt{2\ln(n^2/\delta)/(d-1)} \le \epsilon`. This loses a factor :math:`\sqrt{\ln n}`.

    Args and errors as :func:`guaranteed`.
    """
    _require(d=d, epsilon=epsilon, delta=delta)
    n = 1
    while d > 1 and n * math.sqrt(2 * math.log((n + 1) ** 2 / delta) / (d - 1)) <= epsilon:
        n += 1
    return n


def asymptote(d: int, epsilon: float = 1.0) -> float:
    r"""Where the guarantee ends in high dimension: :math:`1 + \epsilon\sqrt{\pi d/2}`, from both sides (theorem 5).

    Raises:
        ValueError: if ``d < 1`` or ``epsilon <= 0``.
    """
    _require(d=d, epsilon=epsilon)
    return 1 + epsilon * math.sqrt(math.pi * d / 2)


# The memory, to be measured


def recall_error(keys: Tensor, values: Tensor) -> Tensor:
    r"""The errors :math:`e_j = S k_j - v_j` of a Hebbian memory at its own keys.

    Args:
        keys: ``(..., n, d)``.
        values: ``(..., n, m)``.

    Returns:
        ``(..., n, m)``.

    Raises:
        ValueError: if keys and values differ in number.
    """
    if keys.shape[-2] != values.shape[-2]:
        raise ValueError(f"values must have {keys.shape[-2]} rows, one a key, got shape {tuple(values.shape)}")
    memory = values.mT @ keys  # S: (..., m, d)
    return keys @ memory.mT - values


def squared_errors(keys: Tensor, values: Tensor) -> Tensor:
    r"""The mean of :math:`\lVert e_j \rVert^2` over the stored pairs: ``(...)``.

    Args and errors as :func:`recall_error`.
    """
    return recall_error(keys, values).square().sum((-2, -1)) / keys.shape[-2]


def overlap_sums(keys: Tensor) -> Tensor:
    r"""The worst interference at each unit key, :math:`A_j = \sum_{i \ne j} |k_i \cdot k_j|`.

    It is the largest error that unit values can cause, and the values :math:`v_i = \operatorname{sign}(\rho_{ij})\,u`
    cause it. For a set of keys its maximum is the cumulative coherence or Babel function :cite:p:`tropp2004greed`.

    Args:
        keys: ``(..., n, d)``, of length one.

    Returns:
        ``(..., n)``.
    """
    return _overlaps(keys).sum(-1)


def safe_counts(keys: Tensor, epsilon: float = 1.0) -> Tensor:
    r"""How many of the first keys are safe together: the largest ``n`` with :math:`\max_{j \le n} A_j \le \epsilon`.

    Args:
        keys: ``(..., N, d)``, of length one, in the order in which they are stored.
        epsilon: the error allowed.

    Returns:
        Integers ``(...)``, at most ``N``.
    """
    sums = _overlaps(keys).cumsum(-1)  # A_j among the first n keys: (..., j, n)
    worst = sums.triu().amax(-2)  # (..., n); it grows with n
    return (worst <= epsilon).sum(-1)


def _overlaps(keys: Tensor) -> Tensor:
    gram = (keys @ keys.mT).abs()
    return gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))


def measure_interference(n: int, d: int, trials: int, seed: int, *, same_value: bool = False, **options) -> Estimate:
    r"""Theorem 4 measured: the mean of :math:`\lVert e_j \rVert^2`.

    Args:
        n, d: as in :func:`interference`; values have ``d`` entries too.
        trials, seed: as in :func:`pavlov.montecarlo.estimate`, which takes the other options.
        same_value: give every key one and the same value, the fixed values that interfere the most coherently.

    Raises:
        ValueError: if ``n < 1`` or ``d < 1``.
    """
    _require(n=n, d=d)
    trial = partial(_interference_trial, n, d, same_value)
    return montecarlo.estimate(trial, trials, seed, block=montecarlo.block_size(3 * n * d), **options)


def _interference_trial(n, d, same_value, size, keys, values):
    us = stimuli.sphere(size, 1 if same_value else n, d, generator=values).expand(size, n, d)
    return recall_error(stimuli.sphere(size, n, d, generator=keys), us).square().sum(-1).mean(-1)


def measure_overlap_sum(n: int, d: int, trials: int, seed: int, **options) -> Estimate:
    """Theorem 5's mean measured: the worst interference :math:`A_j`, averaged over the stored keys.

    Args and errors as :func:`measure_interference`.
    """
    _require(n=n, d=d)
    trial = partial(_overlap_trial, n, d)
    return montecarlo.estimate(trial, trials, seed, block=montecarlo.block_size(n * (n + d)), **options)


def _overlap_trial(n, d, size, keys, values):
    return overlap_sums(stimuli.sphere(size, n, d, generator=keys)).mean(-1)


def measure_failure(most: int, d: int, trials: int, seed: int, *, epsilon: float = 1.0, **options) -> Estimate:
    r"""Theorem 5 measured: the probability that the guarantee fails, for every number of keys up to ``most``.

    Returns:
        An estimate whose entry ``n - 1`` is :math:`\mathbb{P}(\max_{j \le n} A_j > \epsilon)`.

    Args and errors otherwise as :func:`measure_interference`.
    """
    _require(n=most, d=d, epsilon=epsilon)
    trial = partial(_failure_trial, most, d, epsilon)
    block = montecarlo.block_size(most * (most + d))
    return montecarlo.proportion(montecarlo.estimate(trial, trials, seed, block=block, **options))


def _failure_trial(most, d, epsilon, size, keys, values):
    safe = safe_counts(stimuli.sphere(size, most, d, generator=keys), epsilon)
    return safe[:, None] < torch.arange(1, most + 1, device=safe.device)


def crossing(failure: Estimate, delta: float = 0.05) -> Estimate:
    r"""The number of pairs at which measured failures reach δ, interpolated between whole numbers (theorem 5).

    Its standard error is that of the probability, divided by the slope of the curve there.

    Args:
        failure: what :func:`measure_failure` returns.
        delta: the probability to cross.

    Raises:
        ValueError: if ``delta`` is not between 0 and 1, or the curve does not reach it.
    """
    _require(delta=delta)
    n = int(np.searchsorted(failure.mean, delta))  # entry n is the first to reach δ
    if n == len(failure.mean):
        raise ValueError(f"failures must reach delta = {delta}, but end at {failure.mean[-1]:.3g}; raise `most`")
    step = failure.mean[n] - failure.mean[n - 1]
    where = (delta - failure.mean[n - 1]) / step
    return Estimate(float(n + where), float(failure.stderr[n] / step), failure.n)


# Theorem 6: other questions, other capacities


def gain_error(n: int, d: int) -> float:
    r"""The mean square error of Hebb's memory read with its best gain (theorem 6).

    .. math:: \min_g \mathbb{E}\lVert g S k_j - v_j \rVert^2 = \min_g\,(1-g)^2 + g^2 \alpha = \frac{\alpha}{1+\alpha},
              \qquad g = \frac{1}{1+\alpha}

    Args and errors as :func:`interference`.
    """
    load = interference(n, d)
    return load / (1 + load)


def least_squares_error(n: int, d: int) -> float:
    r"""The mean square error of the best linear memory of random keys: :math:`\max(0, 1 - d/n)` (theorem 6).

    It is exact for any fixed unit values, and zero up to :math:`n = d`.

    Args and errors as :func:`interference`.
    """
    _require(n=n, d=d)
    return max(0.0, 1 - d / n)


def ridge_error(n: int, d: int, ridge: float) -> float:
    r"""The mean square error of a ridge memory at its stored keys, in high dimension (theorem 6).

    With :math:`a = n/d` and ridge :math:`\lambda`, Marchenko and Pastur's law :cite:p:`marchenko1967distribution` gives

    .. math:: \frac1n \operatorname{tr}\lambda^2 (G + \lambda)^{-2} \to \frac{\lambda^2 (a s^2 + s)}{r}, \qquad
              s = \frac{2}{1 - a + \lambda + r}, \qquad r = \sqrt{(1 - a + \lambda)^2 + 4 a \lambda} .

    Args:
        n, d: as in :func:`interference`.
        ridge: the penalty λ on the memory's squared length.

    Raises:
        ValueError: if ``n < 1``, ``d < 1`` or ``ridge <= 0`` (see :func:`least_squares_error` for zero).
    """
    _require(n=n, d=d)
    _positive(ridge=ridge)
    a = n / d
    root = math.hypot(1 - a + ridge, 2 * math.sqrt(a * ridge))
    s = (root - (1 - a + ridge)) / (2 * a * ridge) if a > 1 + ridge else 2 / (1 - a + ridge + root)
    return ridge**2 * (a * s * s + s) / root


def identification(n: float, d: int, m: int) -> float:
    r"""The probability that the stored value nearest to what a key recalls is its own (theorem 6).

    Let :math:`e_j = R\,\hat e` and :math:`c = v_j \cdot \hat e`, one coordinate of a random unit vector in ``m``
    dimensions. The right value scores :math:`t = 1 + R c`. A competitor with :math:`w = v_l \cdot \hat e` scores
    :math:`(R + c) w + \sqrt{(1 - c^2)(1 - w^2)}\,x`, where ``x`` is one coordinate of a random unit vector in
    ``m - 1`` dimensions. Since :math:`v_l` helped to make :math:`\hat e`, the density of ``w`` is that of a coordinate
    times :math:`e^{\tau w^2/2}`, with

    .. math:: \tau = \frac{m^2}{n - 1 + m} \frac{R^2}{\alpha}, \qquad
              P \approx \mathbb{E}_{R, c}\big[\mathbb{P}(\text{score} \le t \mid R, c)^{n-1}\big] .

    Three approximations enter: competitors are independent given the answer, :math:`\tau` comes from Gaussian
    overlaps, and :math:`R^2` is a Gamma variable with its exact mean and variance.

    Args:
        n: stored pairs; real, for slopes.
        d, m: dimensions of keys, at least two, and of values, at least three.

    Raises:
        ValueError: if ``n < 1``, ``d < 2`` or ``m < 3``.
    """
    _require(n=n, d=d - 1)
    _require(d=m - 2)
    if n == 1:
        return 1.0
    load = (n - 1) / d
    z = np.linspace(-5, 5, 25)
    z_weight = np.exp(-(z**2) / 2)
    squares = _squared_error_quantile(n, d, m, special.ndtr(z))[:, None, None]
    nodes, weight = _coordinate(m)
    c, w = nodes[:, None], nodes
    size = np.sqrt(squares)
    tilt = m**2 / (n - 1 + m) * squares / load * w**2 / 2 + np.log(weight.clip(1e-300))
    tilted = special.softmax(tilt, axis=-1)
    other = (1 + size * c - (size + c) * w) / np.sqrt((1 - c**2) * (1 - w**2)).clip(1e-12)
    below = (1 + np.sign(other) * special.betainc(0.5, (m - 2) / 2, other.clip(-1, 1) ** 2)) / 2
    success = ((below * tilted).sum(-1).clip(0, 1) ** (n - 1)) @ weight
    return float(z_weight @ success / z_weight.sum())


def identification_every(n: float, d: int, m: int) -> float:
    r"""The probability that *every* stored key finds its own value: about :math:`e^{-n(1-P)}` (theorem 6).

    ``P`` is :func:`identification`; failures are taken as rare and independent. Args and errors as there.
    """
    return math.exp(-n * (1 - identification(n, d, m)))


def every_within(n: float, d: int, m: int, epsilon: float = 1.0) -> float:
    r"""The probability that all ``n`` pairs with *random* values err by at most ε.

    :math:`\lVert e_j \rVert^2` is taken as a Gamma variable with its exact mean and variance, independent over ``j``.

    Args:
        n, d, m: as in :func:`identification`.
        epsilon: the error allowed.
    """
    _require(n=n, d=d - 1, epsilon=epsilon)
    _require(d=m - 1)
    if n == 1:
        return 1.0
    mean, shape = (n - 1) / d, _shape(n, d, m)
    return float(special.gammainc(shape, epsilon**2 / mean * shape)) ** n


def gap_variance(n: int, d: int, m: int) -> float:
    r"""The variance of the right value's lead over one competitor, whose mean is one (theorem 6).

    .. math:: \operatorname{Var}\big[(v_j - v_l) \cdot S k_j\big]
              = \Big(1 + \frac1d\Big)\Big(1 + \frac1m\Big) - 1 + \frac{2(n-2)}{dm}

    Args:
        n: stored pairs, at least two.
        d, m: dimensions of keys and of values.

    Raises:
        ValueError: if ``n < 2``, ``d < 1`` or ``m < 1``.
    """
    _require(n=n - 1, d=min(d, m))
    return (1 + 1 / d) * (1 + 1 / m) - 1 + 2 * (n - 2) / (d * m)


def capacity_at(success, level: float) -> float:
    """The number of pairs at which a falling ``success(n)`` crosses a level; infinite if it never does below 1e12."""
    if success(1) < level:
        return 1.0
    high = 2.0
    while success(high) >= level:
        high *= 2
        if high > 1e12:
            return math.inf
    return float(brentq(lambda n: success(n) - level, high / 2, high, xtol=1e-6 * high))


def local_slope(curve, d: int, ratio: float = 2**0.25) -> float:
    """The slope of ``curve(d)`` on logarithmic axes at ``d``, from a quarter of an octave on either side."""
    low, high = round(d / ratio), round(d * ratio)
    return math.log(curve(high) / curve(low)) / math.log(high / low)


def ladder(
    d: int, m: int, *, epsilon: float = 0.5, delta: float = 0.05, ridge: float = 0.1, beta: float | None = None
) -> pd.DataFrame:
    r"""What "capacity" means: the most pairs that one head stores, by each criterion (theorem 6).

    Args:
        d, m: dimensions of keys and of values, at least two.
        epsilon: the error allowed, below one (at one, some memories hold any number of pairs).
        delta: the probability of failing, where a criterion has one.
        ridge: penalty of the ridge memory.
        beta: inverse temperature of the softmax for unit keys; :math:`\sqrt d`, what :math:`1/\sqrt{d}` scaling of
            keys of length :math:`\sqrt d` amounts to, if not given.

    Returns:
        One row a criterion: ``criterion``, ``question``, ``pairs`` (a whole number), ``growth`` and ``status``.

    Raises:
        ValueError: if a dimension is below two, or ``epsilon`` or ``delta`` is not between 0 and 1.
    """
    _require(d=min(d, m) - 1, epsilon=epsilon, delta=delta)
    if epsilon >= 1:
        raise ValueError(f"epsilon must be below 1, got {epsilon}: with it a memory that answers 0 passes")
    beta = math.sqrt(d) if beta is None else beta
    _positive(ridge=ridge, beta=beta)
    sharp = 1 + epsilon / (2 - epsilon) * math.exp(min(700, -kernels.log_leak(d, beta)))  # 1e304 stands for more
    allowed = epsilon**2
    keep = 1 - delta
    rows = [
        ("guaranteed", "any values, error ≤ ε", guaranteed(d, epsilon, delta), "√d", "proved"),
        ("mean square", "r.m.s. error ≤ ε", average_case(d, epsilon), "d", "exact"),
        ("best gain", "r.m.s. error ≤ ε", 1 + d * allowed / (1 - allowed), "d", "exact"),
        ("least squares", "no error", d, "d", "exact"),
        ("least squares, ε", "r.m.s. error ≤ ε", d / (1 - allowed), "d", "exact"),
        ("ridge", "r.m.s. error ≤ ε", capacity_at(lambda n: -ridge_error(n, d, ridge), -allowed), "d", "limit"),
        ("identify one", "a typical value is found", capacity_at(lambda n: identification(n, d, m), keep),
         "dm/(2 ln N)", "approximation"),
        ("identify all", "every value is found", capacity_at(lambda n: identification_every(n, d, m), keep),
         "dm/(8 ln N)", "approximation"),
        ("softmax", "any values, mean error ≤ ε", sharp,
         "e^(√d)" if math.isclose(beta, math.sqrt(d)) else "e^(β - β²/2d) for β ≪ d", "proved"),
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["criterion", "question", "pairs", "growth", "status"])
    return table.assign(pairs=[math.floor(n + 1e-9) if n < 2**53 else n for n in table["pairs"]])


def _coordinate(d: int, points: int = 81) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for a mean over one coordinate ``sin t`` of a random unit vector: the trapezoid rule."""
    t = np.linspace(-1, 1, points) * min(math.pi / 2, 7 / math.sqrt(d))
    weight = np.cos(t).clip(0) ** (d - 2)
    return np.sin(t), weight / weight.sum()


def _shape(n: float, d: int, m: int) -> float:
    r"""Shape of the Gamma variable that has the mean and variance of :math:`\lVert e_j \rVert^2`."""
    variance = (n - 1) * (3 / (d * (d + 2)) - 1 / d**2) + 2 * (n - 1) * (n - 2) / (d**2 * m)
    return ((n - 1) / d) ** 2 / variance


def _squared_error_quantile(n: float, d: int, m: int, probability):
    shape = _shape(n, d, m)
    return special.gammaincinv(shape, probability) * (n - 1) / d / shape


# The ladder, to be measured


def least_squares_recall(keys: Tensor, values: Tensor, ridge: float = 0.0) -> Tensor:
    r"""The errors :math:`S k_j - v_j` of the memory that least squares, or ridge regression, would write.

    The errors are :math:`-\lambda (G + \lambda)^{-1} V` with the Gram matrix ``G``; without a ridge they are what the
    projection leaves of the values. Source: :cite:t:`personnaz1985information`.

    Args:
        keys: ``(..., n, d)``.
        values: ``(..., n, m)``.
        ridge: λ.

    Returns:
        ``(..., n, m)``.
    """
    if not ridge:
        return keys @ torch.linalg.lstsq(keys, values).solution - values
    gram = keys @ keys.mT + ridge * torch.eye(keys.shape[-2], dtype=keys.dtype, device=keys.device)
    return -ridge * torch.linalg.solve(gram, values)


def nearest(keys: Tensor, values: Tensor, queries: int | None = None) -> Tensor:
    """The index of the stored value that fits what the memory recalls best, for the first so many keys.

    Args:
        keys: ``(..., n, d)``.
        values: ``(..., n, m)``.
        queries: how many keys to test; all if not given.

    Returns:
        Integers ``(..., queries)``.
    """
    recalled = keys[..., :queries, :] @ (values.mT @ keys).mT
    return (recalled @ values.mT).argmax(-1)


def measure_least_squares(n: int, d: int, trials: int, seed: int, *, ridge: float = 0.0, **options) -> Estimate:
    """The mean square error of the least-squares (or ridge) memory, averaged over the stored keys.

    Args and errors as :func:`measure_interference`; ``ridge`` as in :func:`least_squares_recall`.
    """
    _require(n=n, d=d)
    trial = partial(_least_squares_trial, n, d, ridge)
    return montecarlo.estimate(trial, trials, seed, block=montecarlo.block_size(n * (n + 2 * d)), **options)


def _least_squares_trial(n, d, ridge, size, keys, values):
    us = stimuli.sphere(size, n, d, generator=values)
    return least_squares_recall(stimuli.sphere(size, n, d, generator=keys), us, ridge).square().sum(-1).mean(-1)


def measure_gain(n: int, d: int, gain: float, trials: int, seed: int, **options) -> Estimate:
    """The mean square error of Hebb's memory whose answer is multiplied by ``gain``.

    Args and errors otherwise as :func:`measure_interference`.
    """
    _require(n=n, d=d)
    trial = partial(_gain_trial, n, d, gain)
    return montecarlo.estimate(trial, trials, seed, block=montecarlo.block_size(3 * n * d), **options)


def _gain_trial(n, d, gain, size, keys, values):
    us = stimuli.sphere(size, n, d, generator=values)
    error = recall_error(stimuli.sphere(size, n, d, generator=keys), us)
    return (gain * (error + us) - us).square().sum(-1).mean(-1)


def measure_identification(
    n: int, d: int, m: int, trials: int, seed: int, *, queries: int = 256, **options
) -> Estimate:
    """How often a stored key finds its own value, and how often all of those tested do.

    Args:
        n, d, m: pairs, and dimensions of keys and values.
        trials, seed: as in :func:`pavlov.montecarlo.estimate`, which takes the other options.
        queries: how many stored keys a trial tests, at most ``n``. Draws are float32: a decision needs no more.

    Returns:
        Two outcomes: the share of keys that succeed, and whether all of them do.
    """
    _require(n=n, d=min(d, m))
    queries = min(n, queries)
    trial = partial(_identification_trial, n, d, m, queries)
    block = montecarlo.block_size(n * (d + m + queries))
    return montecarlo.estimate(trial, trials, seed, block=block, **options)


def _identification_trial(n, d, m, queries, size, keys, values):
    ks = stimuli.sphere(size, n, d, generator=keys, dtype=torch.float32)
    us = stimuli.sphere(size, n, m, generator=values, dtype=torch.float32)
    right = nearest(ks, us, queries) == torch.arange(queries, device=ks.device)
    return torch.stack([right.double().mean(-1), right.all(-1).double()], -1)


def measure_every_within(
    n: int, d: int, m: int, trials: int, seed: int, *, epsilon: float = 1.0, **options
) -> Estimate:
    """The probability that all ``n`` pairs with random values err by at most ε (see :func:`every_within`)."""
    _require(n=n, d=min(d, m), epsilon=epsilon)
    trial = partial(_every_within_trial, n, d, m, epsilon)
    found = montecarlo.estimate(trial, trials, seed, block=montecarlo.block_size(n * (d + 2 * m)), **options)
    return montecarlo.proportion(found)


def _every_within_trial(n, d, m, epsilon, size, keys, values):
    us = stimuli.sphere(size, n, m, generator=values)
    error = recall_error(stimuli.sphere(size, n, d, generator=keys), us).norm(dim=-1)
    return (error <= epsilon).all(-1)


def measure_gap(n: int, d: int, m: int, trials: int, seed: int, **options) -> Estimate:
    """Mean and mean squared deviation from one of the lead over one competitor (see :func:`gap_variance`)."""
    _require(n=n - 1, d=min(d, m))
    trial = partial(_gap_trial, n, d, m)
    return montecarlo.estimate(trial, trials, seed, block=montecarlo.block_size(n * (d + m)), **options)


def _gap_trial(n, d, m, size, keys, values):
    us = stimuli.sphere(size, n, m, generator=values)
    ks = stimuli.sphere(size, n, d, generator=keys)
    overlaps = ks @ ks[:, 0, :, None]  # (size, n, 1): what the memory answers to key 0, as weights of the values
    lead = ((overlaps * us).sum(-2) * (us[:, 0] - us[:, 1])).sum(-1)
    return torch.stack([lead, (lead - 1).square()], -1)


def _require(*, n=1, d=1, epsilon=1.0, delta=0.5) -> None:
    """Refuse a size below one, an error that is not positive and a probability outside (0, 1)."""
    for name, value in (("n", n), ("d", d)):
        if not value >= 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive, got {epsilon}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta}")


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive, got {value}")
