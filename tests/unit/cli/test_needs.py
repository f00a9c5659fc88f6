"""Objects that need attention: each sentence, the command that explains it, and what programs get of it."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from kubectl_nodedevice import attention
from kubectl_nodedevice.attention import Need, Summary
from kubectl_nodedevice.cluster import (
    Allocation,
    Condition,
    Container,
    Device,
    Endpoint,
    HeldParts,
    Lease,
    Meta,
    NodeDevice,
    Pod,
    PodClaim,
    Waiting,
)
from kubectl_nodedevice.shell import Typed

_NOW: Final = datetime(2026, 11, 28, 10, 0, 0, tzinfo=UTC)
_HOUR, _DAY = "2026-11-28T09:00:00Z", "2026-11-27T10:00:00Z"
_GPU: Final = "example.com/gpu"


def need(code: str, text: str, command: str, *more: Any) -> Need:
    return Need(code, text, Typed(command), *more)


def summary(node: str = "n", reason: str = "X", **more: Any) -> Summary:
    """One that is not Ready."""
    made = Summary(f"{node}.gpu", node, _GPU, 2, 2, 0, 2, 0, "False", reason, "True", "nodedevice", None)
    return replace(made, **more)


def whole(node: str = "n", conditions: Iterable[Condition] = (), **more: Any) -> NodeDevice:
    return NodeDevice(Meta(f"{node}.gpu"), node, _GPU, conditions={each.type: each for each in conditions}, **more)


# -- rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "is_unready"),
    [
        (summary(), True),
        (summary(ready=""), True),
        (summary(ready="True"), False),
        (summary(reason="NoDevices"), False),
        (summary(reason="AllCordoned"), False),
        (summary(reason="NotConfigured"), False),
        (summary(reason="EndpointGone"), False),
        (summary(reason="EndpointGone", allocated=1), True),
    ],
)
def test_what_is_not_ready_and_should_be(found: Summary, is_unready: bool) -> None:
    assert found.is_unready is is_unready
    assert found.needs_reading is (is_unready or found.reason == "NoDevices")


def test_the_order() -> None:
    found = [
        Need("PodWaiting", "b", since=_HOUR),
        Need("PodWaiting", "a"),
        Need("PodWaiting", "d", since=_DAY),
        Need("OperatorSilent", "z"),
        Need("PodWaiting", "c", since=_DAY),
    ]
    assert [each.text for each in attention.ordered(found)] == ["z", "c", "d", "b", "a"]


# -- programs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("renewed", "holder", "seconds", "is_silent"),
    [
        ("2026-11-28T09:59:30Z", "x", 1, False),
        ("2026-11-28T09:59:29Z", "x", 1, True),
        ("2026-11-28T09:59:20Z", "x", 20, False),
        ("2026-11-28T09:59:19Z", "x", 20, True),
        ("2026-11-28T10:00:00Z", "", 15, True),
        ("?", "x", 15, False),
    ],
)
def test_an_operator_that_does_not_renew_its_lease(renewed: str, holder: str, seconds: int, is_silent: bool) -> None:
    assert bool([*attention.of_operator(Lease(Meta("l"), holder, renewed, seconds), _NOW)]) is is_silent


def test_what_is_said_of_the_operator() -> None:
    assert [*attention.of_operator(None, _NOW)] == []
    text = "no operator is running: its Lease was renewed 1 h ago"
    expected = need("OperatorSilent", text, "kubectl nodedevice check", _HOUR, {"lease": "l"})
    assert [*attention.of_operator(Lease(Meta("l"), "x", _HOUR, 15), _NOW)] == [expected]


def test_agents_that_are_silent_are_one_line_for_each_reason() -> None:
    ready = Condition("Ready", "False", message="no heartbeat")
    objects = {
        "b.gpu": whole("b", [Condition("AgentReady", since=_HOUR), ready]),
        "a.gpu": whole("a", [Condition("AgentReady", since=_DAY)]),
    }
    found = [summary(node, "AgentSilent", agent="Unknown") for node in ("b", "a", "c", "b")]
    found.append(summary("d", "Other", agent="False"))
    found.append(summary("e", "", agent="False"))
    assert [*attention.of_summaries(found, objects, _NOW)] == [
        need(
            "AgentSilent",
            "the agent on 3 nodes (a, b, c) is silent (1 d): AgentSilent: no heartbeat",
            "kubectl nodedevice why node a",
            _DAY,
            {"node": "a", "nodes": "3"},
        ),
        need(
            "AgentSilent",
            "the agent on d is silent: Other",
            "kubectl nodedevice why node d",
            "",
            {"node": "d", "nodes": "1"},
        ),
        need(
            "AgentSilent", "the agent on e is silent", "kubectl nodedevice why node e", "", {"node": "e", "nodes": "1"}
        ),
    ]


def test_an_agent_that_is_silent_for_no_reason_has_its_words_alone() -> None:
    objects = {"a.gpu": whole("a", [Condition("Ready", "False", message="no heartbeat")])}
    [need] = attention.of_summaries([summary("a", "", agent="False")], objects, _NOW)
    assert need.text == "the agent on a is silent: no heartbeat"


@pytest.mark.parametrize("more", [{"agent": "True"}, {"agent": ""}, {"agent": "False", "served_by": ""}])
def test_resources_that_are_not_ready_are_one_line_for_each_reason(more: dict[str, str]) -> None:
    objects = {"b.gpu": whole("b", [Condition("Ready", "False", message="words", since=_HOUR)])}
    found = [summary(node, **more) for node in ("b", "a")] + [summary("c", "", **more), summary("d", ready="True")]
    assert [*attention.of_summaries(found, objects, _NOW)] == [
        need(
            "NotReady",
            f"{_GPU} on 2 nodes (a, b) is not ready (1 h): X: words",
            "kubectl nodedevice why node a",
            _HOUR,
            {"resource": _GPU, "node": "a", "reason": "X"},
        ),
        need(
            "NotReady",
            f"{_GPU} on c is not ready: the operator has not reconciled it yet",
            "kubectl nodedevice why node c",
            "",
            {"resource": _GPU, "node": "c", "reason": ""},
        ),
    ]


@pytest.mark.parametrize("reason", ["DevicesNotInjected", "DevicesInUseAfterRelease", "DevicesRenumbered"])
def test_devices_that_do_not_reach_containers_are_worse(reason: str) -> None:
    [found] = attention.of_summaries([summary(reason=reason)], {}, _NOW)
    assert found.code == "ContainerWithoutDevices"


@pytest.mark.parametrize("reason", ["NoHealthyDevices", "SomeDevicesUnhealthy"])
def test_what_single_devices_explain_is_left_to_them_where_they_were_read(reason: str) -> None:
    assert [*attention.of_summaries([summary(reason=reason)], {"n.gpu": whole()}, _NOW)] == []
    assert len([*attention.of_summaries([summary(reason=reason)], {}, _NOW)]) == 1


_EMPTY: Final = "the device plugin lists no devices"


@pytest.mark.parametrize(
    "reason",
    [
        *("DriverFailed", "DriverHangs", "DriverMismatch", "DriverNotLoaded", "DriverTooOld"),
        *("GpuUnreadable", "NoDriverLibrary", "ReaderFailed"),
    ],
)
def test_a_driver_that_does_not_work_and_hides_all_devices(reason: str) -> None:
    message = f"{_EMPTY}; the driver (580; open) is not usable: reboot ({reason})"
    ready = Condition("Ready", "False", "NoDevices", message, _HOUR)
    objects = {f"{node}.gpu": whole(node, [ready]) for node in ("b", "a")}
    rows = [summary(node, "NoDevices", total=0) for node in ("b", "a", "not-read")]
    expected = need(
        "NotReady",
        f"{_GPU} on 2 nodes (a, b) is not ready (1 h): {reason}: the driver (580; open) is not usable: reboot",
        "kubectl nodedevice why node a",
        _HOUR,
        {"resource": _GPU, "node": "a", "reason": reason},
    )
    assert [*attention.of_summaries(rows, objects, _NOW)] == [expected]


@pytest.mark.parametrize(
    "message",
    [
        _EMPTY,
        f"{_EMPTY}; no file of the host matches /dev/nvidia* (or none that fits): connect the device, or correct the path",
        f"{_EMPTY}; the NVIDIA driver lists no GPU (NoGpu)",
        f"{_EMPTY}; NVML is closed: a node label asks for it (DriverReleased)",
        "",
    ],
)
def test_no_devices_for_another_reason_are_intended(message: str) -> None:
    objects = {"n.gpu": whole(conditions=[Condition("Ready", "False", "NoDevices", message)])}
    assert [*attention.of_summaries([summary(reason="NoDevices", total=0)], objects, _NOW)] == []


# -- devices --------------------------------------------------------------------------------------------------------------


def holder(*device_ids: str, **more: Any) -> Allocation:
    return Allocation("ns", "p", "uid", "c", since=_DAY, device_ids=device_ids, **more)


def broken(device_id: str = "g0", **more: Any) -> Device:
    return Device(device_id, "Unhealthy", **{"reason": "Xid79", "message": "words; more", "since": _HOUR, **more})


@pytest.mark.parametrize(
    ("device", "allocations", "code", "text"),
    [
        (broken(), (), "DeviceBroken", f"g0 ({_GPU}) on n is unhealthy (1 h): words"),
        (broken(), (holder("g1"),), "DeviceBroken", f"g0 ({_GPU}) on n is unhealthy (1 h): words"),
        (broken(), (holder("g0", releasing=True),), "DeviceBroken", f"g0 ({_GPU}) on n is unhealthy (1 h): words"),
        (broken(), (holder("g0"),), "DeviceBrokenHeld", f"g0 ({_GPU}) on n is unhealthy (1 h): words; in use by ns/p"),
        (
            broken(),
            (holder(parts=(HeldParts("g0", 2),)),),
            "DeviceBrokenHeld",
            f"g0 ({_GPU}) on n is unhealthy (1 h): words; in use by ns/p (2)",
        ),
        (broken(presence="Missing"), (), "DeviceBroken", f"g0 ({_GPU}) on n is missing (1 h): words"),
        (broken(message="", since=""), (), "DeviceBroken", f"g0 ({_GPU}) on n is unhealthy: Xid79"),
    ],
)
def test_a_device_that_is_broken(device: Device, allocations: tuple[Allocation, ...], code: str, text: str) -> None:
    found = whole(devices=(Device("ok", "Healthy"), device), allocations=allocations, endpoint=Endpoint("Running"))
    about = {"node": "n", "resource": _GPU, "device": "g0", "reason": "Xid79"}
    explained = f"kubectl nodedevice why device n g0 --resource {_GPU}"
    assert [*attention.of_devices(found, _NOW)] == [need(code, text, explained, device.since, about)]


@pytest.mark.parametrize(
    ("state", "reason", "is_named"),
    [("Running", "", True), ("Stopped", "", False), ("Stopped", "Xid79", True), ("", "", False)],
)
def test_devices_of_a_plugin_that_is_away_are_not_broken_by_that(state: str, reason: str, is_named: bool) -> None:
    found = whole(devices=(broken(reason=reason),), endpoint=Endpoint(state))
    assert bool([*attention.of_devices(found, _NOW)]) is is_named


def test_a_container_without_its_devices() -> None:
    found = whole(allocations=(holder("g0"), holder("g1", not_injected=True)))
    unnamed = replace(found, allocations=(Allocation("", "", "uid", "c", not_injected=True),))
    assert [*attention.of_devices(found, _NOW)] == [
        need(
            "ContainerWithoutDevices",
            f"ns/p on n runs without its {_GPU}: restart the pod",
            "kubectl nodedevice why pod p -n ns",
            _DAY,
            {"pod": "ns/p"},
        )
    ]
    [other] = attention.of_devices(unnamed, _NOW)
    assert (other.text, other.command) == (f"pod uid on n runs without its {_GPU}: restart the pod", "")


@pytest.mark.parametrize(("message", "words"), [("two sources", "two sources"), ("", "Twice")])
def test_what_is_offered_twice(message: str, words: str) -> None:
    def of(status: str) -> NodeDevice:
        return whole(conditions=[Condition("OfferedTwice", status, "Twice", message, _HOUR)])

    expected = need("OfferedTwice", f"{_GPU} on n: {words}", "kubectl nodedevice why node n", _HOUR, {"node": "n"})
    assert [*attention.of_devices(of("True"), _NOW)] == [expected]
    assert [*attention.of_devices(of("False"), _NOW)] == []


# -- pods -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        ({}, "PodWaiting", f"ns/p is pending (1 h): n cannot allocate {_GPU} yet: words"),
        ({"message": ""}, "PodWaiting", f"ns/p is pending (1 h): n cannot allocate {_GPU} yet: Why"),
        ({"final": True}, "PodWaiting", f"ns/p cannot get {_GPU} on n (1 h): words"),
        (
            {"not_injected": True, "final": True},
            "ContainerWithoutDevices",
            f"ns/p runs without {_GPU} on n (1 h): words",
        ),
    ],
)
def test_a_container_that_waits(more: dict[str, Any], code: str, text: str) -> None:
    waiting = Waiting("ns", "p", "uid", "c", "Why", **{"message": "words", "since": _HOUR, **more})
    about = {"pod": "ns/p", "node": "n", "resource": _GPU, "reason": "Why"}
    expected = need(code, text, "kubectl nodedevice why pod p -n ns", _HOUR, about)
    assert [*attention.of_waiting(whole(waiting=(waiting,)), _NOW)] == [expected]


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (Condition("PodScheduled", "False", "Unschedulable"), "Unschedulable"),
        (Condition("PodScheduled"), "Pending"),
        (None, "Pending"),
    ],
)
def test_a_pod_without_a_node(condition: Condition | None, reason: str) -> None:
    conditions = {condition.type: condition} if condition else {}
    container = Container("c", requests={_GPU: "1", "cpu": "1"})
    asking = Pod(
        Meta("p", "ns", created=_HOUR), containers=(container,), claims=(PodClaim("x"),), conditions=conditions
    )
    text = f"ns/p is pending (1 h): it requests claim x, {_GPU} ({reason})"
    explained, about = "kubectl nodedevice why pod p -n ns", {"pod": "ns/p", "reason": reason}
    others = [
        replace(asking, node="n"),
        replace(asking, containers=(), claims=()),
        replace(asking, meta=replace(asking.meta, deleted=_HOUR)),
    ]
    # others keep nobody from it
    expected = [need("PodUnschedulable", text, explained, _HOUR, about)]
    assert [*attention.of_pending([*others, asking], _NOW)] == expected


# -- configurations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "conflict", "result", "expected"),
    [
        (0, "False", "unused", []),
        (1, "", "", [("ConfigRefused", "NodeDeviceConfig a b: 1 node refuses it")]),
        (3, "", "", [("ConfigRefused", "NodeDeviceConfig a b: 3 nodes refuse it")]),
        (2, "", "words", [("ConfigRefused", "NodeDeviceConfig a b: words")]),
        (0, "True", "", [("ConfigConflict", "NodeDeviceConfig a b: another one configures the same resource")]),
    ],
)
def test_a_configuration(refused: int, conflict: str, result: str, expected: list[tuple[str, str]]) -> None:
    explained = "kubectl get nodedeviceconfig 'a b' -o wide"
    found = [need(code, text, explained, "", {"config": "a b"}) for code, text in expected]
    assert [*attention.of_configs("a b", refused, conflict, result)] == found


def test_a_configuration_of_which_no_node_has_a_device() -> None:
    [need] = attention.of_configs("a", 0, "False", "taken by 2 nodes", "no node has a device of x")
    assert (need.code, need.text) == (attention.CONFIG_UNMATCHED, "NodeDeviceConfig a: no node has a device of x")
