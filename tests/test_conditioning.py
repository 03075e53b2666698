"""Designs, experiments against a textbook loop and published figures, phenomena."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch

from pavlov import conditioning, rules
from pavlov.attention import delta_attention, linear_attention, softmax_attention

PAPERS = {"alpha": 0.2, "beta": 0.5}  # of the simulators that published the figures below


def test_a_design_takes_its_trial_types_in_turn():
    [[first, second]] = conditioning.parse("3A+/1AB- | !2b# / C+")
    assert [str(t) for t in first.trials] == ["A+", "AB-", "A+", "A+"]
    assert [str(t) for t in second.trials] == ["b#", "C+", "b#"]
    assert (first.shuffled, second.shuffled) == (False, True)


@pytest.mark.parametrize(
    ("design", "position", "problem"),
    [
        ("AA+", 1, "stimulus A twice"),
        ("10A+ | 5BAB-", 10, "stimulus B twice"),
        ("10", 2, "a trial without stimuli"),
        ("A*", 1, "unexpected '*'"),
        ("A", 0, "A has no sign"),
        ("10A+||5B+", 5, "an empty phase"),
        ("10A+ | ", 6, "an empty phase"),
        ("", 0, "an empty phase"),
        ("10A+/", 5, "a trial without stimuli"),
        ("10A+|5B+ ; 5A+", 10, "unbalanced groups"),
        ("10+", 2, "a US without a CS"),
        ("0A+", 0, "a count must be from 1"),
        ("9999999999A+", 0, "a count must be from 1"),
        ("99999A+/99999B+", 0, "100,000 trials at most"),
        ("5A+ 5B+", 4, "unexpected '5'"),
        ("5A+ | Ä+", 6, "unexpected 'Ä'|without stimuli"),
    ],
)
def test_a_malformed_design_is_pointed_at(design, position, problem):
    with pytest.raises(conditioning.DesignError, match=problem.replace("*", r"\*")) as caught:
        conditioning.strengths(design)
    assert caught.value.position == position
    assert f"character {position + 1}" in str(caught.value)
    assert "\n" not in caught.value.line


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"alpha": -0.1}, ValueError, "alpha must be at least 0 and finite, got -0.1 for stimulus A"),
        ({"alpha": {"A": 1}}, ValueError, "no salience for stimulus B"),
        ({"alpha": {"A": 1, "B": 1, "C": 1}}, ValueError, "alpha names 'C'"),
        ({"beta": 1.0}, ValueError, r"beta must be in \(0, 1\) for rule delta.*AB has ‖k‖² = 2; got 1"),
        ({"beta": 0.0}, ValueError, r"got 0"),
        ({"beta_off": -1.0}, ValueError, "beta_off or beta"),
        ({"beta": float("nan")}, ValueError, "got nan"),
        ({"lam": (1, 2)}, ValueError, "one for each of the 1 phases"),
        ({"lam": float("inf")}, ValueError, "lam must be a finite number"),
        ({"shuffles": 0}, ValueError, "shuffles must be an integer of at least 1"),
        ({"rule": "rw"}, ValueError, "rule must be one of"),
        ({"gama": 1}, ValueError, "no option 'gama'"),
        ({"rule": linear_attention, "gamma": 1}, ValueError, "a sequence mixer takes no rule options"),
    ],
)
def test_a_bad_argument_is_named(options, error, message):
    with pytest.raises(error, match=message):
        conditioning.strengths("5AB+", **options)


def test_a_design_must_be_a_string():
    with pytest.raises(TypeError, match="design must be a string"):
        conditioning.strengths(["10A+"])


def test_a_run_that_diverges_says_where():
    with pytest.raises(
        conditioning.Diverged, match=r"pearce_hall with rate 0.5 diverged at trial \d+ \(AB\+, phase 2\)"
    ):
        conditioning.strengths("C- | 90AB+", "pearce_hall", beta=0.5, initial=9.0, kappa=0.0)


# Published figures


@pytest.mark.parametrize(
    ("design", "options", "figures"),
    [
        ("10A+", PAPERS, {"A": 0.6513215599}),
        ("10A+", {"alpha": 0.4, "beta": 0.4}, {"A": 0.8250987712}),
        ("10A+ | 10A-", PAPERS, {"A": 0.2271017855}),
        ("10A+ | 10AB+", PAPERS, {"A": 0.806941, "B": 0.1556196888}),
        ("10C+ | 10AB+", PAPERS, {"B": 0.4463129088}),
        ("10AB+", {"alpha": {"A": 0.4, "B": 0.1}, "beta": 0.5}, {"A": 0.754949, "B": 0.188737}),
        ("2000AB+", {"alpha": {"A": 0.4, "B": 0.1}, "beta": 0.5}, {"A": 0.8, "B": 0.2}),
        ("20A- | 5A+", {"rule": "kalman"}, {"A": 5 / 26}),
        ("20C- | 5A+", {"rule": "kalman", "ridge": 1.0}, {"A": 5 / 6}),
    ],
)
def test_published_figures(design, options, figures):
    found = conditioning.strengths(design, **options)
    for stimulus, figure in figures.items():
        digits = len(f"{figure:.10f}".rstrip("0")) - 2
        assert found[stimulus] == pytest.approx(figure, abs=max(10.0**-digits, 1e-12))


def test_renormalised_compounds_block_only_in_part():
    """A compound scaled back to length one is another experiment: the errors settle at √2 a stimulus."""
    a, ab = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]).sqrt()
    keys = torch.cat([a.expand(400, 2), ab.expand(400, 2)]).double()
    _, state = rules.run(rules.RULES["delta"], keys, torch.ones(800, 1).double(), 0.1)
    assert state["S"][0].tolist() == pytest.approx([1.2071, 0.2071], abs=5e-5)
    _, control = rules.run(rules.RULES["delta"], keys[400:], torch.ones(400, 1).double(), 0.1)
    assert control["S"][0].tolist() == pytest.approx([0.7071, 0.7071], abs=5e-5)


def rescorla_wagner(trials, alpha, beta, beta_off, lam):
    """The textbook loop."""
    v = dict.fromkeys(alpha, 0.0)
    for stimuli, sign in trials:
        error = (lam if sign == "+" else 0) - sum(v[s] for s in stimuli)
        for s in stimuli if sign != "#" else ():
            v[s] += alpha[s] * (beta if sign == "+" else beta_off) * error
    return v


def test_delta_is_rescorla_wagner():
    rng = np.random.default_rng(0)
    for _ in range(20):
        kinds = [
            ("".join(sorted(rng.permutation(list("ABCD"))[: rng.integers(1, 4)])), rng.choice(list("+-#")))
            for _ in range(15)
        ]
        alpha = dict(zip("ABCD", rng.uniform(0, 0.5, 4), strict=True))
        present = {s for stimuli, _ in kinds for s in stimuli}
        expected = rescorla_wagner(kinds, alpha, 0.6, 0.3, 1.5)
        found = conditioning.strengths(
            "|".join(a + b for a, b in kinds), alpha={s: alpha[s] for s in present}, beta=0.6, beta_off=0.3, lam=1.5
        )
        assert found == pytest.approx({s: expected[s] for s in sorted(present)}, abs=1e-12)


@pytest.mark.parametrize("beta", [0.05, 0.2, 0.4, 0.7, 0.9])
def test_blocking_in_closed_form(beta):
    alpha = {"A": 0.9, "B": 0.4}
    found = conditioning.strengths("7A+ | 5AB+", alpha=alpha, beta=beta)
    assert tuple(found.values()) == pytest.approx(conditioning.blocking(7, 5, 0.9, 0.4, beta), abs=1e-12)


def test_blocking_in_fractions():
    third = Fraction(1, 3)
    a, b = conditioning.blocking(1, 1, 1, 1, third, 1)
    assert (a, b) == (third + third * Fraction(2, 3), third * Fraction(2, 3))


# Sequence mixers


def test_an_attention_operator_takes_the_same_experiments():
    design = "!6A+/6AB-/2C# | 4B+/C+ ; 5C+ | A#"
    pairs = [("hebb", lambda q, k, v, beta: linear_attention(q, k, beta[..., None] * v)), ("delta", delta_attention)]
    for rule, mixer in pairs:
        ours, theirs = (conditioning.run(design, r, shuffles=3, seed=4) for r in (rule, mixer))
        assert np.allclose(ours.drop(columns="type").fillna(0), theirs.drop(columns="type").fillna(0), atol=1e-12)
        assert (ours["type"] == theirs["type"]).all()


def test_softmax_answers_with_the_mean_of_what_it_saw():
    found = conditioning.strengths("3A+/B-", partial(softmax_attention, scale=0.0))
    assert found == pytest.approx({"A": 0.75, "B": 0.75})


# Shuffles, tests, frames


def test_shuffles_in_one_batch_are_as_one_by_one():
    frame = conditioning.run("!10A+/10A-", shuffles=5, seed=2)
    for _, trials in frame.groupby("shuffle"):
        expected = rescorla_wagner([(t[:-1], t[-1]) for t in trials["type"]], {"A": 1}, 0.1, 0.1, 1)
        assert trials["A"].iloc[-1] == pytest.approx(expected["A"])
    assert frame.groupby("shuffle")["type"].agg("".join).nunique() > 1
    assert (frame.groupby("shuffle")["type"].agg(lambda x: (x == "A+").sum()) == 10).all()


def test_a_test_trial_teaches_nothing_to_any_rule():
    for name in rules.RULES:
        assert conditioning.strengths("5A+ | 9A# | 5A+", name) == conditioning.strengths("5A+ | 5A+", name)


def test_the_frame_gives_the_response_before_the_us():
    frame = conditioning.run("2AB+", beta=0.25)
    assert frame["response"].tolist() == pytest.approx([0, 0.5])
    assert frame["A"].tolist() == pytest.approx([0.25, 0.375])


# Phenomena

SHOWN = {
    "hebb": "acquisition, summation, discrimination, generalisation",
    "delta": "acquisition, summation, extinction, partial reinforcement, discrimination, generalisation, blocking, "
    "unblocking, overshadowing, conditioned inhibition (summation), conditioned inhibition (retardation), "
    "overexpectation, super-conditioning, relative validity, configural negative patterning",
    "kalman": "latent inhibition, backward blocking, recovery from overshadowing, blocking, overexpectation",
    "pearce_hall": "latent inhibition, blocking, overexpectation",
    "mackintosh": "blocking, relative validity",
    "two_timescales": "spontaneous recovery",
    "decay": "partial reinforcement",
}
HIDDEN = {
    "hebb": "extinction, blocking, overshadowing, overexpectation, latent inhibition, reacquisition",
    "decay": "extinction, blocking, overshadowing, spontaneous recovery",
    "delta": "latent inhibition, backward blocking, recovery from overshadowing, negative patterning, "
    "spontaneous recovery, sensory preconditioning, second-order conditioning, reacquisition",
    "kalman": "spontaneous recovery, sensory preconditioning",
    "mackintosh": "conditioned inhibition (summation), overexpectation, super-conditioning, latent inhibition",
    "pearce_hall": "backward blocking, spontaneous recovery",
}


@pytest.mark.parametrize(("table", "expected"), [(SHOWN, True), (HIDDEN, False)])
def test_the_table_of_phenomena(table, expected):
    for rule, names in table.items():
        row = conditioning.phenomena(rule)["shown"]
        wrong = [name for name in names.split(", ") if bool(row[name]) is not expected]
        assert not wrong, f"{rule}: {wrong}"


def test_a_rule_of_the_readers_own_has_its_row():
    class Forgetful:
        def start(self, k, v):
            return {"S": torch.zeros(k.shape[0], v.shape[-1], k.shape[-1], dtype=k.dtype)}

        def write(self, state, k, v, rate):
            return {"S": 0 * state["S"]}

    row = conditioning.phenomena(Forgetful())
    assert not row["shown"].any()
    assert (row["effect"] == 0).all()


def test_no_single_state_recovers_whatever_happens_elsewhere():
    for name in set(rules.RULES) - {"two_timescales"}:
        frame = conditioning.run("20A+ | 60A- | 30BC+/30B-/30C+", name)
        after = frame.loc[frame["phase"] == 3, "A"].abs()
        assert (after.diff().dropna() <= 1e-12).all(), name
