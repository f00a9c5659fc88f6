"""Lists of large objects: a few in a response, and no more in memory than a bound; and which kinds an API server has."""

import json
from typing import Any

import httpx2
import pytest
from nodedevice_agent.dra.slices import ResourceSliceObject, slice_of
from nodedevice_agent.errors import ApiForbidden, ApiUnreachable
from nodedevice_agent.kube import responses
from nodedevice_agent.kube.client import KubeClient

from tests.unit.node_agent.dra.published import NODE, body, device

KINDS = {"kind": "APIResourceList", "resources": [{"name": "resourceslices", "verbs": ["list"]}, {"name": "x/status"}]}


class Server(httpx2.AsyncBaseTransport):
    """Of ten slices, in pages as they are asked for. answer: what it says instead."""

    def __init__(self) -> None:
        self.asked: list[httpx2.Request] = []
        self.slices = [body(f"s{n}", [device("d", attributes={"a": "x" * 64})]) for n in range(10)]
        self.answer: tuple[int, Any] | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        if self.answer is not None:
            return httpx2.Response(self.answer[0], json=self.answer[1], request=request)
        first, size = int(request.url.params.get("continue", "0")), int(request.url.params["limit"])
        metadata = {"resourceVersion": "7"} | ({"continue": str(first + size)} if first + size < 10 else {})
        page = {"metadata": metadata, "items": self.slices[first : first + size]}
        return httpx2.Response(200, content=json.dumps(page), request=request)


@pytest.fixture
def server() -> Server:
    return Server()


async def test_they_come_in_small_pages(server: Server, cluster: KubeClient) -> None:
    found, version = await cluster.list(ResourceSliceObject, {"spec.nodeName": NODE})
    assert ([each.metadata.name for each in found], version) == ([f"s{n}" for n in range(10)], "7")
    assert [request.url.params["limit"] for request in server.asked] == ["4"] * 3
    assert {request.url.params["fieldSelector"] for request in server.asked} == {f"spec.nodeName={NODE}"}
    assert all(len(slice_of(each).devices) == 1 for each in found)


async def test_those_beyond_the_bound_come_without_what_is_large(
    cluster: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first, *_], _ = await cluster.list(ResourceSliceObject, {})
    monkeypatch.setattr(responses, "MOST_LISTED", 3 * first.octets)
    found, _ = await cluster.list(ResourceSliceObject, {})
    assert [bool(slice_of(each).problem) for each in found] == [False] * 3 + [True] * 7
    # which pool they are of is known
    assert {slice_of(each).key for each in found} == {slice_of(first).key}


async def test_which_kinds_are_served(server: Server, cluster: KubeClient) -> None:
    server.answer = 200, KINDS
    assert await cluster.served("resource.k8s.io/v1") == {"resourceslices", "x/status"}
    assert (server.asked[0].method, server.asked[0].url.path) == ("GET", "/apis/resource.k8s.io/v1")
    server.answer = 404, {"message": "the server could not find the requested resource", "code": 404}
    assert await cluster.served("resource.k8s.io/v1") == frozenset()


@pytest.mark.parametrize("answer", [{"resources": 7}, {"resources": [{"name": 7}]}, [], {"resources": None}])
async def test_kinds_of_another_form_are_no_answer(answer: Any, server: Server, cluster: KubeClient) -> None:
    server.answer = 200, answer
    with pytest.raises(ApiUnreachable, match=r"^reading the kinds of resource.k8s.io/v1: cannot decode"):
        await cluster.served("resource.k8s.io/v1")


async def test_who_may_not_ask_gets_an_error(server: Server, cluster: KubeClient) -> None:
    server.answer = 403, {"message": "no", "code": 403}
    with pytest.raises(ApiForbidden):
        await cluster.served("resource.k8s.io/v1")
