"""Errors between a bare machine and a ready control plane.

    ClusterError
    ├── BinaryError           a program could not be found, fetched or built
    ├── ComponentError        a process died, or did not get ready in time
    ├── CommandError          kubectl or helm refused; carries its output
    └── FolderError           the folder asked for cannot be made, or holds something already

Every message names the thing and a remedy, because most readers only wanted to run tests.
"""

from collections.abc import Sequence
from pathlib import Path


class ClusterError(Exception):
    """Root of all these errors."""


class BinaryError(ClusterError):
    """A program of the control plane is missing and could not be made."""

    def __init__(self, binary: str, why: str, remedy: str) -> None:
        super().__init__(f"{binary}: {why}\n  remedy: {remedy}")
        self.binary = binary


class ComponentError(ClusterError):
    """A process of the control plane has ended or is not ready; the tail of its log has the cause."""

    def __init__(self, component: str, why: str, log: Path, tail: str) -> None:
        super().__init__(f"{component} {why}; the end of {log}:\n{tail or '  (nothing logged)'}")
        self.component = component
        self.log = log


class CommandError(ClusterError):
    """A command that talks to the cluster ended with an error."""

    def __init__(self, arguments: Sequence[str], exit_status: int, stdout: str, stderr: str) -> None:
        output = "\n".join(part for part in (stderr.strip(), stdout.strip()) if part)
        super().__init__(f"{' '.join(arguments)} ended with {exit_status}:\n{output}")
        self.exit_status = exit_status
        self.stdout = stdout
        self.stderr = stderr


class FolderError(ClusterError):
    """A control plane removes its folder when it ends, so it needs a folder of its own."""

    def __init__(self, folder: Path, why: str) -> None:
        super().__init__(f"folder {folder}: {why}; name one that does not exist yet, where you can write")
        self.folder = folder
