r"""Checks: what turns a sentence of the book into a claim that could have failed.

A check compares what was measured with what the theory predicts *and* with a rival, a wrong answer that somebody
might give. It passes when the prediction stands and the rival falls. The theory itself, 5 % larger or smaller, is
always a rival too. So a run with too few trials, which could not tell them apart, fails.

In a notebook a check shows one line and carries its numbers in the output, from where the press collects them into
the ledger. A check that fails raises :class:`ClaimFailed`, which stops the chapter.
"""

import math
import sys
from collections.abc import Mapping

import numpy as np
import torch

from pavlov.montecarlo import Estimate

MIME = "application/vnd.pavlov.check+json"
SIGMAS = 5  # standard errors: a true prediction misses by chance once in two million checks
LONGEST = 80  # characters of an expression on the page; all of it is compared
PERTURBATION = 0.05  # a theory that is off by so much must be rejected


class ClaimFailed(AssertionError):
    """A check did not pass; the message says what was measured, predicted and expected of the rival."""


def check(claim: str, name: str, measured: Estimate, predicted, *, rival) -> None:
    r"""The measurement agrees with the prediction and rejects every rival.

    .. math:: |\bar x - \text{predicted}| \le 5\,\mathrm{se}, \qquad |\bar x - \text{rival}| > 5\,\mathrm{se}

    Args:
        claim: the claim's id in ``book/claims.yml``.
        name: what is measured, in a few words.
        measured: an estimate with its standard error. For arrays, every entry must agree with the prediction and
            at least one must reject the rival.
        predicted: the theory's value. Unless it is zero, the data must also reject it 5 % larger and 5 % smaller.
        rival: a wrong value, or a dict from what a rival says to the value it gives.

    Raises:
        ClaimFailed: when the check does not pass.
        ValueError: when a number is not finite or a standard error is not positive.
    """
    _finite(claim, name, measured=measured.mean, stderr=measured.stderr, predicted=predicted)
    if not np.all(np.asarray(measured.stderr) > 0):
        raise ValueError(
            f"{claim}: {name}: stderr must be positive, got {measured.stderr}; an exact quantity belongs in check_equal"
        )
    rivals = _rivals(rival)
    distance = {label: _sigmas(measured, value) for label, value in rivals.items()}
    against = {label: f"{_show(rivals[label])} ({far:.0f} σ)" for label, far in distance.items()}
    if np.any(predicted):
        wrong = (np.multiply(predicted, 1 + sign * PERTURBATION) for sign in (-1, 1))
        distance["5 % off"] = min(_sigmas(measured, value) for value in wrong)
        against["5 % off"] = f"{distance['5 % off']:.0f} σ"
    off = _sigmas(measured, predicted)
    _report(
        claim,
        name,
        "estimate",
        off <= SIGMAS and all(far > SIGMAS for far in distance.values()),
        measured=_show(measured),
        predicted=_show(predicted),
        off=f"{off:.1f} σ",
        rivals=against,
    )


def check_equal(claim: str, name: str, measured, predicted, *, rival) -> None:
    r"""Two computations give the same number, and another number is told apart.

    Tensors and floats agree to rounding: :math:`\max|a - b| \le \epsilon^{3/4} \max|b|`, with the coarser machine
    epsilon of the two, which is about 2e-12 for float64 and 6e-6 for float32. Integers, fractions and symbolic
    expressions must be equal.

    Args and errors as :func:`check`.
    """
    rivals = _rivals(rival)
    same = _same(measured, predicted)
    passed = same and not any(_same(measured, value) for value in rivals.values())
    _report(
        claim,
        name,
        "equal",
        passed,
        measured=_show(measured),
        predicted=_show(predicted),
        off="equal" if same else "differs",
        rivals={label: _show(value) for label, value in rivals.items()},
    )


