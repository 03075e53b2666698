r"""What keys that are neither centred nor isotropic do to recall (theorem 7).

Pairs :math:`(k_i, v_i)` are drawn independently from one distribution. With the keys' second moment
:math:`C = \mathbb{E}[k k^\top]` and the pairs' product moment :math:`M = \mathbb{E}[v k^\top]`, a memory of ``n`` pairs
errs at a stored key by

.. math:: \mathbb{E}\lVert e_j \rVert^2 = (n-1)\,\mathbb{E}\big[(k \cdot k')^2 \lVert v \rVert^2\big]
          + (n-1)(n-2) \operatorname{tr}(M C M^\top)

with another key :math:`k'`: an incoherent part, of squares, and a coherent one, of products. When values do not depend
on keys, and have mean square one, the first is :math:`(n-1)\operatorname{tr} C^2 = (n-1)/d_\text{eff}` and the second
:math:`(n-1)(n-2)\,\mu^\top C \mu\,\lVert\bar v\rVert^2` for the means :math:`\mu` and :math:`\bar v`. Keys uniform on
the sphere have :math:`d_\text{eff} = d` and :math:`\mu = 0`, which is theorem 4.

The estimators here use only products of different draws, so that few keys in many dimensions do not bias them.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from scipy import integrate, special, stats
from scipy.optimize import brentq
from torch import Tensor

from pavlov import montecarlo, stimuli
from pavlov.capacity import recall_error
from pavlov.montecarlo import Estimate


class Interference(NamedTuple):
    """The mean square error of recall, and its two parts: what adds in square, and what adds in amplitude."""

    power: Tensor
    incoherent: Tensor
    coherent: Tensor


# Estimators


def overlap_power(keys: Tensor, *, population: bool = False) -> Tensor:
    r"""The mean square overlap, :math:`\mathbb{E}(k \cdot k')^2 = \operatorname{tr} C^2` (theorem 7).

    The mean over pairs of different keys is an unbiased estimate of it, however few keys there are. The mean over
    all pairs is not, since a key overlaps with itself: it exceeds it by about ``1/n``.

    Args:
        keys: ``(..., n, d)``.
        population: the keys are the whole distribution, with equal weights, and not a sample of it.

    Returns:
        ``(...)``.

    Raises:
        TypeError: if the keys are no floating-point tensor.
        ValueError: if there are fewer than two, or an entry is not finite.
    """
    _require(keys=keys)
    return _overlap_power(keys, population)


def effective_dimension(keys: Tensor, *, population: bool = False) -> Tensor:
    r"""The participation ratio of the keys' second moment :cite:p:`gao2017theory` (theorem 7).

    .. math:: d_\text{eff} = \frac{(\operatorname{tr} C)^2}{\operatorname{tr} C^2}
              = \frac{\mathbb{E}\,\lVert k \rVert^2 \lVert k' \rVert^2}{\mathbb{E}\,(k \cdot k')^2}

    It lies between 1, all keys on one line, and ``d``. Both means are over pairs of different keys. It is about the
    origin: centre the keys first (:func:`centred`) for the dimension of their spread. A sample whose keys are all
    orthogonal shows no overlap, and so an infinite dimension; with ``population=True`` it has ``n``.

    Args and errors as :func:`overlap_power`; also a ValueError if all keys are zero.
    """
    _require(keys=keys)
    squares = keys.square().sum(-1)  # (..., n)
    if (squares.amax(-1) == 0).any():
        raise ValueError("keys must not all be zero: nothing has no dimension")
    n = keys.shape[-2]
    if population:
        lengths = squares.mean(-1).square()
    else:
        lengths = (squares.sum(-1).square() - squares.square().sum(-1)) / (n * (n - 1))
    return lengths / _overlap_power(keys, population)


def _overlap_power(keys: Tensor, population: bool) -> Tensor:
    n, d = keys.shape[-2:]
    squares = keys.square().sum(-1)
    if n <= 4 * d:  # the smaller of two matrices with the same sum of squares
        total = _off_diagonal(keys @ keys.mT).square().sum((-2, -1))
    else:
        total = (keys.mT @ keys).square().sum((-2, -1)) - squares.square().sum(-1)
    if population:
        return (total + squares.square().sum(-1)) / n**2
    return total / (n * (n - 1))


def _off_diagonal(matrix: Tensor) -> Tensor:
    return matrix - torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1))


def interference(keys: Tensor, values: Tensor, queries: Tensor | None = None, *, n: int | None = None) -> Interference:
    r"""Predict the power of a memory's interference from a sample of its pairs (theorem 7).

    With :math:`u_i, v_i` the pairs and :math:`q_j` the queries,

    .. math:: (n-1) \big\langle (u_i \cdot q_j)^2 \lVert v_i \rVert^2 \big\rangle
              + (n-1)(n-2) \big\langle (u_i \cdot q_j)(u_l \cdot q_j)\, v_i \cdot v_l \big\rangle ,

    with means over different ``i``, ``l`` and, where query ``j`` asks for pair ``j``, ``j``. Both are unbiased.

    Args:
        keys: ``(..., N, d)``.
        values: ``(..., N, d_v)``.
        queries: ``(..., Q, d)``; the keys themselves if not given. Where there are as many as keys, query ``j`` is
            taken to ask for pair ``j``, which is then the answer and no interference.
        n: how many pairs the memory will hold; ``N`` if not given.

    Returns:
        The power and its incoherent and coherent parts, each ``(...)``. An estimate of a part may be negative by
        chance where the part is near zero. For zero-mean values of length one the incoherent part is
        :math:`(n-1)/d_\text{eff}`.

    Raises:
        TypeError: if an argument is no floating-point tensor.
        ValueError: if there are fewer than two keys, or fewer than three and ``n`` is more than two; if numbers or
            dimensions do not match; if an entry is not finite; if ``n < 1``.
    """
    queries = keys if queries is None else queries
    _require(keys=keys, values=values, queries=queries)
    N = keys.shape[-2]
    n = N if n is None else n
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    paired = queries.shape[-2] == N
    others = N - 1 if paired else N  # pairs that interfere at one query
    if others < 2 and n > 2:
        raise ValueError(f"keys must have at least 3 rows to predict n = {n} pairs, got {N}; collect more")
    weight = values.square().sum(-1)  # ‖v‖²: (..., N)
    response = queries @ (values.mT @ keys).mT  # (..., Q, d_v)
    incoherent = torch.einsum("...qd,...de,...qe->...q", queries, (keys.mT * weight[..., None, :]) @ keys, queries)
    if paired:
        own = (queries * keys).sum(-1)
        response = response - own[..., None] * values
        incoherent = incoherent - own.square() * weight
    coherent = response.square().sum(-1) - incoherent  # (..., Q)
    incoherent = incoherent.mean(-1) * (n - 1) / others
    coherent = coherent.mean(-1) * (n - 1) * (n - 2) / max(1, others * (others - 1))
    return Interference(incoherent + coherent, incoherent, coherent)


def jackknife(statistic: Callable[..., Tensor], *samples: Tensor, groups: int = 20) -> Estimate:
    r"""A statistic of a sample with its standard error, from leaving out one group of rows at a time.

    .. math:: \text{se}^2 = \frac{g-1}{g} \sum_{a=1}^{g} (\theta_a - \bar\theta)^2

    Args:
        statistic: takes the samples and returns a number.
        samples: tensors ``(N, ...)`` whose rows belong together, drawn independently of one another.
        groups: how many; at most ``N``.

    Raises:
        ValueError: if the samples differ in number, or there are fewer rows than groups or than two groups.
    """
    rows = {len(sample) for sample in samples}
    if len(rows) != 1:
        raise ValueError(f"samples must have the same number of rows, got {sorted(rows)}")
    n = rows.pop()
    if not 2 <= groups <= n:
        raise ValueError(f"groups must be at least 2 and at most the {n} rows, got {groups}")
    group = torch.arange(n) % groups
    left_out = np.array([float(statistic(*(s[(group != a).to(s.device)] for s in samples))) for a in range(groups)])
    return Estimate(float(statistic(*samples)), math.sqrt((groups - 1) * left_out.var()), n)


# Remedies


def centred(x: Tensor, mean: Tensor | None = None) -> Tensor:
    r"""Subtract the mean: lateral inhibition for keys, and for values the prediction error :math:`v - \bar v`.

    Args:
        x: ``(..., n, d)``.
        mean: ``(..., d)``; the sample's own if not given.
    """
    return x - (x.mean(-2, keepdim=True) if mean is None else mean[..., None, :])


def whitened(keys: Tensor, second_moment: Tensor | None = None) -> Tensor:
    r"""Make every direction equally strong, :math:`C^{-1/2} k`; then :math:`d_\text{eff}` is the rank of ``C``.

    Args:
        keys: ``(..., n, d)``.
        second_moment: ``(..., d, d)``; the sample's own if not given. Directions without strength are left at zero.
    """
    C = keys.mT @ keys / keys.shape[-2] if second_moment is None else second_moment
    strength, direction = torch.linalg.eigh(C)
    scale = torch.where(strength > 1e-12 * strength[..., -1:], strength, math.inf).rsqrt()
    return keys @ (direction * scale[..., None, :]) @ direction.mT


# Theory for given distributions


def law(n: int, overlap_power, aligned, bias):
    r"""Theorem 7 when values do not depend on keys: :math:`(n-1) t + (n-1)(n-2)\, a\, b`.

    Args:
        n: stored pairs.
        overlap_power: :math:`t = \operatorname{tr} C^2`, which is :math:`1/d_\text{eff}` for unit keys.
        aligned: :math:`a = \mu^\top C \mu`, how far the keys' mean lies along what they share.
        bias: :math:`b = \lVert \bar v \rVert^2`, for values of mean square one.

    Raises:
        ValueError: if ``n < 1``.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    return (n - 1) * overlap_power + (n - 1) * (n - 2) * aligned * bias


