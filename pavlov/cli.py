"""The command line: build the book, run a chapter, read the ledger.

A user's mistake is told in one line on stderr and ends with status 2; work that failed ends with status 1.
"""

import ast
import importlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.core import TyperCommand

from .press.errors import BuildError, UserError

INTERRUPTED = 130  # what typer makes of Ctrl-C

app = typer.Typer(add_completion=False, no_args_is_help=True, help="An executable companion to a paper.")

Chapters = Annotated[list[str] | None, typer.Argument(metavar="[CHAPTER]...", help="All of them by default.")]
Profile = Annotated[Literal["quick", "full"], typer.Option(help="Quick to check every claim, full to publish.")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where the chapters compute.")]
Seed = Annotated[int | None, typer.Option(help="Instead of the seed that each chapter states.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds a cell may take. [600 quick, 7200 full]")]


class PairCommand(TyperCommand):
    """A command whose ``-p`` takes two words, a name and a value; typer knows lists of single ones only."""

    def parse_args(self, ctx, args):
        words, joined = iter(args), []
        for word in words:
            if word in ("-p", "--parameter"):
                name, value = next(words, None), next(words, None)
                if value is None:
                    raise UserError(f"{word} takes a name and a value")
                joined += [word, f"{name}={value}"]
            else:
                joined.append(word)
        return super().parse_args(ctx, joined)


@app.command()
def build(
    chapters: Chapters = None,
    profile: Profile = "quick",
    device: Device = "cpu",
    seed: Seed = None,
    jobs: Annotated[int, typer.Option(help="Chapters run side by side.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Run chapters whose results are up to date too.")] = False,
    timeout: Timeout = None,
) -> None:
    """Run the chapters that changed, check every claim, and render the book into _build/html.

    With CHAPTERs named only these are run; the book is rendered if the others have up-to-date results.
    """
    press = _press()
    report = press.terminal.Report()
    settings = {"profile": profile, "device": device, "seed": seed, "timeout": timeout}
    project = press.project.Project.find()
    page = press.build.build(project, chapters or (), **settings, jobs=jobs, force=force, progress=report)
    if page:
        report.say(f"read it: {os.path.relpath(page)}")


@app.command(cls=PairCommand)
def run(
    chapter: Annotated[str, typer.Argument(metavar="CHAPTER")],
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", "--parameter", metavar="NAME VALUE", help="Set a parameter; repeatable."),
    ] = None,
    profile: Profile = "quick",
    device: Device = "cpu",
    seed: Seed = None,
    timeout: Timeout = None,
) -> None:
    """Run one chapter, aside from the book, and print its checks. Ends with 0 only if all passed."""
    press = _press()
    report = press.terminal.Report()
    extra = {name: _literal(value) for name, value in (pair.split("=", 1) for pair in parameter or ())}
    settings = {"profile": profile, "device": device, "seed": seed, "extra": extra, "timeout": timeout}
    failure = None
    try:
        notebook = press.build.run(press.project.Project.find(), chapter, **settings, progress=report)
    except BuildError as error:
        failure, notebook = error, error.notebook
    checks = press.ledger.checks(notebook) if notebook else []
    report.console.print(press.terminal.checks_table(checks))
    if failure:
        raise failure
    if not all(check["passed"] for check in checks):
        raise BuildError(f"{chapter}: not every check passed")


@app.command()
def claims(
    profile: Profile = "quick",
    markdown: Annotated[bool, typer.Option("--markdown", help="The table as Markdown, for the README.")] = False,
) -> None:
    """Print the ledger. Ends with 0 only if every claim has checks and all of them passed."""
    press = _press()
    report = press.terminal.Report()
    book = press.build.claims_of(press.project.Project.find(), profile)
    if markdown:
        sys.stdout.write(press.ledger.summary_readme(book))
    else:
        report.console.print(press.terminal.claims_table(book))
    if book.problems:
        raise BuildError("\n".join(book.problems))


