"""Tracks the holders of DRA devices on this node, from the kubelet's pod resources, the API's pods and their claims.

A pod with claims is read again from the kubelet when it gets a sandbox, and when it has ended.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from nodedevice_common.log_once import LogOnce

from nodedevice_agent.devicemanager.attribution.attribute import PodName
from nodedevice_agent.devicemanager.pods import ContainerKind, Pod
from nodedevice_agent.dra.devices import PoolKey
from nodedevice_agent.dra.holdings import NO_HOLDINGS, DeviceKey, Held, PoolHoldings, device_key, held_by, holdings
from nodedevice_agent.dra.names import is_observed
from nodedevice_agent.dra.served import PoolHolders
from nodedevice_agent.kubelet.codec import MAX_CLAIM_ROWS, MAX_CLAIM_ROWS_OF_POD
from nodedevice_agent.kubelet.pod_rows import is_prepared_since
from nodedevice_agent.kubelet.readings import ClaimRow, PodReading, Subscriber

if TYPE_CHECKING:
    from nodedevice_agent.dra.claims import ClaimReader

log = logging.getLogger(__name__)

# Devices of claims, up to 25 microseconds each: the most in one turn of the event loop, and the size of a step if there are more.
_SHOWN_AT_ONCE: Final = 512
_A_STEP: Final = 128

# namespace and name of a claim
ClaimName = tuple[str, str]
# by claim: the UIDs of its pods, and the devices that the kubelet shows
Wanted = Mapping[ClaimName, tuple[frozenset[str], frozenset[DeviceKey]]]


class Holders(Subscriber, PoolHolders):
    """run() until cancelled: it shows changes too large for one turn of the event loop.

    wake: makes the reader ask now. on_known: called once the holders are known. on_changed: with each pool if of() changed.
    """

    def __init__(self, claims: "ClaimReader", wake: Callable[[], None]) -> None:
        self.is_outdated = True
        self.on_known: Callable[[], None] = lambda: None
        self.on_changed: Callable[[PoolKey], None] = lambda key: None
        self._claims = claims
        self._wake = wake
        self._problems = LogOnce(log)
        # None before the first response, and before the first list of pods
        self._rows: tuple[ClaimRow, ...] | None = None
        self._shown: frozenset[PodName] = frozenset()
        self._pods: dict[str, Pod] | None = None
        # ended pods that the kubelet still shows
        self._ended: dict[str, Pod] = {}
        self._held: dict[PoolKey, PoolHoldings] = {}
        # whether the kubelet and the API server have responded since the start, and each claim was tried
        self.is_known = False
        # holders and devices, without data of the claims
        self._owned: Sequence[Held] = ()
        self._is_much_to_show = asyncio.Event()
        claims.on_read = self._show

    def pools(self) -> frozenset[PoolKey]:
        return frozenset(self._held)

    def of(self, key: PoolKey) -> PoolHoldings:
        return self._held.get(key, NO_HOLDINGS)

    def pods_synced(self, pods: Iterable[Pod]) -> None:
        found = {pod.uid: pod for pod in pods}
        before = self._pods or {}
        gone = [pod for uid, pod in {**before, **self._ended}.items() if uid not in found]
        self._pods = {uid: pod for uid, pod in found.items() if not pod.has_ended}
        self._end(*gone, *(pod for pod in found.values() if pod.has_ended))
        self._outdate(any(is_prepared_since(before.get(uid), pod) for uid, pod in self._pods.items()))
        self._decide()

    def pod_seen(self, pod: Pod) -> None:
        if self._pods is None:
            return
        before = self._pods.get(pod.uid)
        if pod.has_ended:
            self._pods.pop(pod.uid, None)
            self._end(pod)
        else:
            self._pods[pod.uid] = pod
            self._outdate(is_prepared_since(before, pod))
        if pod.has_ended or before is None or before.claims != pod.claims:
            self._decide_for(pod)

    def pod_gone(self, pod_uid: str) -> None:
        pod = (self._pods or {}).pop(pod_uid, None) or self._ended.get(pod_uid)
        if pod is not None:
            self._end(pod)
            self._decide_for(pod)

    def pods_read(self, found: PodReading) -> None:
        if found.rows is None:
            # the reader retries; the last rows stay
            return
        self._report(found)
        rows = tuple(row for row in found.claim_rows if is_observed((row.driver, row.pool)))
        if rows != self._rows:
            self._rows = rows
            self._shown = frozenset((row.namespace, row.name) for row in self._rows)
            self._decide()

    def _end(self, *pods: Pod) -> None:
        """Keep ended pods that may still have devices."""
        for pod in pods:
            is_shown = self._rows is None or (pod.namespace, pod.name) in self._shown
            if is_shown and pod.claims is not None:
                self._ended[pod.uid] = pod
                self._outdate(True)

    def _outdate(self, is_outdated: bool) -> None:
        if is_outdated:
            self.is_outdated = True
            self._wake()

    def _decide_for(self, pod: Pod) -> None:
        """Decide again if the pod has rows; only these depend on it."""
        if (pod.namespace, pod.name) in self._shown:
            self._decide()

    def _decide(self) -> None:
        if self._rows is None or self._pods is None:
            return
        pods: dict[PodName, list[Pod]] = {}
        for pod in (*self._pods.values(), *self._ended.values()):
            pods.setdefault((pod.namespace, pod.name), []).append(pod)
        held = self._owned = held_by(self._rows, pods)
        owners = {each.pod.uid for each in held}
        # a new pod of the same name may have its claims now
        self._ended = {uid: pod for uid, pod in self._ended.items() if uid in owners}
        self._claims.wanted(_wanted(held))
        self._show()

    def _show(self) -> None:
        if self._rows is None or self._pods is None:
            return
        if len(self._rows) > _SHOWN_AT_ONCE:
            self._is_much_to_show.set()
            return
        # the pass under way is outdated
        self._is_much_to_show.clear()
        for _ in self._showing():
            pass

    async def run(self) -> None:
        while True:
            await self._is_much_to_show.wait()
            self._is_much_to_show.clear()
            for count, _ in enumerate(self._showing()):
                if not count % _A_STEP:
                    await asyncio.sleep(0)

    def _showing(self) -> Iterator[None]:
        """Yields after each device. An outdated result is still shown if the next pass follows soon: changes cause no delay."""
        held = self._owned
        # these claims are read in a moment, and then shown at once
        awaited = self._claims.is_awaited
        settled = [each for each in held if not awaited(each.pod.namespace, each.claim, each.pod.uid)]
        found = yield from holdings(settled, self._claims.of, frozenset(self._ended))
        if held is not self._owned and not self._is_much_to_show.is_set():
            return
        before, self._held = self._held, found
        was_known, self.is_known = self.is_known, self.is_known or len(settled) == len(held)
        for key in sorted(before.keys() | self._held.keys()):
            if before.get(key) != self._held.get(key):
                self.on_changed(key)
        if self.is_known and not was_known:
            self.on_known()

    def _report(self, found: PodReading) -> None:
        """Once each."""
        count = len(found.claim_rows)
        of_pods = Counter((row.namespace, row.name) for row in found.claim_rows).values()
        is_cut = count >= MAX_CLAIM_ROWS or any(of_pod >= MAX_CLAIM_ROWS_OF_POD for of_pod in of_pods)
        message = "containers have more devices by claims than are shown"
        self._problems.report(message, "the rest is not shown" if is_cut else "", shown=count)
        if found.is_listed:
            has_some = any(map(_has_devices, (self._pods or {}).values()))
            message = "the kubelet does not show which devices containers have by claims; it does since Kubernetes 1.36"
            error = "pods on this node use claims, and pod resources show none" if has_some and not count else ""
            self._problems.report(message, error, logging.INFO)


def _wanted(found: Iterable[Held]) -> Wanted:
    uids: dict[ClaimName, set[str]] = {}
    devices: dict[ClaimName, set[DeviceKey]] = {}
    for held in found:
        name = held.pod.namespace, held.claim
        uids.setdefault(name, set()).add(held.pod.uid)
        devices.setdefault(name, set()).update(map(device_key, held.rows))
    return {name: (frozenset(uids[name]), frozenset(devices[name])) for name in uids}


def _has_devices(pod: Pod) -> bool:
    """Whether a container that the kubelet shows uses a claim, and has been started."""
    if pod.claims is None or not pod.claims.are_prepared:
        return False
    shown = {container.name for container in pod.containers if container.kind is not ContainerKind.INIT}
    return any(use.container in shown for use in pod.claims.uses)