def check_greater(claim: str, name: str, larger: Estimate, smaller: Estimate | float) -> None:
    r"""One measurement exceeds another by more than five of their joint standard errors.

    The rival here is the null hypothesis that they do not differ. Args and errors as :func:`check`.
    """
    smaller = smaller if isinstance(smaller, Estimate) else Estimate(smaller, 0.0, 0)
    _finite(claim, name, larger=larger.mean, smaller=smaller.mean)
    gap = _sigmas(Estimate(larger.mean - smaller.mean, math.hypot(larger.stderr, smaller.stderr), larger.n), 0)
    _report(
        claim,
        name,
        "greater",
        larger.mean > smaller.mean and gap > SIGMAS,
        measured=_show(larger),
        predicted=f"more than {_show(smaller) if smaller.n else _show(smaller.mean)}",
        off="above",
        rivals={"no difference": f"{gap:.0f} σ"},
    )


def _rivals(rival) -> dict:
    rivals = dict(rival) if isinstance(rival, Mapping) else {"rival": rival}
    if not rivals:
        raise ValueError("rival must name at least one wrong value, got an empty dict")
    return rivals


def _finite(claim: str, name: str, **numbers) -> None:
    for what, number in numbers.items():
        if not np.isfinite(np.asarray(number, dtype=float)).all():
            raise ValueError(f"{claim}: {name}: {what} must be finite, got {number}")


def _sigmas(measured: Estimate, value) -> float:
    """The largest distance of the measurement from a value, in standard errors."""
    distance = np.abs(np.asarray(measured.mean) - np.asarray(value, dtype=float))
    stderr = np.asarray(measured.stderr)
    return float(np.max(np.divide(distance, stderr, out=np.where(distance > 0, np.inf, 0.0), where=stderr > 0)))


def _same(a, b) -> bool:
    """Whether two quantities are equal: to rounding when either is floating-point, exactly otherwise."""
    if not any(isinstance(x, float | np.floating | np.ndarray | torch.Tensor) for x in (a, b)):
        return bool(a == b)
    a, b = (x if isinstance(x, torch.Tensor) else torch.as_tensor(np.asarray(x, dtype=float)) for x in (a, b))
    if a.shape != b.shape and a.numel() > 1 and b.numel() > 1:
        raise ValueError(f"measured and predicted must have one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    tolerance = max(torch.finfo(x.dtype).eps if x.is_floating_point() else 0 for x in (a, b)) ** 0.75
    a, b = a.detach().cpu().to(torch.float64), b.detach().cpu().to(torch.float64)
    return bool(((a - b).abs() <= tolerance * b.abs().amax()).all()) if b.numel() else not a.numel()


def _show(value) -> str:
    """A value as a reader wants it: four digits, and an array by its range."""
    if isinstance(value, Estimate):
        return f"{_show(value.mean)} ± {np.max(value.stderr):.1g}"
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.size > 1:
        return f"{value.size} values from {value.min():.4g} to {value.max():.4g}"
    if isinstance(value, float | np.floating | np.ndarray):
        return f"{float(value):.4g}"
    if isinstance(value, tuple):
        return ", ".join(map(_show, value))
    text = str(value).replace("**", "^").replace("*", "·")  # stars would be emphasis in Markdown
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _report(
    claim: str,
    name: str,
    kind: str,
    passed: bool,
    *,
    measured: str,
    predicted: str,
    off: str,
    rivals: dict[str, str],
) -> None:
    passed, mark = bool(passed), "✓" if passed else "✗"
    against = "; ".join(f"{label}: {value}" for label, value in rivals.items())
    outcome = f"measured {measured}, predicted {predicted} ({off})"
    text = f"{mark} {claim}: {name}: {outcome}; against {against}"
    if (ipython := sys.modules.get("IPython")) and ipython.get_ipython():
        record = {
            "claim": claim,
            "name": name,
            "kind": kind,
            "passed": passed,
            "measured": measured,
            "predicted": predicted,
            "off": off,
            "rivals": rivals,
            "text": text,
        }
        line = f"{mark} **{name}**: {outcome}; against {against}."
        ipython.display.display({MIME: record, "text/markdown": line, "text/plain": text}, raw=True)
    else:
        print(text)
    if not passed:
        raise ClaimFailed(text)
