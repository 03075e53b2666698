r"""A conditioning laboratory: designs, experiments, phenomena.

A stimulus :math:`i` of salience :math:`\alpha_i` is the key :math:`\sqrt{\alpha_i}` times a one-hot vector. A compound
is the sum of its elements, not renormalised. The US is the value: :math:`\lambda`, or 0 when it is omitted. The delta
rule with rate :math:`\beta` is then the rule of Rescorla and Wagner, exactly (theorem 15):

.. math:: \Delta V_i = \alpha_i \beta\, \Big(\lambda - \sum_{j \text{ present}} V_j\Big), \qquad V_i = S k_i .

A *design* is written as the field writes it: ``10A+/10AB- | 5B+ ; 20C- | 5B+``. A trial type is a count, the
stimuli (one letter each), and ``+`` (US), ``-`` (none) or ``#`` (a test, nothing is learned). ``/`` parts the trial
types of a phase, taken in turn until each count is used up; a leading ``!`` shuffles the phase; ``|`` parts phases and
``;`` groups.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pavlov import rules

LIMIT = 100_000  # trials of a group: more is a slip of the finger
DIVERGED = 1e6  # times the US: a response beyond it is no response


class DesignError(ValueError):
    """A malformed design; the message shows the design with a caret under the character."""

    def __init__(self, text: str, position: int, problem: str):
        self.text, self.position, self.problem = text, position, problem
        super().__init__(f"{problem}, at character {position + 1} of the design\n  {text}\n  {' ' * position}^")

    @property
    def line(self) -> str:
        """The message in one line, with the place marked by ``»``."""
        before, after = self.text[: self.position], self.text[self.position :]
        return f"{self.problem}, at character {self.position + 1}: {before}»{after}"


class Diverged(ArithmeticError):
    """A run whose response grew without bound: says the rule, the rate, the phase and the trial."""


@dataclass(frozen=True)
class Trial:
    """One trial: its stimuli, in order, and its sign, ``+``, ``-`` or ``#``."""

    stimuli: str
    sign: str

    def __str__(self):
        return self.stimuli + self.sign


@dataclass(frozen=True)
class Phase:
    """The trials of a phase in order, and whether the order is drawn anew for each shuffle."""

    trials: tuple[Trial, ...]
    shuffled: bool = False


TRIAL_TYPE = re.compile(r"\s*(?P<count>\d*)(?P<stimuli>[A-Za-z]*)(?P<sign>[-+#]?)\s*")


def parse(design: str) -> list[list[Phase]]:
    """Read a design: a list of groups, each a list of phases.

    Raises:
        TypeError: if the design is not a string.
        DesignError: if it is malformed; the message points at the character.
    """
    if not isinstance(design, str):
        raise TypeError(f"design must be a string like '10A+ | 10AB+', got {type(design).__name__}")
    groups = [
        [_parse_phase(design, *span) for span in _split(design, "|", *group)]
        for group in _split(design, ";", 0, len(design))
    ]
    for number, (group, (start, _)) in enumerate(zip(groups, _split(design, ";", 0, len(design)), strict=True)):
        if len(group) != len(groups[0]):
            problem = f"unbalanced groups: phases in group 1: {len(groups[0])}, in group {number + 1}: {len(group)}"
            raise DesignError(design, start, problem)
        if sum(len(phase.trials) for phase in group) > LIMIT:
            raise DesignError(design, start, f"a group may have {LIMIT:,} trials at most")
    return groups


def _split(text: str, separator: str, start: int, end: int) -> list[tuple[int, int]]:
    """The spans between separators."""
    cuts = [i for i in range(start, end) if text[i] == separator]
    return list(zip([start, *(i + 1 for i in cuts)], [*cuts, end], strict=True))


