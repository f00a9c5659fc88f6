"""What single requests carry, and what odd answers become."""

from typing import Any
from urllib.parse import unquote

import pytest
from nodedevice_kube.api_errors import InvalidResponse, NotFound
from nodedevice_kube.leases import Lease
from nodedevice_operator.capacity.reconciler import CapacityApi
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.lists import NODE_DEVICES, NODES, POD_DEVICES, Cluster, Kind
from nodedevice_operator.kube.requests import Requests
from nodedevice_operator.leases.agent_monitor import AgentsApi
from nodedevice_operator.leases.elector import LeaderLeases
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import StoredCondition
from nodedevice_operator.objects.poddevice import Content
from nodedevice_operator.reconcile.condition_reconciler import ConditionsApi
from nodedevice_operator.reconcile.poddevice_reconciler import encode
from nodedevice_operator.reconcile.poddevices import DesiredPodDevice
from nodedevice_operator.remediation.eviction_controller import EvictionsApi
from nodedevice_operator.remediation.node_taint_and_label_controller import NodeLabelsApi
from nodedevice_operator.requiredplugins.annotate_pods import UnboundPodsApi
from nodedevice_operator.requiredplugins.policy import POLICIES
from nodedevice_operator.requiredplugins.watch import RequiredPluginsApi

from tests.fakes.operator.operator_model import node_device
from tests.unit.operator.kube.api_server import Server, page

NODE_7 = NodeRecord("node-a", "uid-1", 7, {})
# its response to a write of it
NODE_8 = 200, {"metadata": {"name": "node-a", "uid": "uid-1", "resourceVersion": "8"}}


async def test_a_node_is_written_as_it_was_seen_or_not_at_all(server: Server, client: Client) -> None:
    server.answers = [NODE_8]
    written = await CapacityApi(client).apply_capacity(NODE_7, {"example.com/gpu": 2}, force=False)
    assert written.resource_version == 8
    [(verb, path, headers, sent)] = server.asked
    assert (verb, path) == ("PATCH", "/api/v1/nodes/node-a/status?fieldManager=nodedevice-operator&force=false")
    assert headers["content-type"] == "application/apply-patch+yaml"
    assert sent["metadata"] == {"name": "node-a", "uid": "uid-1", "resourceVersion": "7"}
    assert sent["status"] == {"capacity": {"example.com/gpu": "2"}, "allocatable": {"example.com/gpu": "2"}}


async def test_only_the_pod_of_that_uid_is_evicted(server: Server, client: Client) -> None:
    """A StatefulSet's next pod has the name of the one before."""
    server.answers = [(201, {})]
    await EvictionsApi(client).evict_pod("default", "train-0", "uid-1")
    method, path, _, sent = server.asked[0]
    assert (method, path) == ("POST", "/api/v1/namespaces/default/pods/train-0/eviction")
    assert sent["deleteOptions"] == {"preconditions": {"uid": "uid-1"}}


async def versions(client: Client, kind: Kind[Any]) -> dict[Any, tuple[str, int]]:
    found: dict[Any, tuple[str, int]] = {}
    async for each in Cluster(client).list_versions(kind):
        found.update(each)
    return found


async def test_versions_are_asked_for_without_the_objects(server: Server, client: Client) -> None:
    def item(**metadata: str) -> dict[str, Any]:
        return {"metadata": {"uid": "u", "resourceVersion": "3", **metadata}}

    server.answers = [page(item(name="a"), more="next"), page(item(name="b", namespace="default"))]
    assert await versions(client, POD_DEVICES) == {"a": ("u", 3), ("default", "b"): ("u", 3)}
    form = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    assert {headers["accept"] for _, _, headers, _ in server.asked} == {form}
    # the first is not understood in the list of the objects either; an empty list has this form
    empty = (200, {"metadata": {"resourceVersion": "9"}, "items": None})
    server.answers = [page({"metadata": {"name": "c", "resourceVersion": "three"}}), empty]
    assert [await versions(client, kind) for kind in (POD_DEVICES, NODES)] == [{}, {}]


