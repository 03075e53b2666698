r"""The least network for so many facts over so many layers (theorem 13).

A layer may add :math:`\alpha^* = (1+\epsilon^2)^{1/L} - 1` to the error. With R heads of dimension d, each silent
with probability p, it adds :math:`\alpha = \frac{(n-1)/d + p}{R(1-p)}` (theorem 9). So a shape meets the request if

.. math:: \frac{n-1}{D} + \frac pR \le (1-p)\,\alpha^*, \qquad D = R d .

Interference needs width, however it is split; failures need heads. The least width alone would be that of heads of
dimension one. A head that narrow is no practical unit, so the design takes a narrowest dimension.
"""

import bisect
import math
from dataclasses import dataclass

import numpy as np

from pavlov import propagation

NARROWEST = 64  # the head dimension of GPT-2 and of most models since, or half of it
WIDEST = 2**24


@dataclass(frozen=True)
class Shape:
    """Attention layers of ``heads`` heads with keys of dimension ``d_k``, and what they do to the request."""

    pairs: int
    depth: int
    width: int
    heads: int
    d_k: int
    failure: float
    error: float

    @property
    def rms(self) -> float:
        """The root-mean-square error, in the units of ε."""
        return math.sqrt(self.error)

    @property
    def interference(self) -> float:
        """The part of a layer's added error that is interference; the rest is due to silent heads."""
        load = propagation.load(self.pairs, self.d_k, self.heads, self.failure)
        return (self.pairs - 1) / (self.width * (1 - self.failure)) / load if load else 1.0

    def report(self, epsilon: float) -> dict:
        """Its numbers by name, and whether it meets the request."""
        numbers = {"width": self.width, "heads": self.heads, "d_k": self.d_k, "error": self.rms}
        shares = {"interference": self.interference, "parameters": self.parameters, "flops_per_token": self.flops}
        return numbers | shares | {"meets": self.error <= epsilon**2}

    @property
    def parameters(self) -> int:
        """The weights of its query, key, value and output maps, :math:`4 L D^2`."""
        return 4 * self.depth * self.width**2

    @property
    def flops(self) -> int:
        """Floating-point operations for one token, in the maps and in one write and one read of each memory."""
        return 2 * self.parameters + 4 * self.depth * self.width * self.d_k


def shape(n: int, depth: int, heads: int, d_k: int, failure: float = 0.0) -> Shape:
    """A shape with its predicted error (theorem 9). Args and errors as :func:`pavlov.propagation.error`."""
    error = propagation.error(n, d_k, depth, heads=heads, failure=failure)
    return Shape(n, depth, heads * d_k, heads, d_k, failure, error)


