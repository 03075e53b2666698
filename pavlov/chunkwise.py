r"""The engine behind ``form="chunkwise"`` of :mod:`pavlov.attention`: all chunks at once, with its own backward pass.

Inside a chunk of C steps, with the decay :math:`D_{ij}` from step j to step i, :math:`a_i` from the chunk's start to
step i and :math:`e_j` from step j to its end, the state :math:`Z = S^\top` at the start gives

.. math::

   O = a \odot (Q Z) + (Q K^\top \odot D)\, U, \qquad Z' = a_C Z + (e \odot K)^\top U.

Linear attention writes :math:`U = V`. Delta attention writes :math:`U = M \beta (V - a \odot K Z)` with the inverse
:math:`M = (I + \beta\, (K K^\top \odot D)_{j<i})^{-1}`. Only :math:`Z` passes from chunk to chunk. Everything else
is batched over chunks, and the scan costs two matrix products a chunk.

The backward pass keeps the inputs and one state a chunk, and computes the rest again. It is made of differentiable
operations, and gradients of the saved states are part of it, so a second backward pass is right too.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad


def attend(q, k, v, beta, log_decay, state, chunk_size):
    """Outputs and final state for inputs with equal leading axes; half precision is computed in float32."""
    dtype, batch, T = q.dtype, q.shape[:-2], q.shape[-2]
    C = max(1, min(chunk_size, T))

    def chunks(x, tail):
        if x is None:
            return None
        x = x.reshape(-1, *x.shape[len(batch) :]).to(_working(dtype))
        missing = -T % C
        x = pad(x, (0, 0) * (tail - 1) + (0, missing)) if missing else x
        return x.unflatten(1, (-1, C))  # (B, chunks, C, ...)

    q, k, v = (chunks(x, 2) for x in (q, k, v))
    beta, log_decay = (chunks(x, 1) for x in (beta, log_decay))
    start = state.mT.reshape(q.shape[0], q.shape[-1], v.shape[-1]).to(q.dtype)
    output, _, end = _Chunkwise.apply(q, k, v, beta, log_decay, start)
    output = output.flatten(1, 2)[:, :T].reshape(*batch, T, v.shape[-1])
    return output.to(dtype), end.mT.reshape(state.shape).to(dtype)


class _Chunkwise(torch.autograd.Function):
    """From chunks ``(B, n, C, ·)`` and a state ``(B, d_k, d_v)`` to outputs, the state before each chunk, and the last.

    The states before the chunks are an output only because the backward pass keeps them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(q, k, v, beta, log_decay, start):
        D, a, e = _decays(log_decay, q)
        writes, response = (v, None) if beta is None else _delta_writes(k, v, beta, D, a)[:2]
        before, end, writes = _scan(_times(e, k), writes, response, _last(a), start)
        return _add_product(_times(a, q @ before), _masked(q @ k.mT, D), writes), before, end

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:-1], output[1])  # every chunk's first state; the rest is computed again
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, d_output, d_given, d_end):
        q, k, v, beta, log_decay, before = ctx.saved_tensors
        if d_output is None:
            d_output = torch.zeros_like(v)
        D, a, e = _decays(log_decay, q)
        kept = _times(e, k)
        if beta is None:
            writes, response = v, None
        else:
            writes, response, inverse, overlaps = _delta_writes(k, v, beta, D, a)
            writes = writes - response @ before

        # From the outputs back to what each chunk wrote and read.
        scores = _masked(q @ k.mT, D)
        d_writes = scores.mT @ d_output
        d_before = _times(a, q).mT @ d_output
        d_before = d_before if d_given is None else d_before + d_given
        d_end = torch.zeros_like(d_before[:, 0]) if d_end is None else d_end
        d_after, d_start, d_writes = _scan_back(kept, response, _last(a), d_writes, d_before, d_end)

        # The output's two terms and the chunk's end.
        d_scores = d_output @ writes.mT
        d_read, d_kept = d_output @ before.mT, writes @ d_after.mT
        masked = _masked(d_scores, D)
        d_q = _add_product(_times(a, d_read), masked, k)
        d_k = _add_product(_times(e, d_kept), masked.mT, q)
        d_v, d_beta, d_log_decay = d_writes, None, None
        if log_decay is not None:
            d_pairs, d_a = d_scores * scores, (d_read * q).sum(-1)
            d_e = (d_kept * k).sum(-1)
            d_all = (before * d_after).sum((-1, -2))

        # The writes: L U = β (V - a K Z), so the error's gradient solves the transposed system.
        if beta is not None:
            d_rhs, rate = inverse.mT @ d_writes, beta[..., None]
            d_lower = (d_rhs @ writes.mT).tril(-1)  # this and the next with their sign turned
            d_asked = d_rhs @ before.mT
            d_beta = (d_rhs * v).sum(-1) - (_times(a, d_asked) * k).sum(-1) - (d_lower * overlaps).sum(-1)
            d_v, d_asked, d_lower = rate * d_rhs, -rate * d_asked, -rate * d_lower
            d_overlaps = d_lower if log_decay is None else d_lower * D
            d_k = _add_product(d_k + _times(a, d_asked), d_overlaps + d_overlaps.mT, k)
            if log_decay is not None:
                d_pairs = d_pairs + d_lower * overlaps
                d_a = d_a + (d_asked * k).sum(-1)

        if log_decay is not None:
            d_log_decay = _decays_back(d_pairs, d_a, d_e, d_all, a, e)
        return d_q, d_k, d_v, d_beta, d_log_decay, d_start


