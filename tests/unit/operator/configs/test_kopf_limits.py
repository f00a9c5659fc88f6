"""What kopf gets: connections with our credentials and fence, responses that do not end it, and storage that writes nothing."""

import contextlib
import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import kopf
import pytest
from nodedevice_common import unauthorized
from nodedevice_operator.configs.kopf_limits import InMemoryDiffs, open_session
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.write_fence import WriteFence

from tests.fakes.operator.collaborators import Clock
from tests.unit.common.test_decoding import nested
from tests.unit.operator.kube.api_server import Server, kubeconfig


class Kopfs:
    """What kopf gets of an operator that does not lead, and the API server that it asks."""

    def __init__(self, server: Server) -> None:
        self.server, self.health = server, ApiHealth(server.url, Clock())
        self.session: aiohttp.ClientSession

    def get(self, path: str) -> Any:
        return self.session.get(f"{self.server.url}{path}")

    async def asks(self, path: str) -> None:
        """Whatever becomes of it."""
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with self.get(path):
                pass


@pytest.fixture
async def kopfs(server: Server, tmp_path: Path) -> AsyncIterator[Kopfs]:
    made = Kopfs(server)
    (tmp_path / "token").write_text("first\n")
    login = credentials.load(kubeconfig(tmp_path, server.url, tokenFile="token"))
    async with open_session(login, made.health, WriteFence()) as made.session:
        yield made


THINGS = "/apis/g/v1/things"


@pytest.mark.parametrize(
    ("status", "problem", "message"),
    [
        (403, "API server forbids watch things", "API server denies access; grant the rights of the chart's role"),
        (401, None, unauthorized.EVENT),
    ],
)
async def test_a_refused_watch_is_reported_once_until_it_is_allowed(
    kopfs: Kopfs, caplog: pytest.LogCaptureFixture, status: int, problem: str | None, message: str
) -> None:
    kopfs.server.answers = [(status, {})] * 2 + [(200, {}), (403, {})]
    for _ in range(2):
        await kopfs.asks(f"{THINGS}?watch=true")
        assert kopfs.health.problems() == (problem or unauthorized.problem(kopfs.health.server),)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [message]
    # only a watch is reported
    for path in (f"{THINGS}?watch=true", THINGS):
        await kopfs.asks(path)
        assert kopfs.health.problems() == ()


@pytest.mark.parametrize(
    ("path", "status", "body", "is_taken"),
    [
        ("/apis", 200, {"groups": []}, True),
        ("/apis", 200, {}, False),
        ("/api", 200, {"versions": ["v1"]}, True),
        ("/api", 200, {"kind": "Status"}, False),
        ("/api", 410, {"kind": "Status", "versions": ["v1"]}, False),
        ("/apis/g/v1", 200, {"kind": "APIResourceList"}, True),
        ("/apis/g/v1", 404, {}, True),
        ("/apis/g/v1", 503, {}, True),
    ],
)
async def test_an_answer_that_is_not_an_api_servers_is_a_broken_connection(
    kopfs: Kopfs, caplog: pytest.LogCaptureFixture, path: str, status: int, body: object, is_taken: bool
) -> None:
    kopfs.server.answers = [(status, body), (status, body), (200, {"groups": [], "versions": [], "kind": "x"})]
    for _ in range(2):
        with contextlib.nullcontext() if is_taken else pytest.raises(aiohttp.ClientConnectionError):
            async with kopfs.get(path) as response:
                assert response.status == status
    async with kopfs.get(path) as response:
        assert await response.json()
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert said == ([] if is_taken else ["API server's response cannot be used; retrying"])


@pytest.mark.parametrize("depth", [400, 1_100, 10_000])
async def test_a_library_gets_nothing_that_is_too_deep_for_it(kopfs: Kopfs, depth: int) -> None:
    """It decodes with json.loads, and copies and compares what it has: Python's own ways, which recurse."""
    deep = f'{{"kind":"Things","metadata":{{"name":"x"}},"spec":{nested(depth)}}}'
    kopfs.server.answers = [(200, deep.encode()), (200, f"{deep}\n{deep}\n".encode())]
    async with kopfs.get(THINGS) as response:
        found = [await response.json()]
    async with kopfs.get(f"{THINGS}?watch=true") as response:
        lines = b"".join([chunk async for chunk in response.content.iter_chunked(1024)])
    found += [json.loads(line) for line in lines.splitlines()]
    assert len(found) == 3
    for each in found:
        assert each["metadata"] == {"name": "x"}
        assert copy.deepcopy(each) == each
        assert json.loads(json.dumps(each)) == each


async def test_each_request_carries_the_current_token(kopfs: Kopfs) -> None:
    kopfs.server.answers = [(200, {"groups": []})]
    await kopfs.asks("/apis")
    [(_, _, headers, _)] = kopfs.server.asked
    assert (headers["authorization"], headers["user-agent"]) == ("Bearer first", "nodedevice-operator")
    assert headers["accept-encoding"] == "identity"


async def test_a_rejected_token_is_like_a_broken_connection(kopfs: Kopfs) -> None:
    kopfs.server.answers = [(401, {})]
    with pytest.raises(aiohttp.ClientConnectionError, match="HTTP 401"):
        await kopfs.get("/apis")


async def test_a_write_without_the_lead_is_not_sent(kopfs: Kopfs) -> None:
    """By an error after which kopf goes on."""
    with pytest.raises(aiohttp.ClientResponseError, match="does not lead"):
        await kopfs.session.post(f"{kopfs.server.url}/api/v1/namespaces/default/events", json={})
    assert kopfs.server.asked == []


def body(uid: str = "1") -> kopf.Body:
    return kopf.Body({"metadata": {"name": "a", "uid": uid}, "spec": {"priority": 1}})


def essence(priority: int) -> kopf.BodyEssence:
    return cast("kopf.BodyEssence", {"spec": {"priority": priority}})


def test_an_object_is_remembered_until_it_is_gone() -> None:
    diffs, patch = InMemoryDiffs(), kopf.Patch()
    assert diffs.fetch(body=body()) is None
    kept = essence(1)
    diffs.store(body=body(), patch=patch, essence=kept)
    cast("dict[str, Any]", kept)["spec"]["priority"] = 2
    assert diffs.fetch(body=body()) == essence(1)
    assert diffs.fetch(body=body("of its name, made again")) is None
    diffs.forget("1")
    diffs.forget("1")
    assert diffs.fetch(body=body()) is None
    assert not patch


async def test_watches_that_end_at_once_are_not_opened_without_a_pause(
    kopfs: Kopfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(round(seconds))

    monkeypatch.setattr("nodedevice_operator.configs.kopf_limits.asyncio.sleep", sleep)
    kopfs.server.answers = [(200, {})] * 7
    for path in (THINGS, *[f"{THINGS}?watch=true"] * 6):
        await kopfs.asks(path)
    assert pauses == [0, 0, 0, 1, 2, 3]
