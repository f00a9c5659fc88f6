"""Which CDI names containers get: none that a runtime refuses, or that leads to another GPU or to a driver that is gone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from nodedevice_agent.lib import host_view
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, Injector
from nodedevice_agent.plugins.nvml.devices import CONTROL_NODES
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.source import NvmlSource

from tests.fakes.sysfs import PCI, FakeSysfs
from tests.unit.node_agent.plugins.nvml.sources import SOMEBODY, Served, place

KIND: Final = "nvidia.com/gpu"
SPEC: Final = "/etc/cdi/nvidia.yaml"
A, B = (Gpu(f"GPU-{name}", "T4", pci_bus_id=f"0000:{bus}a:00.0", minor=bus) for bus, name in enumerate("ab"))
REMEDY: Final = f"Run on the node: nvidia-ctk cdi generate --device-name-strategy=uuid --output={SPEC}"
LIBRARY: Final = "/usr/lib/libcuda.so.580.1"
HOOK: Final = "/usr/bin/nvidia-cdi-hook"
INSTANCES: Final = (MigInstance("MIG-1", "1g.10gb", 1, 0, 10000), MigInstance("MIG-2", "1g.10gb", 2, 0, 10000))
# Files that stand for device files of a made-up host are no device files; tests of hand_over.py have those.
OTHER_WAY: Final = "env"
# of the GPU with the number 0
CAPABILITIES: Final = "config 1\nmonitor 2\n" + "".join(
    f"gpu0/gi{gi}/access {9 * gi}\ngpu0/gi{gi}/ci0/access {9 * gi + 1}\n" for gi in (1, 2)
)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """With the device files of two GPUs, and a driver."""
    caps = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in (1, 2, 9, 10, 18, 19)]
    for path in ("/dev/nvidia0", "/dev/nvidia1", *CONTROL_NODES, *caps):
        place(tmp_path, path).symlink_to("/dev/null")
    for path in (LIBRARY, HOOK):
        place(tmp_path, path).touch()
    place(tmp_path, "/proc/driver/nvidia-caps/mig-minors").write_text(CAPABILITIES)
    sysfs = FakeSysfs(tmp_path)
    for bus, gpu in enumerate((A, B)):
        card = f"{PCI}/{gpu.pci_bus_id}"
        sysfs.pci(card)
        sysfs.node(f"{card}/drm/card{bus}", "drm", f"226:{bus}", name=f"dri/card{bus}", parent=card)
    return tmp_path


def nodes(*found: str | dict[str, Any]) -> list[dict[str, Any]]:
    return [{"path": each} if isinstance(each, str) else each for each in found]


def of(name: str, *files: str | dict[str, Any], **edits: Any) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"env": ["X=y"], "deviceNodes": nodes(*files), **edits}}


def everybodys(**edits: Any) -> dict[str, Any]:
    """As nvidia-ctk writes it."""
    return {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": nodes(*CONTROL_NODES),
        "mounts": [{"hostPath": LIBRARY, "containerPath": LIBRARY, "options": ["ro", "nosuid", "nodev", "bind"]}],
        "hooks": [{"hookName": "createContainer", "path": HOOK, "args": ["nvidia-cdi-hook", "update-ldcache"]}],
        **edits,
    }


def spec(*devices: dict[str, Any], **more: Any) -> str:
    return json.dumps({"cdiVersion": "0.5.0", "kind": KIND, "devices": devices, "containerEdits": everybodys(), **more})


def specify(root: Path, *devices: dict[str, Any], file: str = SPEC, **more: Any) -> None:
    place(root, file).write_text(spec(*devices, **more))


async def served(root: Path, *gpus: Gpu, **more: Any) -> Served:
    """After the specifications were read."""
    made = Served(root, *gpus, **{"mig": "single", **more})
    await made.source.read_files()
    return made


async def source(root: Path, *gpus: Gpu, **more: Any) -> NvmlSource:
    return (await served(root, *gpus, **more)).source


def ways(made: NvmlSource) -> dict[str, str]:
    return {device.id: dict(device.attributes)["handOver"] for device in made.devices.latest}


def by_name(made: NvmlSource) -> set[str]:
    """Those that are listed with a CDI name."""
    return {device.id for device in made.devices.latest if (f"{KIND}={device.id}", device.id) in device.files}


async def test_by_a_specification_of_now(host: Path) -> None:
    specify(host, of("GPU-a", "/dev/nvidia0", CARD), of("GPU-b", "/dev/nvidia1"))
    made = await source(host, A, B)
    assert ways(made) == {"GPU-a": "cdi", "GPU-b": "cdi"}
    assert by_name(made) == {"GPU-a", "GPU-b"}
    assert made.allocate(["GPU-b"], SOMEBODY).cdi_devices == (f"{KIND}=GPU-b",)
    assert made.devices.trouble == ("", "")


NUMBERED: Final = {"path": "/dev/x", "type": "c", "major": 195}
CARD: Final = {"path": "/dev/dri/card0", "type": "c", "major": 226}
# what a specification may have for GPU-a, the files of all, and what is wrong with that
OUTDATED: Final[dict[str, tuple[Sequence[str | dict[str, Any]], dict[str, Any], str]]] = {
    "another's path": (["/dev/nvidia1"], {}, "a container with GPU-a gets /dev/nvidia1, which is of GPU-b now"),
    "another's path beside its own": (["/dev/nvidia0", "/dev/nvidia1"], {}, "/dev/nvidia1, which is of GPU-b now"),
    "another's host path": ([{"path": "/dev/nvidia0", "hostPath": "/dev/nvidia1"}], {}, "which is of GPU-b now"),
    "another's number": ([{**NUMBERED, "minor": 1}], {}, "gets /dev/x, which is of GPU-b now"),
    "another's number at its path": ([{**NUMBERED, "path": "/dev/nvidia0", "minor": 1}], {}, "which is of GPU-b now"),
    "nobody's number": ([{**NUMBERED, "minor": 7}], {}, "which is no GPU's that the driver reports"),
    "all for each": ([], {"deviceNodes": nodes("/dev/nvidia0", "/dev/nvidia1")}, "/dev/nvidia1, which is of GPU-b"),
    "an instance's file": (["/dev/nvidia-caps/nvidia-cap9"], {}, "nvidia-cap9, which is no GPU's"),
    "another's card": ([{**CARD, "path": "/dev/dri/card1", "minor": 1}], {}, "/dev/dri/card1, which is of GPU-b now"),
    "no GPU's card": ([{**CARD, "path": "/dev/dri/card7", "minor": 7}], {}, "card7, which is no GPU's that the driver"),
    "a file that is gone": (["/dev/nvidia7"], {}, "/dev/nvidia7 is not on the node"),
    "no device file": ([LIBRARY], {}, f"{LIBRARY} is not a device file of type b, c or p"),
    "another type": ([{"path": "/dev/nvidia0", "type": "u"}], {}, "/dev/nvidia0 is not a device file of type u"),
    "a link": (["/dev/link"], {}, "/dev/link is a link, which no container runtime follows"),
    "a library": ([], {"mounts": [{"hostPath": "/l.550", "containerPath": "/l"}]}, "/l.550 is not on the node"),
    "two libraries": (
        [],
        {"mounts": [{"hostPath": each, "containerPath": "/l"} for each in ("/l.550", LIBRARY, "/m.550")]},
        "/l.550 and 1 more of its files are not on the node",
    ),
    "a hook": ([], {"hooks": [{"hookName": "createRuntime", "path": "/bin/gone"}]}, "/bin/gone is not on the node"),
}


async def is_not_chosen(host: Path, gpus: Sequence[Gpu], *words: str) -> str:
    """GPU-a goes another way, and none by CDI alone. words: of the reason and of the refusal. Returns the reason."""
    made = await source(host, *gpus)
    assert ways(made)["GPU-a"] == OTHER_WAY
    assert "GPU-a" not in by_name(made)
    given = made.allocate(["GPU-a"], SOMEBODY)
    assert (given.cdi_devices, given.env) == ((), {"NVIDIA_VISIBLE_DEVICES": "GPU-a"})
    reason, message = made.devices.trouble
    assert reason == "CdiSpecNotUsable"
    assert message.startswith("GPU-a ")
    for way in (["cdi"], ["env", "cdi"]):
        fixed = await source(host, *gpus, handOver=way)
        with pytest.raises(AllocationRefused) as refused:
            fixed.allocate(["GPU-a"], SOMEBODY)
        assert all(each in text for each in words for text in (message, str(refused.value)))
        assert "GPU-a" not in by_name(fixed)
    return message


@pytest.mark.parametrize("name", OUTDATED)
async def test_by_another_way_where_the_specification_is_outdated(host: Path, name: str) -> None:
    files, more, problem = OUTDATED[name]
    place(host, "/dev/link").symlink_to("nvidia0.gone")
    specify(host, of("GPU-a", *files), of("GPU-b", "/dev/nvidia1"), containerEdits=everybodys(**more))
    message = await is_not_chosen(host, [A, B], problem, REMEDY)
    assert f"is not handed over by CDI: {SPEC} is outdated: " in message


GOOD: Final = spec(of("GPU-a", "/dev/nvidia0"))
TWICE: Final = {"/etc/cdi/a.json": GOOD, "/etc/cdi/b.json": GOOD}
BOTH: Final = "/etc/cdi/a.json and /etc/cdi/b.json both name it"


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        pytest.param({SPEC: spec(of("GPU-a"), unknown=1)}, "field unknown is unknown", id="an unknown field"),
        pytest.param(TWICE, BOTH, id="a name in two files"),
        pytest.param({**TWICE, "/var/run/cdi/c.json": GOOD}, BOTH, id="a name in two files of the other directory"),
        pytest.param(
            {SPEC: GOOD, "/etc/cdi/big.json": " " * (2 << 20)},
            "/etc/cdi/big.json: bigger than 1048576 bytes",
            id="a file beside it that was not read",
        ),
    ],
)
async def test_a_name_that_a_runtime_refuses_is_not_chosen(host: Path, files: dict[str, str], problem: str) -> None:
    for path, text in files.items():
        place(host, path).write_text(text)
    await is_not_chosen(host, [A], problem)


async def test_a_runtime_that_takes_no_cdi_names_needs_no_reason(host: Path) -> None:
    specify(host, of("GPU-a", "/dev/nvidia1"))
    assert (await source(host, A, B, injector=Injector(takes_cdi=False))).devices.trouble == ("", "")


async def test_a_mistake_of_another_vendor_is_nothing(host: Path) -> None:
    specify(host, of("GPU-a", "/dev/nvidia0"))
    place(host, "/etc/cdi/other.json").write_text('{"kind": "vendor.com/net", "x": 1}')
    made = await source(host, A, B)
    assert ways(made) == {"GPU-a": "cdi", "GPU-b": OTHER_WAY}
    assert made.devices.trouble == ("", "")


async def test_a_gpu_that_no_specification_names_is_left_to_the_runtime(host: Path) -> None:
    """The agent may not see the directories."""
    made = await source(host, A, handOver=["cdi"])
    assert made.allocate(["GPU-a"], SOMEBODY).cdi_devices == (f"{KIND}=GPU-a",)
    assert by_name(made) == {"GPU-a"}
    assert made.devices.trouble == ("", "")


@pytest.mark.parametrize("hand_over", [["auto"], ["cdi"]])
async def test_what_becomes_outdated_is_noticed(host: Path, hand_over: list[str]) -> None:
    """Each by the next reading, or the next list of GPUs."""
    specify(host, of("GPU-a", "/dev/nvidia0"), of("GPU-b", "/dev/nvidia1"))
    node = await served(host, A, B, handOver=hand_over)
    made = node.source
    assert by_name(made) == {"GPU-a", "GPU-b"}
    place(host, LIBRARY).rename(place(host, f"{LIBRARY}.old"))
    await made.read_files()
    assert by_name(made) == set()
    assert "GPU-a (and 1 more)" in made.devices.trouble[1]
    place(host, f"{LIBRARY}.old").rename(place(host, LIBRARY))
    await made.read_files()
    assert by_name(made) == {"GPU-a", "GPU-b"}
    # the driver is loaded again, and A is gone
    node.found(msgspec.structs.replace(B, minor=0))
    assert by_name(made) == set()
    assert "GPU-b gets /dev/nvidia1, which is no GPU's" in made.devices.trouble[1]
    place(host, SPEC).unlink()
    await made.read_files()
    assert made.devices.trouble == ("", "")
    assert by_name(made) == (set() if hand_over == ["auto"] else {"GPU-a", "GPU-b"})


CAPABILITY: Final = {"path": "/dev/nvidia-caps/nvidia-cap10", "type": "c", "major": 235}
OWN: Final = ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap9", "/dev/nvidia-caps/nvidia-cap10")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        pytest.param(OWN, "", id="its own"),
        pytest.param([*OWN, "/dev/nvidia-caps/nvidia-cap1"], "", id="with the node's"),
        pytest.param(["/dev/nvidia0"], "", id="of its GPU"),
        pytest.param(["/dev/nvidia1", *OWN[1:]], "/dev/nvidia1, which is of GPU-b now", id="another GPU's"),
        pytest.param([*OWN[:2], "/dev/nvidia-caps/nvidia-cap19"], "nvidia-cap19, which is of MIG-2", id="a sibling's"),
        pytest.param([*OWN[:2], {**CAPABILITY, "minor": 10}], "", id="its own by number"),
        pytest.param([*OWN[:2], {**CAPABILITY, "minor": 19}], "nvidia-cap10, which is of MIG-2", id="another number"),
        pytest.param([*OWN[:2], "/dev/nvidia-caps/nvidia-cap30"], "nvidia-cap30 is not on the node", id="nobody's"),
    ],
)
async def test_an_instance(host: Path, files: Sequence[str | dict[str, Any]], problem: str) -> None:
    specify(host, of("MIG-1", *files), of("MIG-2", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap18"))
    made = await source(host, msgspec.structs.replace(A, instances=INSTANCES), B)
    assert ways(made)["MIG-1"] == (OTHER_WAY if problem else "cdi")
    assert ways(made)["MIG-2"] == "cdi"
    assert bool(made.allocate(["MIG-1"], SOMEBODY).cdi_devices) is (not problem)
    assert problem in made.devices.trouble[1]


async def test_all_devices_of_a_container_go_one_way(host: Path) -> None:
    specify(host, of("GPU-a", "/dev/nvidia0"), of("GPU-b", "/dev/nvidia0"))
    made = await source(host, A, B)
    assert ways(made) == {"GPU-a": "cdi", "GPU-b": OTHER_WAY}
    given = made.allocate(["GPU-a", "GPU-b"], SOMEBODY)
    assert (given.cdi_devices, given.env) == ((), {"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"})


@pytest.mark.parametrize("mounts", ["", "1 2 0:3 / /dev ro - devtmpfs d rw\n"])
async def test_an_agent_in_a_pod_knows_the_driver_by_its_version(
    host: Path, monkeypatch: pytest.MonkeyPatch, mounts: str
) -> None:
    """It sees files of its image in place of the driver's."""
    table = place(host, "/mountinfo")
    table.write_text(f"1 0 0:1 / / rw - overlay o rw\n{mounts}")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(host_view, "_MOUNTS", table)
    monkeypatch.setattr(host_view, "sees_all", lambda root: False)
    # whether a file of /dev is there, it knows where it sees the host's
    specify(host, of("GPU-a", "/dev/nvidia0", *([] if mounts else ["/dev/gone"])))
    place(host, LIBRARY).unlink()
    place(host, HOOK).unlink()
    assert ways(await source(host, A, version="580.1")) == {"GPU-a": "cdi"}
    made = await source(host, A, version="590.2")
    assert ways(made) == {"GPU-a": OTHER_WAY}
    assert f"it has {LIBRARY}, and the driver is 590.2" in made.devices.trouble[1]


@pytest.mark.parametrize("kept", [[], ["/dev/nvidia0"]], ids=["no files", "a file of the GPU alone"])
async def test_no_response_is_made_while_the_driver_is_closed_and_its_files_gone(host: Path, kept: list[str]) -> None:
    """The variable alone would stay with the container, which a runtime other than NVIDIA's starts without its GPU."""
    specify(host, of("GPU-a", "/dev/nvidia0"))
    node = await served(host, A)
    made = node.source
    assert ways(made) == {"GPU-a": "cdi"}
    node.fleet.unread(Trouble("DriverReleased", "NVML is closed: for a test"))
    files = [LIBRARY, *CONTROL_NODES, "/dev/nvidia0"]
    for path in files:
        if path not in kept:
            place(host, path).unlink()
    await made.read_files()
    with pytest.raises(AllocationRefused, match=r"GPU-a .*NVML is closed"):
        made.allocate(["GPU-a"], SOMEBODY)
    place(host, LIBRARY).touch()
    for path in files[1:]:
        if path not in kept:
            place(host, path).symlink_to("/dev/null")
    node.fleet.unread(None)
    await made.read_files()
    assert made.allocate(["GPU-a"], SOMEBODY).cdi_devices == (f"{KIND}=GPU-a",)
