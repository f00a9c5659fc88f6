"""Whether an installation works, as `nodedevice-operator check` reports it."""

import datetime

import pytest
from nodedevice_api import names
from nodedevice_operator.cli.check_report import (
    MOST_LISTED,
    CheckResult,
    is_renewed,
    of_agents,
    of_delivery,
    of_node_devices,
    of_pods,
    table,
)
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition
from nodedevice_operator.objects.unwatched import LeaseRecord

from tests.fakes.operator.operator_model import node_device

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def lease(seconds_ago: float) -> LeaseRecord:
    return LeaseRecord((NOW - datetime.timedelta(seconds=seconds_ago)).isoformat(), 60)


@pytest.mark.parametrize(
    ("first", "then", "is_good"),
    [
        pytest.param(None, lease(0), True, id="new"),
        pytest.param(lease(59), lease(59), True, id="in time"),
        pytest.param(lease(61), lease(61), False, id="too late"),
        pytest.param(lease(-59), lease(-59), True, id="a clock a little ahead"),
        pytest.param(lease(-3600), lease(-3600), False, id="a clock far ahead, and silent"),
        pytest.param(lease(-3600), lease(-3620), True, id="a clock far ahead, and it renews"),
        pytest.param(lease(3600), lease(3580), True, id="a clock far behind, and it renews"),
        pytest.param(LeaseRecord("", 60), LeaseRecord("", 60), False, id="never renewed"),
        pytest.param(LeaseRecord("soon", 60), LeaseRecord("soon", 60), False, id="no time at all"),
        pytest.param(
            LeaseRecord("2026-01-02T03:04:05", 60), LeaseRecord("2026-01-02T03:04:05", 60), False, id="no zone"
        ),
    ],
)
def test_who_renews(first: LeaseRecord | None, then: LeaseRecord, is_good: bool) -> None:
    assert is_renewed(then, first, NOW) is is_good


@pytest.mark.parametrize(
    ("leases", "wanted", "whole"),
    [
        ({"a": 1, "b": 1}, 2, CheckResult("agents", "", True, "2 renew their Leases, of 2 that the DaemonSet wants")),
        ({"a": 1}, None, CheckResult("agents", "", True, "1 renew their Leases")),
        (
            {"a": 1},
            2,
            CheckResult(
                "agents",
                "",
                False,
                "1 renew their Leases, of 2 that the DaemonSet wants; check the agents' pods and logs",
            ),
        ),
        ({}, None, CheckResult("agents", "", False, "0 renew their Leases; check the agents' pods and logs")),
    ],
)
def test_the_agents_as_a_whole(leases: dict[str, float], wanted: int | None, whole: CheckResult) -> None:
    assert of_agents({node: lease(ago) for node, ago in leases.items()}, {}, NOW, wanted) == [whole]


def test_each_silent_agent_is_named() -> None:
    leases = {"c": lease(1), "b": lease(3600), "a": LeaseRecord("", 60)}
    found = of_agents(leases, leases, NOW, None)
    assert [(each.name, each.is_good) for each in found] == [("", True), ("a", False), ("b", False)]
    assert found[1].details.startswith("renewed its Lease never")
    assert found[2].details.startswith("renewed its Lease 3600 s ago")


def injected(node: str, status: str, message: str) -> NodeDeviceRecord:
    shown = {names.Condition.INJECTABLE: StoredCondition(status, "SomeReason", message, "then", 1)}
    return node_device(node=node, conditions=shown)


def test_how_devices_reach_containers_is_listed_once_for_each_way() -> None:
    exempt = "connected; exempt by nvml.exempt: kube-system/dcgm"
    records = [
        injected("c", "True", "by the kubelet"),
        injected("a", "True", exempt),
        injected("b", "True", "by the kubelet"),
    ]
    records += [injected("d", "False", "no runtime"), node_device(node="e", conditions={})]
    found = of_delivery(records)
    assert found == [
        CheckResult("delivery", records[2].name, True, "by the kubelet (2 NodeDevices)"),
        CheckResult("delivery", records[1].name, True, exempt),
    ]
    assert len(of_delivery(injected(f"n{number}", "True", str(number)) for number in range(100))) == MOST_LISTED


