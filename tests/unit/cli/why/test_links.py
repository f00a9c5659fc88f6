"""The links by themselves: how many devices fit, which nodes match, what a class of DRA says."""

from typing import Any

import pytest
from kubectl_nodedevice import quantities
from kubectl_nodedevice.cluster import (
    Agent,
    Allocation,
    Container,
    Cordon,
    Device,
    Meta,
    Node,
    NodeDevice,
    PartCounts,
    PartRules,
    Pod,
    Taint,
    Toleration,
)
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.why.kinds import DeviceClass
from kubectl_nodedevice.why.links import devices, placement
from kubectl_nodedevice.why.links.devices import Unit, Wanted
from nodedevice_kube.planner import Need

from tests.unit.cli.why.clusters import NOW

GPU = "example.com/gpu"


def unit(name: str, *taken: str) -> Unit:
    return Unit(name, 1, int(not taken), dict.fromkeys(taken, 1))


@pytest.mark.parametrize(
    ("units", "codes"),
    [
        pytest.param([unit("a"), unit("b")], [], id="enough"),
        pytest.param(
            [unit("a", devices.HELD), unit("b", devices.BROKEN)], ["DevicesBroken", "DevicesHeld"], id="only together"
        ),
        pytest.param(
            [unit("a", devices.HELD, devices.CORDONED), unit("b", devices.CORDONED), unit("c")],
            ["DevicesCordoned"],
            id="one alone, the other would leave enough",
        ),
        pytest.param(
            [unit("a", devices.BROKEN, devices.CORDONED), unit("b", devices.CORDONED, devices.BROKEN)],
            ["DevicesCordoned", "DevicesBroken"],
            id="each alone",
        ),
        pytest.param([unit("a")], ["TooFewTogether"], id="too few"),
        pytest.param([unit("a", devices.BROKEN)], ["TooFewTogether", "DevicesBroken"], id="too few, and these broken"),
        pytest.param([], ["TooFewTogether"], id="none"),
    ],
)
def test_what_takes_too_many(units: list[Unit], codes: list[str]) -> None:
    assert [each.code for each in devices.obstacles("node-a", Wanted(GPU, (Need(2),)), units)] == codes


def found(**changes: Any) -> NodeDevice:
    listed = tuple(Device(f"gpu-{number}", "Healthy") for number in range(3))
    return NodeDevice(
        Meta("n"), "node-a", GPU, **{"total": 3, "healthy": 3, "available": 3, "devices": listed, **changes}
    )


def test_a_list_that_is_cut_counts_by_its_numbers() -> None:
    cut = found(total=300, healthy=290, cordoned=5, allocated=280, available=8, devices_omitted=297)
    (one,) = devices.units_of(cut, NOW)
    assert (one.total, one.free, one.taken[devices.BROKEN], one.taken[devices.HELD]) == (300, 8, 10, 280)
    (obstacle,) = devices.obstacles("node-a", Wanted(GPU, (Need(25),)), [one])
    assert (obstacle.code, obstacle.detail) == ("DevicesHeld", "280 of 300 in use")


def test_what_the_kubelet_gives_out_knows_no_cordon() -> None:
    cordoned = found(cordons=(Cordon("*"),), agent=Agent(served_by="kubelet"))
    assert all(not each.taken[devices.CORDONED] for each in devices.units_of(cordoned, NOW))


def test_a_holder_that_is_ending_is_named_so() -> None:
    held = Allocation("team", "old", "u", "main", device_ids=("gpu-0",), releasing=True)
    units = devices.units_of(found(allocations=(held,)), NOW)
    assert units[0].why[devices.HELD] == "by team/old (ending)"


def test_a_holder_without_a_name_is_named_by_its_uid() -> None:
    held = Allocation("", "", "uid-1", "main", device_ids=("gpu-0",))
    assert devices.units_of(found(allocations=(held,)), NOW)[0].why[devices.HELD] == "by pod uid-1"


def test_a_cordon_of_a_longer_name_is_not_of_a_part() -> None:
    device = Device("gpu-0", "Healthy", parts=PartCounts(2, 2, 0, 2))
    cordons = (Cordon("gpu-0::1"), Cordon("gpu-0-1"), Cordon("gpu-0-left"))
    (unit,) = devices.units_of(found(devices=(device,), cordons=cordons), NOW)
    assert unit.taken[devices.CORDONED] == 2


