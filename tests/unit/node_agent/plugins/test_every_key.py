"""Every key of the built-in plugins: with it set, its effect is in the list or the answer, or that is refused or shown in Healthy.

So nothing that was configured is silently less on a node that lacks what it needs.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from nodedevice_agent.lib.deviceplugin_server.server import DeviceSource
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.generic.settings import GenericSettings
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_agent.plugins.nvml.driver_troubles import Fabric, Reading, Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.limited_source import LimitedSource, source_of
from nodedevice_agent.plugins.nvml.mig import CAPABILITY_MINORS, MigInstance
from nodedevice_agent.plugins.nvml.node_gpus import Fleet
from nodedevice_agent.plugins.nvml.parts import uses_of
from nodedevice_agent.plugins.nvml.reader.messages import Found
from nodedevice_agent.plugins.nvml.settings import GpuHealthSettings, NvmlSettings
from nodedevice_agent.plugins.nvml.source import HostOfGpus
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.nvml.sources import SOMEBODY, device_file, place

GIB = 1 << 30
Json = dict[str, Any]
_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def keys_of(kind: type, before: str = "") -> Iterator[str]:
    """Every key of these settings, those of settings within them by their path: sharing.shares.replicas."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        yield before + field.encode_name
        for inner in structs_in(field.type):
            yield from keys_of(inner, f"{before}{field.encode_name}.")


def structs_in(kind: inspect.Type) -> Iterator[type]:
    if isinstance(kind, inspect.StructType):
        yield kind.cls
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from structs_in(one)
    elif isinstance(kind, inspect.ListType):
        yield from structs_in(kind.item_type)


def lines_of(source: DeviceSource) -> Iterator[str]:
    """What the device manager and a container see of it."""
    devices = source.devices.latest
    yield f"{source.resource_name} {source.devices.part_rules} {source.devices.trouble} {devices}"
    ids = [device.id for device in devices if device.is_healthy]
    for chosen in (ids[:1], ids[:2], ids[:3], ids[-1:]):
        try:
            yield _RANDOM.sub("(a UUID)", repr(source.allocate(chosen, SOMEBODY))) if chosen else "none"
        except AllocationRefused as error:
            yield f"refused: {error}"


def is_said(lines: list[str]) -> bool:
    """Whether something is refused, or shown in Healthy."""
    listed = [line for line in lines if "PluginDevice(" in line or line.endswith(" ()")]
    return any(line.startswith("refused: ") for line in lines) or any("('', '')" not in line for line in listed)


# -- nvml --------------------------------------------------------------------------------------------------------------------

