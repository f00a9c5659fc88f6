"""The largest input of DRA drivers: slices of this node, as many and as large as are taken."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from nodedevice_agent.dra.holdings import PoolHoldings
from nodedevice_agent.dra.observer import DriverObserver
from nodedevice_agent.dra.pools import MAX_SLICES_IN_ALL, MAX_SLICES_OF_DRIVER, MIN_SLICES_OF_DRIVER
from nodedevice_agent.dra.served import PoolHolders, ServedByDrivers
from nodedevice_agent.dra.slices import ResourceSliceObject
from nodedevice_agent.kube.informer import Watches
from nodedevice_api.nodedevice import AllocationStatus, ClaimStatus, NodeDeviceStatus
from nodedevice_common.decoding import decode

from tests.largest.node import beat

NODE: Final = "n"
DRIVER: Final = "gpu.example.com"
# what the API server takes
DEVICES: Final = 128
ATTRIBUTES: Final = 32
# of as many pods as a kubelet runs
PODS: Final = 110


class _Held(PoolHolders):
    """Each pod has as many devices as it may."""

    def __init__(self) -> None:
        self.rows = tuple(
            AllocationStatus(
                pod_uid=f"uid-{pod:03}",
                container="c",
                device_ids=[f"d{number % MAX_SLICES_OF_DRIVER}-{number % DEVICES}" for number in range(pod, pod + 32)],
                claim=ClaimStatus(name="c"),
            )
            for pod in range(PODS)
        )

    def of(self, key: tuple[str, str]) -> PoolHoldings:
        return PoolHoldings(self.rows) if key[0] == DRIVER else PoolHoldings()

    def pools(self) -> frozenset[tuple[str, str]]:
        return frozenset({(DRIVER, NODE)})


async def slices_of_drivers(folder: Path) -> AsyncIterator[None]:
    """A pool of as many slices as a driver may have, and others with a slice each; all at once, then each changes."""
    published: set[str] = set()
    served = ServedByDrivers(NODE, _Held(), lambda name: False, {})
    observer = DriverObserver(
        cast(Watches, SimpleNamespace(cluster=None)), NODE, served, published.add, folder / "dra-pools.json"
    )
    first, second = _all(1), _all(2)
    working = asyncio.create_task(observer._work())
    yield
    for objects in (first, second):
        await beat()
        observer.synced(objects, 1)
        while observer._waiting:
            await beat()
            await _shown(served, published)
        await beat()
        await _shown(served, published)
    assert {pool.count - pool.missing for pool in served.pools.values()} == {MAX_SLICES_OF_DRIVER, MIN_SLICES_OF_DRIVER}
    working.cancel()


async def _shown(served: ServedByDrivers, published: set[str]) -> None:
    while published:
        observed = NodeDeviceStatus(total=0)
        make = served.status_maker(published.pop(), observed, "2026-01-01T00:00:00Z", 0.0, is_watch_stale=False)
        await beat()
        if make is not None and not make.is_long:
            make.made()
            await beat()


def _all(version: int) -> list[ResourceSliceObject]:
    others = range((MAX_SLICES_IN_ALL - MAX_SLICES_OF_DRIVER) // MIN_SLICES_OF_DRIVER)
    return [
        *(_one(f"s{n}", DRIVER, n, MAX_SLICES_OF_DRIVER, version) for n in range(MAX_SLICES_OF_DRIVER)),
        *(
            _one(f"t{other}-{n}", f"d{other}.com", n, MIN_SLICES_OF_DRIVER, version)
            for other in others
            for n in range(MIN_SLICES_OF_DRIVER)
        ),
    ]


def _one(name: str, driver: str, number: int, count: int, version: int) -> ResourceSliceObject:
    attributes = {
        f"example.com/attribute-{n}": {"string": f"{version}-{number}-{n}".ljust(64)} for n in range(ATTRIBUTES)
    }
    taints = [{"key": "example.com/taint", "effect": "NoSchedule"}] if number % 2 else []
    devices = [{"name": f"d{number}-{n}", "attributes": attributes, "taints": taints} for n in range(DEVICES)]
    pool = {"name": NODE, "generation": version, "resourceSliceCount": count}
    whole: dict[str, Any] = {
        "metadata": {"name": name, "resourceVersion": str(version)},
        "spec": {"driver": driver, "nodeName": NODE, "pool": pool, "devices": devices},
    }
    return decode(json.dumps(whole), ResourceSliceObject)
