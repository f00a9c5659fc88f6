"""What operator and extender report of a fleet: sums that are right, and no more series than were promised, whatever the fleet."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.stores import KINDS as FLEET_KINDS
from nodedevice_operator.informers.store import Cache, Store, Stores
from nodedevice_operator.objects.nodedevice import AllocationRecord, DeviceRecord, NodeDeviceRecord, StoredCondition
from nodedevice_operator.observability import inventory
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.operator.operator_model import GPU, NIC, node_device, not_configured

Labels = dict[str, str]


def reported(records: Iterable[NodeDeviceRecord]) -> dict[str, list[tuple[Labels, float]]]:
    """Labels and values of each family, as scraped."""
    cache = Cache()
    for record in records:
        cache.node_devices.put(record)
    families = inventory.InventoryCollector(cache).collect()
    return {
        family.name.removeprefix("nodedevice_operator_"): [(each.labels, each.value) for each in family.samples]
        for family in families
    }


def holder(namespace: str, *device_ids: str, omitted: int = 0, is_releasing: bool = False) -> AllocationRecord:
    return AllocationRecord(namespace, "pod", f"uid-{namespace}", "main", device_ids, omitted, is_releasing)


def not_ready(reason: str) -> dict[str, StoredCondition]:
    return {"Ready": StoredCondition("False", reason, "", "", 1)}


BROKEN = DeviceRecord("Unhealthy", "NotConfigured", True, ())
READY = {"Ready": StoredCondition("True", "Ready", "", "", 1)}


def test_a_fleet_that_works_names_no_node() -> None:
    found = reported(node_device(node=f"n{i}", total=8, healthy=8, available=8, conditions=READY) for i in range(50))
    assert found["not_ready"] == found["unhealthy_devices"] == []
    assert ({"resource_name": GPU, "state": "total"}, 400) in found["devices"]
    assert sum(len(series) for series in found.values()) == len(inventory.STATES) + 4 + 3


def test_who_is_in_trouble_is_named() -> None:
    found = reported(
        [
            node_device(node="a", total=8, healthy=6, conditions=READY),
            node_device(NIC, node="a", total=2, healthy=2, conditions=not_ready("ForeignOwner")),
            node_device(node="b", total=8, healthy=0, conditions=not_ready("EndpointStopped")),
            # nobody has reported anything of it yet
            node_device(node="c"),
            # a cordon without effect
            node_device(node="d", cordons=1, served_by=names.SERVED_BY_KUBELET, conditions=READY),
        ]
    )
    assert found["not_ready"] == [
        ({"node": "a", "resource_name": NIC, "reason": "ForeignOwner"}, 1),
        ({"node": "b", "resource_name": GPU, "reason": "EndpointStopped"}, 1),
    ]
    unhealthy = [({"node": node, "resource_name": GPU}, count) for node, count in (("a", 2), ("b", 8))]
    assert (found["unhealthy_devices"], found["cordons"], found["omitted_series"]) == (unhealthy, [], [({}, 0)])


def test_a_resource_that_nobody_needs_or_that_is_cordoned_is_no_trouble() -> None:
    held: dict[str, Any] = {"allocated": 1, "allocations": (holder("team-a", "0"),)}
    gone: dict[str, Any] = {"endpoint": "Gone", "conditions": not_ready("EndpointGone")}
    found = reported(
        [
            node_device(node="a", total=0, conditions=not_ready("NoDevices")),
            node_device(node="b", total=8, cordoned=8, conditions=not_ready("AllCordoned"), **held),
            node_device(node="c", **gone),
            node_device(node="d", total=1, **gone, **held),
        ]
    )
    assert found["not_ready"] == [({"node": "d", "resource_name": GPU, "reason": "EndpointGone"}, 1)]
    assert ({"resource_name": GPU, "ready": "False"}, 4) in found["nodedevices"]


@pytest.mark.parametrize("reason", ["NotConfigured", "PlaceTaken"])
def test_what_its_agent_has_ended_is_no_trouble_unless_pods_want_it(reason: str) -> None:
    held = (holder("default", "gpu-0"),)
    ended = not_configured(reason=reason, total=1, allocated=1, allocations=held, devices={"gpu-0": BROKEN})
    ready = not_ready(reason)
    found = reported([replace(ended, conditions={**ended.conditions, **ready})])
    assert found["unhealthy_devices"] == []
    assert len(found["not_ready"]) == (reason == "PlaceTaken")
    assert found["allocated_devices"] == [({"namespace": "default", "resource_name": GPU}, 1)]


CONFLICT = {"Conflict": StoredCondition("True", "ForeignOwner", "", "", 1)}


def test_series_by_node_are_bounded_and_the_omitted_ones_are_counted() -> None:
    many = inventory.MOST_WITH_PROBLEMS + 7
    found = reported(
        node_device(node=f"n{i:04}", total=1, cordons=2, conditions={**CONFLICT, **not_ready("LeaseExpired")})
        for i in range(many)
    )
    for family, value in (("not_ready", 1), ("unhealthy_devices", 1), ("conflicts_by_node", 1), ("cordons", 2)):
        assert len(found[family]) == inventory.MOST_WITH_PROBLEMS
        labels, first = found[family][0]
        assert (labels["node"], first) == ("n0000", value)
    assert (found["conflicts"], found["omitted_series"]) == ([({}, many)], [({}, 4 * 7)])


def test_a_device_that_claims_share_counts_once_in_a_namespace() -> None:
    rows = (
        replace(holder("team-a", "0", "1"), claim="one"),
        replace(holder("team-a", "1"), claim="two", pod_uid="uid-2"),
        replace(holder("team-b", "1", omitted=3), claim="two"),
        replace(holder("team-c", "2", is_releasing=True), claim="three"),
    )
    found = reported([node_device(served_by=names.SERVED_BY_DRA, allocations=rows)])
    assert found["allocated_devices"] == [
        ({"namespace": "team-a", "resource_name": GPU}, 2),
        ({"namespace": "team-b", "resource_name": GPU}, 4),
    ]


def test_who_gives_devices_out_is_counted() -> None:
    every = (*sorted(names.ONLY_SHOWN), names.SERVED_BY_NODEDEVICE, "x" * 500, "y")
    found = reported(
        node_device(node=f"n{i}", served_by=served_by, total=1 + i, healthy=1, available=1)
        for i, served_by in enumerate(every)
    )
    totals = {labels["served_by"]: value for labels, value in found["served_devices"] if labels["state"] == "total"}
    assert totals == {"dra": 1, "kubelet": 2, "nodedevice": 3, inventory.OTHER: 9}


def test_pools_of_drivers_displace_no_resource_that_pods_name() -> None:
    many = [
        node_device(f"a.example.com/pool-{i:03}", served_by=names.SERVED_BY_DRA, total=1)
        for i in range(inventory.MOST_RESOURCES)
    ]
    found = reported([*many, node_device("z.example.com/gpu", total=1)])
    named = {labels["resource_name"] for labels, _ in found["devices"]}
    assert "z.example.com/gpu" in named
    assert inventory.OTHER in named


def test_devices_by_namespace_have_the_largest_by_name_and_all_are_counted() -> None:
    small = [holder(f"small-{i:04}", "x") for i in range(inventory.MOST_HOLDERS + 9)]
    rows = (*small, holder("large", "a", "b", "c"), holder("over", "d", is_releasing=True))
    found = reported(
        [node_device(node="a", allocations=rows), node_device(node="b", allocations=(holder("large", "e", omitted=9),))]
    )
    values = {labels["namespace"]: value for labels, value in found["allocated_devices"]}
    assert (len(values), values["large"], values[inventory.OTHER]) == (inventory.MOST_HOLDERS + 1, 13, 10)
    assert sum(values.values()) == len(small) + 13


def test_past_the_first_resources_all_are_one() -> None:
    fields: dict[str, Any] = {"total": 3, "healthy": 1, "cordons": 2, "conditions": CONFLICT}
    first = [node_device(f"example.com/r{i:03}", total=1, healthy=1) for i in range(inventory.MOST_RESOURCES)]
    found = reported([*first, *(node_device(f"example.com/z{i}", **fields) for i in range(2))])
    totals = {labels["resource_name"]: value for labels, value in found["devices"] if labels["state"] == "total"}
    assert (len(totals), totals[inventory.OTHER]) == (inventory.MOST_RESOURCES + 1, 6)
    labels = {"node": "node-a", "resource_name": inventory.OTHER}
    for family, value in (("conflicts_by_node", 2), ("cordons", 4), ("unhealthy_devices", 4)):
        assert found[family] == [(labels, value)]


def test_what_the_extender_has_stored_and_promised_is_counted_at_each_scrape() -> None:
    metrics, stores = ExtenderMetrics(), Stores({kind.name: Store() for kind in FLEET_KINDS}, ("x",))
    promised: dict[str, int] = {}
    metrics.watch(stores, lambda: promised)
    value = metrics.registry.get_sample_value
    for kind in FLEET_KINDS:
        assert value("nodedevice_extender_objects", {"kind": kind.name}) == 0
    stores.stores["nodedevices"].put(node_device())
    assert value("nodedevice_extender_objects", {"kind": "nodedevices"}) == 1
    promised |= {f"example.com/{number:03}": number for number in range(101)}
    assert value("nodedevice_extender_promised_parts", {"resource": "example.com/099"}) == 99
    # a bounded number of names
    assert value("nodedevice_extender_promised_parts", {"resource": "example.com/100"}) is None


def test_a_process_reports_of_itself() -> None:
    value = Metrics().registry.get_sample_value
    assert (value("process_resident_memory_bytes") or 0) > 1_000_000
    assert value("nodedevice_operator_info", {"version": "0.1.0"}) == 1
