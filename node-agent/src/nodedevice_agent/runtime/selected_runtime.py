"""The runtime that a node was found to have, in a file of the state directory: read, written, and chosen where there is none.

Only one word is in the file, so that an administrator can look at it; `nodedevice-agent runtime move` writes another.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.devicemanager.state import Checkpoint, CheckpointCorrupt
from nodedevice_agent.errors import SettingsError
from nodedevice_agent.kubelet.directory import read_checkpoint
from nodedevice_agent.runtime.selection import CHOICES, Evidence, choose

log = logging.getLogger(__name__)

FILE_NAME = "runtime"
AUTO = "auto"
_MOST_SHOWN = 80


def read(state_dir: Path) -> str:
    """What is kept; "" where nothing is. Raises SettingsError for anything but a runtime's name."""
    path = state_dir / FILE_NAME
    try:
        found = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except IsADirectoryError as exc:
        raise _is_a_directory(path) from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsError(f"{path} cannot be read: {exc}; write it anew with nodedevice-agent runtime move") from exc
    if found not in CHOICES:
        known = " or ".join(CHOICES)
        raise SettingsError(
            f"{path} says {found[:_MOST_SHOWN]!a}, which is not {known}; "
            "write it anew with nodedevice-agent runtime move --to …"
        )
    return found


def write(state_dir: Path, runtime: str) -> None:
    """Raises SettingsError."""
    path = state_dir / FILE_NAME
    try:
        checkpoint_file.write(path, f"{runtime}\n")
    except IsADirectoryError as exc:
        raise _is_a_directory(path) from exc
    except OSError as exc:
        raise SettingsError(f"{path} cannot be written: {exc.strerror}") from exc


def settle(runtime: str, state_dir: Path, kubelet_dir: Path, nri_socket: Path, ours: Iterable[str]) -> str:
    """The runtime to run with, written down for the next start. runtime: as set, `auto` or one by name.

    ours: names of the built-in plugins' resources. Raises SettingsError.
    """
    if runtime not in (AUTO, *CHOICES):
        return runtime
    kept = read(state_dir)
    if runtime != AUTO:
        if kept and kept != runtime:
            # an administrator's word; what it takes besides is in the documentation
            log.warning("another runtime than before", extra={"before": kept, "runtime": runtime})
    else:
        known = evidence(state_dir, kubelet_dir, nri_socket, ours)
        choice = choose(known)
        log.info("runtime chosen", extra={"runtime": choice.runtime, "why": choice.why})
        runtime = choice.runtime
    if kept != runtime:
        write(state_dir, runtime)
    return runtime


def evidence(state_dir: Path, kubelet_dir: Path, nri_socket: Path, ours: Iterable[str]) -> Evidence:
    """What there is to choose by. Raises SettingsError."""
    of_kubelet: Checkpoint | None = None
    try:
        of_kubelet = read_checkpoint(kubelet_dir)
    except CheckpointCorrupt as exc:
        log.warning("the kubelet's checkpoint cannot be used", extra={"path": str(kubelet_dir), "error": str(exc)})
    own: Checkpoint | None = None
    # set aside and told of when the agent starts
    with suppress(CheckpointCorrupt):
        own = checkpoint_file.read(state_dir)
    return Evidence(read(state_dir), nri_socket.is_socket(), {*ours, *_names(own)}, _names(of_kubelet))


def _is_a_directory(path: Path) -> SettingsError:
    return SettingsError(f"{path} is a directory, where one word is to be kept in a file: remove it")


def _names(checkpoint: Checkpoint | None) -> set[str]:
    if checkpoint is None:
        return set()
    return {*checkpoint.registered, *(allocation.resource_name for allocation in checkpoint.allocations)}
