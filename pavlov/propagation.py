r"""How an error travels through layers and heads (theorems 8 to 12).

A vocabulary of ``n`` items passes through ``depth`` layers. In each of a layer's ``heads`` memories every item has a
key; the values of one layer are the items as the next layer sees them. In the coordinates of the items a layer
multiplies by the mean of its heads' Gram matrices. So an input :math:`c_0 = e_j`, item ``j``, leaves layer L as

.. math:: c_L = \bar G_L \cdots \bar G_2 \bar G_1\, e_j, \qquad
          \bar G_l = \frac1R \sum_{r=1}^R \frac{b_{lr}}{1-p} G_{lr}, \qquad (G_{lr})_{ij} = k_i^{lr} \cdot k_j^{lr}

where :math:`b_{lr}` is 0 with probability p, when that head is silent, and else 1. The error is
:math:`\mathbb{E}\lVert c_L - e_j \rVert^2`. The mean signal :math:`\mathbb{E}\, e_j \cdot c_L` stays one. All this is

.. math:: (1 + \alpha)^L - 1, \qquad \alpha = \frac{(n-1)/d + p}{R(1-p)}

when every layer has keys of its own, and larger when the layers are *tied*, that is, when they share them.
"""

import itertools
import math
from collections import Counter
from functools import cache, partial

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor

from pavlov import moments, montecarlo, stimuli
from pavlov.montecarlo import Estimate

EXACT_DEPTH = 4  # of tied layers with several heads; deeper ones are extrapolated

# Theorems 8 and 9: layers with keys of their own


def load(n: int, d: int, heads: int = 1, failure: float = 0.0) -> float:
    r"""The error that one layer adds, :math:`\alpha = \dfrac{(n-1)/d + p}{R(1-p)}` (theorem 9).

    Args and errors as :func:`error`.
    """
    _require(n=n, d=d, heads=heads, failure=failure)
    return ((n - 1) / d + failure) / (heads * (1 - failure))


def error(n: int, d: int, depth: int, *, heads: int = 1, failure: float = 0.0, tied: bool = False) -> float:
    r"""The mean square error :math:`\mathbb{E}\lVert c_L - e_j \rVert^2` after ``depth`` layers.

    With fresh keys in every layer it is :math:`(1+\alpha)^L - 1` exactly (theorems 8 and 9), α as in :func:`load`.
    Tied layers have, in each head, the same keys in every layer (theorem 11); which heads are silent is drawn anew in
    every layer. Then the error is exact for one head at any depth, and for several heads up to ``EXACT_DEPTH``.
    Deeper, it is extrapolated, without a proven bound. At depth 5 it was within 0.1 % of the exact law, and at depths
    to 8 within three standard errors of simulation, which were about one percent.

    Args:
        n: items, the same in every layer.
        d: dimension of the keys in one head.
        depth: L, the number of layers.
        heads: R, the number of heads, whose read-outs are averaged.
        failure: p, the probability that a head is silent in a layer, independently of all others. The survivors
            are divided by 1 − p.
        tied: whether all layers share their keys.

    Raises:
        ValueError: if ``n``, ``d``, ``depth`` or ``heads`` is below one, or ``failure`` is not in [0, 1).
    """
    _require(n=n, d=d, depth=depth, heads=heads, failure=failure)
    if tied:
        power, signal = tied_power(n, d, depth, heads=heads, failure=failure), tied_signal(n, d, depth, heads=heads)
        return power - 2 * signal + 1
    return math.expm1(depth * math.log1p(load(n, d, heads, failure)))


def capacity(d: int, depth: int, *, heads: int = 1, epsilon: float = 1.0) -> int:
    r"""The most items whose r.m.s. error after ``depth`` layers is at most ε (theorem 8).

    .. math:: n = \Big\lfloor 1 + R d \big((1 + \epsilon^2)^{1/L} - 1\big) \Big\rfloor
              \approx \frac{R d \ln(1+\epsilon^2)}{L}

    Capacity times depth is bounded by total width :math:`D = R d`.

    Raises:
        ValueError: if a size is below one or ``epsilon`` is not positive.
    """
    _require(d=d, depth=depth, heads=heads, epsilon=epsilon)
    return math.floor(1 + heads * d * allowance(depth, epsilon))


