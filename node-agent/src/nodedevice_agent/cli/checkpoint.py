"""`nodedevice-agent checkpoint`: shows and verifies a checkpoint file, the agent's or a kubelet's.

Reads only the file and its journal. Exit status 0, or 1 with one line on standard error that names the problem.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, to_builtins
from nodedevice_common.decoding import Undecodable
from nodedevice_common.decoding import decode as decode_json

from nodedevice_agent.checkpoint.files import read_both
from nodedevice_agent.checkpoint.format import check_possible, decode
from nodedevice_agent.checkpoint.journal import replayed
from nodedevice_agent.devicemanager.container_edits import ContainerEdits, EditConflict, merged
from nodedevice_agent.devicemanager.records.allocations import NO_NUMA_NODE, Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_agent.deviceplugin.codec import with_edits
from nodedevice_agent.plugins.contract import part
from nodedevice_agent.plugins.settings import KINDS

_file = click.argument("file", type=click.Path(path_type=Path))


class _CheckpointFile(Struct, frozen=True):
    """checkpoint: with its journal. version: of the format. lines: of the journal that the file itself does not include."""

    checkpoint: Checkpoint
    version: int
    lines: int

    @property
    def allocations(self) -> list[Allocation]:
        return sorted(self.checkpoint.allocations, key=lambda a: (a.pod_uid, a.container, a.resource_name))

    @property
    def containers(self) -> Iterator[tuple[str, str, ContainerEdits, tuple[EditConflict, ...]]]:
        """Pod UID, container, and its edits; responses that cannot be decoded are left out."""
        edits: dict[tuple[str, str], dict[str, ContainerEdits]] = {}
        for a in self.allocations:
            of_container = edits.setdefault((a.pod_uid, a.container), {})
            if a.edits is not None:
                of_container[a.resource_name] = a.edits
        for (pod_uid, container), of_container in edits.items():
            whole, conflicts = merged(of_container)
            yield pod_uid, container, whole, tuple(each for each in conflicts if not self._is_joined(each))

    def _is_joined(self, conflict: EditConflict) -> bool:
        """Whether the two values are merged when the container is created; only the driver knows the order."""
        scope, other = (self.checkpoint.scopes.get(name, "") for name in (conflict.used, conflict.passed_over))
        kinds = (kind for kind, settings in KINDS.items() if scope == other and settings.is_scope(scope))
        hooks = (module.hook((), "") for kind in kinds if (module := part(kind, "creation")) is not None)
        return conflict.what == "env" and any(hook.decides(conflict.name) for hook in hooks)


@click.group("checkpoint")
def checkpoint() -> None:
    """Inspect a checkpoint file: the agent's checkpoint.json, or a kubelet's kubelet_internal_checkpoint."""


@checkpoint.command()
@_file
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def show(file: Path, output: str) -> None:
    """Print the allocations in FILE and its journal, and the device plugins' responses."""
    found = _read(file)
    if output == "json":
        click.echo(json.dumps(_document(found), indent=2, sort_keys=True))
        return
    for line in _lines(found):
        click.echo(_printable(line))


@checkpoint.command()
@_file
def verify(file: Path) -> None:
    """Check FILE and its journal: form, checksums, one pod for each device, valid names, readable responses."""
    found = _read(file)
    try:
        check_possible(found.checkpoint)
    except CheckpointCorrupt as exc:
        raise click.ClickException(f"{file}: {_printable(str(exc))}") from exc
    for a in found.checkpoint.allocations:
        if a.response_problem:
            where = f"{a.resource_name} of container {a.container} of pod {a.pod_uid}"
            raise click.ClickException(f"{file}: {_printable(where)}: {a.response_problem}")
    counts = f"allocations: {len(found.allocations)}, resources: {len(found.checkpoint.registered)}"
    journal = f", journal lines: {found.lines}" if found.lines else ""
    click.echo(f"{file}: valid; version {found.version}, {counts}{journal}")


