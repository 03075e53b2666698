"""A check passes only when the prediction stands and the rival falls."""

import math
from fractions import Fraction

import numpy as np
import pytest
import sympy
import torch

from pavlov import claims
from pavlov.claims import ClaimFailed, check, check_equal, check_greater
from pavlov.montecarlo import Estimate

GOOD = Estimate(1.003, 0.001, 1000)


def test_a_true_prediction_with_a_false_rival_passes(capsys):
    check("load", "mean", GOOD, 1.0, rival={"twice": 2.0})
    assert "✓ load: mean: measured 1.003 ± 0.001, predicted 1 (3.0 σ)" in capsys.readouterr().out


@pytest.mark.parametrize("theory", [0.95, 1.05])
def test_a_prediction_off_by_five_percent_fails(theory):
    with pytest.raises(ClaimFailed, match=f"predicted {theory}"):
        check("load", "mean", GOOD, theory, rival=2.0)


@pytest.mark.parametrize("measured", [1.0, 1.01, 0.99])
def test_too_few_trials_to_tell_a_theory_off_by_five_percent_fail(measured):
    with pytest.raises(ClaimFailed, match=r"5 % off: [345] σ"):
        check("load", "mean", Estimate(measured, 0.011, 90), 1.0, rival=2.0)


def test_a_prediction_of_zero_has_the_given_rivals_only():
    check("load", "mean", Estimate(0.01, 0.1, 90), 0.0, rival=1.0)


def test_every_rival_must_fall():
    with pytest.raises(ClaimFailed):
        check("load", "mean", GOOD, 1.0, rival={"far": 2.0, "near": 1.002})


def test_for_arrays_every_entry_must_agree_and_one_must_reject_the_rival():
    measured = Estimate(np.array([1.0, 2.0]), np.array([0.01, 0.01]), 100)
    check("a", "b", measured, [1.0, 2.0], rival=np.array([1.0, 3.0]))
    with pytest.raises(ClaimFailed):
        check("a", "b", measured, [1.0, 2.1], rival=[1.0, 3.0])


@pytest.mark.parametrize("stderr", [0.0, math.nan])
def test_an_estimate_without_an_error_is_refused(stderr):
    with pytest.raises(ValueError, match="stderr must be"):
        check("a", "b", Estimate(1.0, stderr, 10), 1.0, rival=2.0)


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="predicted must be finite, got nan"):
        check("a", "b", GOOD, math.nan, rival=2.0)


@pytest.mark.parametrize(
    ("a", "b", "rival"),
    [
        (Fraction(1, 3), Fraction(2, 6), Fraction(1, 2)),
        (sympy.sqrt(8), 2 * sympy.sqrt(2), sympy.Integer(3)),
        ((1, 2), (1, 2), (2, 1)),
        (0.1 + 0.2, 0.3, 0.3001),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.000001]), torch.tensor([1.0, 2.1])),
        (np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-13]), np.array([1.0, 2.0 + 1e-9])),
    ],
)
def test_equal_quantities_pass_and_their_rivals_would_not(a, b, rival):
    check_equal("a", "b", a, b, rival=rival)
    with pytest.raises(ClaimFailed):
        check_equal("a", "b", a, rival, rival=3)
    with pytest.raises(ClaimFailed):
        check_equal("a", "b", a, b, rival=b)


def test_not_a_number_equals_nothing():
    with pytest.raises(ClaimFailed):
        check_equal("a", "b", torch.tensor([math.nan, 1.0]), torch.tensor([math.nan, 1.0]), rival=0.0)


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        check_equal("a", "b", torch.ones(3), torch.ones(2), rival=0.0)


def test_order_needs_more_than_five_joint_errors():
    check_greater("a", "b", Estimate(1.0, 0.03, 9), Estimate(0.7, 0.04, 9))
    with pytest.raises(ClaimFailed):
        check_greater("a", "b", Estimate(1.0, 0.03, 9), Estimate(0.8, 0.04, 9))
    with pytest.raises(ClaimFailed):
        check_greater("a", "b", Estimate(0.7, 0.01, 9), 1.0)


def test_no_rival_is_no_check():
    with pytest.raises(ValueError, match="at least one wrong value"):
        check("a", "b", GOOD, 1.0, rival={})


def test_in_a_notebook_a_check_publishes_its_numbers():
    from IPython.testing.globalipapp import start_ipython
    from IPython.utils.capture import capture_output

    shell = start_ipython()
    with capture_output() as captured:
        shell.run_cell("from pavlov import claims; from pavlov.montecarlo import Estimate\n"
                       "claims.check('load', 'mean', Estimate(1.0, 0.009, 9), 1.0, rival={'twice': 2.0})")  # fmt: skip
    bundle = captured.outputs[0].data
    assert bundle[claims.MIME] | {"text": ""} == {
        "claim": "load", "name": "mean", "kind": "estimate", "passed": True, "measured": "1 ± 0.009", "predicted": "1",
        "off": "0.0 σ", "rivals": {"twice": "2 (111 σ)", "5 % off": "6 σ"}, "text": ""}  # fmt: skip
    assert bundle["text/markdown"].startswith("✓ **mean**")
