"""The biggest that a plugin or a file may be, and what is bigger, met by the agent's own code: `python -m ….sizes CASE`.

In a process of its own, so that its peak is of this one thing. Prints by how many MiB memory grew at most.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.effects import CallAllocate
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES, Device, ListedDevices, accept
from nodedevice_agent.deviceplugin import codec
from nodedevice_agent.deviceplugin.connection import MAX_ALLOCATION_BYTES, MAX_MESSAGE_BYTES, PluginConnection
from nodedevice_agent.errors import PluginFailed
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from hack.bench.operator.counts import peak_rss_mib, rss_mib
from tests.robustness.fuzz.raw_plugin import RawPlugin

_RESOURCE = "example.com/raw"
_MIB = 1024 * 1024
# Field numbers as tags: of a list's devices, of a device's ID and health, topology, reason, attributes; of an answer's environment.
_DEVICE, _ID, _HEALTH, _TOPOLOGY = b"\x0a", b"\x0a", b"\x12", b"\x1a"
_REASON, _ATTRIBUTE = b"\xca\x3e", b"\xda\x3e"

_DeviceBytes = Callable[[int], bytes]


def _field(tag: bytes, content: bytes) -> bytes:
    size, length = len(content), b""
    while size > 0x7F:
        size, length = size >> 7, length + bytes([size & 0x7F | 0x80])
    return tag + length + bytes([size]) + content


def _device(number: int, more: bytes = b"") -> bytes:
    return _field(_DEVICE, _field(_ID, b"%06x" % number) + more)


_ATTRIBUTES = b"".join(_field(_ATTRIBUTE, b"\x0a\x02%02x" % number) for number in range(15))
# As many as fit into the biggest message.
_LISTS: dict[str, _DeviceBytes] = {
    "empty devices": lambda _: _DEVICE + b"\0",
    "short IDs": _device,
    "long IDs": lambda number: _field(_DEVICE, _field(_ID, b"%0102d" % number) + _field(_HEALTH, b"Healthy")),
    "IDs that are no IDs": lambda _: _field(_DEVICE, _field(_ID, b"\n" * 120)),
    "NUMA nodes": lambda number: _device(number, _field(_TOPOLOGY, b"\x0a\x02\x08\x01" * 27)),
    "attributes": lambda number: _device(number, _ATTRIBUTES),
    "reasons in wide characters": lambda number: _device(number, _field(_REASON, "\U0001f600".encode() + b"a" * 100)),
}


def _list(device: _DeviceBytes, most: int = MAX_MESSAGE_BYTES) -> None:
    count = min(MAX_MESSAGE_BYTES // len(device(0)), most)
    octets = b"".join(map(device, range(min(count, MAX_DEVICES))))
    # more than are read need not differ
    octets += (count - MAX_DEVICES) * device(0)
    listed: list[ListedDevices] = []
    _measure(lambda: listed.append(codec.device_list(octets)))
    assert len(listed[0].devices) <= MAX_DEVICES


def _lists_of_many_names() -> None:
    """Each as long as it may be, with as much about each device as it may say: what is refused of them leaves nothing."""
    attributes = b"".join(_field(_ATTRIBUTE, b"\x0a\x03%03x\x12\x20%032d" % (n, n)) for n in range(32))
    octets = b"".join(_device(number, attributes) for number in range(4096))
    manager = DeviceManager(0.0)

    def list_all() -> None:
        for number in range(18):
            name = f"d{number % 3}.example.com/r{number}"
            manager.connected(name, number, PluginOptions(), 0.0)
            manager.listed(name, number, codec.device_list(octets), 0.0)

    _measure(list_all)
    refused = [resource.listed.is_refused for resource in manager.resources.values()]
    assert any(refused)
    assert not all(refused)


def _answers_of_many_containers() -> None:
    """Each just short enough, of the smallest entries."""
    manager, count = DeviceManager(0.0), 100
    manager.connected(_RESOURCE, 1, PluginOptions(), 0.0)
    manager.listed(_RESOURCE, 1, accept(Device(f"d{number}") for number in range(count)), 0.0)
    octets = b"".join(
        _field(b"\x0a", _field(b"\x0a", b"%06x" % number)) for number in range(MAX_ALLOCATION_BYTES // 10)
    )

    def allocate_all() -> None:
        for number in range(count):
            manager.pod_events.seen(Pod(f"u{number}", "n", f"p{number}", (Container("c", limits={_RESOURCE: 1}),)), 0.0)
            message = api_pb2.ContainerAllocateResponse.FromString(octets)
            for effect in manager.settle(0.0):
                if isinstance(effect, CallAllocate):
                    manager.allocated(effect.ticket, codec.allocate_response(message), 0.0)
                    manager.settle(0.0)

    _measure(allocate_all)
    assert 0 < len(manager.book.by_pod) < count


def _answer(size: int, *, is_taken: bool) -> None:
    """Of Allocate, through the wire and the checkpoint: the smallest entries make the most of it."""
    # of the environment, whose tag is that of an answer's part of one container, and of a name
    count = min(size // 10, codec.MAX_ENTRIES) if is_taken else size // 10
    entries = [_field(b"\x0a", _field(b"\x0a", b"%0*x" % (size // count - 4, number))) for number in range(count)]
    response = b"".join(entries)
    octets = _field(b"\x0a", response)

    async def ask() -> None:
        with tempfile.TemporaryDirectory(prefix="nodedevice-") as folder:
            plugin = RawPlugin(Path(folder) / "raw.sock")
            plugin.answers["Allocate"] = [octets]
            await plugin.start()
            try:
                async with aclosing(await PluginConnection.open(_RESOURCE, plugin.socket)) as connection:
                    kept = await connection.allocate(("d0",))
            finally:
                await plugin.stop()
        allocation = Allocation("uid", "main", _RESOURCE, {-1: ("d0",)}, kept.octets, kept.edits)
        assert decode(encode(Checkpoint((allocation,)))).allocations == (allocation,)

    def run() -> None:
        asyncio.run(ask())

    def refused() -> None:
        with pytest.raises(PluginFailed, match="exceeds the limit"):
            run()

    _measure(run if is_taken else refused)


def _file(content: bytes, size: int) -> None:
    """A checkpoint of so many bytes, the rest of them zeros that take no room on the disk."""
    with tempfile.TemporaryDirectory(prefix="nodedevice-") as folder:
        path = Path(folder) / checkpoint_file.FILE_NAME
        with path.open("wb") as file:
            file.write(content)
            file.truncate(size)

        def read() -> None:
            with pytest.raises(CheckpointCorrupt):
                checkpoint_file.read(path.parent)

        _measure(read)


def _measure(act: Callable[[], None]) -> None:
    before = rss_mib(os.getpid())
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    act()
    print(int(peak_rss_mib(os.getpid()) - before))


# What it is, and the most MiB by which memory may grow. An agent has 384 in the chart, and is given 64 when idle.
CASES: dict[str, tuple[Callable[[], None], int]] = {
    **{f"a list: {name}": (partial(_list, device), 256) for name, device in _LISTS.items()},
    "a list: a few attributes": (partial(_list, lambda n: _device(n, _ATTRIBUTES[: 6 * 7]), MAX_DEVICES), 256),
    "lists of many names": (_lists_of_many_names, 160),
    "answers of many containers": (_answers_of_many_containers, 48),
    "an answer that is just taken": (lambda: _answer(MAX_ALLOCATION_BYTES - 64, is_taken=True), 64),
    "an answer that is too big": (lambda: _answer(MAX_MESSAGE_BYTES - _MIB, is_taken=False), 160),
    "a checkpoint of zeros": (lambda: _file(b"", checkpoint_file.MAX_BYTES), 256),
    "a checkpoint that is too big": (lambda: _file(b"", 3 * 1024 * _MIB), 16),
}

if __name__ == "__main__":
    CASES[sys.argv[1]][0]()
