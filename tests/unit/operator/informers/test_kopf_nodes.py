"""What kopf tells us of Nodes: into the cache, to whom it matters, and when a watch began anew."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from nodedevice_operator.errors import CredentialsError
from nodedevice_operator.informers.intake import Intake
from nodedevice_operator.informers.kopf_nodes import Watch
from nodedevice_operator.informers.kopf_settings import tuned
from nodedevice_operator.informers.relist import Sync
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.health import ApiHealth
from yarl import URL

from tests.fakes.operator.cluster_model import ClusterModel

NODES = "https://api/api/v1/nodes"


class _Credentials(Credentials):
    server = "https://api"

    def __init__(self) -> None:
        self.problem = ""

    def authorization(self) -> str:
        if self.problem:
            raise CredentialsError(self.problem)
        return "Bearer fresh"


class _Sync(Sync):
    def __init__(self) -> None:
        super().__init__(Cache(), ClusterModel(), lambda _: None)
        self.began: list[str] = []

    def begun(self, kind: str) -> None:
        self.began.append(kind)


@dataclass
class _Request:
    url: URL
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class _Response:
    status: int


class Heard:
    """A Watch, and what it made of what it was told."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.sync = _Sync()
        self.health = ApiHealth("https://api")
        self.credentials = _Credentials()
        self.touched: list[str] = []
        self.cache.nodes.on_update(lambda node, _, __: self.touched.append(node))
        intake = Intake(self.cache)
        self.watch = Watch(self.sync, intake, self.credentials, self.health)

    async def tells(self, kind: str | None, body: dict[str, Any]) -> None:
        """Have kopf hand over an event."""
        event: Any = {"type": kind, "object": body}
        await self.watch._on_node(event)

    async def asks(self, url: str, answer: int | Exception = 200) -> _Request:
        """Have kopf make a request that gets this answer."""
        request: Any = _Request(URL(url))

        async def handler(_: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return _Response(answer)

        await self.watch._observe(request, handler)
        return _Request(request.url, request.headers)


@pytest.fixture
async def heard() -> Heard:
    return Heard()


async def test_a_list_is_asked_for_only_after_kopf_listed_and_its_watch_is_open(heard: Heard) -> None:
    await heard.asks(f"{NODES}?limit=500")
    await heard.asks(f"{NODES}?limit=500&continue=x")
    assert heard.sync.began == []
    await heard.asks(f"{NODES}?watch=true&resourceVersion=5", 503)
    assert heard.sync.began == []
    await heard.asks(f"{NODES}?watch=true&resourceVersion=5")
    await heard.asks(f"{NODES}?watch=true&resourceVersion=9")
    assert heard.sync.began == ["nodes"]
    await heard.asks(f"{NODES}?limit=500")
    await heard.asks(f"{NODES}?watch=true&resourceVersion=12")
    assert heard.sync.began == ["nodes", "nodes"]


async def test_every_request_has_a_fresh_token_and_its_failure_is_known(heard: Heard) -> None:
    assert (await heard.asks(NODES)).headers == {"Authorization": "Bearer fresh"}
    await heard.asks(NODES, 403)
    assert heard.health.problems() == ("API server forbids list nodes",)
    with pytest.raises(aiohttp.ClientConnectionError):
        await heard.asks(f"{NODES}?watch=true", aiohttp.ClientConnectionError("refused"))
    assert heard.health.problems()[0].endswith("does not answer: refused")
    await heard.asks(NODES)
    assert heard.health.problems() == ()
    await heard.asks(NODES, 503)
    assert heard.health.problems()
    heard.credentials.problem = "no token"
    with pytest.raises(aiohttp.ClientConnectionError, match="no token"):
        await heard.asks(NODES)


async def test_a_node_is_told_of_when_what_matters_of_it_changed(heard: Heard) -> None:
    metadata = {"name": "node-a", "uid": "u", "resourceVersion": "1"}
    await heard.tells("ADDED", {"metadata": metadata})
    beat = {"metadata": {**metadata, "resourceVersion": "2"}, "status": {"capacity": {"cpu": "3"}}}
    await heard.tells("MODIFIED", beat)
    assert heard.touched == ["node-a"]
    await heard.tells("DELETED", beat)
    assert heard.touched == ["node-a", "node-a"]
    assert heard.cache.nodes.values() == []


ODD = [
    pytest.param({"metadata": {"name": "node-a"}, "status": []}, id="no status"),
    pytest.param({"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "x"}}, id="no version"),
]


@pytest.mark.parametrize("body", [{}, {"metadata": {"name": 3}}, {"metadata": [], "status": {}}])
async def test_a_node_without_a_name_is_left_alone(
    heard: Heard, body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    await heard.tells("ADDED", body)
    await heard.tells("DELETED", body)
    assert heard.touched == []
    assert [record.message for record in caplog.records] == ["cannot decode object; skipping it"] * 2


@pytest.mark.parametrize("body", ODD)
async def test_a_node_that_is_not_understood_is_told_once_until_it_is(
    heard: Heard, body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    plain = {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "1"}}
    await heard.tells("ADDED", plain)
    for _ in range(3):
        await heard.tells("MODIFIED", body)
    assert heard.cache.nodes.get("node-a") is not None
    assert heard.cache.nodes.is_left_alone("node-a")
    assert heard.touched == ["node-a"]
    assert [record.message for record in caplog.records] == ["cannot decode object; skipping it"]
    await heard.tells("MODIFIED", {"metadata": {**plain["metadata"], "resourceVersion": "2"}})
    assert not heard.cache.nodes.is_left_alone("node-a")
    assert heard.touched == ["node-a", "node-a"]


async def test_the_end_of_a_node_needs_no_more_than_its_name(heard: Heard) -> None:
    await heard.tells("ADDED", {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "1"}})
    await heard.tells("DELETED", {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "x"}, "status": []})
    assert heard.cache.nodes.values() == []
    assert heard.touched == ["node-a", "node-a"]


class Kopf:
    """What stands in for kopf: each run does what the next entry says, and is over after the last."""

    def __init__(self, *runs: Callable[[], Awaitable[None]]) -> None:
        self.runs = list(runs)

    async def operator(self, **_: Any) -> None:
        if self.runs:
            await self.runs.pop(0)()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it was waited for, each time; and nothing is waited for."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(random, "uniform", lambda low, high: (low + high) / 2)
    return pauses


class TestBeginsAnew:
    """When kopf ends by itself, as it does for most of what a watch can say."""

    async def test_never_later_than_a_second_and_soon_after_a_watch_that_brought_something(
        self, heard: Heard, slept: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def fails() -> None:
            await heard.asks(f"{NODES}?limit=100")
            await heard.tells(None, {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "1"}})
            raise RuntimeError("Error in the watch-stream: etcd is away")

        async def brings() -> None:
            await heard.tells("MODIFIED", {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "2"}})
            raise RuntimeError("once more")

        monkeypatch.setattr("kopf.operator", Kopf(*[fails] * 8, brings, fails).operator)
        await heard.watch.work()
        assert slept == [0.25, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.25, 0.5]
        told = [record for record in caplog.records if record.levelname == "WARNING"]
        assert [record.__dict__["problem"] for record in told] == [
            "RuntimeError: Error in the watch-stream: etcd is away",
            "RuntimeError: once more",
        ]

    async def test_with_a_pause_of_ours_where_kopf_goes_on_by_itself(
        self, heard: Heard, slept: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def is_gone_again_and_again() -> None:
            for _ in range(4):
                await heard.asks(f"{NODES}?limit=100", 503)
                await heard.asks(f"{NODES}?limit=100")
                await heard.asks(f"{NODES}?limit=100&continue=x")
                await heard.asks(f"{NODES}?watch=true&resourceVersion=5")
                await heard.asks(f"{NODES}?watch=true&resourceVersion=5")

        monkeypatch.setattr("kopf.operator", Kopf(is_gone_again_and_again).operator)
        await heard.watch.work()
        assert slept == [0.25, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0]

    async def test_without_one_after_a_watch_that_brought_something(
        self, heard: Heard, slept: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def is_gone_again_and_again() -> None:
            for version in range(1, 4):
                await heard.asks(f"{NODES}?limit=100")
                await heard.asks(f"{NODES}?watch=true&resourceVersion=5")
                metadata = {"name": "node-a", "uid": "u", "resourceVersion": str(version)}
                await heard.tells("MODIFIED", {"metadata": metadata})

        monkeypatch.setattr("kopf.operator", Kopf(is_gone_again_and_again).operator)
        await heard.watch.work()
        assert slept == []


async def test_kopf_is_set_not_to_write(heard: Heard) -> None:
    settings = tuned()
    assert not settings.posting.enabled
    body: Any = {"spec": {"a": 1}}
    assert settings.persistence.diffbase_storage.build(body=body) == {}
    assert settings.persistence.diffbase_storage.fetch(body=body) is None
    registry = heard.watch._registry()
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()
    assert not registry._indexing.get_all_handlers()
