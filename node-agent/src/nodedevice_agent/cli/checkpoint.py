"""`nodedevice-agent checkpoint`: look into a checkpoint file, the agent's or a kubelet's, and say whether it can be believed.

Reads the file and the journal beside it, and nothing else; exit status 0, or 1 with one line on standard error that says what
is wrong.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from nodedevice_agent.checkpoint.files import read_both
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.checkpoint.journal import replayed
from nodedevice_agent.checkpoint.validation import refuse_impossible
from nodedevice_agent.devicemanager.allocation.allocations import NO_NUMA_NODE, Allocation
from nodedevice_agent.devicemanager.allocation.container_edits import Conflict, ContainerEdits, merged
from nodedevice_agent.devicemanager.state import Checkpoint, CheckpointCorrupt
from nodedevice_agent.deviceplugin.codec import with_edits

_file = click.argument("file", type=click.Path(path_type=Path))


@dataclass(frozen=True, slots=True)
class _Found:
    """checkpoint: with its journal. version: of the format. lines: of the journal that the file itself does not hold."""

    checkpoint: Checkpoint
    version: int
    lines: int


@click.group("checkpoint")
def checkpoint() -> None:
    """Look into a checkpoint file: the agent's checkpoint.json, or a kubelet's kubelet_internal_checkpoint."""


@checkpoint.command()
@_file
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def show(file: Path, output: str) -> None:
    """Print who holds which devices in FILE and its journal, and what the device plugins answered."""
    found = _read(file)
    if output == "json":
        click.echo(json.dumps(_document(found), indent=2, sort_keys=True))
        return
    for line in _lines(found):
        click.echo(line)


@checkpoint.command()
@_file
def verify(file: Path) -> None:
    """Say whether FILE and its journal can be believed: form, checksums, one pod for each device, every answer readable."""
    found = _read(file)
    try:
        refuse_impossible(found.checkpoint)
    except CheckpointCorrupt as exc:
        raise click.ClickException(f"{file}: {_plain(str(exc))}") from exc
    held = found.checkpoint.allocations
    for allocation in held:
        if allocation.response_problem:
            raise click.ClickException(f"{file}: {_whose(allocation)}: {allocation.response_problem}")
    resources = len(found.checkpoint.registered)
    journal = f", lines of its journal: {found.lines}" if found.lines else ""
    click.echo(f"{file}: fine; version {found.version}, allocations: {len(held)}, resources: {resources}{journal}")


def _read(file: Path) -> _Found:
    try:
        content, journal = read_both(file)
        text = content.decode("utf-8")
        alone = decode(text)
        whole = with_edits(replayed(alone, journal))
        return _Found(whole, _format_version(text), _sequence(whole) - _sequence(alone))
    except OSError as exc:
        raise click.ClickException(f"{exc.filename or file}: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise click.ClickException(f"{file}: corrupt: not UTF-8 text (byte {exc.start})") from exc
    except CheckpointCorrupt as exc:
        raise click.ClickException(f"{file}: corrupt: {_plain(str(exc))}") from exc


def _sequence(checkpoint: Checkpoint) -> int:
    return checkpoint.journal.sequence if checkpoint.journal is not None else 0


def _format_version(text: str) -> int:
    """Of a file that has been decoded: version 1 has device IDs in a list, version 2 by NUMA node."""
    entries = json.loads(text)["Data"].get("PodDeviceEntries") or ()
    return 1 if any(isinstance(entry["DeviceIDs"], list) for entry in entries) else 2


def _whose(allocation: Allocation) -> str:
    return _plain(f"{allocation.resource_name} of container {allocation.container} of pod {allocation.pod_uid}")


# -- for people -----------------------------------------------------------------------------------------------------


def _lines(read: _Found) -> Iterator[str]:
    found = read.checkpoint
    boot = f", boot {_plain(found.boot_id)}" if found.boot_id else ""
    journal = f", with {read.lines} {'line' if read.lines == 1 else 'lines'} of its journal" if read.lines else ""
    yield f"Checkpoint version {read.version}, checksum right{boot}{journal}"
    yield ""
    resources: list[tuple[str, ...]] = [("RESOURCE", "HEALTHY", "SOCKET", "DEVICES")]
    sockets = {socket.resource_name: socket.name for socket in found.sockets}
    for name, ids in sorted(found.registered.items()):
        resources.append((name, str(len(ids)), sockets.get(name, "-"), " ".join(ids) or "-"))
    yield from _table(resources)
    yield ""
    if not found.allocations:
        yield "No container holds a device."
    for allocation in _sorted(found):
        yield _plain(f"Pod {allocation.pod_uid}, container {allocation.container}, {allocation.resource_name}")
        for node, ids in sorted(allocation.ids_by_numa.items()):
            where = "no NUMA node" if node == NO_NUMA_NODE else f"NUMA node {node}"
            yield _plain(f"  {where}: {' '.join(ids)}")
        yield from (_plain(f"  {line}") for line in _told(allocation))
    for (pod_uid, container), (_, conflicts) in _containers(found).items():
        for c in conflicts:
            whose = f"container {container} of pod {pod_uid}"
            yield _plain(f"CONFLICT in {whose}: {c.what} {c.name}: {c.used}'s is used, {c.passed_over}'s is left out")


def _told(allocation: Allocation) -> Iterator[str]:
    """What the plugin answered, an item a line."""
    answer = allocation.edits
    if answer is None:
        yield f"answer: {allocation.response_problem or 'lost; the plugin will be asked again'}"
        return
    yield from (f"env {name}={value}" for name, value in sorted(answer.envs.items()))
    for device in answer.devices:
        yield f"device {device.container_path} from {device.host_path} ({device.permissions or 'no permissions'})"
    for mount in answer.mounts:
        yield f"mount {mount.container_path} from {mount.host_path} ({'ro' if mount.read_only else 'rw'})"
    yield from (f"annotation {name}={value}" for name, value in sorted(answer.annotations.items()))
    yield from (f"cdi device {name}" for name in answer.cdi_devices)


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    rows = [tuple(map(_plain, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _plain(text: str) -> str:
    """One line that a terminal shows as it is, whatever the file holds."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


