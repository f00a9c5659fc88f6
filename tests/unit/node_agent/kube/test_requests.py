"""How the agent reads, what comes of responses, and how a request is named and counted where it fails."""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from nodedevice_agent.dra.claim import ResourceClaimObject
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.objects import NodeDeviceConfigObject, NodeMetadataObject
from nodedevice_agent.kube.pod_objects import PodObject
from nodedevice_common.api_exchange import Request
from nodedevice_kube.api_errors import ApiError, NotFound
from prometheus_client import REGISTRY

from tests.fakes import api_answers
from tests.fakes.api_answers import Answer, json_answer, path_of, query_of
from tests.unit.node_agent.kube.test_watches import watched

CLAIM = "/apis/resource.k8s.io/v1/namespaces/agents/resourceclaims/c"
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
NAME = "n1.example.com.gpu"


class Server(api_answers.Server):
    """Answers with `body` and `status`, and keeps what it was asked."""

    def __init__(self) -> None:
        self.body: Any = {"metadata": {"name": "n1", "uid": "u", "resourceVersion": "7"}, "items": []}
        self.status = 200
        self.asked: list[Request] = []

    def answer(self, request: Request) -> Answer:
        self.asked.append(request)
        if isinstance(self.body, Answer):
            return self.body
        if isinstance(self.body, bytes):
            return Answer(self.body, status=self.status)
        return json_answer(self.body, self.status)


Call = Callable[[KubeClient], Awaitable[Any]]
WATCH = {"resourceVersion": "7", "timeoutSeconds": "300", "allowWatchBookmarks": "true", "watch": "true"}
NODE = {"fieldSelector": "metadata.name=n1"}
BOUND = {"fieldSelector": "spec.nodeName=n1"}
REQUESTS: dict[str, tuple[Call, str, dict[str, str]]] = {
    "object": (lambda c: c.object_of(ResourceClaimObject, "agents", "c", 1000), CLAIM, {}),
    "metadata": (lambda c: c.list(NodeMetadataObject, {"metadata.name": "n1"}), NODES, NODE),
    "catch up": (lambda c: c.catch_up(PodObject, {"spec.nodeName": "n1"}), PODS, {**BOUND, "limit": "1"}),
    "exists": (lambda c: c.exists(PodObject, {"spec.nodeName": "n1"}), PODS, {**BOUND, "limit": "1"}),
    "watch": (watched, PODS, {**BOUND, **WATCH}),
    "watch of metadata": (lambda c: watched(c, NodeMetadataObject, {"metadata.name": "n1"}), NODES, {**NODE, **WATCH}),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_each_read(name: str, cluster: KubeClient, server: Server) -> None:
    """The API server of the gate has the other requests, and the golden files the written objects."""
    call, path, query = REQUESTS[name]
    if name.startswith("watch"):
        server.body = b""
    await call(cluster)
    (asked,) = server.asked
    assert (asked.method, path_of(asked), query_of(asked)) == ("GET", path, query)
    kind = {"metadata": "List", "watch of metadata": ""}.get(name)
    assert dict(asked.headers)["Accept"] == ("application/json" if kind is None else METADATA.format(kind))


WRITES: dict[str, Call] = {
    "NodeDevice": lambda c: c.apply_status(NAME, {"total": 1}),
    "Lease": lambda c: c.replace_lease({"metadata": {"name": "n1", "namespace": "agents"}}),
}


async def test_a_failure_names_its_request(cluster: KubeClient, server: Server) -> None:
    server.status, server.body = 404, {"message": "none here", "reason": "NotFound", "code": 404}
    with pytest.raises(NotFound, match=f"^writing the status of nodedevice {NAME}: none here$"):
        await WRITES["NodeDevice"](cluster)
    with pytest.raises(NotFound, match=r"^listing pods: none here$"):
        await cluster.list(PodObject, {})


def writes(kind: str, outcome: str) -> float:
    return REGISTRY.get_sample_value("nodedevice_agent_api_writes_total", {"kind": kind, "outcome": outcome}) or 0.0


@pytest.mark.parametrize("kind", WRITES)
async def test_each_write_is_counted_by_its_outcome(kind: str, cluster: KubeClient, server: Server) -> None:
    for server.status, outcome in ((200, "ok"), (403, "ApiForbidden"), (503, "ApiUnreachable")):
        before = writes(kind, outcome)
        with suppress(ApiError):
            await WRITES[kind](cluster)
        assert writes(kind, outcome) == before + 1


async def test_what_comes_of_responses(cluster: KubeClient, server: Server) -> None:
    assert await cluster.node_uid("n1") == "u"
    assert await cluster.catch_up(PodObject, {}) == "7"
    assert not await cluster.exists(PodObject, {})
    pods, version = await cluster.list(PodObject, {})
    assert (pods, version) == ([], "7")
    server.body = {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "n1", "labels": {"a": "b"}}}]}
    nodes, version = await cluster.list(NodeMetadataObject, {})
    assert ([node.metadata.labels for node in nodes], version) == ([{"a": "b"}], "9")
    assert await cluster.exists(NodeDeviceConfigObject, {})
    server.body = {"metadata": {}, "status": {"authenticated": True}}
    assert await cluster.review("g", "TokenReview", {"token": "t"}) == {"authenticated": True}
    assert json.loads(server.asked[-1].body or b"")["spec"] == {"token": "t"}


async def test_a_nodes_capacity_is_of_extended_resources_and_whole_numbers(cluster: KubeClient, server: Server) -> None:
    capacity = {"cpu": "8", "memory": "1Ki", "example.com/a": "3", "example.com/b": 4, "example.com/c": "x"}
    server.body = {"metadata": {"name": "n1"}, "status": {"capacity": capacity}}
    assert await cluster.node_capacity("n1") == {"example.com/a": 3, "example.com/b": 4}