def allowance(depth: int, epsilon: float) -> float:
    r"""What one of ``depth`` layers may add to the error: the α with :math:`(1+\alpha)^L - 1 = \epsilon^2`.

    Raises:
        ValueError: if ``depth < 1`` or ``epsilon <= 0``.
    """
    _require(depth=depth, epsilon=epsilon)
    return math.expm1(math.log1p(epsilon**2) / depth)


def residual_error(n: int, d: int, depth: int, *, gain: float, heads: int = 1) -> float:
    r"""The error when each layer adds its read-out to its input, :math:`c \leftarrow c + g \bar G c` (theorem 8).

    The signal grows to :math:`(1+g)^L`; relative to it the error is

    .. math:: (1 + w^2 \alpha)^L - 1, \qquad w = \frac{g}{1+g}

    since a layer is :math:`(1+g)` times :math:`I + w(\bar G - I)`. It is linear in L as long as
    :math:`w^2 \alpha L \ll 1`, and bounded for :math:`g \propto 1/\sqrt L`.

    Args:
        gain: g, not below zero.
        n, d, depth, heads: as in :func:`error`, and the same errors.
    """
    _require(n=n, d=d, depth=depth, heads=heads)
    if not gain >= 0:
        raise ValueError(f"gain must not be negative, got {gain}")
    return math.expm1(depth * math.log1p((gain / (1 + gain)) ** 2 * load(n, d, heads)))


# Theorem 11: tied memories


def tied_signal(n: int, d: int, depth: int, *, heads: int = 1) -> float:
    r"""The mean signal :math:`\mathbb{E}\, e_j \cdot c_L = \mathbb{E}(\bar G^L)_{jj}` of tied layers (theorem 11).

    Failures do not change it, since they are independent from layer to layer. Args and errors as :func:`error`.
    """
    _require(n=n, d=d, depth=depth, heads=heads)
    if heads == 1:
        return float(moments.gram_moment(n, d, depth))
    if depth <= 2 * EXACT_DEPTH:
        return sum(math.comb(depth, m) * moments.walk_moment(n, d, heads, m) for m in range(depth + 1) if m != 1)
    return _extrapolated(partial(tied_signal, n, d, heads=heads), n, heads * d, depth, 2 * EXACT_DEPTH, power=1)


def tied_power(n: int, d: int, depth: int, *, heads: int = 1, failure: float = 0.0) -> float:
    r"""The mean power :math:`\mathbb{E}\lVert c_L \rVert^2` of tied layers (theorem 11).

    Write the Gram matrix of a layer as :math:`I` plus overlaps. Each layer acts twice, once on either side of the
    square, so it contributes nothing, an overlap on the left or on the right, or one on both. Silence correlates the
    two: with :math:`\nu = p/(R(1-p))`, the first three have weight :math:`1 + \nu`; the last has weight 1 with
    two heads, plus ν with one and the same. Every term is a closed walk. Args and errors as :func:`error`.
    """
    _require(n=n, d=d, depth=depth, heads=heads, failure=failure)
    if heads == 1:
        return float(moments.gram_moment(n, d, 2 * depth)) / (1 - failure) ** depth
    if depth <= EXACT_DEPTH:
        nu = failure / (heads * (1 - failure))
        return sum(
            count * (1 + nu) ** free * nu ** len(chords) * moments.walk_moment(n, d, heads, steps, chords)
            for (steps, chords, free), count in _squares(depth).items()
            if steps != 1 and (nu or not chords)
        )
    return _extrapolated(
        partial(tied_power, n, d, heads=heads, failure=failure), n, heads * d, depth, EXACT_DEPTH, power=2
    )


