"""The links by themselves: how many devices fit, which nodes match, what a class of DRA says."""

from dataclasses import replace
from typing import Any

import pytest
from kubectl_nodedevice import quantities
from kubectl_nodedevice.cluster import Container, Cordon, Device, Meta, Node, PartCounts, Pod
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.why.kinds import DeviceClass
from kubectl_nodedevice.why.links import devices, placement
from kubectl_nodedevice.why.links.devices import Unit, Wanted
from nodedevice_kube.planner import Need

from tests.unit.cli.why.clusters import GPU, NOW, gpus


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


def test_a_cordon_of_a_longer_name_is_not_of_a_part() -> None:
    device = Device("gpu-0", "Healthy", parts=PartCounts(2, 2, 0, 2))
    cordons = (Cordon("gpu-0::1"), Cordon("gpu-0-1"), Cordon("gpu-0-left"))
    (unit,) = devices.units_of(replace(gpus("node-a"), devices=(device,), cordons=cordons), NOW)
    assert unit.taken[devices.CORDONED] == 2


def test_init_containers_do_not_add_up() -> None:
    containers = (
        # an API server stores these letter for letter
        Container("first", requests={GPU: "3e0"}, is_init=True),
        Container("side", requests={GPU: "+1"}, is_init=True, is_sidecar=True),
        Container("second", requests={GPU: "001"}, is_init=True),
        Container("main", requests={GPU: "1", "cpu": "1", "hugepages-2Mi": "1"}),
    )
    pod = Pod(Meta("p"), containers=containers)
    assert quantities.requests(pod) == {GPU: 3}
    found = [(need.count, need.is_init) for need in quantities.needs_of(pod, GPU)]
    assert found == [(3, True), (1, False), (1, True), (1, False)]
    # what starts after a sidecar is beside it
    first, side, _, main = containers
    assert quantities.requests(Pod(Meta("p"), containers=(side, first, main))) == {GPU: 4}


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
    ],
)
def test_affinity(expression: dict[str, Any], matches: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert (placement.unmatched(Pod(Meta("p"), affinity=required), NODE) == "") is matches


@pytest.mark.parametrize(
    ("expressions", "driver"),
    [
        pytest.param(['device.driver == "gpu.example.com"'], "gpu.example.com", id="alone"),
        pytest.param(
            ["device.driver=='gpu.example.com' && device.attributes['x'].y == 1"], "gpu.example.com", id="and"
        ),
        pytest.param(['device.driver == "a" || device.driver == "b"'], "", id="or"),
        pytest.param(['!(device.driver == "a")'], "", id="not"),
        pytest.param(["device.attributes['x'].y == 1"], "", id="other"),
        pytest.param(['device.driver == "a"', "device.attributes['x'].y == 1"], "a", id="two selectors"),
        pytest.param(['device.driver == "a"', 'device.driver == "b"'], "", id="two drivers"),
        pytest.param([], "", id="none"),
    ],
)
def test_the_driver_of_a_class_is_known_only_where_it_is_certain(expressions: list[str], driver: str) -> None:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    assert record_of(DeviceClass, {"metadata": {"name": "c"}, "spec": {"selectors": selectors}}).driver == driver
