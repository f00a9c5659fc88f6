"""The bytes that an agent sends: of each kind of NodeDevice the same as in the golden files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import PendingView, snapshot
from nodedevice_agent.kube.client import KubeClient
from nodedevice_api import names
from nodedevice_api.nodedevice import (
    AgentStatus,
    AllocationStatus,
    ClaimedDevice,
    ClaimStatus,
    ConditionStatus,
    DeviceStatus,
    DeviceTaint,
    EndpointStatus,
    NodeDeviceStatus,
)
from nodedevice_api.parts import Advertise, Choice, PartRules, Placement, PodPlacement, part_id

from tests.unit import golden
from tests.unit.node_agent.devicemanager.pods import GPU, pod
from tests.unit.node_agent.devicemanager.scenario import WITH_PREFERENCES, Scenario, calls, device_ids, status_of
from tests.unit.node_agent.kube import crd_rules
from tests.unit.node_agent.kube.shown_status import MONDAY, TUESDAY, Json
from tests.unit.node_agent.kube.shown_status import status as shown
from tests.unit.node_agent.kube.test_requests import Server as Server

FOLDER: Final = Path(__file__).parent / "wire"
NOON: Final = "2026-01-01T12:00:00Z"
UUID: Final = "GPU-1f2e{:08d}"
ATTRIBUTES: Final = (("memoryBytes", "85899345920"), ("model", "NVIDIA H100 80GB HBM3"), ("pciBusID", "0000:1b:00.0"))
WHOLE: Final = Device(UUID.format(0), numa_nodes=(0, 1), attributes=ATTRIBUTES)
BROKEN: Final = Device(UUID.format(1), False, (1,), "Xid79", "Xid 79: reset it", ATTRIBUTES)
NO_REASON: Final = Device(UUID.format(2), healthy=False)
RULES: Final = PartRules(Placement.SAME_PARENT, Choice.SPREAD, PodPlacement.TOGETHER, Advertise.LARGEST, 10)


def with_parts(*devices: Device, rules: PartRules = RULES, parents: tuple[Device, ...] = ()) -> Scenario:
    return Scenario.with_plugin(accept(devices, part_rules=rules, parents={parent.id: parent for parent in parents}))


def parts_of(parent: str, count: int, healthy: int, separator: str = "::", step: int = 1) -> list[Device]:
    return [Device(part_id(parent, n * step, separator), n < healthy, parent=parent) for n in range(count)]


# -- devices -----------------------------------------------------------------------------------------------------------------


def no_list_yet() -> Json:
    scenario = Scenario()
    scenario.connect()
    return shown(scenario)


def all_fields() -> Json:
    scenario = Scenario.with_plugin([WHOLE, BROKEN, NO_REASON, Device("d3"), Device("d4")], options=WITH_PREFERENCES)
    scenario.wall_clock = 1_767_528_000
    scenario.run(pod("uid-p", gpu=1), pod("uid-q", gpu=3, api_uid="uid-of-the-api"))
    cordons = {"d3": Cordon("fan", "alice", NOON), "d4": Cordon(), "unknown": Cordon(by="bob")}
    scenario.happens("table.cordoned", GPU, "object", cordons)
    return shown(scenario, delivery="nri", injectable=("True", "Injected", "the container runtime injects them"))


def plugin_message() -> Json:
    return shown(Scenario.with_plugin(accept([], 'the driver does not fit: "reboot"\n\t\x01 ☃')))


def refused_list() -> Json:
    scenario = Scenario.with_plugin(["d0"])
    scenario.lists(["d0", "d0"])
    return shown(scenario)


def not_listed_any_more() -> Json:
    scenario = Scenario.with_plugin(2).run(pod("p", gpu=2))
    scenario.lists(["d0"])
    return shown(scenario)


def of_a_plugin(state: str) -> Json:
    scenario = Scenario.with_plugin([WHOLE, BROKEN]).run(pod("p", gpu=1))
    scenario.disconnect()
    if state == "gone":
        scenario.passes(300)
    return shown(scenario)


def one_day_later() -> Json:
    """What is as before has its time of before, and what has changed that of the day."""
    scenario = Scenario.with_plugin([WHOLE, "d1", "d2"]).run(pod("p", gpu=1), pod("q", gpu=9))
    scenario.cordon(GPU, ["d1"])
    before = shown(scenario)
    scenario.lists([replace(WHOLE, healthy=False, reason="GpuLost", message="lost"), "d1", "d2"])
    scenario.cordon(GPU, ["d1", "d2"])
    of_operator = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": MONDAY}
    return shown(scenario, {**before, "conditions": [*before["conditions"], of_operator]}, TUESDAY)


def name_of_a_forgotten_pod() -> Json:
    scenario = Scenario.with_plugin(1).run(pod("p", gpu=1))
    before = shown(scenario)
    again = scenario.restarted()
    again.plugin(1)
    return shown(again, before, TUESDAY)


def remembered_cordons() -> Json:
    scenario = Scenario.with_plugin(["d0", "d1", "d2"])
    scenario.happens(
        "table.cordoned", GPU, "u1", {"d0": Cordon("fan", "alice", NOON), "*": Cordon(), "d2": Cordon(at=NOON)}
    )
    scenario.happens("table.cordoned", GPU, "", {})
    return shown(scenario)


def releasing() -> Json:
    scenario = Scenario.with_plugin(3, waits_for_runtime=True).run(pod("p", gpu=1), pod("q", gpu=2))
    scenario.gone("q")
    scenario.run(pod("r", gpu=1))
    return shown(scenario)


# -- parts -------------------------------------------------------------------------------------------------------------------


def parts_of_gpus() -> Json:
    lost = Device(UUID.format(1), reason="GpuLost", message="the GPU is off the bus: reboot the node")
    parents = (Device(UUID.format(0), numa_nodes=(1,), attributes=ATTRIBUTES), lost)
    devices = parts_of(parents[0].id, 8, 7) + parts_of(lost.id, 4, 0)
    return shown(with_parts(*devices, parents=parents).run(pod("p", gpu=3), pod("q", gpu=2), pod("r", gpu=40)))


def more_parts_than_a_row_has_room_for() -> Json:
    devices = [part for n in range(70) for part in parts_of(f"g{n:02}", 1, 1)] + parts_of(
        "scattered", 2000, 2000, step=2
    )
    return shown(with_parts(*devices, rules=PartRules(Placement.ANY)).run(pod("p", gpu=2070)))


# -- long lists --------------------------------------------------------------------------------------------------------------


def many_devices(**more: Any) -> Json:
    scenario = Scenario.with_plugin([Device(f"d{n:06}", n % 2 == 0) for n in range(6_000)])
    return shown(scenario.run(pod("p", gpu=2)), **more)


def long_ids() -> Json:
    return shown(Scenario.with_plugin([f"{n:03}" + "☃" * 125 for n in range(256)]))


def many_ids_of_one_pod() -> Json:
    return shown(Scenario.with_plugin([f"d{n:06}" for n in range(3_000)]).run(pod("p", gpu=2_000)))


def many_pods() -> Json:
    scenario = Scenario.with_plugin([f"d{n:06}" for n in range(1_200)])
    return shown(scenario.run(*(pod(f"{n:036}", gpu=1) for n in range(1_200))))


def many_that_wait() -> Json:
    scenario = Scenario.with_plugin(["d0"])
    for n in range(300):
        scenario.see(pod(f"p{n:03}", gpu=1))
    scenario.fail(calls(scenario.effects)[0], "☃" * 10_000)
    return shown(scenario)


# -- what is not of the manager alone ----------------------------------------------------------------------------------------


def changed(**fields: Any) -> Json:
    return status_of(replace(Scenario.with_plugin([WHOLE]).snapshot(), **fields), {}, MONDAY)


def not_injected() -> Json:
    scenario = Scenario.with_plugin(1).run(pod("p", gpu=1), pod("q", gpu=1))
    now = snapshot(scenario.manager, GPU, lambda uid, container, resource_name: True)
    final = PendingAllocation("r", "main", GPU, "AllocateFailed", "delete the pod", is_final=True)
    return status_of(replace(now, pending=(*now.pending, PendingView(final, None))), {}, MONDAY)


def served_by_the_kubelet() -> Json:
    return shown(
        Scenario.with_plugin(device_ids(2)).run(pod("p", gpu=1)),
        delivery=names.DELIVERY_KUBELET,
        served_by=names.SERVED_BY_KUBELET,
        registered=("True", "CordonNotPossible", "spec.cordonedDevices has no effect"),
        injectable=("True", "ServedByKubelet", "the kubelet gives the devices to containers"),
    )


def offered_by_a_driver() -> Json:
    """A pool of a DRA driver: two devices, of which one is tainted and one is shared by two claims."""
    taint = DeviceTaint(key="gpu.example.com/hot", value="90C", effect="NoExecute", since=NOON)
    shared = ClaimedDevice(id="gpu-0", share_id="s-1", consumed_capacity={"memory": "10Gi"})
    admin = ClaimedDevice(id="gpu-0", share_id="s-2", admin_access=True, extended_resource="example.com/gpu")
    gpu = DeviceStatus(id="gpu-0", health="Healthy", presence="Present", since=MONDAY, attributes={"model": "A100"})
    hot = DeviceStatus(id="gpu-1", health="Healthy", presence="Present", since=MONDAY, taints=[taint])
    claim = ClaimStatus(name="c", uid="uid-c", devices=[shared, admin])
    held = AllocationStatus(
        namespace="default", name="p", pod_uid="uid-p", container="main", since=NOON, device_ids=["gpu-0"], claim=claim
    )
    condition = ConditionStatus(
        type=names.Condition.REGISTERED, status="True", reason=names.Reason.SERVED_BY_DRA, last_transition_time=MONDAY
    )
    found: Json = to_builtins(
        NodeDeviceStatus(
            total=2,
            healthy=2,
            allocated=1,
            endpoint=EndpointStatus(state="Running", since=MONDAY),
            agent=AgentStatus(version="0", served_by=names.SERVED_BY_DRA),
            driver="gpu.example.com",
            pool="node-a",
            devices=[gpu, hot],
            allocations=[held],
            conditions=[condition],
        )
    )
    assert not crd_rules.problems(found)
    return found


CASES: Final[dict[str, Callable[[], Json]]] = {
    "no-list-yet": no_list_yet,
    "no-devices": lambda: shown(Scenario.with_plugin([])),
    "all-fields": all_fields,
    "all-healthy": lambda: shown(Scenario.with_plugin([WHOLE, Device("d1", numa_nodes=(0,))])),
    "plugin-message": plugin_message,
    "refused-list": refused_list,
    "not-listed-any-more": not_listed_any_more,
    "stopped": lambda: of_a_plugin("stopped"),
    "gone": lambda: of_a_plugin("gone"),
    "one-day-later": one_day_later,
    "name-of-a-forgotten-pod": name_of_a_forgotten_pod,
    "remembered-cordons": remembered_cordons,
    "releasing": releasing,
    "parts-of-gpus": parts_of_gpus,
    "more-parts-than-a-row-has-room-for": more_parts_than_a_row_has_room_for,
    "many-devices": many_devices,
    "long-ids": long_ids,
    "many-ids-of-one-pod": many_ids_of_one_pod,
    "many-pods": many_pods,
    "many-that-wait": many_that_wait,
    "not-injected": not_injected,
    "served-by-the-kubelet": served_by_the_kubelet,
    "offered-by-a-driver": offered_by_a_driver,
    "not-configured": lambda: changed(is_not_configured=True, total=0),
    "place-taken": lambda: changed(lost_to="example.com/nic"),
    "silent": lambda: changed(is_silent=True, state=EndpointState.STOPPED),
    "several-plugins": lambda: changed(sockets=("/a.sock", "/b.sock")),
    "possible-holders": lambda: changed(possible_holders=3),
    "unsaved": lambda: shown(
        Scenario.with_plugin(1), unsaved="no room on the disk", notes="the checkpoint could not be read"
    ),
    "long-notes": lambda: shown(Scenario.with_plugin(1), notes="x" * 5000, is_watch_stale=True),
}


@pytest.mark.parametrize("case", CASES)
async def test_of_a_status(cluster: KubeClient, server: Server, case: str) -> None:
    await cluster.apply_status(names.node_device_name("node-a", GPU), CASES[case]())
    golden.check(FOLDER, case, server.asked[-1].body or b"")


async def test_of_a_new_object(cluster: KubeClient, server: Server) -> None:
    await cluster.create_node_device(("node-a", "uid-of-the-node"), GPU)
    golden.check(FOLDER, "new-object", server.asked[-1].body or b"")


def test_every_field_of_a_status_is_in_some_file() -> None:
    """But for what only the operator writes."""
    shown_paths = {path for case in CASES for path in paths(CASES[case]())}
    of_crd = set(fields(crd_rules.STATUS))
    assert of_crd - shown_paths == {"conditions.observedGeneration"}


def paths(value: Any, path: str = "") -> Iterator[str]:
    for each in value if isinstance(value, list) else []:
        yield from paths(each, path)
    for key, each in value.items() if isinstance(value, dict) else ():
        yield f"{path}{key}"
        yield from paths(each, f"{path}{key}.")


def fields(schema: Json, path: str = "") -> Iterator[str]:
    for key, each in schema.get("items", schema).get("properties", {}).items():
        yield f"{path}{key}"
        yield from fields(each, f"{path}{key}.")


def test_each_file_has_its_case() -> None:
    assert golden.names(FOLDER) == {*CASES, "new-object"}