T4 = Gpu("GPU-a", "Tesla T4", 15 * GIB, "0000:01:00.0", minor=0, index=0)
H100 = Gpu("GPU-b", "NVIDIA H100", 79 * GIB, "0000:02:00.0", minor=1, index=1)
INSTANCES = (MigInstance("MIG-1", "1g.10gb", 1, 0, 9984),)
CUT = Gpu("GPU-c", "NVIDIA H100", 79 * GIB, "0000:03:00.0", minor=2, index=2, instances=INSTANCES)
FILES = (*("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "nvidia2"), *(f"nvidia-caps/nvidia-cap{n}" for n in (1, 2)))
LIBRARIES = (
    *("vgpu/libvgpu.so", "usr/local/vgpu/ld.so.preload", "my/preload"),
    *("tmp/nvidia-mps/control", "my/mps/control"),
)
LIBRARY = {"library": "/vgpu/libvgpu.so"}
# what a node may lack
NODES = ("nothing", "memory", "files", "libraries")
SPEC = '{"cdiVersion": "0.6.0", "kind": "a.b/gpu", "devices": [{"name": "GPU-a", "containerEdits": {"env": ["A=b"]}}]}'


# many keys are compared with the same settings
_SEEN: dict[tuple[str, str], list[str]] = {}


async def seen_of_nvml(folder: Path, raw: Json, lacking: str) -> list[str]:
    known = json.dumps(raw), lacking
    if known not in _SEEN:
        _SEEN[known] = [line.replace(str(folder), "") for line in await of_nvml(folder, raw, lacking)]
    return _SEEN[known]


async def of_nvml(folder: Path, raw: Json, lacking: str) -> list[str]:
    settings = msgspec.convert(raw, NvmlSettings)
    for name in FILES if lacking != "files" else ():
        device_file(folder, f"dev/{name}")
    for path in LIBRARIES:
        made = place(folder, path)
        if lacking != "libraries":
            made.touch()
    for directory in ("usr/local/vgpu/containers", "tmp/vgpulock", "my/containers", "my/lock"):
        (folder / directory).mkdir(parents=True)
    place(folder, CAPABILITY_MINORS).write_text("gpu2/gi1/access 1\ngpu2/gi1/ci0/access 2\n")
    place(folder, "etc/cdi/gpu.json").write_text(SPEC)
    gpus = [T4, H100, CUT]
    if lacking == "memory":
        gpus = [msgspec.structs.replace(gpu, memory_bytes=None) for gpu in gpus]
    fleet = Fleet(settings.health_rules())
    fleet.found(Found("580", gpus))
    lines = [f"reads {settings.poll_seconds} {settings.call_seconds} {settings.rescan_seconds} {settings.library_dir}"]
    lines += [f"excepts {settings.exempt} and takes Xids as {sorted(map(str, _xids(settings)))}"]
    lines += [line for reading in READINGS for line in await _published(folder, settings, fleet, reading)]
    return lines


def _xids(settings: NvmlSettings) -> Iterator[tuple[int, Trouble | None]]:
    for xid in (31, 79):
        fleet = Fleet(settings.health_rules())
        fleet.found(Found("580", [T4]))
        fleet.xid(T4.uuid, xid)
        yield xid, fleet.trouble_of(T4.uuid)
    fleet.ecc(T4.uuid)
    yield 0, fleet.trouble_of(T4.uuid)


# each has one thing that a setting decides about
READINGS = [
    Reading(recovery_action=0, ecc_uncorrected=0),
    Reading(recovery_action=1, ecc_uncorrected=0),
    Reading(recovery_action=3, ecc_uncorrected=0),
    Reading(row_remap_failed=True),
    Reading(row_remap_pending=True),
    Reading(page_retirement_pending=True),
    Reading(fabric=Fabric(2)),
    Reading(fabric=Fabric(3, health=3)),
]


async def _published(folder: Path, settings: NvmlSettings, fleet: Fleet, reading: Reading) -> list[str]:
    fleet.read({"GPU-a": reading})
    host = HostOfGpus.seen_at(str(folder), settings)
    await host.specs.refresh()
    uses = [(gpu, use) for gpu in fleet.gpus.values() for use in uses_of(gpu, settings)]
    lines: list[str] = []
    for name in sorted({use.resource_name for _, use in uses}):
        source = source_of(name, settings, host, fleet, folder / "state")
        source.publish([(gpu, use) for gpu, use in uses if use.resource_name == name])
        if isinstance(source, LimitedSource):
            await source.holdings([])
        lines += lines_of(source)
    return lines


def shares(**more: Any) -> Json:
    return {"sharing": [{"shares": {"replicas": 2, "resourceName": "a.b/share", **more}}]}


def memory(**more: Any) -> Json:
    return {"sharing": [{"memory": more}]}


def limits(**more: Any) -> Json:
    return {"limits": {**LIBRARY, **more}}


def rule(**more: Any) -> Json:
    return {"sharing": [more, {"whole": {}}]}


def of_both(before: str, keys: Callable[..., Json], **more: Any) -> dict[str, tuple[Json, Json]]:
    """Of both kinds of parts: settings with these keys, and with one more."""
    return {
        f"sharing.{kind}.{before}{key}": (of(**keys()), of(**keys(**{key: value})))
        for key, value in more.items()
        for kind, of in (("shares", shares), ("memory", memory))
    }


TWO = {"replicas": 2, "resourceName": "a.b/s"}
# by key: settings without it, and with it
OF_NVML: dict[str, tuple[Json, Json]] = {
    "resourceName": ({}, {"resourceName": "a.b/gpu"}),
    "modelResourceNames": ({}, {"modelResourceNames": {"*T4*": "a.b/t4"}}),
    "sharing": ({}, shares()),
    "sharing.models": (rule(indexes=[0], shares=TWO), rule(models=["*H100*"], shares=TWO)),
    "sharing.indexes": (rule(models=["*T4*"], shares=TWO), rule(indexes=[1], shares=TWO)),
    "sharing.whole": (shares(), {"sharing": [*shares()["sharing"], {"models": ["*T4*"], "whole": {}}]}),
    "sharing.whole.resourceName": ({}, {"sharing": [{"whole": {"resourceName": "a.b/whole"}}]}),
    "sharing.shares": ({}, shares()),
    "sharing.shares.replicas": (shares(), shares(replicas=3)),
    "sharing.shares.resourceName": (shares(), shares(resourceName="a.b/other")),
    "sharing.shares.renameByDefault": (shares(resourceName=""), shares(resourceName="", renameByDefault=True)),
    "sharing.shares.failRequestsGreaterThanOne": (shares(), shares(failRequestsGreaterThanOne=True)),
    "sharing.shares.mps": (shares(), shares(mps={})),
    "sharing.shares.mps.pipeDirectory": (shares(mps={}), shares(mps={"pipeDirectory": "/my/mps"})),
    "sharing.shares.mps.shmDirectory": (shares(mps={}), shares(mps={"shmDirectory": "/my/shm"})),
    "sharing.shares.reserve": (shares(mps={}), shares(mps={}, reserve="1Gi")),
    "sharing.shares.limits": (shares(), shares(limits={})),
    "sharing.memory": ({}, memory()),
    "sharing.memory.resourceName": (memory(), memory(resourceName="a.b/mem")),
    "sharing.memory.unit": (memory(), memory(unit="2Gi")),
    "sharing.memory.reserve": (memory(), memory(reserve="4Gi")),
    "sharing.memory.limits": (memory(limits=None), memory(**limits())),
    **of_both("", dict, choice="spread", containers="together", advertise="largest"),
    **of_both(
        "limits.",
        limits,
        memory=False,
        smPercent=10,
        oversubscribe=False,
        library="/usr/local/vgpu/ld.so.preload",
        preload="/my/preload",
        directory="/my/containers",
        mountPath="/mine",
        lock="/my/lock",
    ),
    "mig": ({}, {"mig": "mixed"}),
    "handOver": ({"handOver": ["env"]}, {"handOver": ["deviceNodes"]}),
    "cdiKind": ({}, {"cdiKind": "a.b/gpu"}),
    "exempt": ({}, {"exempt": ["mine"]}),
    "criticalXids": ({}, {"criticalXids": [31]}),
    "harmlessXids": ({}, {"harmlessXids": [79]}),
    "eccErrors": ({}, {"eccErrors": "ignore"}),
    "health": ({}, {"health": {"resetRequired": "ignore"}}),
    **{f"health.{key}": ({}, {"health": {key: "ignore"}}) for key in keys_of(GpuHealthSettings)},
    "pollSeconds": ({}, {"pollSeconds": 1}),
    "callSeconds": ({}, {"callSeconds": 1}),
    "rescanSeconds": ({}, {"rescanSeconds": 1}),
    "libraryDir": ({}, {"libraryDir": "/driver"}),
}


@pytest.mark.parametrize("lacking", NODES)
@pytest.mark.parametrize("key", list(keys_of(NvmlSettings)))
async def test_of_gpus(tmp_path: Path, key: str, lacking: str) -> None:
    before, after = [await seen_of_nvml(tmp_path / str(n), raw, lacking) for n, raw in enumerate(OF_NVML[key])]
    assert before != after or (lacking != "nothing" and is_said(after)), "set, and without effect or a word"


# -- generic and simulated ---------------------------------------------------------------------------------------------------

TTY = {"path": "/dev/ttyUSB0"}


def group(*more: Json, **keys: Any) -> Json:
    return {"groups": [{"paths": [TTY, *more], **keys}]}


def path(**keys: Any) -> Json:
    return {"groups": [{"paths": [{**TTY, **keys}]}]}


def select(**keys: Any) -> Json:
    return {"groups": [{"select": keys}]}


def mount(**keys: Any) -> Json:
    return group(mounts=[{"hostPath": "/opt/fw", **keys}])


def parts(**keys: Any) -> Json:
    return group(count=2) | {"parts": keys}


OF_GENERIC: dict[str, tuple[Json, Json]] = {
    "resourceName": (group(), group() | {"resourceName": "a.b/other"}),
    "groups": (group(), {"groups": [*group()["groups"], {"paths": [{"path": "/dev/ttyUSB1"}]}]}),
    "groups.paths": (group(), group({"path": "/dev/ttyUSB1"})),
    "groups.paths.path": (group(), path(path="/dev/ttyUSB1")),
    "groups.paths.mountPath": (group(), path(mountPath="/dev/mine")),
    "groups.paths.permissions": (group(), path(permissions="r")),
    "groups.paths.optional": (group({"path": "/dev/no"}), group({"path": "/dev/no", "optional": True})),
    "groups.count": (group(), group(count=2)),
    "groups.mounts": (group(), mount()),
    "groups.mounts.hostPath": (mount(), mount(hostPath="/opt/other")),
    "groups.mounts.containerPath": (mount(), mount(containerPath="/opt/other")),
    "groups.mounts.readOnly": (mount(), mount(readOnly=True)),
    "groups.env": (group(), group(env={"A": "b"})),
    "groups.allowFiles": (path(path="/dev/file"), {"groups": [{"paths": [{"path": "/dev/file"}], "allowFiles": True}]}),
    "groups.select": (group(), select(usb={"port": "1-2"}, subsystems=["tty"])),
    "groups.select.usb": (select(subsystems=["tty"]), select(subsystems=["tty"], usb={"vendor": "0403"})),
    **{
        f"groups.select.usb.{key}": (select(subsystems=["tty"]), select(subsystems=["tty"], usb={key: value}))
        for key, value in {"vendor": "0403", "product": "6002", "serial": "T", "port": "1-2"}.items()
    },
    "groups.select.udev": (select(subsystems=["tty"]), select(subsystems=["tty"], udev={"ID_SERIAL": "S"})),
    "groups.select.subsystems": (select(usb={"port": "1-*"}), select(usb={"port": "1-*"}, subsystems=["hidraw"])),
    "groups.select.mountPath": (select(subsystems=["tty"]), select(subsystems=["tty"], mountPath="/dev/mine/")),
    "groups.select.permissions": (select(subsystems=["tty"]), select(subsystems=["tty"], permissions="r")),
    "groups.shared": (group(), group(shared=True)),
    "parts": (group(count=2), parts()),
    "parts.placement": (parts(), parts(placement="same-parent")),
    "parts.choice": (parts(), parts(choice="spread")),
    "parts.containers": (parts(), parts(containers="apart")),
    "parts.advertise": (parts(), parts(advertise="largest")),
}


def of_generic(folder: Path, raw: Json, lacking: str) -> list[str]:
    host = FakeSysfs(folder)
    (folder / "dev").mkdir(exist_ok=True)
    if lacking == "nothing":
        for number, usb in enumerate((("1-1", "0403", "6001", "S"), ("1-2", "1a86", "6002", "T"))):
            parent = f"{host.usb(*usb)}/{usb[0]}:1.0/ttyUSB{number}"
            host.node(f"{parent}/tty/ttyUSB{number}", "tty", f"188:{number}", parent=parent)
        host.udev("c188:0", ID_SERIAL="S")
        (folder / "dev/file").touch()
    settings = msgspec.convert({"resourceName": "a.b/tty", **raw}, GenericSettings)
    source = GenericSource(settings, str(host.root), FileWatcher())
    source.refresh()
    return list(lines_of(source))


@pytest.mark.parametrize("lacking", ["nothing", "everything"])
@pytest.mark.parametrize("key", list(keys_of(GenericSettings)))
def test_of_device_files(tmp_path: Path, key: str, lacking: str) -> None:
    before, after = (of_generic(tmp_path / str(number), raw, lacking) for number, raw in enumerate(OF_GENERIC[key]))
    assert before != after or (lacking != "nothing" and is_said(after)), "set, and without effect or a word"


def simulated(**keys: Any) -> Json:
    return {"count": 4, "partsPerDevice": 2, "parts": keys}


OF_SIMULATED: dict[str, tuple[Json, Json]] = {
    "resourceName": ({}, {"resourceName": "a.b/other"}),
    "count": ({}, {"count": 2}),
    "numaNodes": ({}, {"numaNodes": 1}),
    "idPrefix": ({}, {"idPrefix": "mine"}),
    "partsPerDevice": ({}, {"partsPerDevice": 2}),
    "parts": (simulated(), simulated(placement="same-parent")),
    "parts.placement": (simulated(), simulated(placement="distinct-parents")),
    "parts.choice": (simulated(), simulated(choice="spread")),
    "parts.containers": (simulated(), simulated(containers="apart")),
    "parts.advertise": (simulated(), simulated(advertise="largest")),
}


@pytest.mark.parametrize("key", list(keys_of(SimulatedSettings)))
def test_of_simulated_devices(tmp_path: Path, key: str) -> None:
    seen = []
    for number, raw in enumerate(OF_SIMULATED[key]):
        settings = msgspec.convert({"resourceName": "a.b/sim", **raw}, SimulatedSettings)
        source = SimulatedSource(settings, tmp_path / str(number), FileWatcher())
        asyncio.run(source.read())
        seen.append(list(lines_of(source)))
    assert seen[0] != seen[1]
