r"""Feature maps: the memory behind a kernel (theorem 2).

A memory that stores :math:`\phi(k_i)` instead of :math:`k_i` answers with the kernel
:math:`\kappa(q, k) = \phi(q) \cdot \phi(k)` in place of the overlap. A second memory, whose every value is one, counts
how strongly the query matches at all; divided by it the answer is a weighted mean of the values:

.. math:: \frac{S\,\phi(q)}{z \cdot \phi(q)} = \frac{\sum_i \kappa(q, k_i)\, v_i}{\sum_i \kappa(q, k_i)},
          \qquad S = \sum_i v_i\, \phi(k_i)^\top, \quad z = \sum_i \phi(k_i)

Softmax attention is this memory with :math:`\kappa(q, k) = e^{\beta q \cdot k}`. Its :math:`\phi` has infinitely many
entries, which can be truncated (:func:`taylor`) or sampled (:func:`positive_features`).
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from scipy import special
from torch import Tensor

from pavlov import montecarlo, stimuli
from pavlov.attention import linear_attention
from pavlov.montecarlo import Estimate

# Feature maps


def relu(x: Tensor) -> Tensor:
    r""":math:`\phi(x) = \max(x, 0)`, entry by entry."""
    return x.clamp(min=0)


def elu_plus_one(x: Tensor) -> Tensor:
    r""":math:`\phi(x) = x + 1` where positive, else :math:`e^x` :cite:p:`katharopoulos2020transformers`."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def taylor(x: Tensor, order: int = 2, beta: float = 1.0) -> Tensor:
    r"""The exponential kernel's features, as far as an order (theorem 2).

    .. math:: \phi_r(x) = \Big(\sqrt{\tfrac{\beta^p}{p!}}\; x^{\otimes p}\Big)_{p = 0, \dots, r}, \qquad
              \phi_r(q) \cdot \phi_r(k) = \sum_{p=0}^{r} \frac{(\beta\, q \cdot k)^p}{p!}

    Args:
        x: ``(..., d)``.
        order: :math:`r`; two is in use as an attention :cite:p:`arora2024simple`.
        beta: inverse temperature.

    Returns:
        ``(..., 1 + d + … + d**order)``.

    Raises:
        ValueError: if ``order < 0`` or ``beta <= 0``.
    """
    _require(order=order, beta=beta)
    power = torch.ones_like(x[..., :1])
    blocks = [power]
    for p in range(1, order + 1):
        power = math.sqrt(beta / p) * (power[..., :, None] * x[..., None, :]).flatten(-2)  # (..., d**p)
        blocks.append(power)
    return torch.cat(blocks, dim=-1)


def projections(
    *shape: int, generator: torch.Generator, orthogonal: bool = False, dtype: torch.dtype = torch.float64
) -> Tensor:
    r"""Standard normal vectors :math:`w_1, \dots, w_m`, to draw random features with.

    Args:
        shape: ``(..., m, d)``.
        generator: source of randomness; the result lives on its device.
        orthogonal: make each block of ``d`` vectors mutually orthogonal. Every vector alone stays standard normal.
        dtype: floating-point type of the result.

    Raises:
        ValueError: if ``m < 1`` or ``d < 1``.
    """
    *batch, m, d = shape
    _require(m=m, d=d)
    if not orthogonal:
        return stimuli.gaussian(*shape, generator=generator, dtype=dtype)
    blocks = -(-m // d)
    frame, triangle = torch.linalg.qr(stimuli.gaussian(*batch, blocks, d, d, generator=generator, dtype=dtype))
    frame = frame * triangle.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]  # uniform on the rotations
    length = torch.linalg.vector_norm(
        stimuli.gaussian(*batch, blocks, d, d, generator=generator, dtype=dtype), dim=-1, keepdim=True
    )
    return (length * frame.mT).flatten(-3, -2)[..., :m, :]


