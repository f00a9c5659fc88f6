"""Requests of the commands, whole as they are sent: they delete, and a word that is wrong deletes too much or nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from nodedevice_api import names
from nodedevice_kube.api_errors import NotFound
from nodedevice_operator.cli.api import CHECK_POD, DAEMON_SET, DEPLOYMENT, POD, Leftover, LeftoversApi, WorkloadsApi
from nodedevice_operator.kube.client import Client
from nodedevice_operator.objects.meta import ObjectMetadata

from tests.unit.operator.kube.api_server import Server, client_of

OURS = "app.kubernetes.io/name=nodedevice,app.kubernetes.io/component in (agent,operator,scheduler,extender)"
LEFT = Leftover(ObjectMetadata(name="a.x", uid="u"))
NODE_DEVICE = f"/apis/{names.API_VERSION}/nodedevices/a.x"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/leases/leases"
BACKGROUND = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
THIS_ONE = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u"}}

Call = Callable[[WorkloadsApi, LeftoversApi], Awaitable[object]]
CALLS: dict[str, tuple[Call, str, str, Any]] = {
    "a Deployment": (
        lambda ours, _: ours.delete(DEPLOYMENT, "o"),
        "DELETE",
        "/apis/apps/v1/namespaces/ns/deployments/o",
        BACKGROUND,
    ),
    "a DaemonSet": (
        lambda ours, _: ours.exists(DAEMON_SET, "a"),
        "GET",
        "/apis/apps/v1/namespaces/ns/daemonsets/a",
        None,
    ),
    "a pod": (
        lambda ours, _: ours.delete(POD, CHECK_POD),
        "DELETE",
        f"/api/v1/namespaces/ns/pods/{CHECK_POD}",
        BACKGROUND,
    ),
    "a NodeDevice": (lambda _, left: left.delete_node_device(LEFT), "DELETE", NODE_DEVICE, THIS_ONE),
    "its status": (
        lambda _, left: left.clear_status(LEFT),
        "PATCH",
        f"{NODE_DEVICE}/status?fieldManager=nodedevice-cleanup",
        {"status": None},
    ),
    "Leases": (lambda _, left: left.delete_agent_leases("leases"), "DELETE", LEASES, None),
    "a Lease": (lambda _, left: left.delete_leader_lease("leases", "o"), "DELETE", f"{LEASES}/o", None),
    "a namespace": (lambda _, left: left.delete_namespace("leases"), "DELETE", "/api/v1/namespaces/leases", None),
    "whether there is one": (lambda _, left: left.has_namespace("leases"), "GET", "/api/v1/namespaces/leases", None),
}


@pytest.fixture
def server() -> Any:
    made = Server()
    yield made
    made.close()


@pytest.fixture
async def client(server: Server, tmp_path: Path) -> AsyncIterator[Client]:
    async with client_of(tmp_path, server.url) as made:
        yield made


@pytest.mark.parametrize(("call", "verb", "path", "body"), CALLS.values(), ids=CALLS)
async def test_each_is_sent_as_it_is_meant(
    call: Call, verb: str, path: str, body: Any, server: Server, client: Client
) -> None:
    server.answers = [(200, {}), (404, {})]
    ours, left = WorkloadsApi(client, "ns"), LeftoversApi(client)
    assert await call(ours, left) in (True, None)
    if verb == "PATCH":
        with pytest.raises(NotFound):
            await call(ours, left)
    else:
        assert not await call(ours, left)
    assert [(asked[0], asked[1], asked[3]) for asked in server.asked] == [(verb, path, body)] * 2


def pod(name: str, node: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name}, "spec": {"nodeName": node}, "status": status}


async def test_pods_of_theirs(server: Server, client: Client) -> None:
    items = [pod("c", "n", phase="Running"), pod("b", "m", phase="Pending"), pod("a", "n", phase="Pending")]
    server.answers = [(200, {"metadata": {}, "items": items})]
    ours = WorkloadsApi(client, "ns")
    assert await ours.pods() == {"a": "n", "b": "m", "c": "n"}
    for verb, path, _, body in server.asked:
        assert (verb, unquote(path).replace("+", " "), body) == (
            "GET",
            f"/api/v1/namespaces/ns/pods?labelSelector={OURS}",
            None,
        )


async def test_a_pod_that_is_none_is_named_by_its_kind(
    server: Server,
    client: Client,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.answers = [(200, {"metadata": {}, "items": [{"metadata": {"name": "odd"}, "spec": []}]})]
    assert not await WorkloadsApi(client, "ns").pods()
    assert [(vars(record)["kind"], vars(record)["object"]) for record in caplog.records] == [("pods", "odd")]
