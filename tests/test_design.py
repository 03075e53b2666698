"""Designs are large enough, no larger than they need be, and refuse what cannot be had."""

import itertools
import math
import random

import pytest

from pavlov import design, propagation


def requests(seed: int, number: int) -> list[dict]:
    draw = random.Random(seed)
    return [
        {
            "n": draw.randint(2, 40),
            "depth": draw.randint(1, 8),
            "epsilon": draw.uniform(0.4, 1.5),
            "failure": draw.choice([0.0, draw.uniform(0.01, 0.2)]),
            "narrowest": draw.choice([4, 16, 64]),
        }
        for _ in range(number)
    ]


def square_error(request: dict, heads: int, d: int) -> float:
    return propagation.error(request["n"], d, request["depth"], heads=heads, failure=request["failure"])


@pytest.mark.parametrize("request_", requests(1, 20), ids=str)
def test_a_design_meets_its_request_and_one_step_less_does_not(request_):
    best, allowed = design.smallest(**request_), request_["epsilon"] ** 2
    assert best.width == best.heads * best.d_k
    assert best.error == square_error(request_, best.heads, best.d_k) <= allowed
    if best.heads > 1:
        assert square_error(request_, best.heads - 1, best.d_k) > allowed
    if best.d_k > 1:
        assert square_error(request_, best.heads, best.d_k - 1) > allowed


@pytest.mark.parametrize("request_", requests(2, 20), ids=str)
def test_simulation_confirms_a_design(request_):
    best, allowed = design.smallest(**request_), request_["epsilon"] ** 2
    n, depth, failure = (request_[key] for key in ("n", "depth", "failure"))
    measured = propagation.measure_error(n, best.d_k, depth, 1500, 7, heads=best.heads, failure=failure)
    assert measured.mean[-1] <= allowed + 5 * measured.stderr[-1]
    assert abs(measured.mean[-1] - best.error) <= 5 * measured.stderr[-1]


@pytest.mark.parametrize("request_", requests(3, 12), ids=str)
def test_no_shape_with_heads_as_wide_is_smaller(request_):
    best = design.smallest(**request_)
    floor = min(request_["narrowest"], best.d_k)
    for d in range(floor, best.width):
        heads = (best.width - 1) // d
        if heads:
            smaller = square_error(request_, heads, d) <= request_["epsilon"] ** 2
            spare = smaller and heads > 1 and square_error(request_, heads - 1, d) <= request_["epsilon"] ** 2
            frugal = (
                smaller and not spare and (d == 1 or square_error(request_, heads, d - 1) > request_["epsilon"] ** 2)
            )
            assert not (frugal and d >= request_["narrowest"]), (heads, d)


def test_without_a_narrowest_head_it_is_the_least_width_of_all():
    best = design.smallest(9, 3, epsilon=0.8, failure=0.1, narrowest=1)
    meets = [
        r * d for r in range(1, 200) for d in range(1, 200) if propagation.error(9, d, 3, heads=r, failure=0.1) <= 0.64
    ]
    assert best.width == min(meets)


def test_failures_want_more_and_narrower_heads():
    sound, failing = (design.smallest(64, 12, epsilon=0.5, failure=p) for p in (0.0, 0.05))
    assert (sound.heads, sound.interference) == (1, 1)
    assert failing.heads > 10
    assert failing.d_k >= 64
    assert 0.9 < failing.interference < 1


def test_cleanup_width_grows_like_the_logarithm_of_the_depth():
    widths = [design.cleanup_width(64, 4**k, delta=0.05) for k in range(5)]
    steps = [b - a for a, b in itertools.pairwise(widths)]
    assert all(5 <= step <= 12 for step in steps)
    measured = propagation.measure_decoding(64, widths[1], 4, 400, 5)
    assert measured.mean[-1] < 0.05


def test_the_neighbours_of_a_design_are_beside_it():
    best = design.smallest(64, 12, epsilon=0.5, failure=0.05)
    beside = design.neighbours(best, epsilon=0.5)
    assert beside["one head fewer"].rms > 0.5
    assert beside["one dimension fewer"].rms > 0.5
    assert beside["one head more"].rms < 0.5
    assert all(beside[f"heads of {d}"].rms <= 0.5 for d in (16, 32, 64, 128, 256))


def test_published_shapes_carry_what_the_law_says():
    models = {model.name: model for model in design.PUBLISHED}
    assert models["GPT-2"].capacity(1.0) == math.floor(1 + 768 * (2 ** (1 / 12) - 1))
    assert all(model.heads % model.memories == 0 for model in design.PUBLISHED)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"epsilon": 0}, "epsilon must be positive, got 0"),
        ({"epsilon": -1}, "epsilon must be positive, got -1"),
        ({"epsilon": 0.5, "failure": 1.0}, "failure must be in"),
        ({"epsilon": 0.5, "depth": 0}, "depth must be at least 1, got 0"),
        ({"epsilon": 0.5, "n": 0}, "n must be at least 1, got 0"),
        ({"epsilon": 0.5, "heads": 0}, "heads must be at least 1, got 0"),
        ({"epsilon": 0.5, "narrowest": 0}, "narrowest must be at least 1, got 0"),
        ({"epsilon": 0.5, "failure": 0.05, "heads": 2}, "allow 3 heads, or relax epsilon, or lower failure=0.05"),
        ({"epsilon": 1e-9}, "relax epsilon, or lower n, depth or failure"),
        ({"epsilon": 0.5, "failure": 1 - 1e-9}, "relax epsilon, or lower n, depth or failure"),
    ],
)
def test_an_impossible_request_says_what_to_relax(request_, message):
    with pytest.raises(ValueError, match=message):
        design.smallest(**({"n": 64, "depth": 12} | request_))
