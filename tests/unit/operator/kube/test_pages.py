"""Every list is read in pages of a bounded length, whatever its objects weigh."""

import json
import math
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from nodedevice_kube.api_errors import TooBig
from nodedevice_operator.cli.api import LeftoversApi
from nodedevice_operator.kube import requests as module
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.lists import KINDS, Cluster
from nodedevice_operator.leases.agent_monitor import AgentsApi
from nodedevice_operator.requiredplugins.annotate_pods import UnboundPodsApi

SPEC = {"nodeName": "n", "resourceName": "example.com/gpu", "podUID": "p"}
COUNT = 60


class BigObjects(Client):
    """An API server with one list of objects of that weight (bytes). lengths: of the pages that it sent whole."""

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.lengths: list[int] = []
        self.limits: list[Any] = []

    async def request(self, verb: str, what: str, path: str, **options: Any) -> bytes:
        query, most = options["query"], options["most_bytes"]
        # a list of version 0 comes from the API server's cache, which knows no limit
        is_whole = query.get("resourceVersion") == "0"
        first = int(query.get("continue") or 0)
        last = COUNT if is_whole else min(first + int(query["limit"]), COUNT)
        items = [self._object(number) for number in range(first, last)]
        more = str(last) if last < COUNT else ""
        data = json.dumps({"metadata": {"resourceVersion": "9", "continue": more}, "items": items}).encode()
        self.limits.append(None if is_whole else query["limit"])
        if len(data) > most:
            raise TooBig(verb, what, "too long")
        assert not ("resourceVersion" in query and "continue" in query), "an API server refuses that"
        self.lengths.append(len(data))
        return data

    def _object(self, number: int) -> dict[str, Any]:
        metadata = {"name": f"o-{number}", "uid": f"u-{number}", "resourceVersion": "3", "namespace": "default"}
        return {"metadata": {**metadata, "annotations": {"weight": "x" * self.weight}}, "spec": SPEC}


async def _records(kind: Any, client: Client) -> list[Any]:
    return await Cluster(client).list_all(kind)


async def _versions(kind: Any, client: Client) -> list[Any]:
    return [key async for page in Cluster(client).list_versions(kind) for key in page]


async def _flat(pages: AsyncIterator[list[Any]]) -> list[Any]:
    return [each async for page in pages for each in page]


async def _leases(client: Client) -> list[Any]:
    return list(await AgentsApi(client, "agents").list_leases())


LISTS: dict[str, Callable[[Client], Any]] = {
    **{f"list_all {kind.name}": partial(_records, kind) for kind in KINDS},
    **{f"list_versions {kind.name}": partial(_versions, kind) for kind in KINDS},
    "leases": _leases,
    "leases as of now": lambda client: AgentsApi(client, "agents").list_leases(is_consistent=True),
    "pods without a node": lambda client: _flat(UnboundPodsApi(client).pages()),
    "cleanup": lambda client: LeftoversApi(client).node_devices(),
}


# a sixty-fourth of the real bounds
MOST_PAGE_BYTES, MOST_WHOLE_BYTES = 64 * 1024, 256 * 1024


@pytest.fixture(autouse=True)
def _lower_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE_BYTES", MOST_PAGE_BYTES // 2)
    monkeypatch.setattr(module, "_MOST_PAGE_BYTES", MOST_PAGE_BYTES)
    monkeypatch.setattr(module, "_MOST_WHOLE_BYTES", MOST_WHOLE_BYTES)


@pytest.mark.parametrize("weight", [10, 1_000, 6_000, 70_000])
@pytest.mark.parametrize("name", LISTS)
async def test_everything_comes_in_pages_of_a_bounded_length(name: str, weight: int) -> None:
    server = BigObjects(weight)
    assert len(await LISTS[name](server)) == COUNT
    most = MOST_WHOLE_BYTES if server.limits[0] is None else MOST_PAGE_BYTES
    # one object has any length that the API server takes
    assert max(server.lengths) <= max(most, weight + 1000)
    assert len(server.limits) <= COUNT + math.ceil(math.log(module.PAGE, 8)) + 1, "few were asked for again"
