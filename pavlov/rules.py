r"""Learning rules: what a synapse may do with a pair.

One local update covers most of them. With decay :math:`\gamma`, rate :math:`\eta` and :math:`\omega` either 0 (write
the value) or 1 (write the prediction error),

.. math:: S \leftarrow \gamma S, \qquad S \leftarrow S + \eta\,(v - \omega S k)\,k^\top .

A rule is a small frozen object. ``start(k, v)`` makes an empty state, ``write(state, k, v, rate)`` takes one step and
returns a new state, ``state["S"]`` is the memory, and :func:`run` takes a whole sequence. Shapes are ``(..., d_k)``
for a key, ``(..., d_v)`` for a value and ``(..., d_v, d_k)`` for a memory; leading axes are trials, run at once.

Below the rules is their exact theory for unit keys uniform on the sphere and unit values independent of the keys
(theorem 14). Ages count from zero, the newest first.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pavlov.attention import delta_attention, linear_attention
from pavlov.stimuli import sphere

State = dict[str, Tensor]


def _at_least_one(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def _between(low: float, high: float, **numbers: float) -> None:
    for name, number in numbers.items():
        if not low <= number <= high:
            raise ValueError(f"{name} must be in [{low}, {high}], got {number}")


def _stable(beta: float) -> None:
    if not 0 < beta < 2:
        raise ValueError(f"beta must be in (0, 2) for unit keys, where the delta rule is stable, got {beta}")


class Rule(Protocol):
    """What a rule of the reader's own must have."""

    error_correcting: bool

    def start(self, k: Tensor, v: Tensor) -> State: ...

    def write(self, state: State, k: Tensor, v: Tensor, rate: float | Tensor) -> State: ...


def read(memory: Tensor, k: Tensor) -> Tensor:
    r"""The response :math:`S k`, shape ``(..., d_v)``."""
    return (memory @ k[..., None]).squeeze(-1)


def outer(v: Tensor, k: Tensor) -> Tensor:
    r"""The write :math:`v k^\top`, shape ``(..., d_v, d_k)``."""
    return v[..., :, None] * k[..., None, :]


def _empty(k: Tensor, v: Tensor) -> Tensor:
    batch = torch.broadcast_shapes(k.shape[:-1], v.shape[:-1])
    return k.new_zeros(*batch, v.shape[-1], k.shape[-1])


@dataclass(frozen=True)
class Local:
    r"""The local update :math:`S \leftarrow \gamma S + \eta (v - \omega \gamma S k) k^\top` (theorem 14).

    Hebb is :math:`\gamma = 1, \omega = 0`; leaky Hebb (RetNet) has :math:`\gamma < 1`; delta (Rescorla–Wagner,
    Widrow–Hoff, DeltaNet) is :math:`\gamma = 1, \omega = 1`; gated delta has both.
    """

    gamma: float = 1.0
    omega: float = 1.0

    def __post_init__(self):
        _between(0, 1, gamma=self.gamma, omega=self.omega)

    @property
    def error_correcting(self) -> bool:
        return self.omega > 0

    def start(self, k, v):
        return {"S": _empty(k, v)}

    def write(self, state, k, v, rate):
        memory = self.gamma * state["S"]
        return {"S": memory + rate * outer(v - self.omega * read(memory, k), k)}

    def attention(self, q: Tensor, k: Tensor, v: Tensor, rate: float, **options) -> tuple[Tensor, Tensor]:
        """The same rule as a parallel operator of :mod:`pavlov.attention`; ``options`` go to it.

        Raises:
            ValueError: if ``omega`` is neither 0 nor 1, or ``gamma`` is 0: the operators have no such form.
        """
        if self.omega not in (0, 1) or self.gamma == 0:
            raise ValueError(f"a parallel form needs omega 0 or 1 and gamma above 0, got {self}")
        log_decay = k.new_full(k.shape[:-1], math.log(self.gamma))
        if self.omega:
            return delta_attention(q, k, v, k.new_full(k.shape[:-1], rate), log_decay=log_decay, **options)
        return linear_attention(q, k, rate * v, log_decay=log_decay, **options)