def _parse_phase(text: str, start: int, end: int) -> Phase:
    first = start + len(text[start:end]) - len(text[start:end].lstrip())
    if first == end:
        raise DesignError(text, start, "an empty phase: write at least one trial, such as 10A+")
    shuffled = text[first] == "!"
    counted = [_parse_type(text, *span) for span in _split(text, "/", first + shuffled, end)]
    if sum(count for count, _ in counted) > LIMIT:
        raise DesignError(text, start, f"a group may have {LIMIT:,} trials at most")
    turns = max(count for count, _ in counted)
    return Phase(tuple(trial for turn in range(turns) for count, trial in counted if turn < count), shuffled)


def _parse_type(text: str, start: int, end: int) -> tuple[int, Trial]:
    match = TRIAL_TYPE.match(text, start, end)
    count, stimuli, sign = match["count"], match["stimuli"], match["sign"]
    if match.end() != end:
        raise DesignError(text, match.end(), f"unexpected {text[match.end()]!r}: a trial type reads like 10AB+")
    if not stimuli:
        found = "a US without a CS; name the context as a stimulus" if sign == "+" else "a trial without stimuli"
        raise DesignError(text, match.start("stimuli"), f"{found}, such as {count or 10}X{sign or '+'}")
    for place, letter in enumerate(stimuli):
        if letter in stimuli[:place]:
            problem = f"stimulus {letter} twice in one compound; to make it stronger, raise its alpha"
            raise DesignError(text, match.start("stimuli") + place, problem)
    if not sign:
        problem = f"{stimuli} has no sign: + (US), - (none) or # (test)"
        raise DesignError(text, match.end("stimuli") - 1, problem)
    if count and not 1 <= int(count[:9]) <= LIMIT:
        raise DesignError(text, match.start("count"), f"a count must be from 1 to {LIMIT:,}, got {count}")
    return int(count or 1), Trial(stimuli, sign)


# Stimuli as keys


def stimuli_of(group: Sequence[Phase]) -> list[str]:
    """The stimuli of a group, sorted."""
    return sorted({letter for phase in group for trial in phase.trials for letter in trial.stimuli})


class Keys:
    r"""The key of every compound: its elements, each times :math:`\sqrt{\alpha}`, and configural cues if asked for.

    With ``configural`` each compound of two or more also has a cue of its own, a feature that is on for this
    compound only :cite:p:`pearce1980model`. It has the mean salience of the compound's elements.
    """

    def __init__(self, compounds: Sequence[str], alpha: Mapping[str, float], configural: bool = False):
        self.alpha = dict(alpha)
        for compound in compounds if configural else ():
            if len(compound) > 1:
                self.alpha["".join(sorted(compound))] = float(np.mean([alpha[letter] for letter in compound]))
        self.features = list(self.alpha)

    def __call__(self, compound: str) -> Tensor:
        """The key of a compound, ``(features,)``."""
        on = {*compound, "".join(sorted(compound))}
        return torch.tensor([self.alpha[f] ** 0.5 if f in on else 0.0 for f in self.features], dtype=torch.float64)


def _saliences(groups, alpha) -> dict[str, float]:
    stimuli = sorted({letter for group in groups for letter in stimuli_of(group)})
    if isinstance(alpha, Mapping):
        for wrong in sorted(set(stimuli) - set(alpha)):
            raise ValueError(f"alpha has no salience for stimulus {wrong}: give one for each of {', '.join(stimuli)}")
        for wrong in sorted(set(alpha) - set(stimuli)):
            raise ValueError(f"alpha names {wrong!r}, which the design has not: it has {', '.join(stimuli)}")
    saliences = {s: float(alpha[s] if isinstance(alpha, Mapping) else alpha) for s in stimuli}
    for stimulus, salience in saliences.items():
        if not 0 <= salience < float("inf"):
            raise ValueError(f"alpha must be at least 0 and finite, got {salience} for stimulus {stimulus}")
    return saliences


# Experiments


