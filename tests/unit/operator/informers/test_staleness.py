"""When the process exits because a watch is stale, and when it does not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
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
    """What the API server lists of NodeDevices: uid and version by key; nothing of the other kinds.

    is_understood: whether the objects can be decoded. refusals: so many lists are refused first.
    """

    versions: dict[str | tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    is_understood: bool = True
    refusals: int = 0
    lists: int = 0

    async def list_versions(self, kind: Kind[Any]) -> AsyncIterator[dict[str | tuple[str, str], tuple[str, int]]]:
        self.lists += 1
        if self.lists <= self.refusals:
            raise Unavailable("get", kind.name, "later", 503)
        if kind is NODE_DEVICES:
            for key, value in self.versions.items():
                yield {key: value}

    async def find(self, kind: Kind[Any], namespace: str, name: str) -> frozenset[str]:
        if not self.is_understood:
            return frozenset()
        return frozenset(uid for key, (uid, _) in self.versions.items() if key == name)


RECORD = node_device(uid="uid-a", resource_version=5)
NEW = "node-z.example.com.gpu"


class Guarded:
    """A cache, what there is, and a watchdog that compares them every minute."""

    def __init__(self) -> None:
        self.cache, self.cluster = Cache(), Listed()
        self.health = ApiHealth("https://api", Clock())
        self.watchdog = Watchdog(self.cache, self.cluster, self.health, 60.0, 10.0)
        self.cache.node_devices.put(RECORD)
        self.cache.synced.set()
        self.there_is(RECORD.name, "uid-a", 5)

    def there_is(self, key: str, uid: str, version: int) -> None:
        self.cluster.versions[key] = (uid, version)

    async def works(self, seconds: float = 300.0) -> None:
        """So long. Raises StaleWatch."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.watchdog.work()


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


@pytest.mark.parametrize(
    ("name", "uid", "version"),
    [
        pytest.param(RECORD.name, "uid-a", 6, id="changed"),
        pytest.param(RECORD.name, "uid-b", 9, id="made again"),
        pytest.param(NEW, "uid-z", 7, id="new"),
    ],
)
async def test_what_was_not_brought_ends_the_process(guarded: Guarded, name: str, uid: str, version: int) -> None:
    guarded.there_is(name, uid, version)
    undelivered = rf"not delivered nodedevices {name} at resource version {version} .*; exiting for a restart$"
    with pytest.raises(StaleWatch, match=undelivered):
        await guarded.works()


def nothing_happens(_: Guarded) -> None: ...


def the_list_is_older(guarded: Guarded) -> None:
    guarded.there_is(RECORD.name, "uid-a", 4)


def it_is_gone(guarded: Guarded) -> None:
    guarded.there_is(NEW, "uid-z", 7)
    guarded.cache.node_devices.remove(NEW, "uid-z")


def it_cannot_be_decoded(guarded: Guarded) -> None:
    guarded.there_is(NEW, "uid-z", 7)
    guarded.cluster.is_understood = False


def it_is_known_as_invalid(guarded: Guarded) -> None:
    guarded.there_is(RECORD.name, "uid-a", 6)
    guarded.cache.node_devices.mark_invalid(RECORD.name)


def there_was_an_outage(guarded: Guarded) -> None:
    guarded.there_is(RECORD.name, "uid-a", 6)
    guarded.health.failed(Unreachable("watch", "nodedevices", "cut"))
    guarded.health.succeeded("watch", "nodedevices")


@pytest.mark.parametrize(
    "scene",
    [nothing_happens, the_list_is_older, it_is_gone, it_cannot_be_decoded, it_is_known_as_invalid, there_was_an_outage],
)
async def test_what_is_no_reason(guarded: Guarded, scene: Callable[[Guarded], None]) -> None:
    scene(guarded)
    await guarded.works()
    assert guarded.cluster.lists > 3


async def test_what_comes_in_time_is_no_reason(guarded: Guarded) -> None:
    guarded.there_is(RECORD.name, "uid-a", 6)
    async with running(guarded.works()):
        await asyncio.sleep(65)
        guarded.cache.node_devices.put(replace(RECORD, resource_version=7))
        await asyncio.sleep(200)
    assert guarded.cluster.lists > 3


async def test_it_begins_with_the_lists_and_goes_on_after_refusals(guarded: Guarded) -> None:
    guarded.there_is(RECORD.name, "uid-a", 6)
    guarded.cluster.refusals = 3
    guarded.cache.synced.clear()
    await guarded.works()
    assert guarded.cluster.lists == 0
    guarded.cache.synced.set()
    with pytest.raises(StaleWatch):
        await guarded.works()
    guarded.watchdog.interval_seconds = 0
    await guarded.works()
