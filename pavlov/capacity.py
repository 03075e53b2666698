r"""How many pairs one head stores, by two criteria (theorems 4 and 5).

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
import torch
from scipy import special
from scipy.optimize import brentq
from torch import Tensor

from pavlov import montecarlo, stimuli
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


def _require(*, n=1, d=1, epsilon=1.0, delta=0.5) -> None:
    """Refuse a size below one, an error that is not positive and a probability outside (0, 1)."""
    for name, value in (("n", n), ("d", d)):
        if not value >= 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive, got {epsilon}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta}")