class Moments(NamedTuple):
    r"""What theorem 7 asks of keys: :math:`\lVert\mu\rVert^2, \operatorname{tr} C^2` and :math:`\mu^\top C \mu`."""

    mean: float
    overlap_power: float
    aligned: float

    def centred(self) -> "Moments":
        r"""The same of :math:`k - \mu`: :math:`\operatorname{tr}(C - \mu\mu^\top)^2`, and no mean."""
        return Moments(0.0, self.overlap_power - 2 * self.aligned + self.mean**2, 0.0)


def rectified(d: int) -> Moments:
    r"""The moments of :func:`pavlov.stimuli.rectified`, exactly (theorem 7).

    Of ``d`` entries ``s`` are positive, with a fair coin each. Given ``s`` they are a random point of a sphere in ``s``
    dimensions, made positive, whose entries have mean :math:`c_s` (theorem 5) and mean product :math:`2/\pi s`. So

    .. math:: \mu_a = \tfrac1d \mathbb{E}[s\, c_s], \qquad C_{aa} = \tfrac1d, \qquad
              C_{ab} = \frac{2}{\pi} \frac{\mathbb{E}[s] - 1}{d(d-1)},

    and :math:`\lVert\mu\rVert^2 \to 1/\pi`, :math:`\operatorname{tr} C^2 \to 1/\pi^2`,
    :math:`\mu^\top C \mu \to 1/\pi^2` in high dimension.

    Raises:
        ValueError: if ``d < 2``.
    """
    if d < 2:
        raise ValueError(f"d must be at least 2, got {d}")
    s = np.arange(1, d + 1)
    chance = stats.binom.pmf(s, d, 0.5)
    chance[-1] += 0.5**d  # no entry is positive: the draw is reflected, and all are
    mean = float(chance @ (s * special.beta(s / 2, 0.5))) / math.pi / d
    product = 2 / math.pi * (float(chance @ s) - 1) / (d * (d - 1))
    row = 1 / d + (d - 1) * product  # C μ = row · μ
    return Moments(d * mean**2, 1 / d + d * (d - 1) * product**2, d * mean**2 * row)


