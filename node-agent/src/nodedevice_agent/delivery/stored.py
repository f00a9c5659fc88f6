"""The node's delivery: read from a file of the state directory, or selected if the file is missing.

The file has one readable word; `nodedevice-agent delivery move` replaces it. Agents of the previous release read it as
`runtime`, which is a link to it. A regular file of that name comes from such an agent, and is newer.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.delivery.selection import CHOICES, Evidence, choose
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.kubelet.directory import read_checkpoint
from nodedevice_agent.lib.filesystem import is_socket, remove, replace_durably, sync_directory
from nodedevice_agent.settings import AgentSettings

log = logging.getLogger(__name__)

FILE_NAME, _FORMER_NAME = "delivery", "runtime"
AUTO = "auto"
_MAX_SHOWN = 80


def read(state_dir: Path) -> str:
    """The stored delivery, or "". Raises AgentSettingsError for an invalid name."""
    path = _file(state_dir)
    try:
        found = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except IsADirectoryError as exc:
        raise _is_a_directory(path) from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise AgentSettingsError(
            f"{path} cannot be read: {exc}; replace it with nodedevice-agent delivery move"
        ) from exc
    if found not in CHOICES:
        known = " or ".join(CHOICES)
        raise AgentSettingsError(
            f"{path} contains {found[:_MAX_SHOWN]!a}, which is not {known}; "
            "replace it with nodedevice-agent delivery move --to …"
        )
    return found


def _file(state_dir: Path) -> Path:
    former = state_dir / _FORMER_NAME
    return former if os.path.lexists(former) and not os.path.islink(former) else state_dir / FILE_NAME


def write(state_dir: Path, delivery: str) -> None:
    """Raises AgentSettingsError."""
    path = state_dir / FILE_NAME
    try:
        replace_durably(path, f"{delivery}\n")
        path = state_dir / _FORMER_NAME
        if not os.path.islink(path):
            link = state_dir / f".{_FORMER_NAME}.link"
            remove(link)
            link.symlink_to(FILE_NAME)
            os.replace(link, path)
            sync_directory(state_dir)
    except IsADirectoryError as exc:
        raise _is_a_directory(path) from exc
    except OSError as exc:
        raise AgentSettingsError(f"{path} cannot be written: {exc.strerror}") from exc


def with_selected_delivery(settings: AgentSettings) -> AgentSettings:
    """The settings with a delivery by name, stored for the next start in the state directory. Raises AgentSettingsError."""
    delivery: str = settings.delivery
    state_dir = Path(settings.state_dir)
    if delivery not in (AUTO, *CHOICES):
        return settings
    stored = read(state_dir)
    if delivery == AUTO:
        delivery, reason = choose(evidence(settings))
        log.info("delivery selected", extra={"delivery": delivery, "reason": reason})
    elif stored and stored != delivery:
        # the administrator decides; docs/delivery.md has the other steps of a move
        log.warning("delivery differs from the stored one", extra={"stored": stored, "delivery": delivery})
    if stored != delivery or _file(state_dir).name == _FORMER_NAME:
        write(state_dir, delivery)
    return msgspec.structs.replace(settings, delivery=delivery)


def evidence(settings: AgentSettings) -> Evidence:
    """The inputs of the choice at the agent's next start. Raises AgentSettingsError."""
    state_dir, kubelet_dir = Path(settings.state_dir), Path(settings.kubelet_dir)
    own = kubelet = Checkpoint()
    try:
        kubelet = read_checkpoint(kubelet_dir)
    except CheckpointCorrupt as exc:
        extra = {"path": str(kubelet_dir), "error": str(exc)}
        log.warning("cannot use the kubelet's checkpoint; choosing the delivery without it", extra=extra)
    # a corrupt one is set aside and logged when the agent restores it
    with suppress(CheckpointCorrupt):
        own = checkpoint_file.read(state_dir) or own
    shared = {name for name in _names(kubelet) if settings.plugins.may_serve(name)} | (_names(kubelet) & _names(own))
    return Evidence(read(state_dir), is_socket(settings.nri_socket), sorted(shared))


def _is_a_directory(path: Path) -> AgentSettingsError:
    return AgentSettingsError(f"{path} is a directory, but must be a file with one word: remove it")


def _names(checkpoint: Checkpoint) -> set[str]:
    return {*checkpoint.registered, *(allocation.resource_name for allocation in checkpoint.allocations)}