@dataclass(frozen=True)
class Experiment:
    """What one group did: its trials and the memory after each, for all shuffles at once."""

    group: Sequence[Phase]
    keys: Keys
    order: np.ndarray  # (shuffles, T): which trial of the design came at each step
    trials: list[Trial]  # in the design's order
    phases: np.ndarray  # (T,): the phase of each step
    memories: Tensor  # (shuffles, T + 1, features): the memory before the first trial and after each

    def response(self, compound: str, step: int = -1) -> Tensor:
        r"""The response :math:`S k` to a compound after a step, ``(shuffles,)``."""
        return self.memories[:, step] @ self.keys(compound)

    @property
    def strengths(self) -> dict[str, float]:
        """Final strength of each stimulus, the mean over shuffles."""
        return {s: float(self.response(s).mean()) for s in stimuli_of(self.group)}


def experiments(
    design: str,
    rule="delta",
    *,
    alpha: float | Mapping[str, float] = 1.0,
    beta: float = 0.1,
    beta_off: float | None = None,
    lam: float | Sequence[float] = 1.0,
    shuffles: int = 1,
    seed: int = 0,
    configural: bool = False,
    **rule_options,
) -> list[Experiment]:
    """Run a design, one :class:`Experiment` a group; all shuffles of a group are one batch.

    Args:
        design: the field's notation, see the head of this module.
        rule: a name in ``pavlov.rules.RULES``, a rule of your own, or a causal sequence mixer with the
            signature of :func:`pavlov.attention.linear_attention` or :func:`pavlov.attention.delta_attention`.
        alpha: salience, one for all stimuli or one for each.
        beta: learning rate on trials with the US, and without it unless ``beta_off`` is given.
        beta_off: learning rate on trials without the US.
        lam: the US, one for all phases or one for each.
        shuffles: how many orders to draw where a phase starts with ``!``.
        seed: of the shuffles.
        configural: give each compound a cue of its own besides its elements.
        rule_options: options of the rule, such as ``ridge`` or ``gamma``.

    Raises:
        DesignError: a malformed design.
        ValueError: an argument outside its range; for a rule that corrects its error, a rate outside
            (0, 2/‖k‖²) for the largest compound.
        Diverged: the response grew without bound.
    """
    groups = parse(design)
    chosen = _chosen(rule, rule_options)
    saliences = _saliences(groups, alpha)
    rates = {"+": beta, "-": beta if beta_off is None else beta_off}
    targets = _targets(lam, len(groups[0]))
    if not isinstance(shuffles, int) or shuffles < 1:
        raise ValueError(f"shuffles must be an integer of at least 1, got {shuffles!r}")
    rng = np.random.default_rng(seed)
    compounds = [t.stimuli for group in groups for phase in group for t in phase.trials]
    keys = Keys(sorted(set(compounds)), saliences, configural)
    _check_rates(rates, keys, set(compounds), getattr(chosen, "error_correcting", False), rule)
    return [_experiment(group, chosen, rule, keys, rates, targets, shuffles, rng) for group in groups]


def _chosen(rule, options):
    if isinstance(rule, str) or not callable(rule) or hasattr(rule, "write"):
        return rules.rule(rule, **options)
    if options:
        raise ValueError(f"a sequence mixer takes no rule options, got {', '.join(options)}; use functools.partial")
    return rule


def _targets(lam, phases: int) -> list[float]:
    targets = [float(lam)] * phases if np.ndim(lam) == 0 else [float(x) for x in lam]
    if len(targets) != phases or not np.isfinite(targets).all():
        raise ValueError(f"lam must be a finite number, or one for each of the {phases} phases, got {lam}")
    return targets


def _check_rates(rates, keys, compounds, error_correcting, rule) -> None:
    largest = max(compounds, key=lambda compound: float(keys(compound).square().sum()))
    length = float(keys(largest).square().sum())
    bound = 2 / length if error_correcting and length else float("inf")
    for sign, rate in rates.items():
        if not 0 < rate < bound:
            name = rule if isinstance(rule, str) else type(rule).__name__
            raise ValueError(
                f"{'beta' if sign == '+' else 'beta_off or beta'} must be in (0, {bound:.4g}) for rule {name}: "
                f"its bound is 2/‖k‖² and compound {largest} has ‖k‖² = {length:.4g}; got {rate}"
            )


