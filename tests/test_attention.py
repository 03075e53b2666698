"""The operators: three forms of one computation, held against the textbook loop and against closed forms."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pavlov import stimuli
from pavlov.attention import FORMS, delta_attention, linear_attention, softmax_attention

RTOL = 1e-12  # of the largest number, in float64


def inputs(T, d_k=7, d_v=5, batch=(2, 3), seed=0, dtype=torch.float64):
    """Unit queries and keys, Gaussian values, rates up to 1.9, and a state."""
    g = torch.Generator().manual_seed(seed)
    q, k = (stimuli.sphere(*batch, T, d_k, generator=g, dtype=dtype) for _ in range(2))
    v, state = (stimuli.gaussian(*batch, *shape, generator=g, dtype=dtype) for shape in [(T, d_v), (d_v, d_k)])
    beta = 1.9 * torch.rand(*batch, T, generator=g, dtype=dtype)
    return {"q": q, "k": k, "v": v, "beta": beta, "initial_state": state}


def run(form, given, **options):
    """Output, state and all gradients of linear attention, or of delta attention when there is a rate."""
    given = {name: x.clone().requires_grad_() for name, x in given.items() if x is not None}
    operator = delta_attention if "beta" in given else linear_attention
    output, state = operator(**given, form=form, **options)
    gradients = torch.autograd.grad(
        output.sin().sum() + state.cos().sum(), list(given.values()), materialize_grads=True
    )
    return {"output": output.detach(), "state": state.detach()} | dict(zip(given, gradients, strict=True))


def assert_same(got, expected, rtol=RTOL):
    for name, x in expected.items():
        assert got[name].shape == x.shape, name
        scale = x.abs().max() if x.numel() else 0
        torch.testing.assert_close(got[name], x, rtol=0, atol=float(rtol * scale), msg=lambda m, n=name: f"{n}: {m}")


RULES = {"linear": {"beta": None}, "delta": {}}
both_rules = pytest.mark.parametrize("rule", RULES)
both_fast_forms = pytest.mark.parametrize("form", ["parallel", "chunkwise"])


@both_rules
@both_fast_forms
@pytest.mark.parametrize("decay", [None, 0.0, -20.0, -100.0, "mixed"])
@pytest.mark.parametrize("T", [0, 1, 5, 63, 64, 65, 130])
def test_the_three_forms_agree_in_values_and_gradients(rule, form, decay, T):
    given = inputs(T) | RULES[rule]
    if decay is not None:
        draw = torch.rand(2, 3, T, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        given["log_decay"] = -50 * draw**8 if decay == "mixed" else torch.full_like(draw, decay)
    assert_same(run(form, given), run("recurrent", given))


@both_rules
@both_fast_forms
@pytest.mark.parametrize("correlation", [0.9, 1.0])
def test_forms_agree_for_correlated_and_repeated_keys_at_a_high_rate(rule, form, correlation):
    given = inputs(130) | RULES[rule]
    common = given["k"][..., :1, :]
    given["k"] = stimuli.unit(correlation * common + (1 - correlation) * given["k"])
    if given["beta"] is not None:
        given["beta"] = torch.full_like(given["beta"], 1.9)
    assert_same(run(form, given), run("recurrent", given))


@settings(max_examples=40, deadline=None)
@given(T=st.integers(0, 40), d_k=st.integers(1, 9), d_v=st.integers(1, 9), chunk_size=st.integers(1, 45),
       batch=st.sampled_from([(), (2,), (2, 1, 3)]), rule=st.sampled_from(list(RULES)),
       decays=st.booleans(), seed=st.integers(0, 10**6))  # fmt: skip
def test_any_shape_and_chunk_size_gives_the_numbers_of_the_loop(T, d_k, d_v, chunk_size, batch, rule, decays, seed):
    given = inputs(T, d_k, d_v, batch, seed) | RULES[rule]
    if decays:
        given["log_decay"] = -2 * torch.rand(
            *batch, T, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
    assert_same(run("chunkwise", given, chunk_size=chunk_size), run("recurrent", given))


@both_rules
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [0, 1, 37, 64, 100])
def test_a_sequence_may_be_cut_anywhere_and_resumed_from_its_state(rule, form, cut):
    given = inputs(100) | RULES[rule] | {"log_decay": -inputs(100, seed=1)["beta"]}
    whole = {name: x for name, x in given.items() if x is not None}
    operator = partial(delta_attention if "beta" in whole else linear_attention, form=form)
    output, state = operator(**whole)
    pieces, carry = [], whole.pop("initial_state")
    for part in (slice(None, cut), slice(cut, None)):
        steps = {n: x[..., part] if x.ndim == 3 else x[..., part, :] for n, x in whole.items()}
        piece, carry = operator(**steps, initial_state=carry)
        pieces.append(piece)
    assert_same({"o": torch.cat(pieces, -2), "s": carry}, {"o": output, "s": state})


@both_rules
@pytest.mark.parametrize("form", FORMS)
def test_leading_axes_broadcast_and_strides_do_not_matter(rule, form):
    full = inputs(20, batch=(4, 3)) | RULES[rule]
    strided = {n: x if x is None else x.mT.contiguous().mT if n != "beta" else x for n, x in full.items()}
    strided["k"] = full["k"][:1, :1].expand(4, 3, 20, 7)
    plain = {n: x if x is None else x.contiguous() for n, x in strided.items()}
    shared = strided | {"k": full["k"][0, 0]}
    expected = run("recurrent", plain)
    got = run(form, strided)
    assert_same(got, expected)
    broadcast = run(form, shared)
    assert_same(broadcast, {name: expected[name] for name in ("output", "state", "q", "v")})
    assert_same(broadcast, {"k": expected["k"].sum((0, 1))})


def test_linear_attention_stores_outer_products_and_reads_them():
    k, v = torch.eye(3, dtype=torch.float64), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
    q = torch.ones(3, 3, dtype=torch.float64)
    output, state = linear_attention(q, k, v)
    assert torch.equal(state, v.mT)
    assert torch.equal(output, v.cumsum(0))


def test_the_delta_write_is_rescorla_and_wagners():
    one = torch.ones(10, 1, dtype=torch.float64)
    output, _ = delta_attention(one, one, one, torch.full((10,), 0.1, dtype=torch.float64))
    assert float(output[-1]) == pytest.approx(0.6513215599, rel=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_decay_comes_before_the_error_and_the_write(form):
    one, gamma, beta, S = torch.ones(1, 1, dtype=torch.float64), 0.5, 0.25, 8.0
    state = torch.full((1, 1), S, dtype=torch.float64)
    log_decay, rate = torch.tensor([math.log(gamma)], dtype=torch.float64), torch.tensor([beta], dtype=torch.float64)
    _, after = delta_attention(one, one, one, rate, log_decay=log_decay, initial_state=state, form=form)
    assert float(after) == pytest.approx(gamma * S + beta * (1 - gamma * S))


@pytest.mark.parametrize("form", FORMS)
def test_a_rate_of_zero_changes_nothing(form):
    given = inputs(70) | {"beta": torch.zeros(2, 3, 70, dtype=torch.float64)}
    output, state = delta_attention(**given, form=form)
    torch.testing.assert_close(state, given["initial_state"], rtol=0, atol=0)
    torch.testing.assert_close(output, given["q"] @ given["initial_state"].mT)


@both_rules
@pytest.mark.parametrize("form", FORMS)
def test_zero_keys_stay_finite(rule, form):
    given = inputs(70) | RULES[rule]
    given["k"] = torch.zeros_like(given["k"])
    assert all(x.isfinite().all() for x in run(form, given).values())


@both_rules
@pytest.mark.parametrize("form", FORMS)
def test_a_reset_forgets_the_past_and_leaves_gradients_finite(rule, form):
    given = inputs(70) | RULES[rule] | {"log_decay": torch.zeros(2, 3, 70, dtype=torch.float64)}
    given["log_decay"][..., 40] = -math.inf
    got = run(form, given)
    fresh = {n: x[..., 40:] if x.ndim == 3 else x[..., 40:, :] for n, x in given.items()
             if x is not None and n != "initial_state"}  # fmt: skip
    fresh["log_decay"] = torch.zeros_like(fresh["log_decay"])
    operator = delta_attention if "beta" in fresh else linear_attention
    torch.testing.assert_close(got["output"][..., 40:, :], operator(**fresh)[0])
    assert all(x.isfinite().all() for x in got.values())


@both_rules
def test_outputs_depend_on_the_past_alone(rule):
    given = {n: x for n, x in (inputs(70) | RULES[rule]).items() if x is not None}
    operator = delta_attention if "beta" in given else linear_attention
    before, _ = operator(**given)
    given["v"] = given["v"].clone()
    given["v"][..., 50:, :] = 1e6
    assert torch.equal(operator(**given)[0][..., :50, :], before[..., :50, :])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scale", [None, 2.0])
def test_softmax_attention_is_torchs(causal, scale):
    q, k, v = (inputs(33)[name] for name in "qkv")
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    torch.testing.assert_close(softmax_attention(q, k, v, causal=causal, scale=scale), theirs)


def test_softmax_attention_may_have_other_queries_than_keys():
    q, k, v = (inputs(9)[name] for name in "qkv")
    assert softmax_attention(q[..., :4, :], k, v, causal=False).shape == (2, 3, 4, 5)


def bad(**changes):
    return inputs(6) | changes


ones = partial(torch.ones, dtype=torch.float64)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (bad(q=ones(2, 3, 6, 8)), ValueError, r"q must have shape \(..., 6, 7\).*got \(2, 3, 6, 8\)"),
        (bad(v=ones(2, 3, 5, 5)), ValueError, r"v must have shape \(..., 6, 5\).*got \(2, 3, 5, 5\)"),
        (bad(k=ones(7)), ValueError, r"k must have shape \(..., T, d\), got \(7,\)"),
        (bad(beta=ones(2, 3, 6, 1)), ValueError, r"beta must have shape \(..., 6\)"),
        (bad(log_decay=ones(2, 3, 5)), ValueError, r"log_decay must have shape \(..., 6\)"),
        (bad(initial_state=ones(7, 5)), ValueError, r"initial_state must have shape \(..., 5, 7\)"),
        (bad(v=ones(4, 3, 6, 5)), ValueError, r"leading axes must broadcast, got .*v \(4, 3\)"),
        (bad(log_decay=ones(2, 3, 6)), ValueError, "log_decay must be at most 0, got a maximum of 1"),
        (bad(form="fast"), ValueError, "form must be one of parallel, recurrent, chunkwise, got 'fast'"),
        (bad(chunk_size=0), ValueError, "chunk_size must be an integer of at least 1, got 0"),
        (bad(chunk_size=2.5), ValueError, "chunk_size must be an integer of at least 1, got 2.5"),
        (bad(k=torch.ones(2, 3, 6, 7)), TypeError, "k must be torch.float64 on cpu like q, got torch.float32"),
        (bad(q=torch.ones(2, 3, 6, 7, dtype=torch.int64)), TypeError, "q must be a floating-point tensor"),
        (bad(v=[[1.0]]), TypeError, "v must be a floating-point tensor, got list"),
        (bad(q=torch.ones(2, 3, 6, 7, dtype=torch.float64, device="meta")), TypeError, "on meta like q, got"),
    ],
)
def test_bad_input_is_named_with_what_was_expected(given, error, message):
    with pytest.raises(error, match=message):
        delta_attention(**given)


def test_a_scale_that_is_not_finite_is_named():
    with pytest.raises(ValueError, match="scale must be finite, got nan"):
        softmax_attention(ones(2, 2), ones(2, 2), ones(2, 2), scale=math.nan)
