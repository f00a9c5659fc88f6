"""Requests of the commands, whole as they are sent: they delete, and a word that is wrong deletes too much or nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from nodedevice_api import names
from nodedevice_kube.api_errors import NotFound, NotLeading
from nodedevice_operator.cli.api import CRD, DAEMON_SET, DEPLOYMENT, LEASE, NAMESPACE, POD, Leftover, LeftoversApi
from nodedevice_operator.cli.objects import Objects
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import CORE, Client
from nodedevice_operator.kube.typed import typed_client
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.meta import ObjectMetadata

from tests.unit.operator.cli.cluster import CRDS
from tests.unit.operator.kube.api_server import Server, client_of, kubeconfig

OURS = "app.kubernetes.io/name=nodedevice,app.kubernetes.io/component in (agent,operator,scheduler,extender)"
LEFT = Leftover(ObjectMetadata(name="a.x", uid="u"))
NODE_DEVICE = f"/apis/{names.API_VERSION}/nodedevices/a.x"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/leases/leases"
APPS = "/apis/apps/v1/namespaces/ns"
BY_US = "?fieldManager=nodedevice-cleanup"
BACKGROUND = "?propagationPolicy=Background"
THIS_ONE = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u"}}

Call = Callable[[Objects, LeftoversApi], Awaitable[object]]
CALLS: dict[str, tuple[Call, str, str, Any]] = {
    "a Deployment": (
        lambda one, _: one.delete(DEPLOYMENT, "o", "ns"),
        "DELETE",
        f"{APPS}/deployments/o{BACKGROUND}",
        None,
    ),
    "a DaemonSet": (lambda one, _: one.exists(DAEMON_SET, "a", "ns"), "GET", f"{APPS}/daemonsets/a", None),
    "a pod": (lambda one, _: one.delete(POD, "p", "ns"), "DELETE", f"{CORE}/namespaces/ns/pods/p{BACKGROUND}", None),
    "a NodeDevice": (lambda _, left: left.delete_node_device(LEFT), "DELETE", NODE_DEVICE, THIS_ONE),
    "its status": (lambda _, left: left.clear_status(LEFT), "PATCH", f"{NODE_DEVICE}/status{BY_US}", {"status": None}),
    "Leases": (lambda one, _: one.delete_all(LEASE, "leases"), "DELETE", LEASES, None),
    "a Lease": (lambda one, _: one.delete(LEASE, "o", "leases"), "DELETE", f"{LEASES}/o{BACKGROUND}", None),
    "a namespace": (lambda one, _: one.delete(NAMESPACE, "n"), "DELETE", f"{CORE}/namespaces/n{BACKGROUND}", None),
    "whether there is one": (lambda one, _: one.exists(NAMESPACE, "a/b"), "GET", f"{CORE}/namespaces/a%2Fb", None),
    "a CRD": (lambda one, _: one.exists(CRD, "a.b"), "GET", f"{CRDS}/a.b", None),
}


@pytest.fixture
def one(server: Server, tmp_path: Path) -> Objects:
    return Objects(typed_client(credentials.load(kubeconfig(tmp_path, server.url))))


@pytest.fixture
async def client(server: Server, tmp_path: Path) -> AsyncIterator[Client]:
    async with client_of(tmp_path, server.url) as made:
        yield made


@pytest.mark.parametrize(("call", "verb", "path", "body"), CALLS.values(), ids=CALLS)
async def test_each_is_sent_as_it_is_meant(
    call: Call, verb: str, path: str, body: Any, server: Server, client: Client, one: Objects
) -> None:
    server.answers = [(200, {}), (404, {})]
    left = LeftoversApi(client)
    assert await call(one, left) in (True, None)
    if verb == "PATCH":
        with pytest.raises(NotFound):
            await call(one, left)
    else:
        assert not await call(one, left)
    assert [(asked[0], asked[1], asked[3]) for asked in server.asked] == [(verb, path, body)] * 2


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_what_is_no_name_deletes_nothing(name: str, one: Objects) -> None:
    assert not await one.delete(DEPLOYMENT, name, "ns")
    assert not await one.delete(NAMESPACE, name)
    assert name == "" or not await one.delete(LEASE, "o", name)


async def test_no_deletion_passes_a_closed_fence(server: Server, tmp_path: Path) -> None:
    fence = WriteFence()
    one = Objects(typed_client(credentials.load(kubeconfig(tmp_path, server.url)), fence))
    server.answers = [(200, {}), (200, {})]
    assert await one.exists(LEASE, "o", "ns")
    with pytest.raises(NotLeading):
        await one.delete(LEASE, "o", "ns")
    fence.open_for_good()
    assert await one.delete(LEASE, "o", "ns")
    assert [verb for verb, *_ in server.asked] == ["GET", "DELETE"]


def pod(name: str, node: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name}, "spec": {"nodeName": node}, "status": status}


async def test_pods_of_theirs(server: Server, client: Client) -> None:
    items = [pod("c", "n", phase="Running"), pod("b", "m", phase="Pending"), pod("a", "n", phase="Pending")]
    server.answers = [(200, {"metadata": {}, "items": items})]
    assert await LeftoversApi(client).pods("ns") == {"a": "n", "b": "m", "c": "n"}
    [(verb, path, _, body)] = server.asked
    path = unquote(path).replace("+", " ")
    assert (verb, path, body) == ("GET", f"/api/v1/namespaces/ns/pods?labelSelector={OURS}", None)
