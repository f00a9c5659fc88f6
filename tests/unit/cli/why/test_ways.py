"""The ways by which a node gives devices out, beside each other: ours, the kubelet's, a DRA driver's; and what is not certain."""

from dataclasses import replace
from typing import Any

import pytest
from kubectl_nodedevice.cluster import Agent, Allocation, Claim, ClaimedDevice, Container, Lease, Meta, NodeDevice
from kubectl_nodedevice.why import pods
from kubectl_nodedevice.why.facts import CLAIMS, OWN_CLAIMS, Facts, Unread
from kubectl_nodedevice.why.kinds import DeviceClass, ResourceClaim, Slice, SliceDevice

from tests.unit.cli.why import clusters, situations
from tests.unit.cli.why.clusters import GPU, NIC, NOW, each_found, each_node, pod_with
from tests.unit.cli.why.situations import BOUND, UNBOUND
from tests.unit.cli.why.test_pods import codes


def change(code: str) -> situations.Change:
    return next(each for each in (*UNBOUND, *BOUND) if each.id == code)


def by_kubelet(facts: Facts) -> Facts:
    return each_found(facts, lambda found: replace(found, agent=Agent("nri", "nri", "kubelet")))


def test_of_what_the_kubelet_serves_neither_cordons_nor_silent_agents_matter() -> None:
    facts = change("DevicesCordoned").do(change("AgentSilent").do(by_kubelet(clusters.base())))
    facts = each_found(facts, lambda found: replace(found, available=4))
    assert codes(facts) == []


def test_a_node_that_shows_none_of_ours_has_the_drivers_devices_too() -> None:
    facts = change("CapacityConflict").do(clusters.base())
    assert codes(facts) == ["CapacityConflict"]
    offered = (DeviceClass("gpu.example.com", GPU, clusters.DRIVER),)
    assert codes(replace(facts, classes=facts.classes + offered)) == []


def test_an_agent_whose_lease_is_long_over_is_silent_though_no_operator_says_so() -> None:
    def renewed(minutes: int) -> Facts:
        moment = NOW.replace(hour=2, minute=60 - minutes).isoformat()
        leases = tuple(Lease(Meta(name), name, moment, 60) for name in clusters.HOLDING)
        return replace(clusters.base(), leases=leases)

    # its clock may differ by minutes from the API server's
    assert codes(renewed(1)) == []
    assert codes(renewed(9)) == ["AgentSilent"]


@pytest.mark.parametrize(("is_shared", "expected"), [(True, []), (False, ["TooFewTogether"])])
def test_devices_that_the_scheduler_divides_are_not_counted(is_shared: bool, expected: list[str]) -> None:
    facts = clusters.asking(clusters.base(), NIC, 2)
    device = SliceDevice("port-0", is_shared=is_shared)
    facts = replace(facts, slices=tuple(replace(each, devices=(device,)) for each in facts.slices))
    assert codes(facts) == expected


def test_a_driver_may_have_devices_of_no_node_beside_those_of_one() -> None:
    """A node without any of its own may reach the others, whatever keeps the pod off the one with some."""
    held = Allocation("other", "big", "uid-b", "main", device_ids=tuple(f"gpu-{number}" for number in range(4)))
    taken: dict[str, Any] = {"allocations": (held,), "allocated": 4, "available": 0}
    facts = clusters.of_node_a(clusters.base(), lambda found: replace(found, **taken))
    here, there = facts.slices
    assert codes(replace(facts, slices=(here, replace(there, node="")))) == []
    assert codes(replace(facts, slices=(here,))) == ["DevicesHeld"]


def of_pool(*devices: SliceDevice, node: str = "n", generation: int = 1, count: int = 1) -> Slice:
    return Slice("d", "p", generation, node, devices, count)


_PORT = SliceDevice("port-0")


