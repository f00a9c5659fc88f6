"""Which devices are reported as unhealthy and as healthy again, on their node and on the pod that holds them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_operator.objects.nodedevice import DeviceRecord, NodeDeviceRecord
from nodedevice_operator.observability.aggregates import DeviceAggregate
from nodedevice_operator.observability.events import about_node_device, merged
from nodedevice_operator.observability.transitions import transitions

from tests.fakes.operator.operator_model import GPU, node_device
from tests.unit.operator.objects.records import held
from tests.unit.operator.observability.changes import IDS, record, reported

BROKEN = DeviceRecord("Unhealthy", "Xid", False, ())


def test_one_that_breaks_while_another_recovers_is_an_event_of_each_kind() -> None:
    first, other = (replace(record(), devices={each: BROKEN}) for each in IDS[:2])
    failed, recovered = transitions(first, other)
    assert (failed.type, failed.message) == ("Warning", f"1 device (gpu-1) of {GPU} on node-a unhealthy (Xid)")
    assert (recovered.type, recovered.message) == ("Normal", f"1 device (gpu-0) of {GPU} on node-a healthy again")
    assert failed.about == recovered.about == about_node_device(other)


def test_recovered_is_what_is_listed_as_healthy_or_left_out_as_such() -> None:
    recovered = ("DeviceRecovered", f"1 device (gpu-0) of {GPU} on node-a healthy again")
    assert reported(record(broken=1), record()) == [recovered]
    assert reported(record(broken=1), record(listed=IDS[1:])) == []
    one_broken = record(broken=1, total=308, healthy=307, devices_omitted=300)
    assert reported(one_broken, record(listed=(), total=308, healthy=308, devices_omitted=308)) == [recovered]


def many(total: int, broken: Iterable[int], names: int = 1551) -> NodeDeviceRecord:
    """A resource of so many devices that its NodeDevice names just the first of the broken ones, and leaves out the rest."""
    broken = sorted(broken)
    named = [f"d{number:06d}" for number in broken[:names]]
    devices = dict.fromkeys(named, BROKEN)
    healthy, omitted = total - len(broken), total - len(named)
    return node_device(
        devices=devices, listed=tuple(named), total=total, healthy=healthy, available=healthy, devices_omitted=omitted
    )


FIRST, LAST = many(6000, range(5000)), many(6000, range(1000, 5000))
NAMED = "d000000, d000001, d000002, d000003, d000004 and 4995 more"


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        pytest.param(many(6000, range(0)), FIRST, [f"5000 devices ({NAMED}) {{}} unhealthy (Xid)"], id="they break"),
        pytest.param(FIRST, LAST, ["1000 devices {} healthy again"], id="some recover, others are listed instead"),
        pytest.param(LAST, FIRST, ["1000 devices {} unhealthy"], id="those break that push others out of the list"),
        pytest.param(
            *(many(100_000, range(5000)), many(100_000, range(100_000)), ["95000 devices {} unhealthy"]),
            id="all others break, and none of them is listed",
        ),
        pytest.param(FIRST, many(1000, range(0)), [], id="the plugin lists none of the broken ones"),
    ],
)
def test_of_many_devices_the_totals_count_and_not_what_the_list_has_room_for(
    before: NodeDeviceRecord, after: NodeDeviceRecord, wanted: list[str]
) -> None:
    found = [message for _, message in reported(before, after)]
    assert found == [sentence.format(f"of {GPU} on node-a") for sentence in wanted]


@given(
    total=st.integers(1, 60),
    room=st.integers(0, 60),
    before=st.sets(st.integers(0, 59)),
    after=st.sets(st.integers(0, 59)),
)
def test_no_more_is_reported_than_what_happened(total: int, room: int, before: set[int], after: set[int]) -> None:
    """Whichever of the same devices are broken, before and after, and however few of them the list has room for."""
    before, after = ({number for number in found if number < total} for found in (before, after))
    all_broken, all_repaired = after - before, before - after
    counted = {"DeviceUnhealthy": 0, "DeviceRecovered": 0}
    for event in transitions(many(total, before, room), many(total, after, room)):
        assert isinstance(event.aggregate, DeviceAggregate)
        truly = all_broken if event.reason == "DeviceUnhealthy" else all_repaired
        assert event.aggregate.device_ids <= {f"d{number:06d}" for number in truly}
        counted[event.reason] = len(event.aggregate.device_ids) + event.aggregate.unnamed
    assert counted["DeviceUnhealthy"] <= len(all_broken)
    assert counted["DeviceRecovered"] <= len(all_repaired)
    assert counted["DeviceUnhealthy"] - counted["DeviceRecovered"] == len(all_broken) - len(all_repaired)


def test_a_pod_is_reported_of_the_devices_that_it_holds() -> None:
    holders = (
        *(held("gpu-0", container="init"), held("gpu-0", "gpu-1", "gpu-7"), held("gpu-6", pod="pod-b")),
        *(held("gpu-2", pod="pod-c", is_releasing=True), held("gpu-3", pod="", namespace="")),
    )
    well, broken = record(allocations=holders), record(broken=4, allocations=holders)
    on_node, on_pod = transitions(well, broken)
    assert (on_node.about.kind, on_pod.about.kind, on_pod.about.name) == ("NodeDevice", "Pod", "pod-a")
    assert (on_pod.about.uid, on_pod.on_node, on_pod.type) == ("uid-pod-a", "node-a", "Warning")
    two = f"2 devices (gpu-0, gpu-1) of {GPU} on node-a"
    assert on_pod.message == f"{two} unhealthy (Xid); in use by this pod until it ends"
    assert transitions(broken, broken) == ()
    _, recovered = transitions(broken, well)
    assert (recovered.about, recovered.type, recovered.message) == (on_pod.about, "Normal", f"{two} healthy again")


def test_what_breaks_one_after_the_other_is_one_event_on_the_pod_too() -> None:
    holders = (held("gpu-0", "gpu-1"),)
    well, one, both = (record(broken=number, allocations=holders) for number in range(3))
    first, second = transitions(well, one)[1], transitions(one, both)[1]
    assert merged(first, second).message == transitions(well, both)[1].message


def test_a_plugin_that_stops_and_returns() -> None:
    """Meanwhile only the held device is listed, without a reason of its own."""
    holder: dict[str, Any] = {"allocations": (held("gpu-7"),)}
    running = record(broken=3, total=8, healthy=5, **holder)
    of_held = {"gpu-7": DeviceRecord("Unhealthy", "", False, ())}
    numbers: dict[str, Any] = {"total": 8, "healthy": 0, "available": 0, "devices_omitted": 7}
    stopped = node_device(endpoint="Stopped", devices=of_held, listed=("gpu-7",), **numbers, **holder)
    of_node, of_pod = (f"{which} of {GPU} on node-a" for which in ("5 devices (gpu-7 and 4 more)", "1 device (gpu-7)"))
    assert reported(running, stopped)[1:] == [
        ("DeviceUnhealthy", f"{of_node} unhealthy (EndpointStopped)"),
        ("DeviceUnhealthy", f"{of_pod} unhealthy (EndpointStopped); in use by this pod until it ends"),
    ]
    assert reported(stopped, running)[1:] == [
        ("DeviceRecovered", f"{of_node} healthy again"),
        ("DeviceRecovered", f"{of_pod} healthy again"),
    ]
