"""What `why pod` reads of the API server: only what its answer needs, and whatever it may."""

import json
from typing import Any, Final

import pytest

from tests.unit.cli.api_server import NODES, PODS, Answer, FakeApiServer, status
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import GPU, NODE_DEVICES, allocation, condition, device, node, node_device, pod
from tests.unit.cli.why.test_readers import asked, codes
from tests.unit.cli.why.test_typed import APPS, WORKLOADS, controller, owned

_CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"


@pytest.mark.parametrize(
    ("words", "selector"),
    [
        (("pod", "late"), f"spec.resourceName={GPU}"),
        (("pod", "try"), "spec.nodeName=node-a"),
        (("node", "node-a"), "spec.nodeName=node-a"),
    ],
)
def test_only_the_nodedevices_of_a_resource_or_a_node_are_read(
    run: Run, server: FakeApiServer, words: tuple[str, str], selector: str
) -> None:
    asked(run, *words)
    lists = [each.query for each in server.requests if each.path == NODE_DEVICES]
    assert [each.get("fieldSelector") for each in lists] == [selector]
    events = [each.query["fieldSelector"] for each in server.requests if each.path.endswith("/events")]
    assert events == [f"involvedObject.uid=uid-{words[1]}"] * (words[0] == "pod")


@pytest.mark.parametrize(("claim", "expected"), [("there", []), ("gone", ["ClaimMissing"])])
def test_without_the_claims_of_all_namespaces_those_of_its_own_are_read(
    run: Run, server: FakeApiServer, claim: str, expected: list[str]
) -> None:
    made = pod("claiming", node="", phase="Pending")
    made["spec"]["resourceClaims"] = [{"name": "a", "resourceClaimName": claim}]
    server.objects[PODS].append(made)
    server.objects[_CLAIMS] = [{"metadata": {"name": "there", "namespace": "default"}}]
    server.fault = lambda request: status(403, "no") if request.path == _CLAIMS else None
    found = asked(run, "pod", "claiming")
    assert codes(found) == expected
    assert "resourceclaims.resource.k8s.io" in {each["kind"] for each in found["unknown"]}


def test_a_pod_that_waits_for_the_one_that_it_replaces(run: Run, server: FakeApiServer) -> None:
    server.objects[f"{APPS}/deployments"] = [controller("web", selector={"matchLabels": {"app": "web"}})]
    server.objects[f"{APPS}/replicasets"] = [owned(controller(f"web-{at}"), "Deployment/web") for at in (1, 2)]
    for each in server.objects[f"{APPS}/replicasets"]:
        each["metadata"]["labels"] = {"app": "web"}
    server.objects[PODS] = [
        owned(pod("old", app="web"), "ReplicaSet/web-1"),
        owned(pod("new", node="", phase="Pending", app="web"), "ReplicaSet/web-2"),
    ]
    server.objects[NODES] = [node("node-a")]
    held: dict[str, Any] = {"allocated": 1, "available": 0, "allocations": [allocation("old")]}
    server.objects[NODE_DEVICES] = [node_device("node-a", devices=[device("gpu-0")], **held)]
    assert codes(asked(run, "pod", "new")) == ["HeldByPredecessor"]


def test_a_pod_whose_queue_has_not_let_it_go(run: Run, server: FakeApiServer) -> None:
    gated = pod("gated", node="", phase="Pending")
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    server.objects[PODS].append(gated)
    assert codes(asked(run, "pod", "gated"))[0] == "SchedulingGated"
    meta = {"name": "pod-gated", "namespace": "default", "ownerReferences": [{"uid": "uid-gated"}]}
    reserved = condition("QuotaReserved", "False", "Pending", "no quota is left")
    server.objects[WORKLOADS] = [{"metadata": meta, "spec": {}, "status": {"conditions": [reserved]}}]
    found = asked(run, "pod", "gated")
    assert (codes(found)[0], "no quota is left" in found["causes"][0]["message"]) == ("QueueWaits", True)


def test_a_namespace_that_is_being_deleted(run: Run, server: FakeApiServer) -> None:
    conditions = [condition("A", "True", "", "pods has 1 finalizer"), condition("B", "False", "", "unused")]
    ending: dict[str, Any] = {"name": "default", "deletionTimestamp": "2026-11-28T10:00:00Z"}
    body = json.dumps({"metadata": ending, "status": {"conditions": conditions}}).encode()
    server.fault = lambda request: Answer(200, body) if request.path == "/api/v1/namespaces/default" else None
    cause = asked(run, "pod", "late")["causes"][0]
    assert (cause["code"], cause["message"].rpartition(": ")[2]) == ("NamespaceTerminating", "pods has 1 finalizer.")


def test_who_wrote_a_number_is_known_by_its_field(run: Run, server: FakeApiServer) -> None:
    fields: dict[str, Any] = {"f:status": {"f:allocatable": {f"f:{GPU}": {}, "f:cpu": {}}}}
    for each in server.objects[NODES]:
        each["metadata"]["managedFields"] = [{"manager": "alice", "fieldsV1": fields}]
        each["status"]["allocatable"] = {GPU: "0"}
    conflict = condition("Conflict", "True", "ForeignOwner")
    server.objects[NODE_DEVICES] = [node_device(name, conditions=[conflict]) for name in ("node-a", "node-b")]
    [cause] = asked(run, "pod", "late")["causes"]
    assert (cause["code"], cause["where"][0]["detail"]) == ("CapacityConflict", "ForeignOwner, alice, it shows 0")