@pytest.mark.parametrize(
    ("slices", "fault"),
    [
        ([of_pool(_PORT, count=2)], "(its pool p has 1 of 2 ResourceSlices)"),
        ([of_pool(_PORT), of_pool()], "(its pool p has 2 of 1 ResourceSlices)"),
        ([of_pool(_PORT, count=2), of_pool(_PORT, node="", count=2)], "(its pool p has port-0 twice)"),
        ([of_pool(_PORT, count=2), of_pool(node="", count=2)], ""),
        ([of_pool(_PORT, generation=2), of_pool(_PORT)], ""),
        ([of_pool(_PORT, count=0)], ""),
    ],
    ids=["too few", "too many", "twice", "a slice of many nodes", "an older one besides", "no number"],
)
def test_a_pool_whose_slices_are_not_whole_is_refused(slices: list[Slice], fault: str) -> None:
    facts = replace(clusters.base(), slices=tuple(slices))
    assert facts.refused_pools == ({("d", "p"): fault} if fault else {})


@pytest.mark.parametrize("is_admin", [True, False])
def test_who_has_a_drivers_devices_for_administration_keeps_nobody_off(is_admin: bool) -> None:
    """Where claims may not be read NodeDevices tell who has which device."""
    ports = tuple(f"port-{number}" for number in range(4))
    claim = Claim("all", devices=tuple(ClaimedDevice(name, admin_access=is_admin) for name in ports))
    held = Allocation("monitoring", "monitor", "uid-m", "main", device_ids=ports, claim=claim)
    of_driver: dict[str, Any] = {"driver": clusters.DRIVER, "allocations": (held,)}
    found = [NodeDevice(Meta(f"{name}.nic"), name, "nic/devices", pool=name, **of_driver) for name in clusters.HOLDING]
    facts = clusters.base()
    facts = replace(facts, node_devices=(*facts.node_devices, *found), unread=(Unread(CLAIMS, "no"),))
    assert {*codes(facts)} == (set() if is_admin else {"DevicesHeld"})


def test_a_claim_that_may_not_be_read_is_not_missing() -> None:
    facts = change("ClaimMissing").do(clusters.base())
    assert codes(facts) == ["ClaimMissing"]
    assert codes(replace(facts, claims=(), unread=(Unread(CLAIMS, "no"), Unread(OWN_CLAIMS, "no")))) == []


def _started(facts: Facts, reason: str = "") -> Facts:
    state = "waiting" if reason else "running"
    container = Container("main", requests={GPU: "2"}, state=state, reason=reason, message="x")
    return pod_with(facts, containers=(container,))


def test_what_the_agent_says_is_not_repeated_by_its_containers() -> None:
    waits = change("WaitsOnNode").do(clusters.bound())
    assert codes(_started(waits, "CreateContainerError")) == ["WaitsOnNode"]
    assert codes(_started(clusters.bound(), "CreateContainerError")) == ["ContainerNotStarted"]


def test_a_claim_that_was_prepared_at_last_is_no_trouble() -> None:
    assert codes(_started(change("ClaimNotPrepared").do(clusters.bound()))) == []


def test_pods_that_ask_for_nothing_are_explained_as_far_as_they_go() -> None:
    plain = pod_with(clusters.base(), containers=(Container("main"),), claims=())
    found = pods.explain(plain)
    assert (found.findings, found.state) == ((), "is pending and requests no device.")
    one = each_node(plain, lambda node: replace(node, unschedulable=node.meta.name == "node-a"))
    every = each_node(plain, lambda node: replace(node, unschedulable=True))
    assert (codes(one), codes(every)) == ([], ["NodeCordoned"])


def test_nodes_that_a_pod_does_not_want_are_no_reason() -> None:
    """As of a DaemonSet's pod, which is of one node: the other 199 are not why it waits."""
    name = {"key": "metadata.name", "operator": "In", "values": ["node-a"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [name]}]}}
    pod = pod_with(change("DevicesCordoned").do(clusters.base()), affinity={"nodeAffinity": required})
    found = pods.explain(pod)
    assert [(each.code, each.nodes, each.of_nodes) for each in found.findings] == [("DevicesCordoned", ("node-a",), 1)]
    assert "1 further node is excluded by its selector or affinity." in found.notes


def test_who_has_a_drivers_devices_is_known_by_claims() -> None:
    facts = clusters.base()
    held = tuple((clusters.DRIVER, name, f"port-{number}") for name in clusters.HOLDING for number in range(4))
    claim = ResourceClaim(Meta("theirs", "other", owner="Pod/big"), (), True, held)
    found = pods.explain(replace(facts, claims=(*facts.claims, claim)))
    assert {each.code for each in found.findings} == {"DevicesHeld"}
    assert "by other/big" in found.findings[0].obstacles[0].detail