def test_init_containers_do_not_add_up() -> None:
    containers = (
        Container("first", requests={GPU: "3"}, is_init=True),
        Container("side", requests={GPU: "1"}, is_init=True, is_sidecar=True),
        Container("second", requests={GPU: "1"}, is_init=True),
        Container("main", requests={GPU: "1", "cpu": "1", "hugepages-2Mi": "1"}),
    )
    pod = Pod(Meta("p"), containers=containers)
    assert quantities.requests(pod) == {GPU: 3}
    assert [need.is_init for need in quantities.needs_of(pod, GPU)] == [True, False, True, False]
    # what starts after a sidecar is beside it
    assert quantities.requests(Pod(Meta("p"), containers=(*containers[1:2], *containers[:1], *containers[3:]))) == {
        GPU: 4
    }


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        (GPU, True),
        ("cpu", False),
        ("kubernetes.io/batch", False),
        ("x.kubernetes.io/y", False),
        ("mykubernetes.io/y", False),
        ("requests.example.com/gpu", False),
        ("deviceclass.resource.kubernetes.io/gpu", True),
    ],
)
def test_which_names_are_devices(name: str, is_one: bool) -> None:
    assert quantities.is_extended(name) is is_one


def affinity(*expressions: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


NODE = Node(Meta("node-a", labels={"zone": "z1", "gpus": "4"}))


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ({"key": "zone", "operator": "In", "values": ["z1", "z2"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["z1"]}, False),
        ({"key": "rack", "operator": "NotIn", "values": ["r1"]}, True),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "rack", "operator": "DoesNotExist"}, True),
        ({"key": "gpus", "operator": "Gt", "values": ["3"]}, True),
        ({"key": "gpus", "operator": "Lt", "values": ["4"]}, False),
        ({"key": "gpus", "operator": "Lt", "values": ["5"]}, True),
        ({"key": "rack", "operator": "Lt", "values": ["5"]}, False),
        ({"key": "zone", "operator": "Gt", "values": ["3"]}, False),
        ({"key": "gpus", "operator": "Gt", "values": []}, False),
    ],
)
def test_affinity(expression: dict[str, Any], matches: bool) -> None:
    assert (placement.unmatched(Pod(Meta("p"), affinity=affinity(expression)), NODE) == "") is matches


def test_a_taint_that_is_tolerated_repels_nobody() -> None:
    node = Node(Meta("n"), taints=(Taint("gpu", "", "NoSchedule"), Taint("soft", "", "PreferNoSchedule")))
    assert [each.key for each in placement.repelling_taints(Pod(Meta("p")), node)] == ["gpu"]
    tolerant = Pod(Meta("p"), tolerations=(Toleration("gpu", "Exists"),))
    assert placement.repelling_taints(tolerant, node) == ()


@pytest.mark.parametrize(
    ("expressions", "driver"),
    [
        pytest.param(['device.driver == "gpu.example.com"'], "gpu.example.com", id="alone"),
        pytest.param(
            ["device.driver=='gpu.example.com' && device.attributes['x'].y == 1"], "gpu.example.com", id="and"
        ),
        pytest.param(['device.driver == "a" || device.driver == "b"'], "", id="or"),
        pytest.param(['!(device.driver == "a")'], "", id="not"),
        pytest.param(["device.attributes['x'].y || true && device.driver == \"a\""], "", id="or before and"),
        pytest.param(['!(true && device.driver == "a" && true)'], "", id="not of and"),
        pytest.param(['true && device.driver == "a" && false ? true : true'], "", id="a condition"),
        pytest.param(['device.driver == "a" && device.driver == "b"'], "", id="two at once"),
        pytest.param(["device.attributes['x'].y == 1"], "", id="other"),
        pytest.param(['device.driver == "a"', "device.attributes['x'].y == 1"], "a", id="two selectors"),
        pytest.param(['device.driver == "a"', 'device.driver == "b"'], "", id="two drivers"),
        pytest.param([], "", id="none"),
    ],
)
def test_the_driver_of_a_class_is_known_only_where_it_is_certain(expressions: list[str], driver: str) -> None:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    assert record_of(DeviceClass, {"metadata": {"name": "c"}, "spec": {"selectors": selectors}}).driver == driver


@pytest.mark.parametrize(
    ("count", "taker", "codes", "detail"),
    [
        (6, devices.HELD, ["TooFewOnOneDevice"], "6 are free together, at most 3 of 8 on one, b"),
        (9, devices.HELD, ["TooFewOnOneDevice"], "6 are free together, at most 3 of 8 on one, b"),
        (6, "", ["TooFewOnOneDevice"], "6 are free together, at most 3 of 8 on one, b"),
    ],
)
def test_parts_that_are_free_on_no_device_together(count: int, taker: str, codes: list[str], detail: str) -> None:
    taken = [
        Unit(name, total, free, {taker: total - free}) for name, total, free in (("a", 4, 1), ("b", 8, 3), ("c", 8, 2))
    ]
    found = devices.obstacles("n", Wanted(GPU, (Need(count),), PartRules("SameParent")), taken)
    assert ([each.code for each in found][: len(codes)], found[0].detail) == (codes, detail)
