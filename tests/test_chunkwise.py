"""The engine of the chunkwise form: the numbers of the loop, whatever torch does to it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad, vmap

from pavlov import stimuli
from pavlov.attention import delta_attention, linear_attention

OPERATORS = ["linear", "decay", "delta", "gated delta"]
every_operator = pytest.mark.parametrize("name", OPERATORS)


def inputs(name, T, d_k=4, d_v=3, batch=(2,), seed=0, dtype=torch.float64):
    """Arguments of an operator, by position: q, k, v, initial_state, then beta and log_decay as it takes them."""
    g = torch.Generator().manual_seed(seed)
    q, k = (stimuli.sphere(*batch, T, d_k, generator=g, dtype=torch.float64) for _ in range(2))
    v, state = (stimuli.gaussian(*batch, *shape, generator=g, dtype=torch.float64) for shape in [(T, d_v), (d_v, d_k)])
    rates = [1.9, -1.0][{"linear": slice(0, 0), "decay": slice(1, 2), "delta": slice(0, 1)}.get(name, slice(0, 2))]
    per_step = [r * torch.rand(*batch, T, generator=g, dtype=torch.float64) for r in rates]
    return [x.to(dtype) for x in (q, k, v, state, *per_step)]


def operator(name, **options):
    """The operator as a function of those arguments alone."""

    def call(q, k, v, state, *per_step):
        named = dict(zip([x for x, there in [("beta", "delta" in name), ("log_decay", name in ("decay", "gated delta"))]
                          if there], per_step, strict=True))  # fmt: skip
        rule = delta_attention if "beta" in named else linear_attention
        return rule(q, k, v, initial_state=state, **named, **options)

    return call


def values_and_gradients(name, given, **options):
    given = [x.clone().requires_grad_() for x in given]
    output, state = operator(name, **options)(*given)
    gradients = torch.autograd.grad(output.sin().sum() + state.cos().sum(), given)
    return [output.detach(), state.detach(), *gradients]


def assert_close(got, expected, rtol):
    for x, y in zip(got, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=rtol * max(1.0, float(y.detach().abs().max())), check_dtype=False)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(OPERATORS), T=st.integers(1, 70), d_k=st.integers(1, 9), d_v=st.integers(1, 9),
       chunk_size=st.integers(1, 80), batch=st.sampled_from([(), (3,), (2, 1, 2)]), seed=st.integers(0, 10**6),
       precision=st.sampled_from([(torch.float64, 1e-12), (torch.float32, 1e-4)]))  # fmt: skip
def test_any_shape_dtype_and_seed_gives_the_numbers_of_the_loop(name, T, d_k, d_v, chunk_size, batch, seed, precision):
    dtype, rtol = precision
    given = inputs(name, T, d_k, d_v, batch, seed, dtype)
    got = values_and_gradients(name, given, chunk_size=chunk_size)
    assert all(x.dtype == dtype for x in got)
    assert_close(got, values_and_gradients(name, [x.double() for x in given], form="recurrent"), rtol)


@every_operator
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_single(name, dtype):
    given = inputs(name, 100, 16, 16, dtype=dtype)
    output, state = operator(name)(*given)
    assert output.dtype == state.dtype == dtype
    exact = operator(name)(*(x.float() for x in given))
    assert torch.equal(output, exact[0].to(dtype))
    assert torch.equal(state, exact[1].to(dtype))


@every_operator
def test_the_hand_written_gradient_is_the_gradient(name):
    given = [x.requires_grad_() for x in inputs(name, 7)]
    assert torch.autograd.gradcheck(operator(name, chunk_size=3), given)


@every_operator
def test_the_second_gradient_is_right_too(name):
    given = [x.requires_grad_() for x in inputs(name, 4, 2, 2, batch=())]
    assert torch.autograd.gradgradcheck(operator(name, chunk_size=2), given)


@every_operator
def test_vmap_maps_values_and_gradients(name):
    given = inputs(name, 20, batch=(3, 2))
    call = operator(name, chunk_size=8)
    for mapped, whole in zip(vmap(call)(*given), call(*given), strict=True):
        torch.testing.assert_close(mapped, whole)

    def loss(*given):
        return call(*given)[0].sin().sum()

    positions = tuple(range(len(given)))
    mapped = vmap(grad(loss, positions))(*given)
    assert_close(mapped, grad(loss, positions)(*given), 1e-12)


@every_operator
def test_vmap_may_map_one_argument_alone(name):
    given = inputs(name, 20, batch=(3, 2))
    shared = [given[0], *(x[0] for x in given[1:])]
    mapped, _ = vmap(operator(name), in_dims=(0, *[None] * (len(given) - 1)))(*shared)
    torch.testing.assert_close(mapped, operator(name)(*shared)[0])


@every_operator
def test_compiled_code_gives_the_same_values_and_gradients(name):
    """With the backend that stops before code generation, which is torch's own and takes minutes."""
    given = [x.requires_grad_() for x in inputs(name, 20)]
    call = operator(name, chunk_size=8)
    expected, got = call(*given), torch.compile(call, backend="aot_eager")(*given)
    assert_close(got, expected, 1e-12)
    gradients = [torch.autograd.grad(output.sin().sum() + state.sum(), given) for output, state in (got, expected)]
    assert_close(*gradients, 1e-12)


@every_operator
def test_repeated_runs_agree_to_the_last_bit(name):
    given = inputs(name, 200, 16, 16, dtype=torch.float32)
    first, second = (values_and_gradients(name, given) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@every_operator
def test_a_longer_sequence_keeps_one_state_a_chunk_and_its_inputs(name):
    kept = []

    def count(x):
        kept.append(x)
        return x

    given = [x.requires_grad_() for x in inputs(name, 256, 8, 8)]
    with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
        operator(name, chunk_size=32)(*given)
    own = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in kept}
    theirs = {x.untyped_storage().data_ptr() for x in given}
    assert sum(n for pointer, n in own.items() if pointer not in theirs) <= 2 * (256 // 32 + 2) * 8 * 8 * 8


def test_a_gradient_of_the_state_alone_flows():
    given = [x.requires_grad_() for x in inputs("gated delta", 20)]
    (got,) = torch.autograd.grad(operator("gated delta", chunk_size=8)(*given)[1].sum(), given[1:2])
    (expected,) = torch.autograd.grad(operator("gated delta", form="recurrent")(*given)[1].sum(), given[1:2])
    torch.testing.assert_close(got, expected)
