"""What a terminal shows: progress while chapters run, tables of chapters, checks and claims."""

from contextlib import contextmanager

from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .ledger import Ledger, rivals

LOG_WIDTH = 140


class Report:
    """A bar on a terminal, a line per event elsewhere."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(highlight=False, soft_wrap=True)
        if not self.console.is_terminal:
            self.console.width = LOG_WIDTH
        self._now: list[str] = []
        self._bar = None

    @contextmanager
    def running(self, total: int):
        """Show progress over so many chapters."""
        if not (total and self.console.is_terminal):
            yield
            return
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=self.console, transient=True) as self._bar:
            self._task = self._bar.add_task("", total=total)
            yield
        self._bar = None

    def started(self, name: str) -> None:
        self._now.append(name)
        if self._bar:
            self._bar.update(self._task, description=", ".join(self._now))
        else:
            self.say(f"{name}: running")

    def finished(self, name: str, seconds: float) -> None:
        self._ended(name)
        self.say(f"{name}: done in {seconds:.1f} s")

    def failed(self, name: str) -> None:
        self._ended(name)
        self.say(f"{name}: failed")

    def _ended(self, name: str) -> None:
        self._now.remove(name)
        if self._bar:
            self._bar.update(self._task, advance=1, description=", ".join(self._now))

    def say(self, line: str) -> None:
        self.console.print(Text(line))


def chapters_table(rows) -> Table:
    """Name, title and state of each chapter."""
    table = Table("Chapter", "Title", "State")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def checks_table(checks: list[dict]) -> Table:
    """Checks with what was measured, what the theory and its rivals say, and the result."""
    table = Table("Check", "Measured", "Predicted", "Rival", "Result")
    for check in checks:
        cells = (check["name"], check["measured"], check["predicted"], rivals(check))
        table.add_row(*map(Text, map(str, cells)), _result(check["passed"]))
    return table


def claims_table(book: Ledger) -> Group:
    """Every claim with its verdict and its checks."""
    parts = []
    for claim in book.claims:
        head = Text.assemble((claim.id, "bold"), f" ({claim.chapter}; {claim.source}): ", (claim.verdict, "bold"))
        parts += [head, Text(" ".join(claim.statement.split())), checks_table(claim.checks), Text()]
    passed = [check["passed"] for claim in book.claims for check in claim.checks]
    return Group(*parts, Text(f"{len(book.claims)} claims, {len(passed)} checks, {sum(passed)} passed"))


def _result(passed: bool) -> Text:
    return Text("passed", style="green") if passed else Text("failed", style="bold red")