def feature_overlap(phi: Callable[[Tensor], Tensor]) -> float:
    r"""The cosine of two feature vectors of unrelated normal keys in high dimension (theorem 7).

    .. math:: \frac{(\mathbb{E}\phi)^2}{\mathbb{E}\phi^2} = \frac{1}{1 + \text{CV}^2}

    for a map that acts on each entry, with :math:`x \sim \mathcal{N}(0, 1)` and CV the coefficient of variation of
    :math:`\phi(x)`. No map that is never negative has overlap zero.
    """

    def moment(power: int) -> float:
        def integrand(x: float) -> float:
            return float(phi(torch.tensor(x, dtype=torch.float64))) ** power * math.exp(-x * x / 2)

        return sum(integrate.quad(integrand, *span, epsabs=0, epsrel=1e-12)[0] for span in ((-12, 0), (0, 12)))

    return moment(1) ** 2 / moment(2) / math.sqrt(2 * math.pi)


# Theorem 5 with the effective dimension


def guaranteed(d_eff: float, epsilon: float = 1.0, delta: float = 0.05) -> int:
    r"""Pairs recalled within ε whatever their values, for keys of independent signs and any spectrum (theorem 7).

    Entry ``a`` of a key is :math:`\pm\sqrt{\lambda_a}`, as in :func:`pavlov.stimuli.anisotropic`. It is the largest
    ``n`` with

    .. math:: \frac{n-1}{\sqrt{d_\text{eff}}} + \sqrt{\frac{2(n-1)\ln(n/\delta)}{d_\text{eff}}} \le \epsilon .

    Args:
        d_eff: effective dimension, at least one.
        epsilon: the error allowed, for values of length one.
        delta: the probability of drawing keys for which the guarantee fails.

    Raises:
        ValueError: if ``d_eff < 1``, ``epsilon <= 0`` or ``delta`` is not between 0 and 1.
    """
    if not d_eff >= 1:
        raise ValueError(f"d_eff must be at least 1, got {d_eff}")
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive, got {epsilon}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta}")

    def excess(others: float) -> float:
        return others + math.sqrt(2 * others * math.log((others + 1) / delta)) - epsilon * math.sqrt(d_eff)

    return 1 + math.floor(brentq(excess, 0, epsilon * math.sqrt(d_eff), xtol=1e-12))