@cache
def _squares(depth: int) -> Counter:
    """The terms of the square of ``depth`` layers: (steps of the walk, chords, layers of weight 1 + ν) → how many."""
    terms = Counter()
    for layers in itertools.product(("nothing", "left", "right", "both", "same head"), repeat=depth):
        left = [i for i, kind in enumerate(layers) if kind in ("left", "both", "same head")]
        right = [i for i, kind in reversed(list(enumerate(layers))) if kind in ("right", "both", "same head")]
        chords = [(left.index(i), len(left) + right.index(i)) for i in left if layers[i] == "same head"]
        free = sum(kind in ("nothing", "left", "right") for kind in layers)
        terms[len(left) + len(right), _turned(len(left) + len(right), chords), free] += 1
    return terms


def _turned(steps: int, chords: list) -> tuple:
    """One of all rotations and reflections of a closed walk's chords, which have the same mean."""
    turns = itertools.product(range(steps), (1, -1))
    same = (
        tuple(sorted(tuple(sorted(((s * a + t) % steps, (s * b + t) % steps))) for a, b in chords)) for t, s in turns
    )
    return min(same, default=())


def _extrapolated(exact, n: int, width: int, depth: int, known: int, power: int) -> float:
    r"""Continue an exact law to greater depth, relative to one head of the same total width.

    The logarithm of the ratio to that head grows by increments that approach a constant geometrically, since both
    are dominated by their largest eigenvalue. Three exact increments give the constant and the rate (Aitken).
    """

    def log_ratio(at: int) -> float:
        return math.log(exact(at) / moments.gram_moment(n, width, power * at))

    x = [log_ratio(known - i) for i in (3, 2, 1, 0)]
    first, second, third = np.diff(x)
    change, before = third - second, second - first
    rate = min(max(change / before, 0.0), 1.0) if abs(before) > 1e-12 else 0.0
    steps = depth - known
    later = sum(third + change * sum(rate**i for i in range(1, step + 1)) for step in range(1, steps + 1))
    return math.exp(x[-1] + later) * float(moments.gram_moment(n, width, power * depth))


# Theorem 10: averaging against voting


def average_error(n: int, d: int, heads: int, *, wrong: int = 0) -> float:
    r"""The probability that the mean of ``heads`` read-outs has the wrong sign, for a two-valued US (theorem 10).

    Values are ±1. The read-out is wrong when interference exceeds the signal,
    :math:`X = \frac1R \sum_{r,i} \rho_i^r > 1`. It is bounded and symmetric, so its characteristic function at
    multiples of :math:`\pi/n` determines it, and with :math:`\varphi_d(t) = {}_0F_1(d/2; -t^2/4)` that of one overlap,

    .. math:: \mathbb{P}(X > \theta) = \frac12 - \frac{\theta}{2n} - \sum_{k \ge 1}
              \frac{\sin(\pi k \theta / n)}{\pi k}\, \varphi_d\Big(\frac{\pi k}{n R}\Big)^{R(n-1)} .

    For many items it tends to :math:`Q(\sqrt{Rd/(n-1)})`. A tie counts half.

    Args:
        n: stored pairs.
        d: dimension of the keys.
        heads: R.
        wrong: heads that answer with the opposite sign; then :math:`\theta = 1 - 2w/R`.

    Raises:
        ValueError: if ``n``, ``d`` or ``heads`` is below one or ``wrong`` is not between 0 and ``heads``.
    """
    _require(n=n, d=d, heads=heads)
    _require_wrong(wrong, heads)
    return _tail(n, d, heads, 1 - 2 * wrong / heads)