def with_ready(status: str | None, node: str = "node-a") -> NodeDeviceRecord:
    reported = {names.Condition.READY: StoredCondition(status, "SomeReason", "some words", "then", 1)} if status else {}
    return node_device(node=node, total=4, available=3, conditions=reported)


@pytest.mark.parametrize(
    ("status", "is_good", "details"),
    [
        ("True", True, "3 of 4 available, Ready"),
        ("False", False, "3 of 4 available; SomeReason: some words"),
        ("Unknown", False, "3 of 4 available; SomeReason: some words"),
        (None, False, "3 of 4 available; no operator has reconciled it yet"),
    ],
)
def test_ready_or_why_not(status: str | None, is_good: bool, details: str) -> None:
    wanted = CheckResult("NodeDevice", "node-a.example.com.gpu", is_good, details)
    assert of_node_devices([with_ready(status)]) == [wanted]


@pytest.mark.parametrize(
    ("reason", "allocated", "is_good"),
    [
        ("NoDevices", 0, True),
        ("AllCordoned", 1, True),
        ("EndpointGone", 0, True),
        ("EndpointGone", 1, False),
        ("NotConfigured", 0, True),
        ("NotConfigured", 1, True),
    ],
)
def test_a_resource_that_nobody_needs_or_that_is_cordoned_is_no_failure(
    reason: str, allocated: int, is_good: bool
) -> None:
    conditions = {names.Condition.READY: StoredCondition("False", reason, "", "then", 1)}
    endpoint = "Gone" if reason in ("EndpointGone", "NotConfigured") else "Running"
    records = [
        node_device(node=f"node-{i}", allocated=allocated, endpoint=endpoint, conditions=conditions)
        for i in range(MOST_LISTED + 1)
    ]
    assert of_node_devices(records[:1])[0].is_good is is_good
    assert of_node_devices(records)[0] == CheckResult("NodeDevices", "", is_good, "0 of 41 are Ready")


def test_no_resource_yet_is_no_failure() -> None:
    [verdict] = of_node_devices([])
    assert verdict.is_good
    assert "no device plugin has registered" in verdict.details


def test_of_many_only_what_is_wrong_is_listed() -> None:
    nodes = [f"node-{number:03}" for number in range(MOST_LISTED + 1)]
    good = of_node_devices(with_ready("True", node) for node in nodes)
    assert good == [CheckResult("NodeDevices", "", True, "41 of 41 are Ready")]
    mixed = of_node_devices(with_ready("False" if node == "node-007" else "True", node) for node in nodes)
    assert [(each.what, each.is_good) for each in mixed] == [("NodeDevices", False), ("NodeDevice", False)]
    wrong = of_node_devices(with_ready("False", node) for node in nodes)
    assert len(wrong) == 1 + MOST_LISTED


def test_table() -> None:
    assert table([CheckResult("kind", "a.b", True, "is served"), CheckResult("operator", "", False, "none leads")]) == [
        "    WHAT      NAME  DETAILS",
        "ok  kind      a.b   is served",
        "NO  operator  -     none leads",
    ]


@pytest.mark.parametrize(
    ("reason", "details"),
    [
        ("ErrImagePull", "ErrImagePull on node-a: the node does not get its image; docs/install.md, Images"),
        ("ImagePullBackOff", "ImagePullBackOff on node-a: the node does not get its image; docs/install.md, Images"),
        ("ErrImageNeverPull", "ErrImageNeverPull on node-a: the node does not get its image; docs/install.md, Images"),
        ("ContainerCreating", "ContainerCreating on node-a: it has its node and is being started"),
        ("CrashLoopBackOff", "CrashLoopBackOff on node-a: it started and ended; kubectl logs has why"),
        ("CreateContainerError", "CreateContainerError on node-a"),
    ],
)
def test_a_pod_that_does_not_run_is_named_with_what_it_waits_for(reason: str, details: str) -> None:
    assert of_pods([("agent-1", "node-a", reason)]) == [CheckResult("pod", "agent-1", False, details)]


def test_a_pod_without_a_node_lacks_no_image() -> None:
    [found] = of_pods([("agent-1", "", "Pending")])
    assert found.details == "Pending on no node: kubectl describe pod has why"


def test_no_more_pods_are_listed_than_a_table_has() -> None:
    assert len(of_pods([(f"agent-{number}", "", "Pending") for number in range(1000)])) == MOST_LISTED
