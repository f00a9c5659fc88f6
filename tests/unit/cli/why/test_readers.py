"""`why` as it is typed, against an API server that is played: what may not be read is named, and nothing is guessed."""

import json
from typing import Any

import pytest

from tests.unit.cli.api_server import EVENTS, NODES, PODS, FakeApiServer, status
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import GPU, NODE_DEVICES, condition, device, event, node_device, pod


def asked(run: Run, *words: str) -> dict[str, Any]:
    ran = run("why", *words, "-o", "json")
    assert ran.status in (0, 1), ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


_QUOTA = "exceeded quota: team, requested: pods=1"


def codes(found: dict[str, Any]) -> list[str]:
    return [each["code"] for each in found["causes"]]


def forbid(server: FakeApiServer, *kinds: str) -> None:
    server.fault = lambda request: status(403, "forbidden") if request.path.rpartition("/")[2] in kinds else None


def test_a_pod_that_one_node_could_take_waits_for_what_is_not_known(run: Run) -> None:
    found = asked(run, "pod", "late")
    assert codes(found) == []
    assert found["isStopped"]
    assert found["notes"] == ["No obstacle is known on node-b."]
    # whatever it waits for, it needs somebody
    assert run("why", "pod", "late").status == 1


def test_who_may_see_nothing_but_pods_gets_the_schedulers_words(run: Run, server: FakeApiServer) -> None:
    forbid(server, "nodes", "nodedevices", "leases", "deviceclasses", "resourceslices", "resourceclaims")
    words = "0/2 nodes are available: 2 Insufficient example.com/gpu."
    server.objects[EVENTS] = [event("FailedScheduling", words, "Pod", "late")]
    found = asked(run, "pod", "late")
    assert (codes(found), found["words"]["message"]) == ([], words)
    roles = {each["kind"]: each["role"] for each in found["unknown"]}
    assert roles["nodes"] == roles["nodedevices.nodedevice.io"] == "nodedevice-fleet-view"
    assert "Not known: deviceclasses, leases, nodedevices, nodes" in run("why", "pod", "late").out


def test_a_name_is_unknown_only_to_who_has_seen_all_nodes(run: Run, server: FakeApiServer) -> None:
    server.objects[PODS].append(pod("typo", node="", phase="Pending", resource="example.com/gpus"))
    for allocatable in ({GPU: "2"}, {}):
        # a name that only NodeDevices have yet is known, too
        for each in server.objects[NODES]:
            each["status"]["allocatable"] = allocatable
        found = asked(run, "pod", "typo")
        assert codes(found) == ["NothingServes"]
        assert found["causes"][0]["message"] == f"No node has example.com/gpus; did you mean {GPU}?"
    forbid(server, "nodes")
    assert codes(asked(run, "pod", "typo")) == []


def test_a_waiting_pod_is_known_by_its_event_to_who_may_not_see_devices(run: Run, server: FakeApiServer) -> None:
    forbid(server, "nodedevices", "nodes")
    server.objects[PODS].append(pod("stuck", phase="Pending"))
    words = "container main is pending without example.com/gpu on node-a: AllocateFailed"
    server.objects[EVENTS] = [event("DevicesWaiting", words, "Pod", "stuck")]
    found = asked(run, "pod", "stuck")
    assert (codes(found), "AllocateFailed" in found["causes"][0]["message"]) == (["WaitsOnNode"], True)