def vote_error(n: int, d: int, heads: int, *, wrong: int = 0) -> float:
    r"""The probability that the majority of ``heads`` signs is wrong: a binomial tail (theorem 10).

    One head errs with probability ``average_error(n, d, 1)``, and a head that answers with the opposite sign with
    the complement. A tie counts half. Args and errors as :func:`average_error`.
    """
    _require(n=n, d=d, heads=heads)
    _require_wrong(wrong, heads)
    one = _tail(n, d, 1, 1.0)
    sound = stats.binom.pmf(np.arange(heads - wrong + 1), heads - wrong, one)
    votes = np.convolve(sound, stats.binom.pmf(np.arange(wrong + 1), wrong, 1 - one))  # of wrong votes: (heads + 1,)
    against = np.arange(heads + 1) * 2
    return float(votes[against > heads].sum() + votes[against == heads].sum() / 2)


def exponents(x: float) -> tuple[float, float]:
    r"""How fast the two errors fall with the number of heads, in the limit of many items (theorem 10).

    For :math:`x = \sqrt{d/(n-1)}`, :math:`-\frac1R \ln(\text{error})` tends to :math:`x^2/2` for averaging and to
    :math:`\mathrm{KL}(\frac12 \Vert Q(x)) = -\frac12 \ln\big(4 Q(x)(1 - Q(x))\big)` for voting. Their ratio grows
    from π/2 at small x to 2 at large x: voting needs that many times the heads.
    """
    if not x > 0:
        raise ValueError(f"x must be positive, got {x}")
    return x**2 / 2, -(math.log(4) + special.log_ndtr(-x) + special.log_ndtr(x)) / 2


def _tail(n: int, d: int, heads: int, threshold: float, terms: int = 2**18) -> float:
    r""":math:`\mathbb{P}(X > \theta) + \frac12 \mathbb{P}(X = \theta)` by the series of :func:`average_error`."""
    if n == 1:
        return float(threshold < 0) + float(threshold == 0) / 2
    if d == 1:  # a walk of ±1 steps, whose series does not converge fast
        steps = heads * (n - 1)
        total = 2 * np.arange(steps + 1) - steps
        above = (total > threshold * heads + 1e-9) + 0.5 * (abs(total - threshold * heads) <= 1e-9)
        return float(stats.binom.pmf(np.arange(steps + 1), steps, 0.5) @ above)
    frequency = np.pi / n * np.arange(1, terms + 1)
    steps = heads * (n - 1)
    if d > 100:  # then |φ_d(t)| ≤ exp(-t²/2d), and beyond this its power adds nothing
        frequency = frequency[frequency <= heads * math.sqrt(d * min(30, 90 / steps))]
    series = np.sin(frequency * threshold) / (frequency * n) * _overlap_transform(d, frequency / heads) ** steps
    return float(np.clip(0.5 - threshold / (2 * n) - series.sum(), 0, 1))


def _overlap_transform(d: int, t: np.ndarray) -> np.ndarray:
    """The characteristic function of one overlap; SciPy's overflows in high dimension, where its series is short."""
    if d <= 100:
        return special.hyp0f1(d / 2, -(t**2) / 4)
    term, total = np.ones_like(t), np.ones_like(t)
    for k in range(1, 100):
        term = term * -(t**2) / (2 * k * (d + 2 * k - 2))
        total += term
    return total


# Theorem 12: clean-up


def decode_error(n: int, d: int, m: int | None = None) -> float:
    r"""The probability that the nearest of ``n`` random values is not the right one, in Gaussian approximation.

    The read-out scores 1 with its own value, with variance :math:`(n-1)/(dm)`, and with another value 0, with variance
    :math:`1/d + (1 + \alpha)/m`. Taking all scores as independent Gaussians,

    .. math:: p_1 = 1 - \mathbb{E}_g\, \Phi\Big(\frac{1 + g\sqrt{\alpha/m}}{\sqrt{1/d + (1+\alpha)/m}}\Big)^{n-1} .

    This errs on the safe side in small dimensions, where overlaps are bounded (theorem 12).

    Args:
        n: stored pairs.
        d: dimension of the keys.
        m: dimension of the values; ``d`` by default.

    Raises:
        ValueError: if a size is below one.
    """
    m = d if m is None else m
    _require(n=n, d=d, m=m)
    alpha = (n - 1) / d
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    margin = (1 + nodes * math.sqrt(alpha / m)) / math.sqrt(1 / d + (1 + alpha) / m)
    wrong = -np.expm1((n - 1) * special.log_ndtr(margin))
    return float(weights @ wrong / weights.sum())


