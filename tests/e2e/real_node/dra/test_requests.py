"""A claim whose devices are for different containers: each container is shown with those that it has, not with all of them.

The kubelet's pod resources show every container all devices of a claim that it uses.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.cluster.api import ResourceClaim
from tests.e2e.real_node.dra.driver import DraDriver
from tests.e2e.real_node.dra.holdings import by_kubelet
from tests.e2e.real_node.dra.lab import Lab
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod

Json = dict[str, Any]
DRIVER, WIDGET = "dra.example.com", "dra.example.com/widget"
# by the scheduler, of a pod that asks by an extended resource's name
BY_NAME: Final = {"first": "container-0-request-0", "second": "container-1-request-0"}
OF_CLAIM: Final = {"first": "one", "second": "two"}


@pytest.fixture
def lab(nri_node: NodeUnderTest) -> Iterator[Lab]:
    with DraDriver(nri_node.control_plane, nri_node.node, DRIVER, 4, WIDGET) as driver:
        found = Lab(nri_node, driver)
        yield found
        found.clear()


def _named(lab: Lab) -> Json:
    """A pod whose two containers name a request each of one claim."""
    request = {"deviceClassName": lab.driver.device_class, "count": 1}
    requests = [{"name": name, "exactly": request} for name in OF_CLAIM.values()]
    about = {"name": "both", "namespace": lab.of.namespace}
    spec = {"devices": {"requests": requests}}
    lab.apply({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": about, "spec": spec})
    containers = [
        container(name, resources={"limits": {}, "claims": [{"name": "own", "request": request}]})
        for name, request in OF_CLAIM.items()
    ]
    return pod("named", containers, resourceClaims=[{"name": "own", "resourceClaimName": "both"}])


@pytest.mark.parametrize("is_named", [False, True], ids=["by-an-extended-resource", "by-requests-of-a-claim"])
def test_each_container_is_shown_with_its_own(lab: Lab, is_named: bool) -> None:
    body = _named(lab) if is_named else pod("by-name", [container(name, {WIDGET: 1}) for name in BY_NAME])
    lab.of.run(body)
    claim = _claim_of(lab, body["metadata"]["name"])
    results = claim["status"]["allocation"]["devices"]["results"]
    by_request = {result["request"]: result["device"] for result in results}
    expected = {name: [by_request[request]] for name, request in (OF_CLAIM if is_named else BY_NAME).items()}
    shown: dict[str, Json] = {}

    def is_shown() -> bool:
        shown.clear()
        shown.update({row["container"]: row for row in lab.status().get("allocations", ())})
        return {name: row["deviceIDs"] for name, row in shown.items()} == expected

    lab.of.until(is_shown, f"{expected} is shown")
    assert {row["claim"]["uid"] for row in shown.values()} == {claim["metadata"]["uid"]}
    names = {found.get("extendedResource") for row in shown.values() for found in row["claim"].get("devices", ())}
    assert names == (set() if is_named else {WIDGET})
    lab.until_numbers(total=4, allocated=2, available=2)
    # which is why pod resources alone are not enough
    assert len(by_kubelet(lab.socket)) == 4
    lab.of.delete(body["metadata"]["name"])
    lab.until_numbers(total=4, allocated=0, available=4)


def _claim_of(lab: Lab, name: str) -> Json:
    uid = lab.of.pod(name)["metadata"]["uid"]
    found = lab.of.control_plane.client.list(ResourceClaim, namespace=lab.of.namespace)
    return next(
        dict(claim) for claim in found if uid in {user["uid"] for user in claim["status"].get("reservedFor", ())}
    )
