"""Lists of large objects: no more in memory than a bound, in pages where no fields are given; and which kinds are served."""

import json
from typing import Any

import httpx2
import pytest
from nodedevice_agent.dra.slices import ResourceSliceObject, slice_of
from nodedevice_agent.errors import ApiForbidden, ApiUnreachable
from nodedevice_agent.kube import client
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
        first, size = int(request.url.params.get("continue", "0")), int(request.url.params.get("limit", "10"))
        metadata = {"resourceVersion": "7"} | ({"continue": str(first + size)} if first + size < 10 else {})
        page = {"metadata": metadata, "items": self.slices[first : first + size]}
        return httpx2.Response(200, content=json.dumps(page), request=request)


@pytest.fixture
def server() -> Server:
    return Server()


async def test_a_list_with_fields_is_one_request_without_a_limit(server: Server, cluster: KubeClient) -> None:
    """With a limit the API server uses no index, and walks all objects of the cluster for each page."""
    found, version = await cluster.list(ResourceSliceObject, {"spec.nodeName": NODE})
    assert ([each.metadata.name for each in found], version) == ([f"s{n}" for n in range(10)], "7")
    assert [dict(request.url.params) for request in server.asked] == [{"fieldSelector": f"spec.nodeName={NODE}"}]
    assert all(len(slice_of(each).devices) == 1 for each in found)


async def test_any_other_list_has_pages_of_bounded_length(
    server: Server, cluster: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_PAGE_OBJECTS", 4)
    monkeypatch.setattr(client, "_PAGE_BYTES", 2 * len(json.dumps(server.slices[0])))
    found, _ = await cluster.list(ResourceSliceObject, {})
    assert [each.metadata.name for each in found] == [f"s{n}" for n in range(10)]
    limits = [int(request.url.params["limit"]) for request in server.asked]
    assert limits[0] == 4
    assert set(limits[1:]) <= {1, 2}


async def test_of_an_object_no_more_text_is_kept_than_what_is_read(server: Server, cluster: KubeClient) -> None:
    server.slices[0]["metadata"]["annotations"] = {"filler": "x" * 100_000}
    [first, *_], _ = await cluster.list(ResourceSliceObject, {})
    assert first.spec is not None
    # a Raw is a view of the text that it was decoded from
    assert memoryview(memoryview(first.spec.devices).obj).nbytes < 1000


async def test_those_beyond_the_bound_come_without_what_is_large(
    cluster: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first, *_], _ = await cluster.list(ResourceSliceObject, {})
    monkeypatch.setattr(client, "MOST_LISTED", 3 * first.octets)
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