def cleanup_error(one_layer: float, depth: int, n: int | None = None) -> float:
    r"""The probability that the last of ``depth`` layers that decode passes on the wrong item (theorem 12).

    A layer turns the right item into a wrong one with probability :math:`p_1`, and a wrong one into the right one with
    probability :math:`p_1/(n-1)`, since all wrong items are alike. Hence

    .. math:: \Big(1 - \frac1n\Big) \Big(1 - \Big(1 - \frac{n\,p_1}{n-1}\Big)^L\Big) \;\le\; 1 - (1 - p_1)^L .

    The right side, the probability that *some* layer errs, is the limit of many items.

    Args:
        one_layer: :math:`p_1`.
        depth: L.
        n: items; infinitely many by default.

    Raises:
        ValueError: if ``one_layer`` is not a probability, ``depth < 1`` or ``n < 2``.
    """
    _require(depth=depth)
    if not 0 <= one_layer <= 1:
        raise ValueError(f"one_layer must lie between 0 and 1, got {one_layer}")
    if n is not None and n < 2:
        raise ValueError(f"n must be at least 2, got {n}: a single item cannot be mistaken")
    wrong = 1.0 if n is None else 1 - 1 / n
    return wrong * (1 - (1 - one_layer / wrong) ** depth)


# The network, to be measured


def mean_gram(size: int, n: int, d: int, heads: int, *, generator: torch.Generator) -> Tensor:
    """Fresh keys for one layer of ``size`` networks: the Gram matrix of each head, ``(size, heads, n, n)``."""
    keys = stimuli.sphere(size, heads, n, d, generator=generator)
    return keys @ keys.mT


def layer(grams: Tensor, failure: float, *, generator: torch.Generator) -> Tensor:
    r""":math:`\bar G`: the mean over heads, silent ones left out and the others divided by 1 − p.

    Args:
        grams: ``(size, heads, n, n)``.
        failure: p.
        generator: decides which heads are silent.

    Returns:
        ``(size, n, n)``.
    """
    draw = torch.rand(grams.shape[:2], generator=generator, device=grams.device, dtype=grams.dtype)
    return torch.einsum("sr,srij->sij", (draw >= failure).to(grams.dtype) / (1 - failure), grams) / grams.shape[1]


def measure_error(
    n: int,
    d: int,
    depth: int,
    trials: int,
    seed: int,
    *,
    heads: int = 1,
    failure: float = 0.0,
    tied: bool = False,
    gain: float | None = None,
    **options,
) -> Estimate:
    r"""Theorems 8, 9 and 11 measured: :math:`\lVert c_l - e_j \rVert^2` after each layer, averaged over the items.

    Args:
        n, d, depth, heads, failure, tied: as in :func:`error`.
        trials, seed: as in :func:`pavlov.montecarlo.estimate`, which takes the other options.
        gain: with it, each layer adds its read-out times the gain to its input, and the error is relative to the
            signal, as in :func:`residual_error`.

    Returns:
        An estimate with one entry for each depth from 1 to ``depth``.

    Raises:
        ValueError: as :func:`error`.
    """
    _require(n=n, d=d, depth=depth, heads=heads, failure=failure)
    trial = partial(_error_trial, n, d, depth, heads, failure, tied, gain)
    return montecarlo.estimate(trial, trials, seed, block=montecarlo.block_size(heads * n * (n + d)), **options)