@dataclass(frozen=True)
class Oja:
    r"""Oja's rule with the output clamped to the value: :math:`S \leftarrow S + \eta\,(v k^\top - v^2 \odot S)`.

    Row :math:`r` decays by its own activity, :math:`\eta v_r^2`. For two-valued values :math:`\pm 1/\sqrt m` it is
    leaky Hebb with :math:`\gamma = 1 - \eta/m` exactly. Source: :cite:t:`oja1982simplified`.
    """

    error_correcting = False

    def start(self, k, v):
        return {"S": _empty(k, v)}

    def write(self, state, k, v, rate):
        return {"S": state["S"] + rate * (outer(v, k) - v.square()[..., None] * state["S"])}


@dataclass(frozen=True)
class BCM:
    r"""Bienenstock, Cooper and Munro's sliding threshold, with the output clamped to the value.

    .. math:: S \leftarrow S + \eta\, v \odot (v - \theta)\, k^\top, \qquad
              \theta \leftarrow \theta + (v^2 - \theta)/\tau

    The write :math:`v^2 - \theta v` is the same for :math:`\pm v` but for a term of the *wrong* sign: the rule has no
    use for signed values. Source: :cite:t:`bienenstock1982theory`.
    """

    tau: float = 10.0
    error_correcting = False

    def start(self, k, v):
        memory = _empty(k, v)
        return {"S": memory, "theta": memory[..., 0]}

    def write(self, state, k, v, rate):
        theta = state["theta"]
        return {
            "S": state["S"] + rate * outer(v * (v - theta), k),
            "theta": theta + (v.square() - theta) / self.tau,
        }


@dataclass(frozen=True)
class Kalman:
    r"""Recursive ridge regression: a Kalman filter on a world that stands still (theorem 14).

    .. math:: g = \frac{P k}{1 + k^\top P k}, \qquad S \leftarrow S + (v - S k)\, g^\top, \qquad
              P \leftarrow P - g\, (P k)^\top, \qquad P_0 = I / \mathrm{ridge}

    The gain replaces the rate, which is ignored. ``P`` is not local: one synapse's gain depends on all the others.
    Source: :cite:t:`dayan2000learning`.
    """

    ridge: float = 1.0
    error_correcting = False  # it corrects, but with a gain of its own: no rate can make it diverge

    def __post_init__(self):
        if not self.ridge > 0:
            raise ValueError(f"ridge must be positive, got {self.ridge}")

    def start(self, k, v):
        identity = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)
        return {"S": _empty(k, v), "P": (identity / self.ridge).expand(*k.shape[:-1], *identity.shape)}

    def write(self, state, k, v, rate):
        spread = read(state["P"], k)
        gain = spread / (1 + (spread * k).sum(-1, keepdim=True))
        error = v - read(state["S"], k)
        return {"S": state["S"] + outer(error, gain), "P": state["P"] - outer(gain, spread)}


@dataclass(frozen=True)
class Mackintosh:
    r"""Attention to the better predictor, and an error of each stimulus's own.

    With :math:`e_i = v - S_{:i} k_i` the error of feature :math:`i` alone and :math:`\bar e_i` that of all the others,

    .. math:: S_{:i} \leftarrow S_{:i} + \eta A_i\, e_i\, k_i, \qquad
              A_i \leftarrow A_i + \kappa k_i^2\, (\lVert \bar e_i \rVert - \lVert e_i \rVert)

    and :math:`A_i` is kept in ``[floor, 1]``. Source: :cite:t:`mackintosh1975theory`.
    """

    kappa: float = 0.3
    initial: float = 0.5
    floor: float = 0.05
    error_correcting = True

    def __post_init__(self):
        _between(0, 1, kappa=self.kappa, initial=self.initial, floor=self.floor)

    def start(self, k, v):
        memory = _empty(k, v)
        return {"S": memory, "A": torch.full_like(memory[..., 0, :], self.initial)}

    def write(self, state, k, v, rate):
        alone = state["S"] * k[..., None, :]  # (..., d_v, d_k): each feature's own prediction
        own = v[..., None] - alone
        others = v[..., None] - (alone.sum(-1, keepdim=True) - alone)
        better = torch.linalg.vector_norm(others, dim=-2) - torch.linalg.vector_norm(own, dim=-2)
        memory = state["S"] + rate * own * (state["A"] * k)[..., None, :]
        return {"S": memory, "A": (state["A"] + self.kappa * k.square() * better).clamp(self.floor, 1)}


