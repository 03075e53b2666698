"""The ledger: every registered claim beside the checks that its chapter published."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .project import Project

CHECK = "application/vnd.pavlov.check+json"


def checks(notebook) -> list[dict]:
    """The checks that an executed notebook published, in order."""
    outputs = (out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs)
    return [dict(out.data[CHECK]) for out in outputs if CHECK in out.get("data", {})]


@dataclass
class Claim:
    """A claim of ``book/claims.yml`` with its evidence."""

    id: str
    chapter: str
    source: str
    statement: str
    verdict: str
    theorem: str = ""
    checks: list[dict] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether there is evidence and all of it is for the claim's verdict."""
        return bool(self.checks) and all(check["passed"] for check in self.checks)


@dataclass
class Ledger:
    """All claims with their checks, and what is wrong between the two."""

    claims: list[Claim]
    titles: dict[str, str]
    problems: list[str]


def ledger(project: Project, notebooks: Mapping[str, object]) -> Ledger:
    """Hold the checks of executed notebooks, by chapter, against the registered claims."""
    fields = Claim.__dataclass_fields__
    claims = {i: Claim(**{k: v for k, v in entry.items() if k in fields}) for i, entry in project.claims.items()}
    problems = []
    for chapter, notebook in notebooks.items():
        for check in checks(notebook):
            problems += _filed(chapter, check, claims)
    problems += [f"{c.chapter}: claim '{c.id}' has no check" for c in claims.values() if not c.checks]
    titles = {name: chapter.title for name, chapter in project.chapters.items()}
    order = list(titles)
    return Ledger(sorted(claims.values(), key=lambda claim: order.index(claim.chapter)), titles, problems)


def _filed(chapter: str, check: dict, claims: dict[str, Claim]) -> Iterable[str]:
    """Put a check under its claim; yield what is wrong with it."""
    claim = claims.get(check["claim"])
    if claim is None:
        yield f"{chapter}: check '{check['name']}' is for claim '{check['claim']}', not in book/claims.yml"
    elif claim.chapter != chapter:
        yield f"{chapter}: check '{check['name']}' is for claim '{claim.id}' of chapter '{claim.chapter}'"
    else:
        claim.checks.append(check)
        if not check["passed"]:
            yield f"{chapter}: claim '{claim.id}': check '{check['name']}' failed: {check['text']}"


def rivals(check: dict) -> str:
    """The rejected alternatives of a check, in one cell of a table."""
    return "; ".join(f"{name}: {text}" if name else str(text) for name, text in check["rivals"].items())


def summary_page(book: Ledger) -> str:
    """The MyST table of claims for a page of the book."""
    rows = [(c.statement, c.source, _verdict(c), f"{{doc}}`{c.chapter}`") for c in book.claims]
    return _table(("Claim", "Source", "Verdict", "Chapter"), rows)


def summary_readme(book: Ledger) -> str:
    """The same table in plain Markdown, for the README."""
    rows = [
        (c.statement, c.source, _verdict(c), f"[{book.titles[c.chapter]}](book/{c.chapter}.md)") for c in book.claims
    ]
    return _table(("Claim", "Source", "Verdict", "Chapter"), rows)


def claims_page(book: Ledger) -> str:
    """Each claim with its source, verdict, link and table of checks, in MyST."""
    parts = []
    for chapter in dict.fromkeys(claim.chapter for claim in book.claims):
        parts.append(f"## {book.titles[chapter]}\n")
        parts += [_claim_section(claim) for claim in book.claims if claim.chapter == chapter]
    return "\n".join(parts)


def _claim_section(claim: Claim) -> str:
    theorem = f" · {{prf:ref}}`{claim.theorem}`" if str(claim.theorem).startswith("thm-") else ""
    rows = [(c["name"], c["measured"], c["predicted"], rivals(c), _passed(c["passed"])) for c in claim.checks]
    return (
        f"(claim-{claim.id})=\n### {claim.id.replace('-', ' ').capitalize()}\n\n{claim.statement.strip()}\n\n"
        f"{claim.source} · **{_verdict(claim)}** · {{doc}}`{claim.chapter}`{theorem}\n\n"
        + _table(("Check", "Measured", "Predicted", "Rival", "Result"), rows)
    )


def _verdict(claim: Claim) -> str:
    return claim.verdict if claim.passed else f"{claim.verdict} (not checked)"


def _passed(passed: bool) -> str:
    return "passed" if passed else "failed"


def _table(head: tuple, rows: Iterable[tuple]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(_cell(text) for text in line) + " |\n" for line in lines)


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", r"\|")