@app.command()
def design(
    pairs: Annotated[int, typer.Option(help="Pairs to carry through all layers.")],
    depth: Annotated[int, typer.Option(help="Layers.")],
    error: Annotated[float, typer.Option(help="Root-mean-square error allowed at the end; an item has length 1.")],
    failure: Annotated[float, typer.Option(help="Probability that a head is silent in a layer.")] = 0.0,
    heads: Annotated[int | None, typer.Option(help="How many heads, if that is given.")] = None,
    narrowest: Annotated[int, typer.Option(help="Least dimension of a head's keys.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Print the least attention layers that carry so many pairs so deep, and the shapes beside them."""
    from . import design as designs  # torch takes a second to import, which the other commands need not wait for

    try:
        best = designs.smallest(pairs, depth, epsilon=error, failure=failure, heads=heads, narrowest=narrowest)
    except ValueError as wrong:
        raise UserError(_in_words_of_the_options(str(wrong))) from None
    beside = designs.neighbours(best, epsilon=error)
    if as_json:
        report = {"recommended": best.report(error), "beside": {name: s.report(error) for name, s in beside.items()}}
        print(json.dumps({"pairs": pairs, "depth": depth, "error": error, "failure": failure} | report, indent=2))
        return
    print(f"{pairs} pairs through {depth} layers within {error:g}, each head silent with probability {failure:g}\n")
    print(f"{'':24}{'width':>7}{'heads':>7}{'d_k':>6}{'error':>9}")
    for name, s in ({"recommended": best} | beside).items():
        misses = "" if s.rms <= error else "  misses"
        print(f"{name:24}{s.width:7d}{s.heads:7d}{s.d_k:6d}{s.rms:9.4f}{misses}")
    print(f"\nwhat limits it: interference {best.interference:.0%}, silent heads {1 - best.interference:.0%}")
    print(f"attention parameters: {best.parameters:,} (4 L D²)")


def _in_words_of_the_options(message: str) -> str:
    """The package's names for the quantities, as this command spells them."""
    for name, option in {"n": "--pairs", "epsilon": "--error"}.items():
        message = re.sub(rf"\b{name}\b", option, message)
    return re.sub(r"\b(?<!-)(depth|failure|heads|narrowest)(?==| must| over)", r"--\1", message)


@app.command(name="list")
def list_(profile: Profile = "quick") -> None:
    """Print the chapters, in the book's order, and whether their results are up to date."""
    press = _press()
    project = press.project.Project.find()
    rows = [(name, c.title, press.build.state(project, c, profile)) for name, c in project.chapters.items()]
    press.terminal.Report().console.print(press.terminal.chapters_table(rows))


@app.command()
def condition(
    design: Annotated[str, typer.Argument(metavar="DESIGN", help="Such as '10A+ | 10AB+ ; 10C+ | 10AB+'.")],
    rule: Annotated[str, typer.Option(help="A learning rule, such as delta, hebb or kalman.")] = "delta",
    alpha: Annotated[str, typer.Option(help="Salience: one for all, or like A=0.4,B=0.1.")] = "1",
    beta: Annotated[float, typer.Option(help="Learning rate.")] = 0.1,
    beta_off: Annotated[float | None, typer.Option(help="Learning rate without the US. [beta]")] = None,
    lam: Annotated[float, typer.Option(help="The US.")] = 1.0,
    shuffles: Annotated[int, typer.Option(help="Orders drawn for a phase that starts with !.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the shuffles.")] = 0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the learning curves too.")] = None,
) -> None:
    """Put a rule through a conditioning experiment and print the final strengths."""
    from pavlov import conditioning  # torch takes seconds to import: only this command needs it here

    options = {"beta": beta, "beta_off": beta_off, "lam": lam, "shuffles": shuffles, "seed": seed}
    try:
        frame = conditioning.run(design, rule, alpha=_saliences(alpha), **options)
    except conditioning.DesignError as error:
        raise UserError(error.line) from None
    except (ValueError, conditioning.Diverged) as error:
        raise UserError(str(error)) from None
    for group, trials in frame.groupby("group"):
        final = trials.groupby("shuffle").last().drop(columns=["group", "phase", "trial", "type", "response"])
        strengths = final.dropna(axis=1).mean()
        print(f"group {group}  " + "  ".join(f"{stimulus} {value:.6f}" for stimulus, value in strengths.items()))
    if plot:
        _draw(frame, design, rule, plot)


def _saliences(text: str) -> float | dict[str, float]:
    """A salience for all stimuli, or one for each: ``A=0.4,B=0.1``."""
    try:
        if "=" not in text:
            return float(text)
        pairs = [part.split("=", 1) for part in text.split(",")]
        return {stimulus.strip(): float(value) for stimulus, value in pairs}
    except ValueError:
        raise UserError(f"--alpha is {text!r}, expected a number or like A=0.4,B=0.1") from None


def _draw(frame, design: str, rule: str, file: Path) -> None:
    """Strength against trial, one panel a group."""
    import matplotlib.pyplot as plt

    from pavlov import figures

    figures.use_style()
    groups = frame["group"].unique()
    figure, panels = plt.subplots(1, len(groups), figsize=(5.2 * len(groups), 3.8), sharey=True, squeeze=False)
    for axes, group in zip(panels[0], groups, strict=True):
        trials = frame[frame["group"] == group].dropna(axis=1)
        mean = trials.drop(columns=["group", "shuffle", "type", "response"]).groupby("trial").mean()
        for number, stimulus in enumerate(mean.columns.drop("phase")):  # dashes, since equal curves hide each other
            axes.plot(mean.index, mean[stimulus], label=stimulus, ls=["-", "--", "-.", ":"][number % 4])
        for start in mean.index[mean["phase"].diff() > 0]:
            axes.axvline(start - 0.5, color="gray", lw=0.8, ls=":")
        axes.set(title=design.split(";")[group - 1].strip(), xlabel="trial")
        axes.legend()
    panels[0][0].set_ylabel(f"strength, {rule}")
    try:
        figure.savefig(file, transparent=False)
    except (OSError, ValueError) as error:
        raise UserError(f"--plot {file}: {error}") from None
    finally:
        plt.close(figure)


def _press():
    """The press, or one line on what it needs: the science must import without the book's tools."""
    try:
        for module in ("project", "ledger", "terminal", "build"):
            importlib.import_module(f"pavlov.press.{module}")
    except ModuleNotFoundError as error:
        raise UserError(f"this needs the book's tools ({error.name} is missing): pip install 'pavlov[book]'") from None
    return sys.modules["pavlov.press"]


def _literal(text: str):
    """A value from the command line: a Python literal, or else a string."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def main(args: list[str] | None = None) -> int:
    """Run a command and return its exit status."""
    try:
        status = app(args, standalone_mode=False) or 0
    except (UserError, typer.TyperException) as error:
        message = error.format_message() if isinstance(error, typer.TyperException) else str(error)
        if message.startswith("No such option"):
            options = [option for p in error.ctx.command.params for option in p.opts if option.startswith("--")]
            message = f"{message.split(' (')[0].rstrip('.')}; choose from {', '.join(options)}"
        if message:  # empty when no command was given, and the help was shown
            print(f"pavlov: {' '.join(message.split())}", file=sys.stderr)
        return 2
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    if status == INTERRUPTED:
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(status)  # without waiting for chapters in their threads: a kernel leaves when its parent does
    return status