def _read(file: Path) -> _CheckpointFile:
    try:
        content, journal = read_both(file)
        alone = decode(content)
        whole = replayed(alone, journal)
        entries = decode_json(content, dict[str, Any])["Data"]["PodDeviceEntries"] or ()
    except OSError as exc:
        raise click.ClickException(f"{exc.filename or file}: {exc.strerror or exc}") from exc
    except (CheckpointCorrupt, Undecodable) as exc:
        raise click.ClickException(f"{file}: corrupt: {_printable(str(exc))}") from exc
    lines = whole.journal.sequence - alone.journal.sequence if whole.journal and alone.journal else 0
    # version 1 has device IDs in a list, version 2 by NUMA node
    version = 1 if any(isinstance(entry["DeviceIDs"], list) for entry in entries) else 2
    return _CheckpointFile(with_edits(whole), version, lines)


def _lines(found: _CheckpointFile) -> Iterator[str]:
    boot = f", boot {found.checkpoint.boot_id}" if found.checkpoint.boot_id else ""
    journal = f", with {found.lines} {'line' if found.lines == 1 else 'lines'} of its journal" if found.lines else ""
    yield f"Checkpoint version {found.version}, checksum valid{boot}{journal}"
    yield ""
    sockets = {socket.resource_name: socket.name for socket in found.checkpoint.sockets}
    rows = [("RESOURCE", "HEALTHY", "SOCKET", "DEVICES")]
    for name, ids in sorted(found.checkpoint.registered.items()):
        rows.append((_printable(name), str(len(ids)), _printable(sockets.get(name, "-")), " ".join(ids) or "-"))
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for *cells, last in rows:
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), last])
    yield ""
    if not found.allocations:
        yield "No device is in use."
    for a in found.allocations:
        yield f"Pod {a.pod_uid}, container {a.container}, {a.resource_name}"
        for node, ids in sorted(a.ids_by_numa.items()):
            yield f"  {'no NUMA node' if node == NO_NUMA_NODE else f'NUMA node {node}'}: {' '.join(ids)}"
        yield from (f"  {line}" for line in _response(a))
    for pod_uid, container, _, conflicts in found.containers:
        for c in conflicts:
            where = f"container {container} of pod {pod_uid}"
            yield f"CONFLICT in {where}: {c.what} {c.name}: {c.used}'s is used, {c.passed_over}'s is ignored"


def _response(allocation: Allocation) -> Iterator[str]:
    edits = allocation.edits
    if edits is None:
        yield f"response: {allocation.response_problem or 'lost; the plugin will be called again'}"
        return
    yield from (f"env {name}={value}" for name, value in sorted(edits.envs.items()))
    for device in edits.devices:
        yield f"device {device.container_path} from {device.host_path} ({device.permissions or 'no permissions'})"
    for mount in edits.mounts:
        yield f"mount {mount.container_path} from {mount.host_path} ({'ro' if mount.read_only else 'rw'})"
    yield from (f"annotation {name}={value}" for name, value in sorted(edits.annotations.items()))
    yield from (f"cdi device {name}" for name in edits.cdi_devices)


def _printable(text: str) -> str:
    """One line without control characters, for any content of the file."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _document(found: _CheckpointFile) -> dict[str, Any]:
    return {
        "version": found.version,
        "bootID": found.checkpoint.boot_id,
        "journalLines": found.lines,
        "registeredDevices": found.checkpoint.registered,
        "endpoints": [{"resourceName": s.resource_name, "endpoint": s.name} for s in found.checkpoint.sockets],
        "cordons": {
            # inSpec: of the NodeDevice with that UID
            name: {"uid": each.uid, "inSpec": to_builtins(each.in_spec), "remembered": to_builtins(each.remembered)}
            for name, each in sorted(found.checkpoint.cordons.items())
        },
        "unlistedContainers": [
            {"podUID": a.pod_uid, "container": a.container, "containerID": a.id} for a in found.checkpoint.unlisted
        ],
        "allocations": [_allocation(allocation) for allocation in found.allocations],
        "containers": [
            {"podUID": uid, "container": name, "startsWith": to_builtins(edits), "conflicts": to_builtins(conflicts)}
            for uid, name, edits, conflicts in found.containers
        ],
    }


def _allocation(a: Allocation) -> dict[str, Any]:
    return {
        "podUID": a.pod_uid,
        "container": a.container,
        "resourceName": a.resource_name,
        "deviceIDs": a.device_ids,
        "deviceIDsByNUMANode": a.ids_by_numa,
        "answer": None if a.edits is None else to_builtins(a.edits),
        **({"problem": a.response_problem} if a.response_problem else {}),
    }