def _experiment(group, chosen, rule, keys, rates, targets, shuffles, rng) -> Experiment:
    order, trials, phases = _orders(group, shuffles, rng)
    table = torch.stack([keys(trial.stimuli) for trial in trials])  # one row a trial of the design
    index = torch.as_tensor(order)
    value = torch.tensor([targets[p] * (t.sign == "+") for t, p in zip(trials, phases, strict=True)], dtype=table.dtype)
    rate = torch.tensor([rates.get(t.sign, 0.0) for t in trials], dtype=table.dtype)
    learns = torch.tensor([t.sign != "#" for t in trials])
    sequence = table[index], value[index][..., None], rate[index], learns[index]
    simulate = _by_rule if hasattr(chosen, "write") else _by_mixer
    memories = simulate(chosen, *sequence)
    _check_bounded(memories, max(map(abs, targets)), order, trials, phases, rule, rates)
    return Experiment(group, keys, order, trials, phases, memories)


def _orders(group, shuffles, rng):
    trials = [trial for phase in group for trial in phase.trials]
    phases = np.repeat(np.arange(len(group)), [len(phase.trials) for phase in group])
    order = np.tile(np.arange(len(trials)), (shuffles, 1))
    for number, phase in enumerate(group):
        if phase.shuffled:
            order[:, phases == number] = rng.permuted(order[:, phases == number], axis=1)
    return order, trials, phases


def _by_rule(rule, k, v, rate, learns):
    """The memory after every step; a test leaves it, and all else the rule keeps, as they were."""
    state = rule.start(k[:, 0], v[:, 0])
    memories = [state["S"][:, 0]]
    for t in range(k.shape[1]):
        after = rule.write(state, k[:, t], v[:, t], rate[:, t, None, None])
        keep = learns[:, t]
        state = {
            name: torch.where(keep.reshape(-1, *[1] * (new.ndim - 1)), new, state[name]) for name, new in after.items()
        }
        memories.append(state["S"][:, 0])
    return torch.stack(memories, 1)


def _by_mixer(mixer, k, v, rate, learns):
    """Ask a mixer at every step for each feature alone: as many queries as features, in one batch.

    A test is left out of the sequence. Shuffles may have tests at different steps, but all have as many.
    """
    shuffles, _, features = k.shape
    kept = learns.sort(dim=1, descending=True, stable=True).indices[:, : int(learns[0].sum())]
    k, v, rate = (x[torch.arange(shuffles)[:, None], kept] for x in (k, v, rate))
    queries = torch.eye(features, dtype=k.dtype)[:, None, None, :].expand(-1, *k.shape)
    extra = (rate,) if "beta" in inspect.signature(mixer).parameters else ()
    out = mixer(queries, k.expand_as(queries), v.expand(features, *v.shape), *extra)
    out = (out[0] if isinstance(out, tuple) else out)[..., 0].permute(1, 2, 0)  # (shuffles, T, features)
    out = torch.cat([torch.zeros_like(k[:, :1]), out], 1)
    return out[torch.arange(shuffles)[:, None], torch.cat([torch.zeros(shuffles, 1, dtype=int), learns.cumsum(1)], 1)]


def _check_bounded(memories, largest, order, trials, phases, rule, rates) -> None:
    wrong = ~(memories.abs() <= DIVERGED * max(largest, 1)).all(-1)  # (shuffles, T + 1), true for NaN too
    if wrong.any():
        shuffle, step = (int(x) for x in wrong.nonzero()[0])
        name = rule if isinstance(rule, str) else getattr(rule, "__name__", type(rule).__name__)
        raise Diverged(
            f"rule {name} with rate {rates['+']:g} diverged at trial {step} "
            f"({trials[order[shuffle, step - 1]]}, phase {phases[step - 1] + 1}); lower beta"
        )