# Measurements

Draw = Callable[[int, torch.Generator, torch.Generator], tuple[Tensor, Tensor]]


def measure_interference(draw: Draw, trials: int, seed: int, *, block: int = 64, **options) -> Estimate:
    r"""Theorem 7 measured: the mean square of :math:`S k_j - \lVert k_j \rVert^2 v_j`, what the others add.

    Args:
        draw: ``draw(size, keys, values)`` returns keys ``(size, n, d)`` and values ``(size, n, d_v)``.
        trials, seed, block: as in :func:`pavlov.montecarlo.estimate`, which takes the other options.
    """
    return montecarlo.estimate(partial(_interference_trial, draw), trials, seed, block=block, **options)


def _interference_trial(draw, size, keys, values):
    ks, vs = draw(size, keys, values)
    own = ks.square().sum(-1, keepdim=True) - 1  # recall_error takes off one value, a long key recalls more
    return (recall_error(ks, vs) - own * vs).square().sum(-1).mean(-1)


def biased(size: int, n: int, d: int, *, bias: float, generator: torch.Generator) -> Tensor:
    r"""Unit values whose mean has the squared length ``bias``: :math:`v = \sqrt b\, e_1 + \sqrt{1-b}\, x`.

    The unit vector ``x`` is uniform on what is orthogonal to :math:`e_1`.

    Returns:
        ``(size, n, d)``.

    Raises:
        ValueError: if ``bias`` is not between 0 and 1, or ``d < 2``.
    """
    if not 0 <= bias <= 1:
        raise ValueError(f"bias must lie between 0 and 1, got {bias}")
    spread = stimuli.sphere(size, n, d - 1, generator=generator)
    return torch.cat([torch.full_like(spread[..., :1], math.sqrt(bias)), math.sqrt(1 - bias) * spread], dim=-1)


def _require(**given: Tensor) -> None:
    """Refuse what is no sample of keys, values or queries that fit one another."""
    for name, x in given.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise TypeError(f"{name} must be a floating-point tensor, got {getattr(x, 'dtype', type(x).__name__)}")
        if x.ndim < 2:
            raise ValueError(f"{name} must have shape (..., n, d), got {tuple(x.shape)}")
        if not torch.isfinite(x).all():
            raise ValueError(f"{name} must be finite, got {int((~torch.isfinite(x)).sum())} entries that are not")
    keys = given["keys"]
    if keys.shape[-2] < 2:
        raise ValueError(f"keys must have at least 2 rows, got {keys.shape[-2]}: overlap takes two")
    if keys.shape[-1] < 1:
        raise ValueError(f"keys must have at least 1 column, got shape {tuple(keys.shape)}")
    if "values" in given and given["values"].shape[-2] != keys.shape[-2]:
        raise ValueError(f"values must have {keys.shape[-2]} rows, one a key, got shape {tuple(given['values'].shape)}")
    if "queries" in given and (given["queries"].shape[-1] != keys.shape[-1] or given["queries"].shape[-2] < 1):
        raise ValueError(f"queries must have {keys.shape[-1]} columns like keys, got {tuple(given['queries'].shape)}")
