"""What `check` concludes from what it has read, line by line."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest
from kubectl_nodedevice import checks
from kubectl_nodedevice.attention import Summary
from kubectl_nodedevice.checks import Result
from kubectl_nodedevice.cluster import Condition, Container, Lease, Meta, NodeDevice, Pod

_NOW: Final = datetime(2026, 11, 28, 10, 1, 0, tzinfo=UTC)
_FRESH, _OLD = "2026-11-28T10:00:30Z", "2026-11-28T09:00:00Z"


def lease(renewed: str = _FRESH, holder: str = "x") -> Lease:
    return Lease(Meta("l"), holder, renewed, 30)


@pytest.mark.parametrize(
    ("conditions", "release", "own", "is_good", "details"),
    [
        ({"Established": "True"}, "0.1.0", "0.1.0", True, "is served, of release 0.1.0"),
        ({"Established": "True"}, "", "0.1.0", True, "is served, of release unknown"),
        ({"Established": "True"}, "0.1.9", "v0.1.0", True, "is served, of release 0.1.9"),
        ({"Established": "True"}, "dev", "0.1.0", True, "is served, of release dev"),
        (
            {"Established": "True"},
            "1.0",
            "0.9",
            True,
            "is served, of release 1.0, which is newer than this program (0.9): it may have what is not shown here",
        ),
        (
            {"Established": "True"},
            "v0.2.7",
            "0.3.0",
            True,
            "is served, of release v0.2.7, which is older than this program (0.3.0): helm upgrade",
        ),
        (
            {"Established": "True"},
            "0.10.0",
            "0.9.0",
            True,
            "is served, of release 0.10.0, which is newer than this program (0.9.0): it may have what is not shown here",
        ),
        ({"Established": "True"}, "0.1.0", "dev", True, "is served, of release 0.1.0"),
        ({"NamesAccepted": "False"}, "0.1.0", "0.1.0", False, "is not served: its names are taken by another kind"),
        ({"Established": "False", "NamesAccepted": "True"}, "", "", False, "is not served: not established yet"),
        ({}, "", "", False, "is not served: not established yet"),
    ],
)
def test_a_kind(conditions: dict[str, str], release: str, own: str, is_good: bool, details: str) -> None:
    assert checks.of_kind("k", conditions, release, own) == Result("kind", "k", is_good, details)


@pytest.mark.parametrize(
    ("renewed", "is_it"),
    [
        (_FRESH, True),
        ("2026-11-28T10:00:29Z", False),
        ("2026-11-28T10:01:30Z", True),
        ("2026-11-28T10:01:31Z", False),
        ("", False),
    ],
)
def test_a_lease_counts_to_the_second_by_a_clock_that_may_be_wrong(renewed: str, is_it: bool) -> None:
    assert checks.is_renewed(lease(renewed), None, _NOW) is is_it
    assert checks.is_renewed(lease(renewed), lease(renewed), _NOW) is is_it
    assert checks.is_renewed(lease(renewed), lease(_OLD), _NOW)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, ("", False, "none leads; check the operators' pods and logs, and its namespace (-n)")),
        (lease(holder=""), ("", False, "none leads; check the operators' pods and logs, and its namespace (-n)")),
        (lease(_OLD), ("x", False, f"renewed its Lease at {_OLD}, and not since")),
        (lease(), ("x", True, "leads")),
    ],
)
def test_the_operator(found: Lease | None, expected: tuple[str, bool, str]) -> None:
    assert checks.of_operator(found, None, _NOW) == Result("operator", *expected)


@pytest.mark.parametrize(
    ("fresh", "desired", "is_good", "details"),
    [
        (2, None, True, "2 renew their Leases"),
        (0, None, False, "0 renew their Leases; check the agents' pods and logs"),
        (1, 1, True, "1 renew their Leases, of 1 that the DaemonSet wants"),
        (1, 0, True, "1 renew their Leases, of 0 that the DaemonSet wants"),
        (1, 2, False, "1 renew their Leases, of 2 that the DaemonSet wants; check the agents' pods and logs"),
    ],
)
def test_the_agents_as_a_whole(fresh: int, desired: int | None, is_good: bool, details: str) -> None:
    leases = {f"n{number}": lease() for number in range(fresh)}
    assert checks.of_agents(leases, {}, _NOW, desired) == [Result("agents", "", is_good, details)]


def test_agents_that_are_silent_have_a_line_each() -> None:
    leases = {"c": lease(_OLD), "a": lease("?"), "b": lease(_OLD), "d": lease()}
    first_seen = {"b": lease("2026-11-28T08:00:00Z"), "c": lease(_OLD)}
    why = "it does not run, or does not reach the API server"
    assert checks.of_agents(leases, first_seen, _NOW, 3) == [
        Result(
            "agents", "", False, "2 renew their Leases, of 3 that the DaemonSet wants; check the agents' pods and logs"
        ),
        Result("agent", "a", False, f"renewed its Lease never; {why}"),
        Result("agent", "c", False, f"renewed its Lease 3660 s ago; {why}"),
    ]
    many = {f"n{number:03}": lease(_OLD) for number in range(50)}
    assert len(checks.of_agents(many, {}, _NOW, None)) == 1 + checks.MOST_LISTED


def pod(name: str, phase: str, *states: tuple[str, str], node: str = "n") -> Pod:
    containers = tuple(Container("c", state=state, reason=reason) for state, reason in states)
    return Pod(Meta(name), node, phase, containers=containers)


def test_pods_that_do_not_run() -> None:
    found = [
        pod("e", "Pending", node=""),
        pod("d", "Running", ("running", ""), ("waiting", "CrashLoopBackOff")),
        pod("c", "Pending", ("waiting", ""), ("waiting", "ImagePullBackOff")),
        pod("b", "Running", ("running", "Odd")),
        pod("a", "Pending", ("waiting", "Strange")),
        pod("f", "Pending", ("waiting", "ContainerCreating")),
        pod("g", "Failed", ("terminated", "Error")),
    ]
    assert checks.of_pods(found) == [
        Result("pod", "a", False, "Strange on n"),
        Result("pod", "c", False, "ImagePullBackOff on n: the node does not get its image; docs/install.md, Images"),
        Result("pod", "d", False, "CrashLoopBackOff on n: it started and ended; kubectl logs has why"),
        Result("pod", "e", False, "Pending on no node: kubectl describe pod has why"),
        Result("pod", "f", False, "ContainerCreating on n: it has its node and is being started"),
    ]
    assert len(checks.of_pods(pod(f"p{number}", "Pending") for number in range(50))) == checks.MOST_LISTED


def summary(name: str, ready: str = "True", reason: str = "", node: str = "n") -> Summary:
    return Summary(name, node, "r", 2, 2, 0, 1, 0, ready, reason, "True", "nodedevice", None)


@pytest.mark.parametrize(
    ("found", "message", "is_good", "details"),
    [
        (summary("a"), "unused", True, "1 of 2 available, Ready"),
        (summary("a", ""), "", False, "1 of 2 available; no operator has reconciled it yet"),
        (summary("a", "False", "ForeignOwner"), "", False, "1 of 2 available; ForeignOwner"),
        (summary("a", "False", "ForeignOwner"), "words", False, "1 of 2 available; ForeignOwner: words"),
        (summary("a", "False", "AllCordoned"), "words", True, "1 of 2 available; AllCordoned: words"),
    ],
)
def test_a_nodedevice(found: Summary, message: str, is_good: bool, details: str) -> None:
    assert checks.of_summaries([found], {"a": message}) == [Result("NodeDevice", "a", is_good, details)]
    assert checks.of_summaries([found], {})[0].details == details.removesuffix(f": {message}")


def test_nodedevices_are_sorted_and_many_are_counted() -> None:
    none = "none yet: no device plugin has registered with an agent"
    assert checks.of_summaries([], {}) == [Result("NodeDevices", "", True, none)]
    few = [summary("z", node="a"), summary("y", node="b"), summary("x", node="a")]
    assert [each.name for each in checks.of_summaries(few, {})] == ["z", "x", "y"]
    listed = [summary(f"s{number:03}") for number in range(checks.MOST_LISTED)]
    assert len(checks.of_summaries(listed, {})) == checks.MOST_LISTED
    good, bad = [*listed, summary("more")], [*listed, summary("bad", "False", "X"), summary("ok", "False", "NoDevices")]
    assert checks.of_summaries(good, {}) == [Result("NodeDevices", "", True, "41 of 41 are Ready")]
    assert checks.of_summaries(bad, {}) == [
        Result("NodeDevices", "", False, "40 of 42 are Ready"),
        Result("NodeDevice", "bad", False, "1 of 2 available; X"),
    ]
    unready = [summary(f"s{number:03}", "False", "X") for number in range(60)]
    assert len(checks.of_summaries(unready, {})) == 1 + checks.MOST_LISTED


def test_shared_slices_are_counted_by_driver() -> None:
    found = [("b", 1), ("a", 3), ("b", 2), ("a", 0), ("c", 1)]
    rest = "of one node: no NodeDevice shows them"
    assert checks.of_shared_slices(found) == [
        Result("DRA driver", "a", True, f"offers 3 devices in 2 ResourceSlices that are not {rest}"),
        Result("DRA driver", "b", True, f"offers 3 devices in 2 ResourceSlices that are not {rest}"),
        Result("DRA driver", "c", True, f"offers 1 device in 1 ResourceSlice that is not {rest}"),
    ]
    assert len(checks.of_shared_slices((f"d{number}", 1) for number in range(50))) == checks.MOST_LISTED


def test_how_devices_are_delivered_is_said_once_and_the_most_frequent_first() -> None:
    def of(name: str, node: str, message: str, status: str = "True") -> NodeDevice:
        more: dict[str, Any] = {"conditions": {"Injectable": Condition("Injectable", status, message=message)}}
        return NodeDevice(Meta(name), node, "r", **more)

    found = [of("a", "z", "rare"), of("b", "y", "usual"), of("c", "x", "usual"), of("d", "w", "bad", "False")]
    assert checks.of_delivery([*found, NodeDevice(Meta("e"), "v", "r")]) == [
        Result("delivery", "c", True, "usual (2 NodeDevices)"),
        Result("delivery", "a", True, "rare"),
    ]
    assert len(checks.of_delivery(of(f"n{each}", "n", f"{each}") for each in range(50))) == checks.MOST_LISTED


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (
            'violates PodSecurity "baseline:latest"',
            "set the label pod-security.kubernetes.io/enforce=privileged on namespace ns",
        ),
        ("exceeded quota: few, requested: pods=1", "raise the ResourceQuota few in namespace ns"),
        (
            "insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]",
            "give namespace ns a ResourceQuota of that scope, or set priorityClassName in the chart's values",
        ),
        (
            "unable to validate against any security context constraint",
            "what refuses them has to allow the pods of namespace ns",
        ),
    ],
)
def test_what_refuses_pods_has_a_remedy(words: str, remedy: str) -> None:
    [found] = checks.of_refusals([checks.Refusal("DaemonSet", "d", words, _FRESH)], "ns", _NOW)
    assert found == Result("DaemonSet", "d", False, f"FailedCreate (30 s ago): {words}; {remedy}")