@dataclass(frozen=True)
class PearceHall:
    r"""PH-attention: delta attention whose rate is learned, one associability for each key feature (theorem 14).

    .. math:: e = v - \gamma S k, \qquad A \leftarrow A + \kappa\, k \odot k\, (\lVert e \rVert - A), \qquad
              S \leftarrow \gamma S + \eta\, e\, (A \odot k)^\top

    :math:`\gamma = 1` is the rule reported for the paper's third version; :math:`\gamma < 1` adds homeostasis;
    :math:`\kappa = 0` with ``initial`` 1 is delta. Source: :cite:t:`pearce1980model`.
    """

    kappa: float = 0.3
    gamma: float = 1.0
    initial: float = 1.0
    error_correcting = True

    def __post_init__(self):
        _between(0, math.inf, kappa=self.kappa, initial=self.initial)
        _between(0, 1, gamma=self.gamma)

    def start(self, k, v):
        memory = _empty(k, v)
        return {"S": memory, "A": torch.full_like(memory[..., 0, :], self.initial)}

    def write(self, state, k, v, rate):
        memory = self.gamma * state["S"]
        error = v - read(memory, k)
        surprise = torch.linalg.vector_norm(error, dim=-1, keepdim=True)
        associability = state["A"] + self.kappa * k.square() * (surprise - state["A"])
        return {"S": memory + rate * outer(error, associability * k), "A": associability}


@dataclass(frozen=True)
class TwoTimescales:
    r"""Two memories that share one error, :math:`S = S_{\text{fast}} + S_{\text{slow}}`; the fast one fades.

    The slow memory learns at ``share`` of the rate and keeps what it has. After extinction the fast memory is
    negative, the slow one positive, and as the fast one fades the response returns: spontaneous recovery, which no
    single state can show (theorem 15).
    """

    gamma: float = 0.9
    share: float = 0.2
    error_correcting = True

    def __post_init__(self):
        _between(0, 1, gamma=self.gamma, share=self.share)

    def start(self, k, v):
        return {"S": _empty(k, v), "fast": _empty(k, v)}

    def write(self, state, k, v, rate):
        slow, fast = state["S"] - state["fast"], self.gamma * state["fast"]
        step = rate * outer(v - read(slow + fast, k), k)
        fast, slow = fast + (1 - self.share) * step, slow + self.share * step
        return {"S": slow + fast, "fast": fast}


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "hebb": Local(gamma=1.0, omega=0.0),
        "decay": Local(gamma=0.95, omega=0.0),
        "oja": Oja(),
        "bcm": BCM(),
        "delta": Local(gamma=1.0, omega=1.0),
        "gated_delta": Local(gamma=0.99, omega=1.0),
        "kalman": Kalman(),
        "mackintosh": Mackintosh(),
        "pearce_hall": PearceHall(),
        "ph_attention": PearceHall(gamma=0.99),
        "two_timescales": TwoTimescales(),
    }
)