def positive_features(x: Tensor, w: Tensor, beta: float = 1.0) -> Tensor:
    r"""Random features whose kernel is the exponential, in the mean :cite:p:`choromanski2021rethinking`.

    .. math:: \phi(x) = \frac{1}{\sqrt m} \Big(e^{\sqrt\beta\, w_a \cdot x - \beta \lVert x \rVert^2 / 2}\Big)_{a=1..m},
              \qquad \mathbb{E}\,\phi(q) \cdot \phi(k) = e^{\beta q \cdot k}

    Args:
        x: ``(..., T, d)``.
        w: ``(..., m, d)``, from :func:`projections`.
        beta: inverse temperature.

    Returns:
        ``(..., T, m)``.

    Raises:
        ValueError: if ``beta <= 0``.
    """
    _require(beta=beta)
    exponent = math.sqrt(beta) * x @ w.mT - beta / 2 * x.square().sum(-1, keepdim=True)
    return exponent.exp() / math.sqrt(w.shape[-2])


# The memory


def kernel_attention(q: Tensor, k: Tensor, v: Tensor, phi: Callable[[Tensor], Tensor], **options) -> Tensor:
    r"""Linear attention through a feature map, divided by the memory of ones (theorem 2).

    The two memories are one: a value of one is appended to every value, and the last entry read is the normaliser.

    Args:
        q, k, v: as in :func:`pavlov.attention.linear_attention`, which takes the options.
        phi: a feature map; its kernel must be positive, or the normaliser may vanish.

    Returns:
        ``(..., T, d_v)``.
    """
    with_ones = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
    output, _ = linear_attention(phi(q), phi(k), with_ones, **options)
    return output[..., :-1] / output[..., -1:]


# Truncation


def truncation(x, order: int):
    r"""What the exponential loses when its series ends, relative to the exponential (theorem 2).

    .. math:: 1 - e^{-x} \sum_{p=0}^{r} \frac{x^p}{p!} = \int_0^x \frac{t^r}{r!}\, e^{-t}\, dt
              = \frac{x^{r+1}}{(r+1)!}\; {}_1F_1(r+1;\, r+2;\, -x)

    For positive ``x`` it is the probability that a Poisson variable of mean ``x`` exceeds ``r``.

    Args:
        x: a number or an array.
        order: :math:`r`, the last power kept.

    Raises:
        ValueError: if ``order < 0``.
    """
    _require(order=order)
    x = np.asarray(x, dtype=float)
    below = np.minimum(x, 0)
    with np.errstate(over="ignore"):
        negative = below ** (order + 1) / special.factorial(order + 1) * special.hyp1f1(order + 1, order + 2, -below)
    result = np.where(x < 0, negative, special.gammainc(order + 1, np.maximum(x, 0)))
    return float(result) if result.ndim == 0 else result


def truncation_bound(beta: float, order: int) -> float:
    r"""The most that truncation changes the answer of attention with unit queries, keys and values (theorem 2).

    With :math:`\eta = |\text{truncation}(-\beta)|`, the largest relative error of a kernel whose argument lies in
    :math:`[-\beta, \beta]`, the answer moves by at most :math:`\eta / (1 - \eta)`; without limit if :math:`\eta \ge 1`.

    Raises:
        ValueError: if ``beta <= 0`` or ``order < 0``.
    """
    _require(beta=beta)
    eta = abs(truncation(-beta, order))
    return eta / (1 - eta) if eta < 1 else math.inf


def taylor_order(beta: float, error: float) -> int:
    """The least order whose :func:`truncation_bound` is at most ``error``.

    Raises:
        ValueError: if ``beta <= 0`` or ``error <= 0``.
    """
    _require(beta=beta, error=error)
    order = 0
    while truncation_bound(beta, order) > error:
        order += 1
    return order