def _delta_writes(k, v, beta, D, a):
    """Writes into an empty state, their response to a state, the inverse, and the overlaps that it inverts."""
    overlaps = (k @ k.mT if D.ndim == 2 else k @ k.mT * D).tril(-1)
    lower, eye = beta[..., None] * overlaps, torch.eye(k.shape[-2], dtype=k.dtype, device=k.device)
    inverse = torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False, unitriangular=True)
    scaled = inverse * beta[..., None, :]
    return scaled @ v, scaled @ _times(a, k), inverse, overlaps


def _scan(kept, writes, response, decay, start):
    """State before each chunk, state at the end, and writes: what must wait, two matrix products a chunk."""
    added = kept.mT @ writes if response is None else None
    states, all_writes = [start], []
    for i in range(kept.shape[1]):
        state = states[-1]
        held = state if decay is None else decay[:, i, None, None] * state
        if response is None:
            states.append(held + added[:, i])
        else:
            all_writes.append(torch.baddbmm(writes[:, i], response[:, i], state, alpha=-1))
            states.append(torch.baddbmm(held, kept[:, i].mT, all_writes[-1]))
    return torch.stack(states[:-1], 1), states[-1], torch.stack(all_writes, 1) if all_writes else writes


def _scan_back(kept, response, decay, d_writes, d_before, d_end):
    """Gradients of the state after each chunk, of the first state, and of the writes: the scan from end to start."""
    found, all_writes = [d_end], []
    for i in reversed(range(kept.shape[1])):
        d_state = found[-1]
        held = d_before[:, i] + (d_state if decay is None else decay[:, i, None, None] * d_state)
        if response is not None:
            all_writes.append(torch.baddbmm(d_writes[:, i], kept[:, i], d_state))
            held = torch.baddbmm(held, response[:, i].mT, all_writes[-1], alpha=-1)
        found.append(held)
    d_after = torch.stack(found[-2::-1], 1)
    d_writes = torch.stack(all_writes[::-1], 1) if all_writes else _add_product(d_writes, kept, d_after)
    return d_after, found[-1], d_writes


def _decays(log_decay, like):
    """From step j to step i, from the start to step i, from step j to the end; only the mask when nothing decays."""
    if log_decay is None:
        return causal_mask(like.shape[-2], like).to(like.dtype), None, None
    D = decay_between(log_decay)
    return D, log_decay.cumsum(-1).exp(), D[..., -1, :]


def _decays_back(d_pairs, d_a, d_e, d_all, a, e):
    """From gradients times decays to log-decays: step s lies in all pairs with j < s ≤ i, and in a_i for s ≤ i."""
    later = causal_mask(d_pairs.shape[-1], d_pairs).to(d_pairs.dtype).mT
    d_pairs = torch.cat([d_pairs[..., :-1, :], d_pairs[..., -1:, :] + (d_e * e)[..., None, :]], -2)
    d_start = d_a * a
    d_start = torch.cat([d_start[..., :-1], d_start[..., -1:] + (d_all * a[..., -1])[..., None]], -1)
    return (later @ d_pairs).tril(-1).sum(-1) + d_start @ later.mT


def _times(weights, x):
    return x if weights is None else weights[..., None] * x


def _masked(fresh, D):
    """A new product times D; in place if D is only the mask, which no transform of torch.func can have batched."""
    return fresh.mul_(D) if D.ndim == 2 else fresh * D


def _add_product(x, a, b):
    """``x + a @ b`` in one pass."""
    return torch.baddbmm(x.flatten(0, 1), a.flatten(0, 1), b.flatten(0, 1)).view_as(x)


def _last(a):
    return None if a is None else a[..., -1]


def _working(dtype):
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def decay_between(log_decay: Tensor) -> Tensor:
    r"""The decay from step j to step i, :math:`D_{ij} = \exp(\sum_{j < s \le i} g_s)` for j ≤ i, else 0.

    Each sum is accumulated on its own: a difference of two cumulative sums would cancel under strong decay. The
    mask comes before the exponential, so that no infinity reaches a gradient.
    """
    C = log_decay.shape[-1]
    mask = causal_mask(C, log_decay)
    steps = log_decay[..., :, None].expand(*log_decay.shape, C).masked_fill(~mask.tril(-1), 0)
    return steps.cumsum(-2).masked_fill(~mask, -torch.inf).exp()


def causal_mask(T: int, like: Tensor) -> Tensor:
    """Which steps j a step i may see: those with j ≤ i."""
    return torch.ones(T, T, dtype=torch.bool, device=like.device).tril()