def rule(name: str | Rule, **options) -> Rule:
    """A rule by its name in ``RULES``, or a rule of the reader's own, with some of its options changed.

    Raises:
        ValueError: for a name that no rule has, an option that the rule has not, or a value outside its range.
    """
    if isinstance(name, str) and name not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, got {name!r}")
    chosen = RULES[name] if isinstance(name, str) else name
    known = [field.name for field in fields(chosen)] if hasattr(chosen, "__dataclass_fields__") else []
    for option in options:
        if option not in known:
            raise ValueError(f"rule {name!r} has no option {option!r}: it has {', '.join(known) or 'none'}")
    return replace(chosen, **options) if options else chosen


def run(
    rule: Rule, k: Tensor, v: Tensor, rate: float | Tensor = 1.0, *, state: State | None = None
) -> tuple[Tensor, State]:
    """Write a sequence, one step after another.

    Args:
        rule: any rule.
        k, v: keys ``(..., T, d_k)`` and values ``(..., T, d_v)``.
        rate: a number, or a tensor that broadcasts with ``(..., T)``.
        state: from where to go on; empty by default.

    Returns:
        The response to each key just before its write, ``(..., T, d_v)``, and the state after the last write.
    """
    state = rule.start(k[..., 0, :], v[..., 0, :]) if state is None else state
    rates = torch.as_tensor(rate, dtype=k.dtype, device=k.device).expand(k.shape[:-1])
    before = []
    for t in range(k.shape[-2]):
        before.append(read(state["S"], k[..., t, :]))
        state = rule.write(state, k[..., t, :], v[..., t, :], rates[..., t, None, None])
    return torch.stack(before, -2), state


# Exact theory


def decay_error(n: int, d: int, gamma: float) -> np.ndarray:
    r"""Mean square error of leaky Hebb for each age, newest first (theorem 14).

    .. math:: \mathbb{E}\lVert e_a \rVert^2 = (1 - \gamma^a)^2 + \frac1d \sum_{b \ne a} \gamma^{2b}, \qquad 0 \le b < n

    Args:
        n: pairs written, one pass.
        d: key dimension.
        gamma: decay per write, in [0, 1]; at 1 it is Hebb's :math:`(n-1)/d` at every age.

    Returns:
        An array of length ``n``.

    Raises:
        ValueError: if ``n < 1``, ``d < 1`` or gamma is outside [0, 1].
    """
    _at_least_one(n=n, d=d)
    _between(0, 1, gamma=gamma)
    kept = np.power(float(gamma), np.arange(n))
    return (1 - kept) ** 2 + ((kept**2).sum() - kept**2) / d


def delta_norm(n: int, d: int, beta: float = 1.0) -> np.ndarray:
    r"""Mean square norm of the delta memory after 0, 1, …, n writes (theorem 14).

    .. math:: F_{t+1} = \Big(1 - \frac{2\beta - \beta^2}{d}\Big) F_t + \beta^2

    so :math:`F_t = d\,(1 - (1 - 1/d)^t)` at :math:`\beta = 1`. Args and errors as :func:`delta_error`.
    """
    _at_least_one(n=n, d=d)
    _stable(beta)
    times = np.arange(n + 1)
    return d * beta / (2 - beta) * (1 - (1 - beta * (2 - beta) / d) ** times)


def delta_error(n: int, d: int, beta: float = 1.0) -> np.ndarray:
    r"""Mean square error of one pass of the delta rule for each age, newest first, exact (theorem 14).

    With :math:`F = \mathbb{E}\lVert S \rVert^2`, :math:`A = \mathbb{E}\lVert S k_j \rVert^2` and
    :math:`B = \mathbb{E}[v_j \cdot S k_j]`, a pair's own write sets :math:`A = (1-\beta)^2 F/d + \beta^2`,
    :math:`B = \beta`, and each later write makes

    .. math:: A \leftarrow \Big(1 - \frac{2\beta}{d}\Big) A + \frac{\beta^2}{d} + \frac{\beta^2 (F + 2A)}{d(d+2)}, \quad
              B \leftarrow \Big(1 - \frac{\beta}{d}\Big) B .

    The error is :math:`A - 2B + 1`.

    Args:
        n: pairs written, one pass.
        d: key dimension.
        beta: the rate, in (0, 2).

    Returns:
        An array of length ``n``.

    Raises:
        ValueError: if ``n < 1``, ``d < 1`` or beta is outside (0, 2), where the rule is unstable.
    """
    norm = delta_norm(n, d, beta)
    power, match = np.zeros(n), np.zeros(n)  # A and B of every pair, oldest first
    for t in range(n):
        power[:t] += (beta**2 - 2 * beta * power[:t]) / d + beta**2 * (norm[t] + 2 * power[:t]) / (d * (d + 2))
        match[:t] *= 1 - beta / d
        power[t], match[t] = (1 - beta) ** 2 * norm[t] / d + beta**2, beta
    return (power - 2 * match + 1)[::-1].copy()  # torch takes no negative strides


