"""Runs the programs that publish, and turns their error output into one sentence with a remedy."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hack.release.errors import ReleaseError

_LOG_IN = (
    "log in: REGISTRY_USERNAME and REGISTRY_PASSWORD for the registry, UV_PUBLISH_TOKEN or UV_PUBLISH_USERNAME and "
    "UV_PUBLISH_PASSWORD for the index"
)
# Programs report causes only as text.
_REMEDIES = (
    (r"UNAUTHORIZED|DENIED|unauthorized|denied|basic credential|\b40[13]\b", _LOG_IN),
    (
        r"error writing a body|[Bb]roken pipe|[Cc]onnection reset",
        f"{_LOG_IN}. It hung up while a file was sent, as servers do that refuse a user, or so large a file, before they read it; "
        "its log says which",
    ),
    (
        r"decrypt|reading key|invalid pem|unsupported pem",
        "set COSIGN_PASSWORD to the password of KEY, a private key of cosign's",
    ),
    (
        r"dial tcp|no such host|[Cc]onnection refused|connect error|timed? ?out|error sending request|certificate",
        "check its address, and that this machine reaches it",
    ),
)
_OTHERWISE = "read its message; published files stay, and the same command continues from there"


@dataclass(frozen=True)
class Program:
    """A program with the common settings of its calls."""

    path: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, subject: str, *arguments: str) -> str:
        """Run it and return its output. Raises ReleaseError, which names the subject, such as the registry."""
        done = self.attempt(*arguments)
        if done.returncode != 0:
            raise failure(subject, done)
        return done.stdout

    def attempt(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.path), *arguments],
            env={**os.environ, **self.environment},
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )


def failure(subject: str, done: "subprocess.CompletedProcess[str]") -> ReleaseError:
    said = _last_words(done.stderr.splitlines())
    remedy = next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, done.stderr)), _OTHERWISE)
    return ReleaseError(f"{subject} was not published to ({said})", remedy)


def _last_words(lines: Sequence[str]) -> str:
    words = [line.strip() for line in lines if line.strip()]
    return " ".join(words[-2:]).rstrip(".")
