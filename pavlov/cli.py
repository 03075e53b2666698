"""The command line: build the book, run a chapter, read the ledger.

A user's mistake is told in one line on stderr and ends with status 2; work that failed ends with status 1.
"""

import ast
import importlib
import os
import sys
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


@app.command(name="list")
def list_(profile: Profile = "quick") -> None:
    """Print the chapters, in the book's order, and whether their results are up to date."""
    press = _press()
    project = press.project.Project.find()
    rows = [(name, c.title, press.build.state(project, c, profile)) for name, c in project.chapters.items()]
    press.terminal.Report().console.print(press.terminal.chapters_table(rows))


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
