"""Runs external programs, and turns their error output into one sentence with a remedy."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hack.install.errors import InstallError

_REACH = (
    "check that the cluster runs and that this machine reaches it, or choose another with `kubectl config use-context`"
)
# Programs report causes only as text. The first match counts.
_REMEDIES: Final = (
    (
        r"[Uu]nauthorized|provide credentials|must be logged in",
        "the kubeconfig's user is not known there: log in again",
    ),
    (r"\bx509\b|certificate", "the kubeconfig is another cluster's or has expired: fetch it from the cluster again"),
    (r"[Ff]orbidden|cannot \w+ resource", "use a kubeconfig of an administrator of the cluster"),
    (r"another operation .* in progress", "wait for it; if it was interrupted, `make uninstall`, or `helm rollback`"),
    (
        r"refused|no such host|no route to host|unreachable|i/o timeout|deadline exceeded|timed out|Timeout|EOF|connection reset",
        _REACH,
    ),
    (
        r"exec: |getting credentials|executable .* not found",
        "the kubeconfig asks a program for a log-in: install it, log in",
    ),
    (r"values don't meet the specifications|error unmarshaling|cannot unmarshal|failed to parse", "correct VALUES"),
    (r"no space left", "free some space on that disk"),
)
_OTHERWISE: Final = "read the message, and repeat the command: it continues from there"
# time for an interrupted program to end
_END_SECONDS: Final = 30.0
_NOISE: Final = re.compile(r"^(WARNING|W\d{4}|I\d{4}|E\d{4}|level=warning|time=)")


Completed = subprocess.CompletedProcess[str]


def is_terminal() -> bool:
    """Whether a person at a terminal can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def attempt(command: Sequence[str], environment: Mapping[str, str] | None = None, stdin: str = "") -> Completed:
    """Run it and return its result. Raises InstallError if the program is not installed."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
        )
    except OSError as exc:
        raise InstallError(f"{command[0]} does not run here ({exc.strerror})", "install it, or correct PATH") from exc
    with process:
        try:
            output, complaints = process.communicate(stdin)
        except KeyboardInterrupt:
            # a terminal sends it the same signal: Helm then records the interruption, and the next call can continue
            _let_end(process)
            raise
    return Completed(command, process.returncode, output, complaints)


def _let_end(process: "subprocess.Popen[str]") -> None:
    try:
        process.communicate(timeout=_END_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()


def run(command: Sequence[str], what: str, environment: Mapping[str, str] | None = None, remedy: str = "") -> str:
    """Run it and return its output. what: the activity, for the message. remedy: by default found from the error.

    Raises InstallError.
    """
    done = attempt(command, environment)
    if done.returncode != 0:
        raise failure(what, done.stderr.strip() or done.stdout, remedy)
    return done.stdout


def failure(what: str, stderr: str, remedy: str = "") -> InstallError:
    words = last_words(stderr)
    found = next((each for pattern, each in _REMEDIES if re.search(pattern, words)), _OTHERWISE)
    return InstallError(f"{what} failed ({words})", remedy or found)


def last_words(text: str) -> str:
    """The end of a program's error output, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = [line for line in lines if not _NOISE.match(line)] or lines or ["it printed nothing"]
    return " ".join(" ".join(chosen[-3:]).split())[-600:].rstrip(".")


def parsed(text: str, what: str) -> Any:
    """Parse a program's JSON output; None for no output. Raises InstallError."""
    try:
        return json.loads(text) if text.strip() else None
    except ValueError as exc:
        raise InstallError(
            f"{what} printed no JSON ({last_words(text)[:80]})", "see which program PATH has under that name"
        ) from exc
