r"""The memory: linear, delta and softmax attention.

A head reads a sequence of pairs (key :math:`k_t`, value :math:`v_t`) and answers a query :math:`q_t` at every step.
Linear attention keeps a matrix :math:`S` and writes by Hebb's rule; delta attention writes the prediction error
instead, which is the rule of Rescorla and Wagner:

.. math::

   \text{linear:}\quad S_t &= \gamma_t S_{t-1} + v_t k_t^\top \\
   \text{delta:}\quad S_t &= \gamma_t S_{t-1} + \beta_t\,(v_t - \gamma_t S_{t-1} k_t)\, k_t^\top \\
   \text{output:}\quad o_t &= S_t q_t, \qquad \gamma_t = e^{g_t},\ g_t = \texttt{log\_decay}_t \le 0

In one step the order is decay, then error, then write, then read.

Both rules write *something* along the key, :math:`S_t = \gamma_t S_{t-1} + u_t k_t^\top`. For linear attention
:math:`u_t = v_t`. For delta attention the writes :math:`u_t` solve one triangular system. Everything after that is
the same, so the code below has one of each thing. Three forms compute the same numbers (theorem 1):

* ``"recurrent"`` is the textbook loop, the reference;
* ``"parallel"`` unrolls it over the whole sequence, :math:`O = (Q K^\top \odot D)\, U`;
* ``"chunkwise"`` is parallel inside a chunk and recurrent from chunk to chunk.

Shapes are ``(..., T, d)``, as in :func:`torch.nn.functional.scaled_dot_product_attention`; leading axes broadcast.
A state is ``(..., d_v, d_k)``, so that reading is :math:`S q`.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from pavlov import chunkwise
from pavlov.chunkwise import causal_mask, decay_between

Form = Literal["parallel", "recurrent", "chunkwise"]
FORMS = ("parallel", "recurrent", "chunkwise")


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = None,
    initial_state: Tensor | None = None,
    form: Form = "chunkwise",
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor]:
    r"""Causal linear attention: a Hebbian memory, unnormalised and without a scale (theorem 1).

    .. math:: S_t = e^{g_t} S_{t-1} + v_t k_t^\top, \qquad o_t = S_t q_t

    Args:
        q: queries, the test stimuli, ``(..., T, d_k)``.
        k: keys, the conditional stimuli, ``(..., T, d_k)``.
        v: values, the unconditional stimuli, ``(..., T, d_v)``.
        log_decay: :math:`g \le 0`, ``(..., T)``; without it nothing is forgotten.
        initial_state: :math:`S_0`, ``(..., d_v, d_k)``; zero by default.
        form: how to compute it, one of ``"parallel"``, ``"recurrent"``, ``"chunkwise"``. The numbers are the same.
        chunk_size: steps in a chunk of the chunkwise form.

    Returns:
        The outputs ``(..., T, d_v)`` and the state after the last step ``(..., d_v, d_k)``.

    Raises:
        ValueError: a shape that does not fit, a positive ``log_decay``, an unknown form or a chunk size below one.
        TypeError: inputs of different dtypes or devices, or that are not floating-point.

    Source: :cite:t:`katharopoulos2020transformers`; with decay, :cite:t:`sun2023retentive`.
    """
    return _attend(q, k, v, None, log_decay, initial_state, form, chunk_size)


def delta_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    *,
    log_decay: Tensor | None = None,
    initial_state: Tensor | None = None,
    form: Form = "chunkwise",
    chunk_size: int = 32,
) -> tuple[Tensor, Tensor]:
    r"""Causal delta attention: a memory that writes its prediction error, Rescorla–Wagner (theorem 1).

    .. math:: S_t = e^{g_t} S_{t-1} + \beta_t\,(v_t - e^{g_t} S_{t-1} k_t)\, k_t^\top, \qquad o_t = S_t q_t

    Args:
        beta: learning rates, ``(..., T)``; zero writes nothing. Stable while :math:`0 \le \beta_t \lVert k_t \rVert^2
            \le 2`.

    The other arguments, results and errors are those of :func:`linear_attention`. With ``log_decay`` this is the gated
    delta rule.

    Source: :cite:t:`schlag2021linear`, :cite:t:`yang2024parallelizing`; gated, :cite:t:`yang2025gated`.
    """
    return _attend(q, k, v, beta, log_decay, initial_state, form, chunk_size)


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, causal: bool = True) -> Tensor:
    r"""Softmax attention, the same memory with an exponential kernel and a normaliser (theorem 2).

    .. math:: o_t = \sum_{j \le t} w_{tj} v_j, \qquad w_{tj} = \operatorname{softmax}_j(\beta\, q_t \cdot k_j)

    Args:
        q, k, v: as in :func:`linear_attention`; without ``causal`` the queries may be of any number.
        scale: the inverse temperature :math:`\beta`, by default :math:`1/\sqrt{d_k}`.
        causal: whether a query sees only the keys up to its own step.

    Returns:
        The outputs, ``(..., T, d_v)``.

    Raises:
        ValueError, TypeError: as :func:`linear_attention`; a ``scale`` that is not finite.

    Source: :cite:t:`vaswani2017attention`.
    """
    _check_inputs(q, k, v, same_length=causal)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if not math.isfinite(scale):
        raise ValueError(f"scale must be finite, got {scale}")
    scores = scale * q @ k.mT  # (..., T_q, T)
    if causal:
        scores = scores.masked_fill(~causal_mask(scores.shape[-1], scores), -math.inf)
    return scores.softmax(-1) @ v


# One path for both rules: beta is None for linear attention.


def _attend(q, k, v, beta, log_decay, state, form, chunk_size):
    _check_inputs(q, k, v, beta=beta, log_decay=log_decay, initial_state=state)
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    if not isinstance(chunk_size, int) or isinstance(chunk_size, bool) or chunk_size < 1:
        raise ValueError(f"chunk_size must be an integer of at least 1, got {chunk_size!r}")
    T, d_k, d_v = q.shape[-2], q.shape[-1], v.shape[-1]
    per_step = [x for x in (beta, log_decay) if x is not None]
    batch = torch.broadcast_shapes(
        *(x.shape[:-2] for x in (q, k, v)),
        *(x.shape[:-1] for x in per_step),
        *(x.shape[:-2] for x in [state] if x is not None),
    )
    q, k, v = (x.expand(*batch, T, x.shape[-1]) for x in (q, k, v))
    beta, log_decay = (None if x is None else x.expand(*batch, T) for x in (beta, log_decay))
    state = q.new_zeros(*batch, d_v, d_k) if state is None else state.expand(*batch, d_v, d_k)
    if T == 0:
        return v, state
    if form == "recurrent":
        return _recurrent(q, k, v, beta, log_decay, state)
    if form == "parallel":
        return _chunk(q, k, v, beta, log_decay, state)
    return chunkwise.attend(q, k, v, beta, log_decay, state, chunk_size)


def _recurrent(q, k, v, beta, log_decay, state):
    """The equations of the module's head, step by step."""
    outputs = []
    for t in range(q.shape[-2]):
        if log_decay is not None:
            state = log_decay[..., t, None, None].exp() * state
        key, write = k[..., t, :, None], v[..., t, :, None]  # (..., d_k, 1), (..., d_v, 1)
        if beta is not None:
            write = beta[..., t, None, None] * (write - state @ key)
        state = state + write @ key.mT  # (..., d_v, d_k)
        outputs.append((state @ q[..., t, :, None]).squeeze(-1))
    return torch.stack(outputs, -2), state


