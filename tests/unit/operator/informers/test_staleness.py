"""When the process exits because a watch is stale, and when it does not."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from nodedevice_kube.api_errors import Unavailable, Unreachable
from nodedevice_operator.errors import StaleWatch
from nodedevice_operator.informers.staleness import Watchdog
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.lists import NODE_DEVICES, Cluster, Kind

from tests.fakes.operator.collaborators import Clock, running
from tests.fakes.operator.operator_model import node_device
from tests.fakes.virtual_time import virtual_time

pytestmark = virtual_time


@dataclass
class Listed(Cluster):
    """What the API server lists of NodeDevices: uid and version by key; nothing of the other kinds."""

    versions: dict[str | tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    is_understood: bool = True
    lists: int = 0

    async def list_versions(self, kind: Kind[Any]) -> AsyncIterator[dict[str | tuple[str, str], tuple[str, int]]]:
        self.lists += 1
        if kind is NODE_DEVICES:
            for key, value in self.versions.items():
                yield {key: value}

    async def find(self, kind: Kind[Any], namespace: str, name: str) -> frozenset[str]:
        if not self.is_understood:
            return frozenset()
        return frozenset(uid for key, (uid, _) in self.versions.items() if key == name)


@dataclass
class Guarded:
    """A cache, what there is, and a watchdog without patience."""

    cache: Cache = field(default_factory=Cache)
    cluster: Listed = field(default_factory=Listed)
    health: ApiHealth = field(default_factory=lambda: ApiHealth("https://api", Clock()))

    def __post_init__(self) -> None:
        self.watchdog = Watchdog(self.cache, self.cluster, self.health, 60.0, 0.0)

    def there_is(self, key: Hashable, uid: str, version: int) -> None:
        assert isinstance(key, str)
        self.cluster.versions[key] = (uid, version)


@pytest.fixture
def guarded() -> Guarded:
    made = Guarded()
    record = node_device(uid="uid-a", resource_version=5)
    made.cache.node_devices.put(record)
    made.there_is(record.name, "uid-a", 5)
    return made


RECORD = node_device(uid="uid-a", resource_version=5)


async def test_what_is_known_is_no_reason_however_long_nothing_happens(guarded: Guarded) -> None:
    for _ in range(3):
        await guarded.watchdog._check()
    guarded.there_is(RECORD.name, "uid-a", 4)
    await guarded.watchdog._check()


@pytest.mark.parametrize(
    ("name", "uid", "version"),
    [
        pytest.param(RECORD.name, "uid-a", 6, id="changed"),
        pytest.param(RECORD.name, "uid-b", 9, id="made again"),
        pytest.param("node-z.example.com.gpu", "uid-z", 7, id="new"),
    ],
)
async def test_what_was_not_brought_ends_the_process(guarded: Guarded, name: str, uid: str, version: int) -> None:
    guarded.there_is(name, uid, version)
    undelivered = rf"not delivered nodedevices {name} at resource version {version} .*; exiting for a restart$"
    with pytest.raises(StaleWatch, match=undelivered):
        await guarded.watchdog._check()


async def test_what_comes_in_time_is_no_reason(guarded: Guarded) -> None:
    guarded.there_is(RECORD.name, "uid-a", 6)
    found = await guarded.watchdog._undelivered(NODE_DEVICES)
    assert len(found) == 1
    guarded.cache.node_devices.put(replace(RECORD, resource_version=7))
    assert not guarded.watchdog._is_undelivered(found[0])


async def test_what_is_gone_is_no_reason(guarded: Guarded) -> None:
    guarded.there_is("node-z.example.com.gpu", "uid-z", 7)
    guarded.cache.node_devices.remove("node-z.example.com.gpu", "uid-z")
    await guarded.watchdog._check()


async def test_what_cannot_be_decoded_is_reported_elsewhere(guarded: Guarded) -> None:
    guarded.there_is("node-z.example.com.gpu", "uid-z", 7)
    guarded.cluster.is_understood = False
    await guarded.watchdog._check()


async def test_what_is_invalid_is_no_reason(guarded: Guarded) -> None:
    guarded.there_is(RECORD.name, "uid-a", 6)
    guarded.cache.node_devices.mark_invalid(RECORD.name)
    await guarded.watchdog._check()


async def test_an_outage_is_no_reason(guarded: Guarded) -> None:
    guarded.there_is(RECORD.name, "uid-a", 6)
    guarded.health.failed(Unreachable("watch", "nodedevices", "cut"))
    guarded.health.succeeded("watch", "nodedevices")
    await guarded.watchdog._check()


async def test_it_begins_with_the_lists_and_goes_on(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    working = guarded.watchdog.work()
    guarded.there_is(RECORD.name, "uid-a", 6)
    guarded.cache.synced.set()
    with pytest.raises(StaleWatch):
        await working

    async def refused(kind: Kind[Any]) -> AsyncIterator[dict[str | tuple[str, str], tuple[str, int]]]:
        guarded.cluster.lists += 1
        if guarded.cluster.lists < 10:
            raise Unavailable("get", kind.name, "later", 503)
        yield {RECORD.name: ("uid-a", 6)}

    guarded.cluster.lists = 0
    monkeypatch.setattr(guarded.cluster, "list_versions", refused)
    with pytest.raises(StaleWatch):
        await guarded.watchdog.work()
    assert guarded.cluster.lists >= 10


async def test_without_an_interval_it_never_polls(guarded: Guarded) -> None:
    watchdog = Watchdog(guarded.cache, guarded.cluster, guarded.health, 0)
    guarded.cache.synced.set()
    async with running(watchdog.work()):
        for _ in range(10):
            await asyncio.sleep(0)
        assert guarded.cluster.lists == 0