def strengths(design: str, rule="delta", **options) -> dict:
    """Final associative strength of each stimulus (theorem 15).

    Args:
        design, rule, options: as :func:`experiments`: ``alpha=1.0``, ``beta=0.1``, ``beta_off=None``, ``lam=1.0``, …

    Returns:
        A dict from stimulus to strength; for several groups a dict ``"group 1"``, ``"group 2"``, … of such dicts.
        With shuffles, their mean.

    Raises:
        DesignError, ValueError, Diverged: as :func:`experiments`.
    """
    found = [experiment.strengths for experiment in experiments(design, rule, **options)]
    return found[0] if len(found) == 1 else {f"group {i}": each for i, each in enumerate(found, 1)}


def run(design: str, rule="delta", **options) -> pd.DataFrame:
    """Every trial of an experiment: one row a trial, with the response to it and the strengths after it.

    Args:
        design, rule, options: as :func:`experiments`.

    Returns:
        A data frame with the columns group, shuffle, phase, trial (from 1, in the group), type (such as ``AB+``),
        response (just before the US), and one column a stimulus with its strength after the trial.

    Raises:
        DesignError, ValueError, Diverged: as :func:`experiments`.
    """
    return pd.concat(
        [_frame(i, each) for i, each in enumerate(experiments(design, rule, **options), 1)], ignore_index=True
    )


def _frame(number: int, experiment: Experiment) -> pd.DataFrame:
    shuffles, steps = experiment.order.shape
    table = torch.stack([experiment.keys(trial.stimuli) for trial in experiment.trials])
    response = (experiment.memories[:, :-1] * table[torch.as_tensor(experiment.order)]).sum(-1)
    types = np.array([str(trial) for trial in experiment.trials])
    columns = {
        "group": number,
        "shuffle": np.repeat(np.arange(1, shuffles + 1), steps),
        "phase": np.tile(experiment.phases + 1, shuffles),
        "trial": np.tile(np.arange(1, steps + 1), shuffles),
        "type": types[experiment.order].ravel(),
        "response": response.numpy().ravel(),
    }
    for stimulus in stimuli_of(experiment.group):
        columns[stimulus] = (experiment.memories[:, 1:] @ experiment.keys(stimulus)).numpy().ravel()
    return pd.DataFrame(columns)


# Closed forms


def blocking(n: int, m: int, alpha_a: float = 1.0, alpha_b: float = 1.0, beta: float = 0.1, lam: float = 1.0):
    r"""Kamin blocking in closed form: ``n`` trials A+, then ``m`` trials AB+ (theorem 15).

    .. math:: V_B = \frac{\alpha_B}{\alpha_A + \alpha_B}\,\lambda\,(1 - \alpha_A\beta)^n\,
              \big(1 - (1 - (\alpha_A + \alpha_B)\beta)^m\big)

    and :math:`V_A` is what A had after pre-training plus :math:`\alpha_A / \alpha_B` times :math:`V_B`. With
    ``n = 0`` it is the control group, overshadowing alone.

    Returns:
        :math:`(V_A, V_B)`, numbers of the kind given: floats, fractions or SymPy's.
    """
    left = (1 - alpha_a * beta) ** n
    gain = lam * left * (1 - (1 - (alpha_a + alpha_b) * beta) ** m) / (alpha_a + alpha_b)
    return lam * (1 - left) + alpha_a * gain, alpha_b * gain


# Phenomena


@dataclass(frozen=True)
class Phenomenon:
    """A phenomenon as a contrast: a design, and an effect that is positive when the phenomenon is there.

    ``effect`` gets a function ``r(compound, group)``, the final response of group 1, 2, …
    """

    name: str
    design: str
    effect: Callable[[Callable[[str, int], float]], float]
    meaning: str
    options: Mapping = None

    def __call__(self, rule, **options) -> float:
        """The effect under a rule, in units of the US."""
        runs = experiments(self.design, rule, **{**(self.options or {}), **options})
        return self.effect(lambda compound, group=1: float(runs[group - 1].response(compound).mean()))


