"""Print the staged pages with Jupyter Book, warnings as errors, and put the result in place at once."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .errors import BuildError
from .project import Project

WARNING = re.compile(r"WARNING|ERROR|Exception|Error:")
DIGEST = ".digest"
HERE = Path(__file__).parents[2]


def is_rendered(project: Project, digest: str) -> bool:
    """Whether the pages in ``_build/html`` were printed from a stage with this digest."""
    record = project.build / "html" / DIGEST
    return record.is_file() and record.read_text() == digest


def render(project: Project, digest: str) -> None:
    """Print the book from nothing, so that no numbering or reference is left over from an earlier one.

    The pages appear under ``_build/html`` only when Jupyter Book ends well; an earlier book stays until then.
    """
    for left in project.build.glob("render-*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=project.build, prefix="render-", ignore_cleanup_errors=True) as work:
        _jupyter_book(project, Path(work))
        printed = Path(work) / "_build" / "html"
        (printed / ".nojekyll").touch()
        (printed / DIGEST).write_text(digest)
        html = project.build / "html"
        if html.exists():
            os.replace(html, Path(work) / "old")
        os.replace(printed, html)


def _jupyter_book(project: Project, work: Path) -> None:
    stage, config, toc = project.build / "stage", project.root / "_config.yml", project.root / "_toc.yml"
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", stage]
    command += ["--path-output", work, "--config", config, "--toc", toc, "-W", "-n", "--keep-going"]
    # Python finds the package in the stage first: what a page includes is what autodoc imports.
    path = os.pathsep.join(filter(None, [str(stage), str(HERE), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"NO_COLOR": "1", "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=stage, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    log = project.build / "render.log"
    log.write_text(done.stdout, encoding="utf-8")
    if done.returncode:
        lines = [_placed(line, stage) for line in done.stdout.splitlines() if WARNING.search(line)]
        lines = list(dict.fromkeys(lines)) or done.stdout.splitlines()[-10:]
        raise BuildError("\n  ".join([f"the pages were not rendered (all of it in {log.name}):", *lines]))


def _placed(line: str, stage: Path) -> str:
    """A warning with its place in the chapter: myst-nb counts 10000 lines to a cell."""
    line = line.replace(f"{stage}/", "")
    return re.sub(r"\.ipynb:(\d+):", lambda m: ": cell {}, line {}:".format(*divmod(int(m.group(1)), 10000)), line)
