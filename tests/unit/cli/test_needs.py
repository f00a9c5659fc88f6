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
    Lease,
    Meta,
    NodeDevice,
    Pod,
    PodClaim,
    Waiting,
)

_NOW: Final = datetime(2026, 11, 28, 10, 0, 0, tzinfo=UTC)
_HOUR, _DAY = "2026-11-28T09:00:00Z", "2026-11-27T10:00:00Z"
_GPU: Final = "example.com/gpu"


def summary(node: str = "n", reason: str = "X", **more: Any) -> Summary:
    """One that is not Ready."""
    made = Summary(f"{node}.gpu", node, _GPU, 2, 2, 0, 2, 0, "False", reason, "True", "nodedevice", None)
    return made._replace(**more)


def whole(node: str = "n", conditions: Iterable[Condition] = (), **more: Any) -> NodeDevice:
    return NodeDevice(Meta(f"{node}.gpu"), node, _GPU, conditions={each.type: each for each in conditions}, **more)


# -- rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "is_unready"),
    [
        (summary(), True),
        (summary(ready="True"), False),
        (summary(reason="NoDevices"), False),
        (summary(reason="AllCordoned"), False),
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
        ("2026-11-28T09:54:45Z", "x", 15, False),
        ("2026-11-28T09:54:44Z", "x", 15, True),
        ("2026-11-28T10:00:00Z", "", 15, True),
        ("?", "x", 15, False),
    ],
)
def test_an_operator_that_does_not_renew_its_lease(renewed: str, holder: str, seconds: int, is_silent: bool) -> None:
    assert bool([*attention.of_operator(Lease(Meta("l"), holder, renewed, seconds), _NOW)]) is is_silent


def test_resources_that_are_not_ready_are_one_line_for_each_reason() -> None:
    objects = {"b.gpu": whole("b", [Condition("Ready", "False", message="words", since=_HOUR)])}
    found = [summary(node) for node in ("b", "a")] + [summary("c", ""), summary("d", ready="True")]
    assert [(each.text, each.command) for each in attention.of_summaries(found, objects, _NOW)] == [
        (f"{_GPU} on 2 nodes (a, b) is not ready (1 h): X: words", "kubectl nodedevice why node a"),
        (f"{_GPU} on c is not ready: the operator has not reconciled it yet", "kubectl nodedevice why node c"),
    ]


_EMPTY: Final = "the device plugin lists no devices"


@pytest.mark.parametrize(
    "reason",
    [
        *("DriverFailed", "DriverHangs", "DriverMismatch", "DriverNotLoaded", "DriverTooOld"),
        *("GpuUnreadable", "NoDriverLibrary", "ReaderFailed"),
    ],
)
def test_a_driver_that_does_not_work_and_hides_all_devices(reason: str) -> None:
    problem = "the driver (580; open) is not usable: reboot"
    ready = Condition("Ready", "False", "NoDevices", f"{_EMPTY}; {problem} ({reason})", _HOUR)
    objects = {f"{node}.gpu": whole(node, [ready]) for node in ("b", "a")}
    rows = [summary(node, "NoDevices", total=0) for node in ("b", "a", "not-read")]
    [need] = attention.of_summaries(rows, objects, _NOW)
    assert need.text == f"{_GPU} on 2 nodes (a, b) is not ready (1 h): {reason}: {problem}"


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
    ("device", "allocations", "code", "words"),
    [
        (broken(), (holder("g1"),), "DeviceBroken", "unhealthy (1 h): words"),
        (broken(), (holder("g0", releasing=True),), "DeviceBroken", "unhealthy (1 h): words"),
        (broken(), (holder("g0"),), "DeviceBrokenHeld", "unhealthy (1 h): words; in use by ns/p"),
        (broken(presence="Missing"), (), "DeviceBroken", "missing (1 h): words"),
        (broken(message="", since=""), (), "DeviceBroken", "unhealthy: Xid79"),
    ],
)
def test_a_device_that_is_broken(device: Device, allocations: tuple[Allocation, ...], code: str, words: str) -> None:
    found = whole(devices=(Device("ok", "Healthy"), device), allocations=allocations, endpoint=Endpoint("Running"))
    [need] = attention.of_devices(found, _NOW)
    assert (need.code, need.text) == (code, f"g0 ({_GPU}) on n is {words}")
    assert need.command == f"kubectl nodedevice why device n g0 --resource {_GPU}"


@pytest.mark.parametrize(
    ("state", "reason", "is_named"),
    [("Running", "", True), ("Stopped", "", False), ("Stopped", "Xid79", True), ("", "", False)],
)
def test_devices_of_a_plugin_that_is_away_are_not_broken_by_that(state: str, reason: str, is_named: bool) -> None:
    found = whole(devices=(broken(reason=reason),), endpoint=Endpoint(state))
    assert bool([*attention.of_devices(found, _NOW)]) is is_named


# -- pods -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, "PodWaiting"),
        ({"final": True}, "PodWaiting"),
        ({"not_injected": True, "final": True}, "ContainerWithoutDevices"),
    ],
)
def test_a_container_that_waits(more: dict[str, Any], code: str) -> None:
    waiting = Waiting("ns", "p", "uid", "c", "Why", "words", _HOUR, **more)
    [need] = attention.of_waiting(whole(waiting=(waiting,)), _NOW)
    assert (need.code, need.command) == (code, "kubectl nodedevice why pod p -n ns")


@pytest.mark.parametrize(
    ("scheduled", "reason"),
    [
        ({"PodScheduled": Condition("PodScheduled", "False", "Unschedulable")}, "Unschedulable"),
        ({"PodScheduled": Condition("PodScheduled")}, "Pending"),
        ({}, "Pending"),
    ],
)
def test_a_pod_without_a_node(scheduled: dict[str, Condition], reason: str) -> None:
    container, meta = Container("c", requests={_GPU: "1", "cpu": "1"}), Meta("p", "ns", created=_HOUR)
    asking = Pod(meta, containers=(container,), claims=(PodClaim("x"),), conditions=scheduled)
    bound, modest = replace(asking, node="n"), replace(asking, containers=(), claims=())
    ending = replace(asking, meta=replace(meta, deleted=_HOUR))
    [need] = attention.of_pending([bound, modest, ending, asking], _NOW)
    assert need.text == f"ns/p is pending (1 h): it requests claim x, {_GPU} ({reason})"


@pytest.mark.parametrize("reason", ["DevicesNotInjected", "DevicesInUseAfterRelease", "DevicesRenumbered"])
def test_devices_that_do_not_reach_containers_are_worse(reason: str) -> None:
    [found] = attention.of_summaries([summary(reason=reason)], {}, _NOW)
    assert found.code == "ContainerWithoutDevices"
