"""PodDevices made from allocations, and the plan that brings what is to what should be."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from nodedevice_api import names
from nodedevice_api.poddevice import HeldDevice
from nodedevice_operator.objects.nodedevice import AllocationRecord, DeviceRecord, NodeDeviceRecord
from nodedevice_operator.objects.poddevice import PodDeviceRecord
from nodedevice_operator.reconcile.poddevices import DesiredPodDevice, desired_pod_devices, plan, sentence

from tests.fakes.operator.operator_model import GPU, NIC, node_device, not_configured
from tests.unit.operator.objects.records import held

PODDEVICES = Path(__file__).parents[4] / "crds" / "poddevices.yaml"
HEALTHY = DeviceRecord("Healthy", "", False, (0, 1))
BROKEN = DeviceRecord("Unhealthy", "Xid", False, ())
MISSING = DeviceRecord("Unhealthy", "NotListed", True, (1,))


def publishes(*allocations: AllocationRecord, resource: str = GPU, **devices: DeviceRecord) -> NodeDeviceRecord:
    known = {device_id.replace("_", "-"): device for device_id, device in devices.items()}
    return node_device(resource, allocations=allocations, devices=known)


def only(*records: NodeDeviceRecord) -> DesiredPodDevice:
    (found,) = desired_pod_devices("node-a", records)
    return found


def made_of(want: DesiredPodDevice, uid: str = "pd-1") -> PodDeviceRecord:
    """The PodDevice that the operator makes of it."""
    content = want.content
    return PodDeviceRecord(want.namespace, want.name, uid, 1, content.node, content.pod_uid, content.fingerprint())


@pytest.mark.kubelet("behaviour 69")
def test_all_containers_and_resources_of_a_pod_sorted() -> None:
    gpus = publishes(
        held("gpu-1", "gpu-0", container="z"), held("gpu-0", container="init"), gpu_0=HEALTHY, gpu_1=HEALTHY
    )
    nics = publishes(held("nic-0", container="z"), resource=NIC, nic_0=HEALTHY)
    content = only(nics, gpus).content
    assert (content.resources, content.devices) == (f"{GPU}=2,{NIC}=1", "gpu-0,gpu-1,nic-0")
    assert content.health == "Healthy"
    assert [(c.name, [r.name for r in c.resources]) for c in content.containers] == [("init", [GPU]), ("z", [GPU, NIC])]
    assert [device.id for device in content.containers[1].resources[0].devices] == ["gpu-0", "gpu-1"]
    assert (content.pod_uid, content.owner_uid, content.node) == ("uid-pod-a", "uid-pod-a", "node-a")


def test_no_more_devices_of_a_container_than_the_api_takes() -> None:
    ids = [f"gpu-{number:04}" for number in range(900)]
    record = publishes(held(*ids, claim="a"), held(*ids, claim="b"))
    (container,) = only(replace(record, served_by=names.SERVED_BY_DRA)).content.containers
    assert len(container.resources[0].devices) == 1024


def test_nobody_knows_the_health_of_what_is_not_configured_any_more() -> None:
    content = only(not_configured(devices={"gpu-0": MISSING}, allocations=(held("gpu-0"),))).content
    assert content.health == "gpu-0 Unknown"


@pytest.mark.kubelet("behaviour 68", "scenario 36", "scenario 103", "weak spot 12")
@pytest.mark.parametrize(
    ("device", "shown", "health"),
    [
        pytest.param(HEALTHY, HeldDevice("gpu-0", "Healthy", (0, 1)), "Healthy", id="healthy"),
        pytest.param(BROKEN, HeldDevice("gpu-0", "Unhealthy", ()), "gpu-0 Unhealthy", id="broken"),
        pytest.param(MISSING, HeldDevice("gpu-0", "Unhealthy", (1,)), "gpu-0 Unhealthy", id="missing"),
        pytest.param(None, HeldDevice("gpu-0", "Unknown", ()), "gpu-0 Unknown", id="never received of"),
    ],
)
def test_health(device: DeviceRecord | None, shown: HeldDevice, health: str) -> None:
    record = publishes(held("gpu-0"), gpu_0=device) if device else publishes(held("gpu-0"))
    content = only(record).content
    assert (content.containers[0].resources[0].devices, content.health) == ((shown,), health)


def test_what_is_releasing_or_has_no_name_is_not_shown() -> None:
    record = publishes(held("gpu-0", is_releasing=True), held("gpu-1", pod=""))
    assert desired_pod_devices("node-a", [record]) == ()


def test_of_many_devices_the_first_are_named_and_all_are_counted() -> None:
    ids = [f"d{number:04}" for number in range(1000)]
    want = only(publishes(held(*ids), held("x", container="b", omitted=5)))
    assert want.content.resources == f"{GPU}=1006"
    assert want.content.devices == "d0000,d0001,d0002,d0003,… (1006 devices)"
    assert sentence(want, [GPU]) == f"{GPU}: d0000, d0001, d0002, d0003, … (1006 devices) on node-a"
    first = ", ".join(f"d000{number} Unknown" for number in range(4))
    assert want.content.health == f"{first}, … (1001 devices Unknown)"
    few = only(publishes(held(*ids[:32])))
    assert few.content.devices == ",".join(ids[:32])


def test_long_lines_are_cut() -> None:
    records = [
        publishes(held(f"{number:02}{'d' * 126}"), resource=f"example.com/{'r' * 50}{number}") for number in range(60)
    ]
    want = only(*records)
    for line in (want.content.devices, sentence(want, [r.resource for r in records])):
        assert line.endswith("…") or line.endswith("… on node-a")
        assert len(line.encode()) <= 4096


@pytest.mark.parametrize(
    ("more", "health"),
    [
        pytest.param({}, "Healthy", id="all are"),
        pytest.param({"devices": {"d0007": BROKEN}, "healthy": 59_999}, "d0007 Unhealthy", id="but a named one"),
        pytest.param({"healthy": 59_999}, "18976 more Unknown", id="but one that is not named"),
        pytest.param({"devices_omitted": 0}, "… (1024 devices Unknown)", id="none is omitted"),
    ],
)
def test_a_pod_with_thousands_of_healthy_devices_is_healthy(more: dict[str, Any], health: str) -> None:
    """The NodeDevice has no room for them, and says how many are healthy."""
    ids = [f"d{number:04}" for number in range(1024)]
    known = {"total": 60_000, "healthy": 60_000, "devices_omitted": 59_000}
    record = replace(publishes(held(*ids, omitted=18_976)), **{**known, **more})
    content = only(record).content
    assert content.health.endswith(health)
    assert content.devices == "d0000,d0001,d0002,d0003,… (20000 devices)"
    assert max(len(content.health), len(content.devices)) < 160


def test_what_the_schema_does_not_hold_is_counted() -> None:
    """Else the API server refuses the PodDevice for ever."""
    names = [f"example.com/r{number:03}" for number in range(70)]
    records = [publishes(*(held(f"d{c}", container=f"c{c:03}") for c in range(300)), resource=names[0])]
    records += [publishes(held("d", container="c000"), resource=name) for name in names[1:]]
    content = only(*records).content
    schema = yaml.safe_load(PODDEVICES.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    containers = schema["status"]["properties"]["containers"]
    assert len(content.containers) == containers["maxItems"]
    assert len(content.containers[0].resources) == containers["items"]["properties"]["resources"]["maxItems"]
    assert content.resources.startswith(f"{names[0]}=300,{names[1]}=1,")
    assert content.resources.count("=1") == 69


WANT = only(publishes(held("gpu-0"), gpu_0=HEALTHY))
NOW = only(publishes(held("gpu-0"), gpu_0=BROKEN))
THERE = made_of(WANT)
BEFORE = replace(THERE, pod_uid="uid-before")
ELSEWHERE = replace(BEFORE, node="node-b")
# of one name, while one is ending
BOTH = desired_pod_devices("node-a", [publishes(held("gpu-0"), held("gpu-1", uid="uid-b"))])
FIRST = made_of(BOTH[0])


@pytest.mark.parametrize(
    ("wants", "there", "steps"),
    [
        pytest.param([WANT], [], {"create": ((WANT, None),)}, id="nothing there"),
        pytest.param([WANT], [THERE], {}, id="as it should be"),
        pytest.param([NOW], [THERE], {"update": ((NOW, THERE),)}, id="other content"),
        pytest.param([], [THERE], {"delete": (THERE,)}, id="nobody calls for it"),
        pytest.param([WANT], [BEFORE], {"create": ((WANT, BEFORE),), "delete": (BEFORE,)}, id="another pod's"),
        pytest.param([WANT], [ELSEWHERE], {"create": ((WANT, ELSEWHERE),)}, id="another pod's, on another node"),
        pytest.param(BOTH, [FIRST], {"create": ((BOTH[1], FIRST),)}, id="two pods of one name"),
    ],
)
def test_plan(wants: list[DesiredPodDevice], there: list[PodDeviceRecord], steps: dict[str, Any]) -> None:
    of_node = [record for record in there if record.node == "node-a"]
    found = plan(wants, {record.key: record for record in there}, of_node, may_delete=True)
    assert (found.create, found.update) == (steps.get("create", ()), steps.get("update", ()))
    assert found.delete == steps.get("delete", ())
    assert plan(wants, {record.key: record for record in there}, of_node, may_delete=False).delete == ()
