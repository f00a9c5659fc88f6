"""Errors for people at a terminal: a sentence and its remedy.

CliError ─┬─ UsageProblem       the command line is wrong
          └─ LoginProblem       no usable kubeconfig, certificate or token, or the API server rejects it

A failed request is an ApiError of the client core; `api_error_messages` words it.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

from nodedevice_kube.errors import ConnectionProblem
from nodedevice_kube.masking import masked

# exit statuses, for scripts
FINE: Final = 0
NEEDS_YOU: Final = 1
FAILED: Final = 2
INTERRUPTED: Final = 130


class CliError(Exception):
    """A sentence without a full stop, and the remedy, both without secrets. code: one word for programs, stable across releases."""

    code = "Failed"

    def __init__(self, problem: str, remedy: str = "", code: str = "") -> None:
        self.problem, self.remedy = masked(problem), masked(remedy)
        super().__init__(self.problem)
        self.code = code or self.code


class UsageProblem(CliError):
    code = "Usage"


class LoginProblem(CliError):
    code = "Login"


@contextlib.contextmanager
def as_login_problem() -> Iterator[None]:
    """Raises LoginProblem for a ConnectionProblem of the client core."""
    try:
        yield
    except ConnectionProblem as exc:
        raise LoginProblem(exc.problem, exc.remedy, exc.code) from exc
