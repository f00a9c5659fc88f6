"""What kopf tells us of Nodes: into the cache, to whom it matters, and when a watch began anew."""

from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from nodedevice_operator.edges.cache import Cache
from nodedevice_operator.edges.credentials import Credentials
from nodedevice_operator.edges.health import ApiHealth
from nodedevice_operator.edges.intake import Intake
from nodedevice_operator.edges.kopf_settings import tuned
from nodedevice_operator.edges.sync import Sync
from nodedevice_operator.edges.watch import Watch
from nodedevice_operator.errors import CredentialsError
from yarl import URL

from tests.fakes.cluster_model import ClusterModel

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
        intake = Intake(self.cache, self.touched.append, lambda before, now: None)
        self.watch = Watch(self.sync, intake, self.credentials, self.health)

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
    await heard.watch._on_node({"type": "ADDED", "object": {"metadata": metadata}})  # type: ignore[typeddict-item]
    beat = {"metadata": {**metadata, "resourceVersion": "2"}, "status": {"capacity": {"cpu": "3"}}}
    await heard.watch._on_node({"type": "MODIFIED", "object": beat})  # type: ignore[typeddict-item]
    assert heard.touched == ["node-a"]
    await heard.watch._on_node({"type": "DELETED", "object": beat})  # type: ignore[typeddict-item]
    assert heard.touched == ["node-a", "node-a"]
    assert heard.cache.nodes.values() == []


@pytest.mark.parametrize("body", [{}, {"metadata": {"name": 3}}, {"metadata": {"name": "a"}, "status": []}])
async def test_a_node_that_is_not_understood_is_left_alone(
    heard: Heard, body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    await heard.watch._on_node({"type": "ADDED", "object": body})  # type: ignore[typeddict-item]
    assert heard.touched == []
    assert [record.message for record in caplog.records] == ["object is not understood, and left alone"]


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
