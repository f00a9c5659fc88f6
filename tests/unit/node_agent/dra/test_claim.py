"""What is read of a ResourceClaim, and how; its parameters and consumers leave no trace."""

import json
from typing import Any

import pytest
from nodedevice_agent.dra.claim import MAX_BYTES, ResourceClaimObject, claim_of, read_claim
from nodedevice_agent.dra.holdings import Claim
from nodedevice_common.decoding import decode
from nodedevice_kube.api_errors import InvalidResponse, TooBig

from tests.fakes.api_answers import Answer, Answers, json_answer
from tests.fakes.api_client import client_of
from tests.unit.node_agent.dra.claimed import DRIVER, claim, result

PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/claim"
SECRET = "a tenant's password"


def device(name: str = "gpu-0", **more: Any) -> dict[str, Any]:
    return {"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": name, **more}


def body(*devices: Any) -> dict[str, Any]:
    """As the API server has it, with all that nobody here may keep."""
    opaque = {"opaque": {"driver": DRIVER, "parameters": {"key": SECRET}}, "requests": ["gpu"]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "claim", "namespace": "default", "uid": "claim-uid", "annotations": {"note": SECRET}},
        "spec": {"devices": {"requests": [{"name": "gpu"}], "config": [opaque]}},
        "status": {
            "allocation": {"devices": {"results": list(devices), "config": [{"source": "FromClaim", **opaque}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "0" * 36}],
            "devices": [{"driver": DRIVER, "pool": "node-1", "device": "gpu-0", "data": {"key": SECRET}}],
        },
    }


def read(found: Any) -> Claim:
    return claim_of(decode(json.dumps(found).encode(), ResourceClaimObject))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(body(device()), claim("gpu-0"), id="a device"),
        pytest.param(body(device(adminAccess=True)), claim(result(admin_access=True)), id="admin access"),
        pytest.param(body(device(shareID="s")), claim(result(share_id="s")), id="a share"),
        pytest.param(body(device(request="gpu/large")), claim("gpu-0"), id="an alternative of a request"),
        pytest.param(
            body(device(consumedCapacity={"a": "4Gi", "b": 2})),
            claim(result(consumed=(("a", "4Gi"), ("b", "2")))),
            id="capacity",
        ),
        pytest.param({"metadata": {"uid": "claim-uid"}, "status": {}}, claim(), id="not allocated"),
        pytest.param({"metadata": {"uid": "claim-uid"}}, claim(), id="no status"),
        pytest.param({}, claim(uid=""), id="nothing"),
    ],
)
def test_what_is_read(found: Any, expected: Claim) -> None:
    assert read(found) == expected


def test_what_is_read_is_bounded() -> None:
    capacity = {f"{number:099}": "1" for number in range(100)} | {"n" * 300: "1", "big": "9" * 99}
    found = read(body(*(device("d" * 999, consumedCapacity=capacity) for _ in range(99))))
    assert len(found.results) == 64
    assert {(len(each.device), len(each.consumed)) for each in found.results} == {(253, 32)}


def test_of_parameters_and_consumers_nothing_is_kept() -> None:
    found = decode(json.dumps(body(device())).encode(), ResourceClaimObject)
    assert SECRET in repr(found.metadata.annotations), "which is dropped with the object"
    assert SECRET not in repr(found.status)
    assert SECRET not in repr(claim_of(found))


async def test_a_claim_is_one_get() -> None:
    server = Answers(json_answer(body(device())))
    assert await read_claim(client_of(server), "default", "claim") == claim("gpu-0")
    [(request, _)] = server.asked
    assert (request.method, request.target) == ("GET", PATH)


async def test_of_what_is_too_long_no_more_is_read() -> None:
    answer = Answer(*[b" " * 4096] * 1000)
    with pytest.raises(TooBig, match=f"reading resourceclaims default/claim: .* more than {MAX_BYTES} bytes"):
        await read_claim(client_of(Answers(answer)), "default", "claim")
    assert len(answer.chunks) > 700


async def test_one_of_another_form_is_no_response() -> None:
    answer = json_answer(body(device(driver=5)))
    with pytest.raises(InvalidResponse, match="reading resourceclaims default/claim: cannot decode the response"):
        await read_claim(client_of(Answers(answer)), "default", "claim")
