"""What the devices of GPUs are: their identities, and the files that containers get."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, PluginDevice
from nodedevice_agent.plugins.nvml.devices import NEEDED_NODES
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice
from nodedevice_agent.plugins.nvml.host_files import number_of, on_host
from nodedevice_agent.plugins.nvml.identity import OnHost
from nodedevice_agent.plugins.nvml.mig import CAPABILITY_MINORS, MigInstance
from nodedevice_agent.plugins.nvml.parts import Listing, listing, uses_of
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.nvml.source import NvmlSource

from tests.unit.node_agent.plugins.nvml.sources import Served, device_file, place

GIB = 1 << 30
CAP = "/dev/nvidia-caps/nvidia-cap"
A, B = (Gpu(f"GPU-{name}", "H100", 80 * GIB, f"0000:{name}1:00.0", minor=minor) for minor, name in enumerate("ab"))
A_MOVED, B_MOVED, UNNUMBERED = replace(A, minor=1), replace(B, minor=0), replace(A, minor=None)


def listed(gpus: Sequence[Gpu], host: OnHost, **its: Any) -> Listing:
    settings = msgspec.convert(its, NvmlSettings)
    return listing([(gpu, use) for gpu in gpus for use in uses_of(gpu, settings)], lambda _: None, host)


def test_a_gpu_is_its_uuid_and_the_number_of_its_file() -> None:
    host = OnHost({"/dev/nvidia0": "c500:0", "/dev/nvidiactl": "c500:255"}, hands_over_files=True)
    one, other = listed([A, B], host).devices
    assert (one.identity, one.files, one.is_shared) == (("GPU-a", "c500:0"), (("/dev/nvidia0", "c500:0"),), False)
    # the driver's own number where the agent does not see the file, which no container can get either
    assert (other.identity, other.files) == (("GPU-b", "c195:1"), ())


@pytest.mark.parametrize("rule", [{"shares": {"replicas": 3}}, {"memory": {"unit": "20Gi"}}])
def test_the_parts_of_a_gpu_are_that_gpu_and_shared(rule: dict[str, Any]) -> None:
    found = listed([A, B], OnHost({"/dev/nvidia0": "c195:0"}, hands_over_files=True), sharing=[rule])
    of_a = {(device.identity, device.files) for device in found.devices if device.parent == "GPU-a"}
    assert of_a == {(("GPU-a", "c195:0"), (("/dev/nvidia0", "c195:0"),))}
    assert all(device.is_shared for device in found.devices)
    # a parent is given to nobody
    assert {(parent.identity, parent.files) for parent in found.parents} == {((), ())}


def divided(minor: int | None) -> Gpu:
    instances = tuple(MigInstance(f"MIG-{ci}", "1c.2g.20gb", 1, ci, 20000) for ci in range(2))
    return Gpu("GPU-m", "A100", 80 * GIB, minor=minor, instances=instances)


def test_an_instance_is_of_its_gpu_and_has_its_own_files() -> None:
    minors = {"gpu3/gi1/access": 20, "gpu3/gi1/ci0/access": 21}
    numbers = {"/dev/nvidia3": "c500:3", f"{CAP}20": "c241:20", f"{CAP}21": "c241:21"}
    one, other = listed([divided(3)], OnHost(numbers, minors, hands_over_files=True), mig="single").devices
    assert one.identity == ("GPU-m", "c500:3", "MIG-0")
    assert (one.files, one.is_shared, one.parent) == (tuple(sorted(numbers.items())), True, "GPU-m")
    assert other.identity == ("GPU-m", "c500:3", "MIG-1")
    # the driver has no capability for it
    assert other.files == (("/dev/nvidia3", "c500:3"),)


def test_the_number_of_a_file(tmp_path: Path) -> None:
    device_file(tmp_path, "dev/nvidia0")
    (tmp_path / "dev/nvidia1").symlink_to("/dev/null")
    (tmp_path / "dev/nvidia2").touch()
    (tmp_path / "dev/nvidia3").mkdir()
    (tmp_path / "dev/nvidia4").symlink_to("nvidia4")
    seen = os.stat("/dev/tty").st_rdev
    numbers = [number_of(str(tmp_path), f"/dev/nvidia{place}") for place in range(6)]
    assert numbers == [f"c{os.major(seen)}:{os.minor(seen)}", "path:/dev/nvidia1", "", "", "", ""]
    assert number_of(str(tmp_path), f"/dev/nvidia{'9' * 300}") == ""


@pytest.mark.parametrize("way", ["deviceNodes", "env"])
def test_instances_are_published_with_the_files_that_a_container_gets(tmp_path: Path, way: str) -> None:
    minors = "gpu3/gi1/access 20\ngpu3/gi1/ci0/access 21\ngpu3/gi1/ci1/access 22\n"
    place(tmp_path, CAPABILITY_MINORS).write_text(minors)
    caps = (f"{CAP}{number}" for number in (20, 21, 22))
    for path in (*NEEDED_NODES, "/dev/nvidia3", *caps):
        device_file(tmp_path, path)
    source = Served(tmp_path, divided(3), handOver=[way], mig="single").source
    one, other = source.devices.latest
    for device, own in ((one, "21"), (other, "22")):
        given = {node.host_path for node in source.allocate([device.id], None).device_nodes} - {*NEEDED_NODES}
        assert {path for path, _ in device.files} == given
        assert given == ({"/dev/nvidia3", *(f"{CAP}{n}" for n in ("20", own))} if way != "env" else set())


def test_a_gpu_is_its_graphics_card_and_render_node(tmp_path: Path) -> None:
    drm = tmp_path / f"sys/bus/pci/devices/{A.pci_bus_id}/drm"
    for name, number in {"card1": "226:1\n", "renderD128": "226:128\n", "odd": "x", "other": "٢٢٦:٣"}.items():
        place(drm, f"{name}/dev").write_text(number, encoding="utf-8")
    (drm / "gone").mkdir()
    gpus = [A, B, Gpu("GPU-n", pci_bus_id=f"../devices/{A.pci_bus_id}")]
    host = on_host(str(tmp_path), [GpuDevice(gpu) for gpu in gpus], {}, hands_over_files=True)
    (one, other, third) = listed(gpus, host).devices
    assert (one.identity, one.files) == (("GPU-a", "c195:0", "c226:1", "c226:128"), ())
    assert (other.identity, third.identity) == (("GPU-b", "c195:1"), ("GPU-n",))


def published(root: Path, *inventories: Sequence[Gpu]) -> tuple[NvmlSource, dict[str, PluginDevice]]:
    """The devices by UUID, after each inventory in turn."""
    served = Served(root, handOver=["deviceNodes"])
    for gpus in inventories:
        served.found(*gpus)
    return served.source, {device.id: device for device in served.source.devices.latest}


def test_a_missing_gpu_has_no_number_that_is_another_gpus(tmp_path: Path) -> None:
    for path in ("/dev/nvidia0", *NEEDED_NODES):
        device_file(tmp_path, path)
    tty = number_of(str(tmp_path), "/dev/nvidia0")
    # the driver was loaded again, and found only one of the two
    source, devices = published(tmp_path, [A, B], [B_MOVED])
    assert (devices["GPU-b"].identity, devices["GPU-b"].files) == (("GPU-b", tty), (("/dev/nvidia0", tty),))
    assert not devices["GPU-a"].is_healthy
    assert (devices["GPU-a"].identity, devices["GPU-a"].files) == (("GPU-a",), ())
    with pytest.raises(AllocationRefused, match="device file of GPU-a: if the GPU is missing, delete the pod"):
        source.allocate(["GPU-a"], None)
    assert [node.host_path for node in source.allocate(["GPU-b"], None).device_nodes][:1] == ["/dev/nvidia0"]


@pytest.mark.parametrize(
    ("lists", "of_a", "of_b"),
    [
        pytest.param([[A, B_MOVED]], (), (), id="one that two have is of neither"),
        pytest.param([[A, B], [B_MOVED], [A_MOVED, B_MOVED]], ("c195:1",), ("c195:0",), id="of one that is back"),
        pytest.param([[A, B], [B]], ("c195:0",), ("c195:1",), id="a missing one keeps what no other has"),
        pytest.param([[A, B], [UNNUMBERED, B]], ("c195:0",), ("c195:1",), id="one that was not reported this time"),
        pytest.param([[A, B], [UNNUMBERED, B_MOVED]], (), ("c195:0",), id="one that was not, and is another's by now"),
    ],
)
def test_whose_it_is(tmp_path: Path, lists: list[list[Gpu]], of_a: tuple[str, ...], of_b: tuple[str, ...]) -> None:
    _, devices = published(tmp_path, *lists)
    assert [devices[uuid].identity for uuid in ("GPU-a", "GPU-b")] == [("GPU-a", *of_a), ("GPU-b", *of_b)]