@pytest.mark.parametrize(
    ("kind", "namespace", "path"),
    [
        (NODE_DEVICES, "", "/apis/nodedevice.io/v1alpha1/nodedevices"),
        (POD_DEVICES, "default", "/apis/nodedevice.io/v1alpha1/namespaces/default/poddevices"),
    ],
)
async def test_one_object_is_found_by_a_list(
    server: Server, client: Client, kind: Kind[Any], namespace: str, path: str
) -> None:
    specs = {"spec": {"nodeName": "n", "resourceName": "r", "podUID": "p"}}
    found = {"metadata": {"name": "x", "uid": "u", "resourceVersion": "3"}, **specs}
    odd = {"metadata": {"name": "x", "uid": "u", "resourceVersion": "three"}, **specs}
    # there, not there, and there as something that is not understood
    server.answers = [(200, {"metadata": {}, "items": items}) for items in ([found], [], [{"metadata": 1}], [odd])]
    assert [await Cluster(client).find(kind, namespace, "x") for _ in range(4)] == [{"u"}, *[frozenset()] * 3]
    assert server.asked[0][1] == f"{path}?fieldSelector=metadata.name%3Dx"


async def test_an_invalid_node_delays_none(server: Server, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    def node(name: str, version: str = "3") -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": version}}

    odder = {"metadata": {"name": "odder", "uid": 1}}
    server.answers = [page(node("a"), node("odd", "three"), more="next"), page(odder, node("b"))]
    pages = [page async for page in Cluster(client).pages(NODES)]
    assert [[record.name for record in page.records] for page in pages] == [["a"], ["b"]]
    assert [page.version for page in pages] == [9, 9]
    assert [page.undecoded for page in pages] == [{"odd"}, {"odder"}]
    logged = [record for record in caplog.records if record.message == "cannot decode object; skipping it"]
    assert [record.__dict__["object"] for record in logged] == ["odd", "odder"]


async def test_a_list_without_a_version_is_none(server: Server, client: Client) -> None:
    server.answers = [page(version="nine")]
    with pytest.raises(InvalidResponse, match="the list has the resource version 'nine'"):
        await Cluster(client).list_all(NODES)


async def test_labels_go_onto_the_node_as_it_was_seen(server: Server, client: Client) -> None:
    server.answers = [NODE_8]
    await NodeLabelsApi(client).label_node(NODE_7, {"a": "1", "b": None})
    verb, path, _, sent = server.asked[0]
    assert (verb, path) == ("PATCH", "/api/v1/nodes/node-a?fieldManager=nodedevice-operator")
    assert sent == {"metadata": {"uid": "uid-1", "resourceVersion": "7", "labels": {"a": "1", "b": None}}}


def stored(uid: str) -> dict[str, Any]:
    spec = {"nodeName": "node-a", "resourceName": "example.com/gpu"}
    return {"metadata": {"name": "x", "uid": uid, "resourceVersion": "3"}, "spec": spec}


async def test_conditions_on_another_object_of_that_name_are_taken_off_it(server: Server, client: Client) -> None:
    conditions = {"Ready": StoredCondition("True", "Ready", "", "2026-01-01T00:00:00Z", 1)}
    wanted = node_device(name="x", uid="uid-1")
    server.answers = [(200, stored("uid-1")), (200, stored("uid-2")), (200, stored("uid-2"))]
    assert (await ConditionsApi(client).apply_conditions(wanted, conditions)).uid == "uid-1"
    with pytest.raises(NotFound):
        await ConditionsApi(client).apply_conditions(wanted, conditions)
    assert [len(sent["status"]["conditions"]) for _, _, _, sent in server.asked] == [1, 1, 0]


async def test_the_leaders_lease_goes_there_and_back(server: Server, client: Client) -> None:
    leases = LeaderLeases(client, "system")
    server.answers = [(404, {})]
    assert await leases.read() == Lease()
    spec = {"holderIdentity": "me", "renewTime": "r", "acquireTime": "a", "leaseDurationSeconds": 4}
    spec |= {"leaseTransitions": 2}
    server.answers = [(200, {"metadata": {"name": "nodedevice-operator", "resourceVersion": "5"}, "spec": spec})]
    lease = Lease("me", "r", "a", 4, 2, "5")
    assert await leases.write(lease) == lease
    verb, path, _, sent = server.asked[-1]
    assert (verb, path) == ("PUT", "/apis/coordination.k8s.io/v1/namespaces/system/leases/nodedevice-operator")
    assert (sent["spec"], sent["metadata"]["resourceVersion"]) == (spec, "5")
    # one that is released has no holder, and a new one no version
    server.answers = [(200, {"metadata": {"resourceVersion": "1"}, "spec": {"renewTime": "r"}})]
    assert await leases.write(Lease("", "r", "a", 4, 2, "")) == Lease(renewed="r", version="1")
    sent = server.asked[-1][3]
    assert (sent["spec"]["holderIdentity"], "resourceVersion" in sent["metadata"]) == (None, False)


@pytest.mark.parametrize(
    ("namespace", "pod"), [("default", "../../nodes"), ("..", "pod-a"), ("default", "a?b"), ("A", "a")]
)
async def test_impossible_names_are_not_asked_for(server: Server, client: Client, namespace: str, pod: str) -> None:
    with pytest.raises(NotFound) as refused:
        await Requests(client).read_pod(namespace, pod)
    assert (refused.value.verb, refused.value.what, refused.value.status) == ("GET", "pods", 404)
    assert server.asked == []


async def test_only_pods_without_a_node_are_listed(server: Server, client: Client) -> None:
    server.answers = [page()]
    assert [pods async for pods in UnboundPodsApi(client).pages()] == [[]]
    assert [unquote(path) for _, path, _, _ in server.asked] == ["/api/v1/pods?limit=250&fieldSelector=spec.nodeName="]


async def test_leases_are_listed_in_pages_as_of_one_moment(server: Server, client: Client) -> None:
    names = ("node-a", "node-b")
    a, b = ({"metadata": {"name": name, "resourceVersion": "17"}, "spec": {"renewTime": "r"}} for name in names)
    server.answers = [page(a, more="next"), page(b)]
    found = await AgentsApi(client, "agents").list_leases()
    assert {name: each.version for name, each in found.items()} == dict.fromkeys(names, 17)
    asked = [path.partition("?")[2] for _, path, _, _ in server.asked]
    assert asked == ["limit=250&resourceVersion=0", "limit=250&continue=next"]


async def test_what_the_operator_creates_has_the_label_of_its_release(server: Server, client: Client) -> None:
    """Argo CD may track by that label, and would delete what no manifest has; what has an owner it leaves to that."""
    server.answers = [(200, {"spec": {}}), (200, {"metadata": {"resourceVersion": "1"}, "spec": {}})]
    await RequiredPluginsApi(client, "of-ours").apply(POLICIES, {})
    await LeaderLeases(client, "system", instance="of-ours").write(Lease("", "r", "a", 4, 2, ""))
    for _, _, _, sent in server.asked[-2:]:
        assert sent["metadata"]["labels"]["app.kubernetes.io/instance"] == "of-ours"
        assert sent["metadata"]["annotations"]["argocd.argoproj.io/sync-options"] == "Prune=false"
    wanted = DesiredPodDevice("ns", "pod", Content("node", "uid", "uid", "a/b=1", "d0", "Healthy", ()), ())
    metadata = encode(wanted, None, "of-ours")["metadata"]
    assert metadata["labels"] == {"app.kubernetes.io/instance": "of-ours"}
    assert "annotations" not in metadata
    assert "labels" not in encode(wanted, None)["metadata"]