# -- for programs ---------------------------------------------------------------------------------------------------


def _document(read: _Found) -> dict[str, Any]:
    found = read.checkpoint
    return {
        "version": read.version,
        "bootID": found.boot_id,
        "journalLines": read.lines,
        "registeredDevices": {name: list(ids) for name, ids in found.registered.items()},
        "endpoints": [{"resourceName": s.resource_name, "endpoint": s.name} for s in found.sockets],
        "allocations": [_entry(allocation) for allocation in _sorted(found)],
        "containers": [
            {
                "podUID": pod_uid,
                "container": container,
                "startsWith": edits.to_json(),
                "conflicts": [c.to_json() for c in conflicts],
            }
            for (pod_uid, container), (edits, conflicts) in _containers(found).items()
        ],
    }


def _entry(allocation: Allocation) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "podUID": allocation.pod_uid,
        "container": allocation.container,
        "resourceName": allocation.resource_name,
        "deviceIDs": list(allocation.device_ids),
        "deviceIDsByNUMANode": {str(node): list(ids) for node, ids in allocation.ids_by_numa.items()},
        "answer": None if allocation.edits is None else allocation.edits.to_json(),
    }
    problem = allocation.response_problem
    return {**entry, "problem": problem} if problem else entry


def _containers(found: Checkpoint) -> dict[tuple[str, str], tuple[ContainerEdits, tuple[Conflict, ...]]]:
    """What each container is started with, by pod UID and container; answers that cannot be read are left out."""
    answers: dict[tuple[str, str], dict[str, ContainerEdits]] = {}
    for allocation in _sorted(found):
        of_container = answers.setdefault((allocation.pod_uid, allocation.container), {})
        if allocation.edits is not None:
            of_container[allocation.resource_name] = allocation.edits
    return {container: merged(of_container) for container, of_container in answers.items()}


def _sorted(found: Checkpoint) -> list[Allocation]:
    return sorted(found.allocations, key=lambda a: (a.pod_uid, a.container, a.resource_name))
