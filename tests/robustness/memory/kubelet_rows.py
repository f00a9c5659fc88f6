"""What comes from the kubelet, device plugins and DRA drivers: a checkpoint, pod resources, and lists of devices."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncGenerator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from tests.fakes.played_api.kinds import CLAIMS, SLICES
from tests.fakes.played_api.store import Made
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.pod_resources import AssignedDevices
from tests.robustness.memory.scene import NODE, Scene

# what a kubelet takes of a plugin for one container
_LONGEST_RESPONSE: Final = 4_194_303
_RESPONSES: Final = 12
_LISTS: Final = 8
_DEVICES: Final = 50_000
_HELD: Final = 10_000
_DRIVERS: Final = 4
_SLICES: Final = 128
_SLICE_DEVICES: Final = 128
# the kubelet writes its checkpoint at each allocation, and at each list of a plugin
_WRITES: Final = 3
_BETWEEN_WRITES_SECONDS: Final = 1.5


async def kubelet_checkpoint(scene: Scene) -> AsyncGenerator[None, None]:
    """As many responses as pods have, each as long as a kubelet takes it."""
    entries = [
        {
            "PodUID": f"uid-of-long-{number}",
            "ContainerName": "c",
            "ResourceName": f"long{number % 3}.example.com/r",
            "DeviceIDs": {"-1": [f"d{number}"]},
            "AllocResp": _longest(number),
        }
        for number in range(_RESPONSES)
    ]
    registered = {f"long{number}.example.com/r": [f"d{d}" for d in range(_RESPONSES)] for number in range(3)}
    scene.pod_resources.assigned += [
        AssignedDevices("long", f"p{n}", "c", f"long{n % 3}.example.com/r", {f"d{n}": ()}) for n in range(_RESPONSES)
    ]
    _write(scene.kubelet_dir, entries, registered)
    yield
    await scene.agent.until_logged("serving device plugins")
    for _ in range(_WRITES):
        await asyncio.sleep(_BETWEEN_WRITES_SECONDS)
        _write(scene.kubelet_dir, [], {})


async def kubelet_lists(scene: Scene) -> AsyncGenerator[None, None]:
    """Lists with a device for each MiB, of which some pods hold thousands; all are listed again at each write."""
    async for _ in _listed(scene, {f"k{n}.io/r": [f"k{n}-{i:05}" for i in range(_DEVICES)] for n in range(_LISTS)}):
        yield


async def kubelet_lists_of_long_ids(scene: Scene) -> AsyncGenerator[None, None]:
    """More than a message of pod resources may have: their devices are those of the checkpoint."""
    names = [f"of-kubelet.example.com/r{n}" for n in range(_LISTS)]
    async for _ in _listed(scene, {name: [f"GPU-{name[-1]}-{i:020}" for i in range(_DEVICES)] for name in names}):
        yield


async def _listed(scene: Scene, lists: dict[str, list[str]]) -> AsyncGenerator[None, None]:
    held = [(name.replace("/", "-"), name, ids[:_HELD]) for name, ids in lists.items()]
    scene.pod_resources.assigned += [
        AssignedDevices("many", pod, "c", name, dict.fromkeys(ids, ())) for pod, name, ids in held
    ]
    allocatable = scene.pod_resources.allocatable = scene.pod_resources.allocatable or {}
    allocatable |= {name: dict.fromkeys(ids, ()) for name, ids in lists.items()}
    entries = [
        {"PodUID": f"uid-{pod}", "ContainerName": "c", "ResourceName": name, "DeviceIDs": {"-1": ids}, "AllocResp": ""}
        for pod, name, ids in held
    ]
    _write(scene.kubelet_dir, entries, lists)
    yield
    await scene.agent.until_logged("serving device plugins")
    for name in [*lists][:_WRITES]:
        await asyncio.sleep(_BETWEEN_WRITES_SECONDS)
        # some fail
        allocatable[name] = dict.fromkeys(lists[name][: _DEVICES // 2], ())
        _write(scene.kubelet_dir, [], {name: [*allocatable[name]]})


async def plugin_lists(scene: Scene) -> AsyncGenerator[None, None]:
    """Plugins that list far more together than a node may have; all of their devices fail, and recover."""
    yield
    well, sick = FakeDevice(), FakeDevice(healthy=False)
    plugins = [
        await scene.plugin(FakePlugin(f"of-agent.example.com/r{n}", dict.fromkeys(_ids(n), well)))
        for n in range(_LISTS)
    ]
    for device in (sick, well):
        for number, plugin in enumerate(plugins):
            await plugin.update(dict.fromkeys(_ids(number), device))
        await asyncio.sleep(_BETWEEN_WRITES_SECONDS)


def _ids(number: int) -> list[str]:
    return [f"GPU-{number}-{index:020}" for index in range(_DEVICES)]


async def resource_slices(scene: Scene) -> AsyncGenerator[None, None]:
    """More slices than are read of all drivers, each with as many devices and attributes as the API server takes."""
    scene.api.serve(SLICES, CLAIMS)
    for driver in range(_DRIVERS):
        for number in range(_SLICES):
            name = f"slice-{driver}-{number:03}"
            scene.api.put(SLICES, Made("", name, partial(_slice, name, f"driver{driver}.example.com", number)))
    yield


def _slice(name: str, driver: str, number: int) -> bytes:
    pool = b'{"name":"n","generation":1,"resourceSliceCount":%d}' % _SLICES
    return (
        b'{"metadata":{"name":"%b","uid":"uid-%b","resourceVersion":"1"},'
        b'"spec":{"nodeName":"%b","driver":"%b","pool":%b,"devices":[%b]}}'
    ) % (name.encode(), name.encode(), NODE.encode(), driver.encode(), pool, _slice_devices(number))


@cache
def _slice_devices(number: int) -> bytes:
    attributes = b",".join(b'"a%02d":{"string":"%b%02d"}' % (n, b"v" * 62, n) for n in range(32))
    return b",".join(b'{"name":"d-%d-%d","attributes":{%b}}' % (number, n, attributes) for n in range(_SLICE_DEVICES))


def _longest(number: int) -> str:
    return base64.b64encode(os.urandom(64) * (_LONGEST_RESPONSE // 64)).decode()


def _write(kubelet_dir: Path, entries: list[dict[str, Any]], registered: Mapping[str, list[str]]) -> None:
    """As the kubelet does it, whose checksum covers all; with what is there already."""
    file = kubelet_dir / "device-plugins" / "kubelet_internal_checkpoint"
    data = json.loads(file.read_text())["Data"] if file.exists() else {"PodDeviceEntries": [], "RegisteredDevices": {}}
    data["PodDeviceEntries"] += entries
    data["RegisteredDevices"] |= registered
    file.with_suffix(".new").write_text(json.dumps({"Data": data, "Checksum": 1}, separators=(",", ":")))
    file.with_suffix(".new").replace(file)


ROWS: Final = (kubelet_checkpoint, kubelet_lists, kubelet_lists_of_long_ids, plugin_lists, resource_slices)