def smallest(
    n: int,
    depth: int,
    *,
    epsilon: float,
    failure: float = 0.0,
    heads: int | None = None,
    narrowest: int = NARROWEST,
    widest: int = WIDEST,
) -> Shape:
    r"""The least width, and its split, that carries ``n`` pairs through ``depth`` layers within ε (theorem 13).

    Of the shapes in which neither a head nor a dimension can be spared, it is the one of least width whose heads
    are at least ``narrowest`` wide; of several, the one with the fewest heads. If no such shape has heads that
    wide, the request is so small that the fewest heads that can meet it are best.

    Args:
        n: stored pairs.
        depth: L, the number of layers.
        epsilon: the root-mean-square error allowed after the last layer, for items of length one.
        failure: p, the probability that a head is silent in a layer.
        heads: how many, if that is given.
        narrowest: the least ``d_k``; with 1 the least width of all.
        widest: the largest width to consider.

    Returns:
        A :class:`Shape` with ``width``, ``heads``, ``d_k`` and ``error``, which is the mean square error and at most
        :math:`\epsilon^2`.

    Raises:
        ValueError: if an argument is out of its range, or if no shape meets the request: the message says which
            quantity to relax.
    """
    propagation._require(n=n)
    _require(narrowest=narrowest, widest=widest, heads=1 if heads is None else heads)
    allowed = (1 - failure) * propagation.allowance(depth, epsilon)
    fewest = least_heads(depth, epsilon=epsilon, failure=failure)
    if heads is not None and heads < fewest:
        alone = math.sqrt(propagation.error(1, 1, depth, heads=heads, failure=failure))
        raise ValueError(
            f"no width meets epsilon={epsilon:g} with heads={heads}: silent heads alone cost {alone:.3g}; "
            f"allow {fewest} heads, or relax epsilon, or lower failure={failure:g} or depth={depth}"
        )
    most = min(math.ceil(((n - 1) / narrowest + failure) / allowed), widest // narrowest + 1)
    counts = np.arange(fewest, max(fewest, most) + 1, dtype=float) if heads is None else np.array([float(heads)])
    dims = np.maximum(1, np.ceil((n - 1) / (counts * allowed - failure)))
    frugal = np.concatenate([[True], dims[1:] < dims[:-1]])  # one head fewer would need wider heads
    widths = np.where(frugal & (dims >= narrowest), counts * dims, np.inf)
    best = int(widths.argmin()) if np.isfinite(widths).any() else 0
    if counts[best] * dims[best] > widest:
        raise ValueError(
            f"n={n} within epsilon={epsilon:g} over depth={depth} needs width {counts[best] * dims[best]:.3g}, "
            f"more than widest={widest}: relax epsilon, or lower n, depth or failure"
        )
    count = int(counts[best])
    return shape(n, depth, count, least_dimension(n, count, depth, epsilon=epsilon, failure=failure), failure)


def least_heads(depth: int, *, epsilon: float, failure: float = 0.0) -> int:
    r"""The fewest heads with which some dimension meets the request: :math:`R(1-p)\alpha^* > p` (theorem 13).

    Raises:
        ValueError: if an argument is out of its range.
    """
    propagation._require(failure=failure)
    allowed = (1 - failure) * propagation.allowance(depth, epsilon)
    return math.floor(failure / allowed) + 1


def least_dimension(n: int, heads: int, depth: int, *, epsilon: float, failure: float = 0.0) -> int:
    r"""The least :math:`d \ge \frac{n-1}{R(1-p)\alpha^* - p}` with which so many heads meet the request (theorem 13).

    Raises:
        ValueError: if an argument is out of its range, or there are fewer than :func:`least_heads`.
    """
    spare = heads * (1 - failure) * propagation.allowance(depth, epsilon) - failure
    if spare <= 0:
        raise ValueError(f"heads must be at least {least_heads(depth, epsilon=epsilon, failure=failure)}, got {heads}")

    def meets(d: int) -> bool:
        return d >= 1 and propagation.error(n, d, depth, heads=heads, failure=failure) <= epsilon**2

    nearest = math.ceil((n - 1) / spare)  # right but for rounding
    return next((d for d in (nearest - 1, nearest, nearest + 1) if meets(d)), nearest + 1)


def neighbours(best: Shape, *, epsilon: float) -> dict[str, Shape]:
    """The shapes on either side of a design: a step less, a step more, and other widths of the heads.

    Args:
        best: what :func:`smallest` returned.
        epsilon: the request.
    """
    fewest = least_heads(best.depth, epsilon=epsilon, failure=best.failure)
    allowed = (1 - best.failure) * propagation.allowance(best.depth, epsilon)
    steps = {
        "one head fewer": (best.heads - 1, best.d_k),
        "one dimension fewer": (best.heads, best.d_k - 1),
        "one head more": (best.heads + 1, best.d_k),
    }
    for d in (16, 32, 64, 128, 256):
        enough = max(fewest, math.ceil(((best.pairs - 1) / d + best.failure) / allowed - 1e-9))
        steps[f"heads of {d}"] = (enough, d)
    return {
        name: shape(best.pairs, best.depth, heads, d, best.failure)
        for name, (heads, d) in steps.items()
        if heads >= 1 and d >= 1
    }


def cleanup_width(n: int, depth: int, *, delta: float) -> int:
    r"""The least width whose layers, each decoding what it reads, keep all to the right item with probability 1 − δ.

    One head whose values are as wide as its keys, and :func:`pavlov.propagation.decode_error`, which is Gaussian and
    so errs on the safe side. The width grows like :math:`\log(n L/\delta)` only (theorems 12 and 13).

    Args:
        n: stored pairs.
        depth: L, the number of layers.
        delta: the probability allowed that the last layer passes on a wrong item.

    Raises:
        ValueError: if a size is below one or ``delta`` is not between 0 and 1.
    """
    propagation._require(n=n, depth=depth)
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta}")

    def meets(d: int) -> bool:
        return propagation.cleanup_error(min(1.0, propagation.decode_error(n, d)), depth) <= delta

    high = 1
    while not meets(high):
        high *= 2
    return bisect.bisect_left(range(high + 1), True, lo=1, key=meets)


@dataclass(frozen=True)
class Model:
    """The attention of a published model: ``memories`` is its number of key-value heads."""

    name: str
    depth: int
    heads: int
    memories: int
    d_k: int
    source: str

    def capacity(self, epsilon: float = 1.0) -> int:
        """The pairs that theorem 8 lets it carry through all its layers within ε, were its keys random."""
        return propagation.capacity(self.d_k, self.depth, heads=self.memories, epsilon=epsilon)


# From the models' published configurations; the sources are keys of the bibliography.
PUBLISHED = [
    Model("GPT-2", 12, 12, 12, 64, "radford2019language"),
    Model("GPT-2 medium", 24, 16, 16, 64, "radford2019language"),
    Model("GPT-2 large", 36, 20, 20, 64, "radford2019language"),
    Model("GPT-2 XL", 48, 25, 25, 64, "radford2019language"),
    Model("SmolLM2 135M", 30, 9, 3, 64, "allal2025smollm2"),
    Model("SmolLM2 360M", 32, 15, 5, 64, "allal2025smollm2"),
    Model("Qwen2.5 0.5B", 24, 14, 2, 64, "qwen2024qwen25"),
    Model("Qwen2.5 7B", 28, 28, 4, 128, "qwen2024qwen25"),
    Model("Llama 2 7B", 32, 32, 32, 128, "touvron2023llama"),
    Model("Llama 3.1 8B", 32, 32, 8, 128, "grattafiori2024llama"),
    Model("Llama 3.1 70B", 80, 64, 8, 128, "grattafiori2024llama"),
]


def _require(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
