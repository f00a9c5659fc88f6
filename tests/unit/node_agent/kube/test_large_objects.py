"""Lists of large objects: no more in memory than a bound, in pages where no fields are given; and which kinds are served."""

import json
from typing import Any

import pytest
from nodedevice_agent.dra.slices import ResourceSliceObject, slice_of
from nodedevice_agent.kube import client
from nodedevice_agent.kube.client import KubeClient
from nodedevice_common.api_exchange import Request

from tests.fakes import api_answers
from tests.fakes.api_answers import Answer, json_answer, query_of
from tests.unit.node_agent.dra.published import NODE, body, device

KINDS = {"kind": "APIResourceList", "resources": [{"name": "resourceslices", "verbs": ["list"]}, {"name": "x/status"}]}


class Server(api_answers.Server):
    """Of ten slices, in pages as they are asked for. instead: a status and what it says with that."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.slices = [body(f"s{n}", [device("d", attributes={"a": "x" * 64})]) for n in range(10)]
        self.instead: tuple[int, Any] | None = None

    def answer(self, request: Request) -> Answer:
        self.asked.append(request)
        if self.instead is not None:
            return json_answer(self.instead[1], self.instead[0])
        query = query_of(request)
        first, size = int(query.get("continue", "0")), int(query.get("limit", "10"))
        metadata = {"resourceVersion": "7"} | ({"continue": str(first + size)} if first + size < 10 else {})
        return json_answer({"metadata": metadata, "items": self.slices[first : first + size]})


async def test_a_list_with_fields_is_one_request_without_a_limit(server: Server, cluster: KubeClient) -> None:
    """With a limit the API server uses no index, and walks all objects of the cluster for each page."""
    found, version = await cluster.list(ResourceSliceObject, {"spec.nodeName": NODE})
    assert ([each.metadata.name for each in found], version) == ([f"s{n}" for n in range(10)], "7")
    assert [query_of(request) for request in server.asked] == [{"fieldSelector": f"spec.nodeName={NODE}"}]
    assert all(len(slice_of(each).devices) == 1 for each in found)


async def test_any_other_list_has_pages_of_bounded_length(
    server: Server, cluster: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_PAGE_OBJECTS", 4)
    monkeypatch.setattr(client, "_PAGE_BYTES", 2 * len(json.dumps(server.slices[0])))
    found, _ = await cluster.list(ResourceSliceObject, {})
    assert [each.metadata.name for each in found] == [f"s{n}" for n in range(10)]
    limits = [int(query_of(request)["limit"]) for request in server.asked]
    assert limits[0] == 4
    assert set(limits[1:]) <= {1, 2}


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
    server.instead = 200, KINDS
    assert await cluster.served("resource.k8s.io/v1") == {"resourceslices", "x/status"}
    assert (server.asked[0].method, server.asked[0].target) == ("GET", "/apis/resource.k8s.io/v1")
    server.instead = 404, {"message": "the server could not find the requested resource", "code": 404}
    assert await cluster.served("resource.k8s.io/v1") == frozenset()
