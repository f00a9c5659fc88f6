"""Which container has which device, from the kubelet's rows, the API's pods and their claims."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from nodedevice_agent.devicemanager.pods import ClaimUse, Pod, UnhealthyDevice
from nodedevice_agent.dra.holdings import Claim, PoolHoldings, held_by, holdings
from nodedevice_agent.kubelet.readings import ClaimRow
from nodedevice_api.nodedevice import AllocationStatus, ClaimedDevice, ClaimStatus

from tests.fakes.steps import finished
from tests.unit.node_agent.dra.claimed import DRIVER, KEY, claim, pod, result, row

GPUS = "example.com/gpu"
NICS = "example.com/nic"


def found(
    rows: Iterable[ClaimRow], *pods: Pod, claims: Mapping[str, Claim] | None = None
) -> dict[tuple[str, str], PoolHoldings]:
    by_name: dict[tuple[str, str], list[Pod]] = {}
    for each in pods:
        by_name.setdefault((each.namespace, each.name), []).append(each)
    return finished(holdings(held_by(rows, by_name), lambda namespace, name, uid: (claims or {}).get(name), []))


def allocations(*args: object, **more: object) -> list[AllocationStatus]:
    held = found(*args, **more)  # type: ignore[arg-type]  # as it is
    return [each for pool in held.values() for each in pool.allocations]


def held(*args: object, **more: object) -> dict[str, list[str]]:
    return {f"{each.name}/{each.container}": each.device_ids for each in allocations(*args, **more)}


def claimed(*args: object, **more: object) -> list[ClaimedDevice]:
    (only,) = allocations(*args, **more)
    assert only.claim is not None
    return only.claim.devices


def test_a_device_that_is_shown_twice_is_one() -> None:
    """For two requests of a claim, each with a CDI name of its own."""
    twice = [row("a", cdi_ids=("x=1",)), row("a", cdi_ids=("x=0",))]
    assert held(twice, pod("a", "claim")) == {"a/main": ["gpu-0"]}
    assert [each.omitted for each in allocations(twice, pod("a", "claim"))] == [0]
    assert found(twice, pod("a", "claim"))[KEY].cdi_ids == {"gpu-0": ("x=0", "x=1")}


def test_a_row_has_a_bounded_number_of_devices() -> None:
    (only,) = allocations([row("a", f"gpu-{number:04}", share_id="s") for number in range(1100)], pod("a", "claim"))
    assert only.claim is not None
    assert (len(only.device_ids), only.omitted, len(only.claim.devices)) == (1024, 76, 64)


@pytest.mark.parametrize(
    ("pods", "uid"),
    [
        pytest.param([pod("a", "claim")], "uid-a", id="the pod of that name"),
        pytest.param([pod("a", "new", uid="new"), pod("a", "claim", uid="old")], "old", id="who uses the claim"),
        pytest.param([pod("a", "claim", uid="new"), pod("a", "claim", uid="old")], "new", id="the unfinished one"),
        pytest.param([pod("a", ClaimUse("s", "claim"), uid="x"), pod("a", "claim", uid="y")], "y", id="by container"),
        pytest.param([pod("b", "claim")], None, id="not in the API"),
    ],
)
def test_whose_a_row_is(pods: list[Pod], uid: str | None) -> None:
    assert [each.pod_uid for each in allocations([row("a")], *pods)] == ([uid] if uid else [])


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(claim("gpu-1"), [], id="another device"),
        pytest.param(claim(result(driver="nic.example.com", admin_access=True)), [], id="of another driver"),
        pytest.param(claim(result(share_id="s", admin_access=True)), [], id="of a share that is not shown"),
        pytest.param(claim(result(admin_access=True)), [{"admin_access": True}], id="admin access"),
        pytest.param(
            claim(result(consumed=(("memory", "4Gi"),))), [{"consumed_capacity": {"memory": "4Gi"}}], id="capacity"
        ),
        pytest.param(claim(result(admin_access=True), result(request="other")), [], id="for administration and use"),
    ],
)
def test_what_a_claim_says(said: Claim, expected: list[dict[str, Any]]) -> None:
    found = claimed([row("a")], pod("a", "claim"), claims={"claim": said})
    assert found == [ClaimedDevice(id="gpu-0", **each) for each in expected]


def test_each_share_has_its_own_capacity() -> None:
    said = claim(
        result(share_id="s2", consumed=(("memory", "2Gi"),)), result(share_id="s1", consumed=(("memory", "1Gi"),))
    )
    rows = [row("a", share_id="s2"), row("a", share_id="s1")]
    assert claimed(rows, pod("a", "claim"), claims={"claim": said}) == [
        ClaimedDevice(id="gpu-0", share_id="s1", consumed_capacity={"memory": "1Gi"}),
        ClaimedDevice(id="gpu-0", share_id="s2", consumed_capacity={"memory": "2Gi"}),
    ]
    assert held(rows, pod("a", "claim"), claims={"claim": said}) == {"a/main": ["gpu-0"]}


@pytest.mark.parametrize(
    ("requests", "claims", "expected"),
    [
        pytest.param([""], True, {"a/main": ["gpu-0", "gpu-1"]}, id="the whole claim"),
        pytest.param(["one"], True, {"a/main": ["gpu-0"]}, id="one request"),
        pytest.param(["none"], True, {}, id="one that got nothing"),
        pytest.param(["one"], False, {"a/main": ["gpu-0", "gpu-1"]}, id="the claim is not known"),
    ],
)
def test_a_container_has_what_it_requested(requests: list[str], claims: bool, expected: dict[str, list[str]]) -> None:
    """The kubelet shows it all devices of the claim."""
    said = {"claim": claim(result("gpu-0", "one"), result("gpu-1", "two"))} if claims else {}
    uses = [ClaimUse("main", "claim", request) for request in requests]
    assert held([row("a", "gpu-0"), row("a", "gpu-1")], pod("a", *uses), claims=said) == expected


def test_a_device_that_the_claim_does_not_have_stays_shown() -> None:
    said, user = {"claim": claim(result("gpu-0", "two"))}, pod("a", ClaimUse("main", "claim", "one"))
    assert held([row("a", "gpu-0"), row("a", "new")], user, claims=said) == {"a/main": ["new"]}


def extended(*uses: tuple[str, str, str]) -> Pod:
    return pod("a", *(ClaimUse(container, "claim", request, name) for container, request, name in uses))


TWO = ("c0", "container-0-request-0", GPUS), ("c1", "container-1-request-0", NICS)
BOTH = [row("a", device, container=name) for name in ("c0", "c1") for device in ("gpu-0", "nic-0")]


def test_each_device_has_the_name_by_which_its_container_asked_for_it() -> None:
    said = {"claim": claim(result("gpu-0", "container-0-request-0"), result("nic-0", "container-1-request-0"))}
    rows = allocations(BOTH, extended(*TWO), claims=said)
    assert [(each.container, each.claim.devices if each.claim else []) for each in rows] == [
        ("c0", [ClaimedDevice(id="gpu-0", extended_resource=GPUS)]),
        ("c1", [ClaimedDevice(id="nic-0", extended_resource=NICS)]),
    ]


def test_without_the_claim_a_pod_that_asked_for_two_names_has_none() -> None:
    """The kubelet shows both containers all devices of the pod."""
    assert [(each.container, each.device_ids, each.claim) for each in allocations(BOTH, extended(*TWO))] == [
        ("c0", ["gpu-0", "nic-0"], ClaimStatus(name="claim")),
        ("c1", ["gpu-0", "nic-0"], ClaimStatus(name="claim")),
    ]


def test_without_the_claim_a_pod_that_asked_for_one_name_has_it() -> None:
    mine = extended(("main", "container-0-request-0", GPUS), ("main", "container-0-request-1", GPUS))
    assert claimed([row("a")], mine) == [ClaimedDevice(id="gpu-0", extended_resource=GPUS)]


def test_a_device_of_a_claim_that_the_pod_names_has_no_name_of_an_extended_resource() -> None:
    mine = pod("a", "claim", ClaimUse("main", "extended", "container-0-request-0", GPUS))
    assert [each.claim for each in allocations([row("a"), row("a", "gpu-1", "extended")], mine)] == [
        ClaimStatus(name="claim"),
        ClaimStatus(name="extended", devices=[ClaimedDevice(id="gpu-1", extended_resource=GPUS)]),
    ]


@pytest.mark.parametrize(
    ("ill", "expected"),
    [
        pytest.param(UnhealthyDevice("main", "claim", "x=0"), {"gpu-0"}, id="by its first CDI name"),
        pytest.param(UnhealthyDevice("main", "claim", "x=all"), set(), id="by its second"),
        pytest.param(UnhealthyDevice("main", "claim", f"{DRIVER}/node-1/gpu-1"), {"gpu-1"}, id="without one"),
        pytest.param(UnhealthyDevice("main", "other", "x=0"), set(), id="of another claim"),
        pytest.param(UnhealthyDevice("main", "claim", "x=s"), {"gpu-2"}, id="the first of two with one name"),
    ],
)
def test_a_device_that_the_kubelet_reports(ill: UnhealthyDevice, expected: set[str]) -> None:
    cdi_ids: list[tuple[str, ...]] = [("x=0", "x=all"), (), ("x=s",), ("x=s",)]
    rows = [row("a", f"gpu-{number}", cdi_ids=each) for number, each in enumerate(cdi_ids)]
    (only,) = found(rows, pod("a", "claim", ill=[ill])).values()
    assert only.unhealthy.keys() == expected


def test_what_is_said_of_it() -> None:
    ill = [UnhealthyDevice("main", "claim", "x=0", "too hot"), UnhealthyDevice("main", "claim", "x=1")]
    rows = [row("a", f"gpu-{number}", cdi_ids=(f"x={number}",)) for number in range(3)]
    (only,) = found(rows, pod("a", "claim", ill=ill)).values()
    text = "its driver reports it unhealthy, by allocatedResourcesStatus in the status of the pod that holds it"
    assert only.unhealthy == {"gpu-0": f"{text}: too hot", "gpu-1": text}