PHENOMENA = (
    Phenomenon("acquisition", "20A+", lambda r: r("A"), "V_A grows"),
    Phenomenon("summation", "20A+/20B+", lambda r: r("AB") - max(r("A"), r("B")), "AB above A and above B"),
    Phenomenon("extinction", "20A+ | 20A- ; 20A+ | 20C-", lambda r: r("A", 2) - r("A"), "A- lowers A, C- does not"),
    Phenomenon("partial reinforcement", "20A+ ; 20A+/20A-", lambda r: r("A") - r("A", 2), "A- between lowers A"),
    Phenomenon(
        "discrimination",
        "60AX+/60BX-",
        lambda r: min(r("AX"), r("AX") - r("BX")),
        "AX above BX",
    ),
    Phenomenon("generalisation", "20AX+", lambda r: min(r("BX"), r("AX") - r("BX")), "BX answers, less than AX"),
    Phenomenon(
        "blocking", "10A+ | 10AB+ ; 10C+ | 10AB+", lambda r: r("B", 2) - r("B"), "B weaker when A was trained before"
    ),
    Phenomenon(
        "unblocking",
        "30A+ | 10AB+ | X# ; 30A+ | X# | 10AB+ ; 30C+ | 10AB+ | X#",
        lambda r: min(r("B", 3) - r("B"), r("B", 2) - r("B")),
        "blocked, unless the US grows to twice its size",
        {"lam": (1, 1, 2)},
    ),
    Phenomenon("overshadowing", "10AB+ ; 10A+", lambda r: r("A", 2) - r("A"), "A weaker when trained together with B"),
    Phenomenon(
        "conditioned inhibition (summation)",
        "40A+/40AB-/40C+",
        lambda r: r("C") - r("BC"),
        "B lowers the response to C",
    ),
    Phenomenon(
        "conditioned inhibition (retardation)",
        "40A+/40AB- | 5B+ ; 40A+/40AD- | 5B+",
        lambda r: r("B", 2) - r("B"),
        "B learns later than a new stimulus",
    ),
    Phenomenon("overexpectation", "20A+/20B+ | 20AB+ ; 20A+/20B+ | 20C-", lambda r: r("A", 2) - r("A"), "AB+ lowers A"),
    Phenomenon(
        "super-conditioning",
        "40A+/40AB- | 10BC+ ; 40A+/40AD- | 10BC+",
        lambda r: r("C") - r("C", 2),
        "C learns more beside an inhibitor",
    ),
    Phenomenon(
        "latent inhibition", "20A- | 5A+ ; 20C- | 5A+", lambda r: r("A", 2) - r("A"), "A learns later when known before"
    ),
    Phenomenon(
        "backward blocking", "20AB+ | 20A+ ; 20AB+ | 20C+", lambda r: r("B", 2) - r("B"), "A+ afterwards lowers B"
    ),
    Phenomenon(
        "recovery from overshadowing",
        "20AB+ | 20A- ; 20AB+ | 20C-",
        lambda r: r("B") - r("B", 2),
        "A- afterwards raises B",
    ),
    Phenomenon(
        "relative validity",
        "40AX+/40BX- ; 20AX+/20AX-/20BX+/20BX-",
        lambda r: r("X", 2) - r("X"),
        "X weaker beside a better predictor (trials without US teach at half the rate)",
        {"beta_off": 0.05},
    ),
    Phenomenon(
        "negative patterning",
        "300A+/300B+/300AB-",
        lambda r: min(r("A"), r("B")) - r("AB"),
        "AB below A and B",
    ),
    Phenomenon(
        "configural negative patterning",
        "300A+/300B+/300AB-",
        lambda r: min(r("A"), r("B")) - r("AB"),
        "the same with a cue for the compound",
        {"configural": True},
    ),
    Phenomenon("second-order conditioning", "20A+ | 10AB-", lambda r: r("B"), "B, paired with A, gains"),
    Phenomenon(
        "sensory preconditioning",
        "20AB- | 20A+ ; 20AB- | 20C+",
        lambda r: r("B") - r("B", 2),
        "B gains when A, paired with it before, is trained",
    ),
    Phenomenon(
        "spontaneous recovery",
        "20A+ | 20A- | 40C- ; 20A+ | 20A- | 1C-",
        lambda r: r("A") - r("A", 2),
        "A returns while other things happen",
    ),
    Phenomenon(
        "reacquisition",
        "20A+ | 100A- | 5A+ ; 20C+ | 100C- | 5A+ ; 20A+ | 100A- | 5C+",
        lambda r: r("A") - r("A", 3) - r("A", 2),
        "gains more than a new stimulus does",
    ),
)
THRESHOLD = 0.02  # of the US: the least effect that counts as shown


