r"""A contest of learning rules on six tasks (chapter *plausibility*).

A task draws a stream of pairs and the pairs that are asked for at its end. The score is the mean square error of the
answers, :math:`\mathbb{E}\lVert S k - v \rVert^2`: 0 is perfect, 1 is what an empty memory scores. Each rule enters at
its best parameters, chosen on other draws than those it is judged on.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pavlov import rules
from pavlov.montecarlo import Estimate, estimate, generators
from pavlov.stimuli import gaussian, sphere, unit

D, M = 16, 4  # key and value dimensions of every task
RATES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.4)
Draw = Callable[[int, torch.Generator, torch.Generator], tuple[Tensor, Tensor, Tensor, Tensor]]


def _pairs(size, n, keys, values):
    return sphere(size, n, D, generator=keys), sphere(size, n, M, generator=values)


def stationary(size, keys, values):
    """Twelve pairs, six passes; asked for all."""
    k, v = _pairs(size, 12, keys, values)
    return k.repeat(1, 6, 1), v.repeat(1, 6, 1), k, v


def by_age(size, keys, values):
    """Thirty-two pairs, one pass; asked for the newest eight."""
    k, v = _pairs(size, 32, keys, values)
    return k, v, k[:, -8:], v[:, -8:]


def reversal(size, keys, values):
    """Eight pairs, four passes, then twice the same keys with new values; asked for the new."""
    k, v = _pairs(size, 8, keys, values)
    new = sphere(size, 8, M, generator=values)
    return k.repeat(1, 6, 1), torch.cat([v.repeat(1, 4, 1), new.repeat(1, 2, 1)], 1), k, new


def distractors(size, keys, values):
    """Six pairs, once, each followed by four new keys that bring no US; asked for the six."""
    k, v = _pairs(size, 6, keys, values)
    noise = sphere(size, 6, 4, D, generator=keys)
    stream = torch.cat([k[:, :, None], noise], 2).flatten(1, 2)
    targets = torch.cat([v[:, :, None], v.new_zeros(size, 6, 4, M)], 2).flatten(1, 2)
    return stream, targets, k, v


def noisy_us(size, keys, values):
    """Eight pairs, eight passes, each value with noise of its own size; asked for the clean values."""
    k, v = _pairs(size, 8, keys, values)
    return k.repeat(1, 8, 1), v.repeat(1, 8, 1) + gaussian(size, 64, M, generator=values) / M**0.5, k, v


def biased_keys(size, keys, values):
    """Ten pairs, three passes, keys that share half of their power; asked for all."""
    k, v = _pairs(size, 10, keys, values)
    k = unit(k + sphere(size, 1, D, generator=keys))
    return k.repeat(1, 3, 1), v.repeat(1, 3, 1), k, v


TASKS: dict[str, Draw] = {
    "stationary": stationary,
    "recall by age": by_age,
    "reversal": reversal,
    "distractors": distractors,
    "noisy US": noisy_us,
    "biased keys": biased_keys,
}
OPTIONS = {
    "decay": {"gamma": (0.85, 0.9, 0.95, 0.98, 0.995)},
    "bcm": {"tau": (3.0, 30.0)},
    "gated_delta": {"gamma": (0.9, 0.95, 0.98, 0.99, 0.995)},
    "kalman": {"ridge": (0.001, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)},
    "mackintosh": {"kappa": (0.1, 0.3, 1.0)},
    "pearce_hall": {"kappa": (0.3, 1.0, 3.0), "initial": (0.5, 1.0)},
    "ph_attention": {"kappa": (0.3, 1.0, 3.0), "initial": (0.5, 1.0), "gamma": (0.95, 0.98, 0.995)},
    "two_timescales": {"gamma": (0.8, 0.9, 0.97), "share": (0.2, 0.5)},
}


@dataclass(frozen=True)
class Entry:
    """A rule at its best parameters on one task, with its score."""

    rule: rules.Rule
    rate: float
    score: Estimate


def variants(name: str) -> Iterator[rules.Rule]:
    """A rule with every combination of its options that the contest tries."""
    options = OPTIONS.get(name, {})
    for values in itertools.product(*options.values()):
        yield rules.rule(name, **dict(zip(options, values, strict=True)))


def errors(rule: rules.Rule, rates: Tensor, draw: Draw, size: int, keys, values) -> Tensor:
    """Mean square error for each rate and trial, ``(rates, size)``: all at once, on the same draws."""
    k, v, ask, answer = draw(size, keys, values)
    batch = (len(rates), -1, -1, -1)
    _, state = rules.run(rule, k.expand(*batch), v.expand(*batch), rates[:, None, None])
    return (ask @ state["S"].mT - answer).square().sum(-1).mean(-1)


def enter(name: str, task: str, *, trials: int, seed: int) -> Entry:
    """Choose a rule's parameters on one set of draws, and judge it on another (theorem 14).

    Raises:
        ValueError: as :func:`pavlov.montecarlo.estimate`, or for an unknown rule.
        KeyError: for an unknown task.
    """
    rates = torch.tensor(RATES, dtype=torch.float64)

    def practice(rule):
        found = errors(rule, rates, TASKS[task], 64, *generators(seed + 1, 0)).mean(1)
        return found.nan_to_num(torch.inf)  # a variant that diverges loses

    tried = [
        (float(scores.min()), int(scores.argmin()), rule) for rule in variants(name) for scores in [practice(rule)]
    ]
    _, best, rule = min(tried, key=lambda one: one[0])

    def trial(size, keys, values):
        return errors(rule, rates[best : best + 1], TASKS[task], size, keys, values)[0]

    return Entry(rule, RATES[best], estimate(trial, trials, seed, block=256))


def settled(rule: rules.PearceHall, rate: float, *, steps: int = 400, seed: int = 0, trials: int = 64) -> float:
    """Share of trials in which a rule, given eight random pairs over and over, keeps its error below ten."""
    keys, values = generators(seed, 0)
    k, v = _pairs(trials, 8, keys, values)
    _, state = rules.run(rule, k.repeat(1, steps // 8, 1), v.repeat(1, steps // 8, 1), rate)
    error = (k @ state["S"].mT - v).square().sum(-1).amax(-1)
    return float((error < 10).double().mean())
