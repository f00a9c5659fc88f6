"""A library's requests: a watch to which it has no right is reported as if we had opened it, and a strange answer is retried."""

import contextlib
import copy
import json
from pathlib import Path

import aiohttp
import pytest
from nodedevice_common import rejected
from nodedevice_operator.errors import ApiError, Forbidden, Unauthorized
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth

from tests.unit.common.test_decoding import nested
from tests.unit.operator.kube.api_server import Server


async def get(client: Client, url: str) -> None:
    async with client.lend_session() as lent:
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with lent.get(url):
                pass


async def test_a_forbidden_watch_is_said_once_until_it_is_allowed(
    server: Server, client: Client, health: ApiHealth, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [(403, {}), (403, {}), (200, {})]
    for _ in range(2):
        await get(client, f"{server.url}/apis/g/v1/things?watch=true")
        assert health.problems() == ("API server forbids watch things",)
    assert [record.message.split(";")[0] for record in caplog.records if record.levelname == "ERROR"] == [
        "API server denies access"
    ]
    await get(client, f"{server.url}/apis/g/v1/things?watch=true")
    assert health.problems() == ()


async def test_rejected_credentials_are_said_in_the_words_of_all_requests(
    server: Server, client: Client, health: ApiHealth, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [(401, {}), (401, {}), (200, {})]
    for _ in range(2):
        await get(client, f"{server.url}/apis/g/v1/things?watch=true")
        assert health.problems() == (rejected.problem(health.server),)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [rejected.EVENT]
    await get(client, f"{server.url}/apis/g/v1/things?watch=true")
    assert health.problems() == ()


@pytest.mark.parametrize(("status", "kind"), [(401, Unauthorized), (403, Forbidden)])
async def test_what_is_reported_is_the_error_of_our_own_watches(
    status: int,
    kind: type[ApiError],
    server: Server,
    client: Client,
    health: ApiHealth,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[ApiError] = []
    monkeypatch.setattr(health, "failed", reported.append)
    server.answers = [(status, {})]
    await get(client, f"{server.url}/apis/g/v1/things?watch=true")
    (found,) = reported
    assert type(found) is kind
    assert (found.verb, found.what, found.problem, found.status) == ("watch", "things", f"HTTP {status}", status)


async def test_what_is_no_watch_is_not_reported(server: Server, client: Client, health: ApiHealth) -> None:
    server.answers = [(403, {})]
    await get(client, f"{server.url}/apis/g/v1/things")
    assert health.problems() == ()


@pytest.mark.parametrize(
    ("path", "status", "body", "is_taken"),
    [
        ("/apis", 200, {"groups": []}, True),
        ("/apis", 200, {}, False),
        ("/api", 200, {"versions": ["v1"]}, True),
        ("/api", 200, {"kind": "Status"}, False),
        ("/api", 410, {"kind": "Status", "versions": ["v1"]}, False),
        ("/api", 404, {"kind": "Status"}, False),
        ("/apis/g/v1", 200, {"kind": "APIResourceList"}, True),
        ("/apis/g/v1", 200, [], False),
        ("/apis/g/v1", 404, {}, True),
        ("/apis/g/v1", 503, {}, True),
        ("/apis/g/v1", 500, {}, True),
    ],
)
async def test_an_answer_that_is_not_an_api_servers_is_a_broken_connection(
    server: Server,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    path: str,
    status: int,
    body: object,
    is_taken: bool,
) -> None:
    server.answers = [(status, body), (status, body), (200, {"groups": [], "versions": [], "kind": "x"})]
    async with client.lend_session() as lent:
        for _ in range(2):
            with contextlib.nullcontext() if is_taken else pytest.raises(aiohttp.ClientConnectionError):
                async with lent.get(f"{server.url}{path}") as response:
                    assert response.status == status
        async with lent.get(f"{server.url}{path}") as response:
            assert await response.json()
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert said == ([] if is_taken else ["API server's answer cannot be used; retrying"])


@pytest.mark.parametrize("depth", [400, 1_100, 10_000])
async def test_a_library_gets_nothing_that_is_too_deep_for_it(server: Server, client: Client, depth: int) -> None:
    """It decodes with json.loads, and copies and compares what it has: Python's own ways, which recurse."""
    deep = f'{{"kind":"Things","metadata":{{"name":"x"}},"spec":{nested(depth)}}}'
    server.answers = [(200, deep.encode()), (200, f"{deep}\n{deep}\n".encode())]
    async with client.lend_session() as lent:
        async with lent.get(f"{server.url}/apis/g/v1/things") as response:
            found = [await response.json()]
        async with lent.get(f"{server.url}/apis/g/v1/things?watch=true") as response:
            lines = b"".join([chunk async for chunk in response.content.iter_chunked(1024)])
    found += [json.loads(line) for line in lines.splitlines()]
    assert len(found) == 3
    for each in found:
        assert each["metadata"] == {"name": "x"}
        assert copy.deepcopy(each) == each
        assert json.loads(json.dumps(each)) == each


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b"[" * 20_000])
async def test_an_error_that_is_no_json_is_the_error_that_a_library_knows(
    server: Server, client: Client, body: bytes
) -> None:
    server.answers = [(503, body)]
    async with client.lend_session() as lent, lent.get(f"{server.url}/apis") as response:
        with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)) as found:
            await response.json()
    # the place is not known, only what is wrong
    assert isinstance(found.value, UnicodeDecodeError) or str(found.value).endswith(": line 1 column 1 (char 0)")


class TestLentSession:
    """What a library gets: our connections, a token for each request, and no refusal on which it would give up."""

    async def test_it_carries_the_current_token_and_can_be_closed(
        self, server: Server, client: Client, tmp_path: Path
    ) -> None:
        server.answers = [(200, {}), (200, {"groups": []}), (200, {})]
        await client.request("GET", "nodes", "/x")
        async with client.lend_session() as lent, lent.get(f"{server.url}/apis") as response:
            assert response.status == 200
        await client.request("GET", "nodes", "/y")
        for _, _, headers, _ in server.asked:
            assert (headers["Authorization"], headers["User-Agent"]) == ("Bearer first", "nodedevice-operator")
            assert headers["Accept-Encoding"] == "identity"

    async def test_no_cookie_is_kept(self, server: Server, client: Client) -> None:
        """A load balancer's would bind a session to one API server."""
        async with client.lend_session() as lent:
            for session in (lent, client._session):
                assert isinstance(session.cookie_jar, aiohttp.DummyCookieJar)

    @pytest.mark.parametrize("status", [401, 403])
    async def test_a_refusal_is_like_a_broken_connection(self, server: Server, client: Client, status: int) -> None:
        server.answers = [(status, {})]
        async with client.lend_session() as lent:
            with pytest.raises(aiohttp.ClientConnectionError, match=f"HTTP {status}"):
                await lent.get(f"{server.url}/apis")