def delta_limit(age: float | np.ndarray, load: float, beta: float = 1.0):
    r"""The error of :func:`delta_error` for :math:`d \to \infty`, with age and load in units of ``d`` (theorem 14).

    .. math:: 1 - 2\beta e^{-\beta\tau} + \frac{\beta}{2-\beta}\big(1 - e^{-\beta(2-\beta) a}\big)
              + \beta^2 e^{-\beta(2-\beta) a - \beta^2 \tau}

    which is :math:`(1 - e^{-\tau})(2 - e^{-a})` at :math:`\beta = 1`. The time constant is :math:`d/\beta` writes.

    Raises:
        ValueError: if beta is outside (0, 2).
    """
    _stable(beta)
    slow = np.exp(-beta * (2 - beta) * load)
    return (
        1 - 2 * beta * np.exp(-beta * age) + beta / (2 - beta) * (1 - slow) + beta**2 * slow * np.exp(-(beta**2) * age)
    )


def kaczmarz_mean(k: Tensor, v: Tensor, writes: int, beta: float = 1.0) -> Tensor:
    r"""Mean of the delta memory after pairs drawn at random with replacement: exact, for fixed pairs (theorem 14).

    .. math:: \mathbb{E}\,S_t = S^+ \big(I - (I - \tfrac{\beta}{N} K^\top K)^t\big)

    with :math:`S^+ = V^\top (K^\top)^+` the least-squares memory, exact for :math:`N \le d` independent keys.

    Args:
        k, v: the stored pairs, ``(N, d_k)`` and ``(N, d_v)``, with ``k`` of unit rows.
        writes: how many pairs are drawn.
        beta: the rate, in (0, 2).
    """
    _stable(beta)
    identity = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)
    left = torch.linalg.matrix_power(identity - beta / k.shape[-2] * k.mT @ k, writes)
    return v.mT @ torch.linalg.pinv(k).mT @ (identity - left)


def kaczmarz_bound(k: Tensor, beta: float = 1.0) -> float:
    r"""Factor by which one random write shrinks the mean square distance to the solution, at the least.

    .. math:: \mathbb{E}\lVert S_{t+1} - S^+ \rVert^2 \le
              \Big(1 - \beta(2-\beta)\frac{\sigma_{\min}^2}{N}\Big)\, \lVert S_t - S^+ \rVert^2

    for :math:`N \le d` independent unit keys, :math:`\sigma_{\min}` their least singular value
    :cite:p:`strohmer2009randomized`.
    """
    _stable(beta)
    return float(1 - beta * (2 - beta) * torch.linalg.svdvals(k).min() ** 2 / k.shape[-2])


def age_errors(rule: Rule, n: int, d: int, rate: float = 1.0, *, d_v: int | None = None):
    """A trial for :func:`pavlov.montecarlo.estimate`: square errors of one pass by age, newest first."""

    def trial(size, keys, values):
        k = sphere(size, n, d, generator=keys)
        v = sphere(size, n, d_v or d, generator=values)
        _, state = run(rule, k, v, rate)
        return (k @ state["S"].mT - v).square().sum(-1).flip(-1)  # (size, n)

    return trial