def _chunk(q, k, v, beta, log_decay, state):
    """One chunk at once: what every step inherits from the state, plus what it reads from the chunk's own writes."""
    if log_decay is None:
        between = causal_mask(q.shape[-2], q).to(q.dtype)  # D: decay from j to i
        since = to_end = q.new_ones(q.shape[-2])
    else:
        between = decay_between(log_decay)  # (..., C, C)
        since, to_end = log_decay.cumsum(-1).exp(), between[..., -1, :]  # (..., C)
    inherited = since[..., None] * (k @ state.mT)  # (..., C, d_v)
    writes = v if beta is None else _delta_writes(k, v - inherited, beta, between)  # (..., C, d_v)
    output = since[..., None] * (q @ state.mT) + (q @ k.mT * between) @ writes
    return output, since[..., -1, None, None] * state + (to_end[..., None] * writes).mT @ k


def _delta_writes(k, error, beta, between):
    r"""The writes :math:`u_i = \beta_i (e_i - \sum_{j<i} D_{ij} (k_i \cdot k_j) u_j)`: forward substitution."""
    overlaps = (beta[..., None] * (k @ k.mT) * between).tril(-1)
    return torch.linalg.solve_triangular(overlaps, beta[..., None] * error, upper=False, unitriangular=True)


def _check_inputs(q, k, v, *, beta=None, log_decay=None, initial_state=None, same_length=True):
    """Say which argument does not fit, what it is and what it should be."""
    given = {"q": q, "k": k, "v": v, "beta": beta, "log_decay": log_decay, "initial_state": initial_state}
    given = {name: x for name, x in given.items() if x is not None}
    for name, x in given.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise TypeError(f"{name} must be a floating-point tensor, got {getattr(x, 'dtype', type(x).__name__)}")
        if (x.dtype, x.device) != (q.dtype, q.device):
            raise TypeError(f"{name} must be {q.dtype} on {q.device} like q, got {x.dtype} on {x.device}")
    for name in ("q", "k", "v"):
        if given[name].ndim < 2:
            raise ValueError(f"{name} must have shape (..., T, d), got {tuple(given[name].shape)}")
    T, d_k, d_v = k.shape[-2], k.shape[-1], v.shape[-1]
    expected = {
        "q": (T if same_length else q.shape[-2], d_k),
        "v": (T, d_v),
        "beta": (T,),
        "log_decay": (T,),
        "initial_state": (d_v, d_k),
    }
    for name, tail in expected.items():
        if name in given and given[name].shape[-len(tail) :] != tail:
            raise ValueError(
                f"{name} must have shape (..., {', '.join(map(str, tail))}) to fit "
                f"k {tuple(k.shape)} and v {tuple(v.shape)}, got {tuple(given[name].shape)}"
            )
    _check_batches(given)
    if log_decay is not None and _any_positive(log_decay):
        raise ValueError(
            f"log_decay must be at most 0, got a maximum of {float(log_decay.max()):g}; "
            "pass the logarithm of a decay in (0, 1]"
        )


def _check_batches(given):
    leading = {name: x.shape[:-1] if name in ("beta", "log_decay") else x.shape[:-2] for name, x in given.items()}
    try:
        torch.broadcast_shapes(*leading.values())
    except RuntimeError:
        shapes = ", ".join(f"{name} {tuple(shape)}" for name, shape in leading.items())
        raise ValueError(f"leading axes must broadcast, got {shapes}") from None


def _any_positive(x):
    try:
        return bool((x > 0).any())
    except RuntimeError:  # torch.func.vmap lets nobody look at a number
        return False