def _error_trial(n, d, depth, heads, failure, tied, gain, size, keys, values):
    items = torch.eye(n, dtype=torch.float64, device=keys.device)
    signal, errors, grams = items.expand(size, n, n), [], None
    for _ in range(depth):
        if grams is None or not tied:
            grams = mean_gram(size, n, d, heads, generator=keys)
        step = layer(grams, failure, generator=values)
        if gain is not None:
            step = (items + gain * step) / (1 + gain)
        signal = step @ signal  # column j is c_l for the input e_j
        errors.append((signal - items).square().sum(-2).mean(-1))
    return torch.stack(errors, -1)  # (size, depth)


def measure_signs(n: int, d: int, heads: int, trials: int, seed: int, *, wrong: int = 0, **options) -> Estimate:
    """Theorem 10 measured: how often the mean read-out, and how often the majority, has the wrong sign.

    Args and errors as :func:`average_error`; ``trials`` and ``seed`` as in :func:`pavlov.montecarlo.estimate`.

    Returns:
        An estimate with two entries: averaging, voting.
    """
    _require(n=n, d=d, heads=heads)
    _require_wrong(wrong, heads)
    trial = partial(_sign_trial, n, d, heads, wrong)
    return montecarlo.estimate(trial, trials, seed, block=montecarlo.block_size(heads * n * d), **options)


def _sign_trial(n, d, heads, wrong, size, keys, values):
    stored = stimuli.sphere(size, heads, n, d, generator=keys)
    us = stimuli.signs(size, 1, n, 1, generator=values)  # ±1, the same in every head
    response = (stored @ (us * stored).sum(-2).unsqueeze(-1)) * us  # S k_j times the right sign: (size, heads, n, 1)
    response[:, :wrong] *= -1
    averaged, votes = response.mean(1), response.sign().sum(1)
    return torch.cat([_wrong_rate(averaged), _wrong_rate(votes)], -1)  # (size, 2)


def _wrong_rate(signs: Tensor) -> Tensor:
    return ((signs < 0).double() + (signs == 0).double() / 2).mean(-2)


def measure_decoding(n: int, d: int, depth: int, trials: int, seed: int, **options) -> Estimate:
    """Theorem 12 measured: how often an item is still the right one after each layer has decoded what it read.

    Every layer has keys and values of its own; it passes on the item whose value has the largest score.

    Args and errors as :func:`measure_error`.

    Returns:
        An estimate of the probability of being *wrong*, one entry for each depth from 1 to ``depth``.
    """
    _require(n=n, d=d, depth=depth)
    trial = partial(_decoding_trial, n, d, depth)
    return montecarlo.estimate(trial, trials, seed, block=montecarlo.block_size(n * (n + 2 * d)), **options)


def _decoding_trial(n, d, depth, size, keys, values):
    start = torch.arange(n, device=keys.device).expand(size, n)
    item, wrong = start, []
    for _ in range(depth):
        overlaps = mean_gram(size, n, d, 1, generator=keys)[:, 0]
        scores = mean_gram(size, n, d, 1, generator=values)[:, 0] @ overlaps  # of value i for query j: (size, n, n)
        item = scores.argmax(-2).gather(-1, item)
        wrong.append((item != start).double().mean(-1))
    return torch.stack(wrong, -1)  # (size, depth)


def _require(*, n=1, d=1, depth=1, heads=1, m=1, failure=0.0, epsilon=1.0) -> None:
    """Refuse a size below one, an error that is not positive and a failure probability outside [0, 1)."""
    for name, value in (("n", n), ("d", d), ("depth", depth), ("heads", heads), ("m", m)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name} must be a whole number, got {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not 0 <= failure < 1:
        raise ValueError(f"failure must be in [0, 1), got {failure}: heads that always fail carry nothing")
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive, got {epsilon}")


def _require_wrong(wrong: int, heads: int) -> None:
    if not 0 <= wrong <= heads:
        raise ValueError(f"wrong must lie between 0 and heads = {heads}, got {wrong}")
