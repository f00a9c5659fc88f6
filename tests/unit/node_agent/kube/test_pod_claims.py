"""Which claims a pod has, and what its status says of their devices."""

from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.pods import ClaimUse, PodClaims, UnhealthyDevice
from nodedevice_agent.kube.pod_objects import from_api
from nodedevice_common.text import MAX_SHOWN

from tests.unit.node_agent.kube.test_pods import pod

READY = {"phase": "Pending", "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]}
GONE = {"phase": "Running", "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]}
MADE = {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x7"}]}
NOT_NEEDED = {"resourceClaimStatuses": [{"name": "made"}]}
PLAIN = {"containers": [{"name": "c"}]}
GPU, EXTENDED = "example.com/gpu", "p-extended-resources-x"


def container(name: str, *claims: str) -> dict[str, Any]:
    """claims: names, or names and requests."""
    entries = [dict(zip(("name", "request"), claim.split(":"), strict=False)) for claim in claims]
    return {"name": name, "resources": {"claims": entries}}


def spec(*containers: Any, init: tuple[Any, ...] = ()) -> dict[str, Any]:
    claims = [{"name": "own", "resourceClaimName": "shared"}, {"name": "made", "resourceClaimTemplateName": "template"}]
    return {"containers": list(containers), "initContainers": list(init), "resourceClaims": claims}


def claims(spec: Any, **status: Any) -> PodClaims | None:
    return from_api(pod(spec, status=status)).claims


def uses(spec: Any, **status: Any) -> tuple[ClaimUse, ...]:
    found = claims(spec, **status)
    return () if found is None else found.uses


def extended(*mappings: tuple[str, str, str], claim: str = EXTENDED) -> dict[str, Any]:
    keys = ("containerName", "requestName", "resourceName")
    mapped = [dict(zip(keys, mapping, strict=True)) for mapping in mappings]
    return {"extendedResourceClaimStatus": {"resourceClaimName": claim, "requestMappings": mapped}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(uses(PLAIN), [], id="no claims"),
        pytest.param(uses(spec(container("c"))), [], id="claims of no container"),
        pytest.param(uses(spec(container("c", "own"))), [ClaimUse("c", "shared")], id="by name"),
        pytest.param(uses(spec(container("c", "made")), **MADE), [ClaimUse("c", "p-made-x7")], id="of a template"),
        pytest.param(uses(spec(container("c", "made", "own"))), [ClaimUse("c", "shared")], id="not made yet"),
        pytest.param(uses(spec(container("c", "made")), **NOT_NEEDED), [], id="none is needed"),
        pytest.param(uses(spec(container("c", "other"))), [], id="a claim that the pod does not have"),
        pytest.param(uses(spec(container("c", "own:r"))), [ClaimUse("c", "shared", "r")], id="one request"),
        pytest.param(uses(spec(container("c", "own:r/a"))), [ClaimUse("c", "shared", "r")], id="an alternative"),
        pytest.param(
            uses(spec(container("b", "own"), container("a", "own", "own"), init=(container("i", "own"),))),
            [ClaimUse("a", "shared"), ClaimUse("b", "shared"), ClaimUse("i", "shared")],
            id="each container once, sorted",
        ),
        pytest.param(uses(PLAIN, **extended(("c", "r", GPU))), [ClaimUse("c", EXTENDED, "r", GPU)], id="extended"),
        pytest.param(uses(PLAIN, **extended(("c", "r", GPU), claim="")), [], id="extended, without a claim"),
        pytest.param(
            uses(PLAIN, **extended(("c", "r", "e" * 308), ("c", "s", "e" * 309), claim="x")),
            [ClaimUse("c", "x", "r", "e" * 308), ClaimUse("c", "x", "s")],
            id="a name that no resource has",
        ),
    ],
)
def test_uses(found: tuple[ClaimUse, ...], expected: list[ClaimUse]) -> None:
    assert list(found) == expected


@pytest.mark.parametrize(
    ("status", "are_prepared"),
    [
        pytest.param({}, False, id="just bound"),
        pytest.param({"phase": "Pending"}, False, id="pending"),
        pytest.param({"phase": ""}, False, id="no phase"),
        pytest.param(READY, True, id="with a sandbox"),
        pytest.param({"phase": "Running"}, True, id="running, of an old kubelet"),
        pytest.param(GONE, False, id="its sandbox is gone"),
        pytest.param({"phase": "Pending", "conditions": [{"type": "Ready", "status": "True"}]}, False, id="another"),
    ],
)
def test_whether_they_are_prepared(status: dict[str, Any], are_prepared: bool) -> None:
    found = claims(spec(container("c", "own")), **status)
    assert found is not None
    assert found.are_prepared is are_prepared


def health(name: str, health: str = "Unhealthy", resource: str = "v.com/c=0", message: Any = None) -> dict[str, Any]:
    device = {"resourceID": resource, "health": health, "message": message}
    return {
        "containerStatuses": [{"name": "c", "allocatedResourcesStatus": [{"name": name, "resources": [device]}]}],
        **MADE,
    }


SICK = UnhealthyDevice("c", "shared", "v.com/c=0")
HOT = replace(SICK, message="hot very")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(health("claim:own"), [SICK], id="by name"),
        pytest.param(health("claim:made"), [replace(SICK, claim="p-made-x7")], id="of a template"),
        pytest.param(health("claim:own/r"), [SICK], id="of a request"),
        pytest.param(health("claim:own", message="hot\nvery"), [HOT], id="with a message"),
        pytest.param(health("claim:own", "Healthy"), [], id="healthy"),
        pytest.param(health("claim:own", "Unknown"), [], id="unknown"),
        pytest.param(health("claim:other"), [], id="of no claim of the pod"),
        pytest.param(health("own"), [], id="a device plugin's"),
    ],
)
def test_devices_that_the_kubelet_reports(status: dict[str, Any], expected: list[UnhealthyDevice]) -> None:
    found = claims(spec(container("c", "own", "made")), **status)
    assert found is not None
    assert list(found.unhealthy) == expected


def test_what_is_kept_of_a_pod_is_bounded() -> None:
    many = spec(*(container(f"c{number:03}", "own") for number in range(300)))
    device = {"health": "Unhealthy", "message": "m" * 9999}
    devices = [{"resourceID": f"v.com/c={number}", **device} for number in range(300)]
    statuses = [{"name": "c000", "allocatedResourcesStatus": [{"name": "claim:own", "resources": devices}]}]
    found = claims(many, containerStatuses=statuses)
    assert found is not None
    assert (len(found.uses), len(found.unhealthy)) == (256, 256)
    assert {len(each.message) for each in found.unhealthy} == {MAX_SHOWN}
