"""The two ways a command can end badly."""


class UserError(Exception):
    """A mistake in what was asked or written: told in one line, exit status 2, no traceback."""


class BuildError(Exception):
    """The work was understood and did not succeed: a cell failed, a claim lacks its check. Exit status 1.

    ``notebook`` is what a chapter had come to when a cell of it failed.
    """

    def __init__(self, message: str, notebook=None):
        super().__init__(message)
        self.notebook = notebook


def choices(kind: str, wrong: object, valid) -> UserError:
    """The one line for a name that is not among the valid ones."""
    return UserError(f"unknown {kind} '{wrong}': choose from {', '.join(sorted(map(str, valid)))}")