def taylor_features(d: int, order: int) -> int:
    r"""How many different monomials :math:`\phi_r` has: :math:`\binom{d + r}{r}`.

    Raises:
        ValueError: if ``d < 1`` or ``order < 0``.
    """
    _require(d=d, order=order)
    return math.comb(d + order, order)


# Random features


def relative_variance(overlap: float, beta: float, m: int, *, d: int | None = None) -> float:
    r"""The variance of :math:`m` random features' kernel, over its square, for unit queries and keys.

    With :math:`s = \beta \lVert q + k \rVert^2 = 2\beta(1 + \rho)`, independent features have

    .. math:: \frac{\operatorname{Var}}{e^{2\beta\rho}} = \frac{e^{s} - 1}{m},

    and blocks of :math:`b = \min(m, d)` orthogonal ones

    .. math:: \frac{e^{s} - 1}{m} - \frac{b - 1}{m} \big(1 - e^{-s}\, {}_1F_1(d;\, \tfrac d2;\, \tfrac s2)\big) .

    Args:
        overlap: :math:`\rho = q \cdot k`, from -1 to 1.
        beta: inverse temperature.
        m: features; a multiple of ``d``, or fewer than ``d``, if orthogonal.
        d: dimension of the keys, for orthogonal features; leave it out for independent ones.

    Raises:
        ValueError: if an argument is out of its range.
    """
    _require(beta=beta, m=m)
    if not -1 <= overlap <= 1:
        raise ValueError(f"overlap must lie between -1 and 1, got {overlap}")
    s = 2 * beta * (1 + overlap)
    independent = math.expm1(s) / m
    if d is None:
        return independent
    _require(d=d)
    if m > d and m % d:
        raise ValueError(f"m must be a multiple of d = {d} or below it, got {m}")
    # Kummer's transformation keeps the function from overflowing before e^s does
    pair = math.exp(-s / 2) * float(special.hyp1f1(-d / 2, d / 2, -s / 2))
    return independent - (min(m, d) - 1) / m * (1 - pair)


def features_needed(beta: float, error: float = 0.1, overlap: float = 1.0) -> float:
    r"""Independent random features for a relative standard error: :math:`(e^{2\beta(1+\rho)} - 1) / \text{error}^2`.

    At the target, :math:`\rho = 1`, the number grows like :math:`e^{4\beta}`.

    Raises:
        ValueError: if ``beta <= 0`` or ``error <= 0``, or if the overlap is outside [-1, 1].
    """
    _require(error=error)
    return relative_variance(overlap, beta, 1) / error**2


def median_feature(beta: float, overlap: float = 1.0) -> float:
    r"""The median of one random feature's kernel over its mean: :math:`e^{-\beta(1+\rho)}`.

    The ratio is log-normal, :math:`e^{\sqrt s\, z - s/2}` with :math:`s = 2\beta(1+\rho)` and a standard normal ``z``.

    Raises:
        ValueError: if ``beta <= 0``.
    """
    _require(beta=beta)
    return math.exp(-beta * (1 + overlap))


# Temperature


def log_leak(d: int, beta: float) -> float:
    r"""The logarithm of one random key's weight against the target's, :math:`\mathbb{E}\, e^{\beta(\rho - 1)}`.

    .. math:: \mathbb{E}\, e^{\beta\rho} = \Gamma(\tfrac d2) \big(\tfrac 2\beta\big)^{d/2-1} I_{d/2-1}(\beta)
              = \sum_{p \ge 0} \prod_{j=1}^{p} \frac{\beta^2 / 4}{j\,(d/2 + j - 1)}

    All terms of the series are positive, so it neither cancels nor, in logarithms, overflows.

    Args and errors as :func:`leak`.
    """
    _require(d=d, beta=beta)
    p = np.arange(1, math.ceil(beta / 2 + 12 * math.sqrt(beta) + 60))  # the terms peak before p = β/2
    steps = 2 * math.log(beta / 2) - np.log(p) - np.log(d / 2 + p - 1)
    return float(special.logsumexp(np.concatenate([[0.0], np.cumsum(steps)]))) - beta