def test_what_would_stop_a_refused_pod_besides_is_named(run: Run, server: FakeApiServer) -> None:
    for each in server.objects[NODES]:
        each["spec"] = {"unschedulable": True}
    spec = {**pod(node="")["spec"], "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]}
    metadata = {"name": "web-5d9c", "namespace": "default"}
    template = {"metadata": {}, "spec": spec}
    server.objects["/apis/apps/v1/replicasets"] = [{"metadata": metadata, "spec": {"template": template}}]
    templates = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
    server.objects[templates] = [{"metadata": {"name": "t", "namespace": "default"}}]
    server.objects[EVENTS] = [event("FailedCreate", _QUOTA, "ReplicaSet", "web-5d9c")]
    found = asked(run, "pod", "web")
    assert codes(found)[:2] == ["QuotaExceeded", "NodeCordoned"]
    assert "ClaimNotMade" not in codes(found)
    assert found["state"].endswith("It would request 1 example.com/gpu and claim t.")


def test_a_pod_that_runs_is_no_reason_to_do_anything(run: Run, server: FakeApiServer) -> None:
    server.objects[PODS][0]["status"]["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
    ran = run("why", "pod", "pod/try")
    words = "pod default/try is bound to node-a and requests 1 example.com/gpu. It has gpu-0. It runs."
    assert (ran.status, ran.out.splitlines()[0]) == (0, words)


def test_each_right_is_asked_for_once(run: Run, server: FakeApiServer) -> None:
    every = [device("gpu-0", "Unhealthy", reason="Xid79")]
    server.objects[NODE_DEVICES] = [node_device(name, devices=every, available=0) for name in ("node-a", "node-b")]
    for each in server.objects[NODE_DEVICES]:
        each["spec"]["cordonedDevices"] = [{"id": "*", "by": "bob"}]
        each["status"]["conditions"].append(condition("Injectable", "False", "NoRuntimeSocket"))
    found = asked(run, "pod", "late")
    assert codes(found) == ["NotInjectable", "DevicesCordoned", "DevicesBroken"]
    reviews = [each for each in server.requests if each.path.endswith("selfsubjectaccessreviews")]
    assert [each.body["spec"]["resourceAttributes"]["verb"] for each in reviews] == ["list", "patch"]
    assert all(cause["help"]["allowed"] for cause in found["causes"])


def test_a_device_that_is_none_is_refused_with_those_that_are(run: Run) -> None:
    ran = run("why", "device", "node-a", "gpu-9")
    assert (ran.status, "it has gpu-0, gpu-1, gpu-2" in ran.err) == (2, True), ran


def test_a_node(run: Run) -> None:
    found = asked(run, "node", "node-a")
    # one device is cordoned, one broken, one held: only together they leave none
    assert codes(found) == ["DevicesCordoned", "DevicesBroken", "DevicesHeld"]
    assert found["notes"] == ["example.com/gpu: 0 of 3 free, 1 in use, gpu-1 cordoned, gpu-2 unhealthy."]
    assert codes(asked(run, "node", "node-b")) == []
    assert run("why", "node", "node-b").status == 0


@pytest.mark.parametrize("kind", ["pod", "pods", "po"])
def test_a_pod_as_kubectl_names_it(run: Run, kind: str) -> None:
    assert run("why", "pod", f"{kind}/late").out.startswith("pod default/late is pending")


@pytest.mark.parametrize("name", ["team/late", "pod/team/late"])
def test_a_namespace_is_no_part_of_a_name(run: Run, name: str) -> None:
    line = "kubectl nodedevice why pod late --namespace team"
    assert run("why", "pod", name).err == f"error: {name} names no pod; write: {line}\n"


def test_rights_are_those_in_the_namespace_of_the_pod(run: Run, server: FakeApiServer) -> None:
    server.objects[EVENTS] = [event("FailedCreate", _QUOTA, "ReplicaSet", "web")]
    assert codes(asked(run, "pod", "web")) == ["QuotaExceeded"]
    [review] = [each for each in server.requests if each.path.endswith("selfsubjectaccessreviews")]
    attributes = review.body["spec"]["resourceAttributes"]
    assert (attributes["resource"], attributes["namespace"]) == ("resourcequotas", "default")


def test_a_device_of_a_node_that_may_not_be_read(run: Run, server: FakeApiServer) -> None:
    forbid(server, "node-a")
    assert run("why", "device", "node-a", "gpu-0").out.startswith(f"device gpu-0 of {GPU} on node node-a is in use by ")
    forbid(server, "nodedevices")
    ran = run("why", "device", "node-a", "gpu-0")
    assert ran.err == "error: you may not see the devices of node-a; the role nodedevice-fleet-view may\n"
