"""The largest readings of a kubelet: as many pods as it may be set to run, and as many devices as a NodeDevice names.

What it answers is decoded in a thread where it is long; what is given to the subscribers of the reader is measured.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, cast

from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.devicemanager.pods import ClaimUse, Container, Pod, PodClaims
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.dra.holders import Holders, Wanted
from nodedevice_agent.dra.holdings import Claim, Result
from nodedevice_agent.kubelet.attribution_feed import AttributionFeed
from nodedevice_agent.kubelet.codec import MAX_CLAIM_ROWS
from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.kubelet.observer import Observer
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.readings import ClaimRow, PodReading
from nodedevice_agent.kubelet.served import KubeletResources

from tests.fakes.settled import attributing, host_of
from tests.largest.node import NAME, beat

PODS: Final = 256
DEVICES: Final = 4096
DRIVER: Final = "gpu.example.com"
# what a claim may have, by the API
OF_CLAIM: Final = 32
CAPACITIES: Final = 32


async def devices_given_out_by_the_kubelet(folder: Path) -> AsyncIterator[None]:
    """All are held; then by other pods, and then by none."""
    mirror = attributing(0.0)
    mirror.connected(NAME, 1, PluginOptions(), 0.0)
    mirror.listed(NAME, 1, accept(Device(f"d{number:04}") for number in range(DEVICES)), 0.0)
    host = cast(PluginHost, host_of(mirror))
    served = KubeletResources(0.0)
    directory = KubeletDirectory(folder)
    pods = [Pod(f"uid-{number}", "n", f"p{number}", (Container("c", limits={NAME: 16}),)) for number in range(PODS)]
    mirror.pod_events.synced(pods, 0.0)
    served.pods_synced(pods, 0.0)
    served.settle(0.0)
    reader = KubeletReader(directory, served.pods)
    subscribers = (
        AttributionFeed(directory, host, lambda: None),
        Observer(reader, served, lambda name: None, cast(Any, None)),
    )
    readings = [_held(0), _held(1), PodReading(Checkpoint(), (), is_listed=True, devices={})]
    yield
    for reading in readings:
        for subscriber in subscribers:
            await beat()
            subscriber.pods_read(reading)
    assert not served.manager.book.by_pod


def _held(moved: int) -> PodReading:
    count = DEVICES // PODS
    ids = [tuple(f"d{(number + moved) % PODS * count + index:04}" for index in range(count)) for number in range(PODS)]
    rows = tuple(PodResourcesRow("n", f"p{number}", "c", NAME, ids[number]) for number in range(PODS))
    held = tuple(Allocation(f"uid-{number}", "c", NAME, {-1: ids[number]}, b"") for number in range(PODS))
    healthy = {f"d{number:04}": () for number in range(DEVICES)}
    return PodReading(Checkpoint(held, {NAME: tuple(healthy)}), rows, is_listed=True, devices={NAME: healthy})


# -- claims -------------------------------------------------------------------------------------------------------------------


class _Claims:
    """All were read, and each device has as many capacities as it may."""

    def __init__(self) -> None:
        self.on_read: Callable[[], None] = lambda: None
        capacities = tuple((f"{'c' * 90}{number:06}", "1Gi") for number in range(CAPACITIES))
        self._claims = {
            f"claim-{number}": Claim(
                f"uid-{number}",
                tuple(Result("r", DRIVER, "n", f"d{index}", consumed=capacities) for index in range(OF_CLAIM)),
            )
            for number in range(MAX_CLAIM_ROWS // OF_CLAIM)
        }

    def wanted(self, claims: Wanted) -> None:
        pass

    def of(self, namespace: str, name: str, pod_uid: str) -> Claim | None:
        return self._claims.get(name)

    def is_awaited(self, namespace: str, name: str, pod_uid: str) -> bool:
        return False


async def devices_of_claims(folder: Path) -> AsyncIterator[None]:
    """As many as are taken, each pod with a claim of as many devices as it may have; then one pod ends, and then all have."""
    count = MAX_CLAIM_ROWS // OF_CLAIM
    pods = [
        Pod(f"uid-{n}", "n", f"p{n}", (Container("c"),), claims=PodClaims((ClaimUse("c", f"claim-{n}"),), True))
        for n in range(count)
    ]
    rows = tuple(
        ClaimRow("n", f"p{n}", "c", f"claim-{n}", DRIVER, "n", f"d{index}", cdi_ids=(f"x.com/c={n}-{index}",))
        for n in range(count)
        for index in range(OF_CLAIM)
    )
    holders = Holders(cast(Any, _Claims()), lambda: None)
    showing = asyncio.create_task(holders.run())
    yield
    await beat()
    holders.pods_synced(pods)
    await beat()
    holders.pods_read(PodReading(None, (), is_listed=True, claim_rows=rows))
    while len(holders.of((DRIVER, "n")).allocations) < count:
        await asyncio.sleep(0)
    await beat()
    holders.pod_gone("uid-0")
    await beat()
    holders.pods_read(PodReading(None, (), is_listed=True))
    assert not holders.pools()
    showing.cancel()