def leak(n: int, d: int, beta: float) -> float:
    r"""The weight of all other pairs against the target's, in the mean, before normalisation.

    .. math:: \mathbb{E} \sum_{i \ne j} e^{\beta(\rho_{ij} - 1)}
              = (n - 1)\, e^{-\beta}\, \Gamma(\tfrac d2) \big(\tfrac 2\beta\big)^{d/2-1} I_{d/2-1}(\beta)

    Softmax at the stored key ``j`` puts at least :math:`1 / (1 + \text{leak})` on the target in the mean, by Jensen's
    inequality.

    Args:
        n: stored pairs.
        d: dimension of the keys, which are uniform on the unit sphere.
        beta: inverse temperature; :math:`\sqrt d` where keys of length :math:`\sqrt d` meet the usual scale
            :math:`1/\sqrt d`.

    Raises:
        ValueError: if ``n < 1``, ``d < 1`` or ``beta <= 0``.
    """
    _require(n=n, d=d, beta=beta)
    return (n - 1) * math.exp(log_leak(d, beta))


# Measurements


def measure_random_features(
    q: Tensor, k: Tensor, m: int, trials: int, seed: int, *, beta: float = 1.0, orthogonal: bool = False, **options
) -> Estimate:
    r"""The kernel of ``m`` random features, divided by the true one.

    Args:
        q, k: one query and one key, ``(d,)``.
        m: features.
        trials, seed: as in :func:`pavlov.montecarlo.estimate`, which takes the other options.
        beta: inverse temperature.
        orthogonal: as in :func:`projections`.

    Returns:
        An estimate with three entries: the ratio, its squared deviation from one, and how often it is below one half.

    Raises:
        ValueError: if ``m < 1`` or ``beta <= 0``.
    """
    _require(m=m, beta=beta)
    trial = partial(_feature_trial, q, k, m, beta, orthogonal)
    return montecarlo.estimate(trial, trials, seed, block=montecarlo.block_size(4 * max(m, len(q)) * len(q)), **options)


def _feature_trial(q, k, m, beta, orthogonal, size, keys, values):
    w = projections(size, m, len(q), generator=keys, orthogonal=orthogonal, dtype=q.dtype)
    query, key = positive_features(torch.stack([q, k]), w, beta).unbind(-2)  # each (size, m)
    ratio = (query * key).sum(-1) / (beta * q @ k).exp()
    return torch.stack([ratio, (ratio - 1).square(), (ratio < 0.5).to(ratio.dtype)], dim=-1)


def measure_leak(n: int, d: int, beta: float, trials: int, seed: int, **options) -> Estimate:
    r"""The weight of the other pairs, and the softmax weight on the target: two entries.

    Args and errors as :func:`leak`; trials, seed and options as in :func:`pavlov.montecarlo.estimate`.
    """
    _require(n=n, d=d, beta=beta)
    return montecarlo.estimate(
        partial(_leak_trial, n, d, beta), trials, seed, block=montecarlo.block_size(2 * n * d), **options
    )


def _leak_trial(n, d, beta, size, keys, values):
    ks = stimuli.sphere(size, n, d, generator=keys)
    overlap = (ks[:, 1:] @ ks[:, 0, :, None])[..., 0]  # ρ with the first key: (size, n - 1)
    others = (beta * (overlap - 1)).exp().sum(-1)
    return torch.stack([others, 1 / (1 + others)], dim=-1)


def _require(*, n=1, d=1, m=1, order=0, beta=1.0, error=1.0) -> None:
    """Refuse a size below one, a negative order, and a temperature or error that is not positive."""
    for name, value, least in (("n", n, 1), ("d", d, 1), ("m", m, 1), ("order", order, 0)):
        if not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    for name, value in (("beta", beta), ("error", error)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive, got {value}")