def phenomena(rule, **options) -> pd.DataFrame:
    """Every phenomenon under one rule: its row of the table, or that of a rule of your own (theorem 15).

    Args:
        rule, options: as :func:`experiments`.

    Returns:
        A data frame indexed by phenomenon, with the columns effect (in units of the US), shown (effect above
        ``THRESHOLD``), meaning and design.

    Raises:
        ValueError, Diverged: as :func:`experiments`.
    """
    effects = [phenomenon(rule, **options) for phenomenon in PHENOMENA]
    frame = pd.DataFrame({"effect": effects, "shown": [effect > THRESHOLD for effect in effects]})
    frame["meaning"], frame["design"] = ([getattr(p, name) for p in PHENOMENA] for name in ("meaning", "design"))
    return frame.set_index(pd.Index([p.name for p in PHENOMENA], name="phenomenon"))


# Human data

HUMAN_DESIGN = "!12A+/12B-/12C- | !6AX+/6BY+/6CD-"
CUES = "ABCDXY"


def ratings() -> pd.DataFrame:
    """Mean rating of each cue by each of 41 people, in [0, 1]: one row a person, one column a cue.

    From the blocking experiment of :cite:t:`spicer2021representing`, whose design is ``HUMAN_DESIGN``; X is the
    blocked cue and Y its control. The table ships with the package (CC BY 4.0, see ``pavlov/data/README.md``).
    """
    with resources.files("pavlov").joinpath("data/blocking_ratings.csv").open() as file:
        table = pd.read_csv(file)
    return table.groupby(["ppt", "cue"])["rating"].mean().unstack()[list(CUES)] / 10


def predicted_ratings(rule, betas: Sequence[float], *, shuffles: int = 32, seed: int = 0) -> np.ndarray:
    """Strength of each cue after the human experiment at each rate, ``(betas, cues)``, the mean over shuffles."""
    rows = [strengths(HUMAN_DESIGN, rule, beta=beta, shuffles=shuffles, seed=seed) for beta in betas]
    return np.array([[row[cue] for cue in CUES] for row in rows])


def fit(predictions: np.ndarray, people: np.ndarray) -> tuple[int, float]:
    r"""The rate and the gain :math:`g \ge 0` that bring :math:`g V` closest to the mean ratings of some people.

    Args:
        predictions: ``(betas, cues)``.
        people: ``(people, cues)``.

    Returns:
        The index of the best rate, and its gain.
    """
    mean = people.mean(0)
    gain = np.clip(predictions @ mean / np.maximum((predictions**2).sum(1), 1e-300), 0, None)
    best = int(((gain[:, None] * predictions - mean) ** 2).sum(1).argmin())
    return best, float(gain[best])


def held_out(predictions: np.ndarray, people: np.ndarray) -> np.ndarray:
    """Root-mean-square error for each person of the fit to all the others, ``(people,)``."""
    errors = []
    for person in range(len(people)):
        best, gain = fit(predictions, np.delete(people, person, 0))
        errors.append(np.sqrt(((gain * predictions[best] - people[person]) ** 2).mean()))
    return np.array(errors)
