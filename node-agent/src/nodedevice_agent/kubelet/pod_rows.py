"""Keeps the rows of the kubelet's pod resources up to date with as few calls as possible.

List reads all pods, periodically. Get reads pods that have changed since; it omits the same containers and, unlike List, frees
nothing in the kubelet. The checkpoint has no claims. The kubelet prepares claims before it creates the sandbox, so a pod with
claims is read once it has a sandbox, and after its end until the kubelet no longer lists its claims. Kubelets serve Get by default
since 1.34, always since 1.36. One that does not serve it refuses it like a missing pod; all pods are listed then.
Source: kubelet pkg/kubelet/apis/podresources server_v1.go and pkg/features @ 1.37.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Final

from nodedevice_agent.devicemanager.attribution.attribute import PodName, PodResourcesRow, changed_pods
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.kubelet.pod_resources import PodResources, PodResourcesRefused
from nodedevice_agent.kubelet.readings import ClaimRow, HeldByPod, RowsByPod

# more pods are read by List: the kubelet serves ten calls at once for all clients
_MOST_BY_GET: Final = 4
_NOTHING: Final = HeldByPod()
# A kubelet that has just started knows no pods and lists none. After this time the agent accepts its list.
DOUBTED_SECONDS: Final = 60.0


class PodRows:
    """read() after each change of the checkpoint or of a pod. listed_at: time of the last List. calls: how many so far."""

    def __init__(self) -> None:
        self.listed_at = -math.inf
        self.calls = 0
        self._rows: RowsByPod = {}
        # the checkpoint's entries and the API's pods of the last complete reading
        self._entries: tuple[Allocation, ...] | None = None
        self._pods: Mapping[str, Pod] = {}
        self.is_list_due = True
        # the next rows share the device IDs of these entries
        self._newest: tuple[Allocation, ...] = ()
        self._present: Mapping[str, Pod] = {}
        # when the kubelet first listed a pod without its claims
        self._doubted: dict[PodName, float] = {}

    @property
    def rows(self) -> tuple[PodResourcesRow, ...]:
        return tuple(chain.from_iterable(held.rows for held in self._rows.values()))

    @property
    def claim_rows(self) -> tuple[ClaimRow, ...]:
        return tuple(chain.from_iterable(held.claim_rows for held in self._rows.values()))

    async def read(
        self, kubelet: PodResources, entries: Iterable[Allocation] | None, pods: Mapping[str, Pod], now: float
    ) -> None:
        """Read the rows that may have changed, or all. Raises PodResourcesUnavailable; the next call then lists all pods.

        entries: of the checkpoint, None if it cannot be used. pods: the API's unfinished pods, by UID.
        """
        is_list_due, self.is_list_due = self.is_list_due, True
        # the next reading misses pods that end during this one
        present, entries = dict(pods), None if entries is None else tuple(entries)
        self._present, self._newest = present, entries or ()
        ended = [pod for uid, pod in self._pods.items() if uid not in present]
        asked = None if is_list_due else self._to_ask(entries, ended)
        if asked is None or not await self._get(kubelet, asked, ended):
            await self.list(kubelet, now)
        self._entries, self._pods, self.is_list_due = entries, present, False

    async def list(self, kubelet: PodResources, now: float) -> None:
        """List all pods. Raises PodResourcesUnavailable."""
        self.calls += 1
        listed = await kubelet.list_pods(self._newest)
        self.listed_at = now
        self._rows = listed | self._still_held(listed, now)

    def _still_held(self, rows: RowsByPod, now: float) -> RowsByPod:
        """Return the claims that the kubelet no longer lists although their pods still have a sandbox."""
        found: dict[PodName, HeldByPod] = {}
        for uid, pod in self._present.items():
            name = pod.namespace, pod.name
            is_same = uid in self._pods and pod.claims is not None and pod.claims.are_prepared
            held, listed = self._rows.get(name, _NOTHING), rows.get(name, _NOTHING)
            if is_same and held.claim_rows and not listed.claim_rows:
                found[name] = HeldByPod(listed.rows, held.claim_rows)
        self._doubted = {name: self._doubted.get(name, now) for name in found}
        return {name: held for name, held in found.items() if now - self._doubted[name] < DOUBTED_SECONDS}

    def _to_ask(self, entries: tuple[Allocation, ...] | None, ended: Collection[Pod]) -> frozenset[PodName] | None:
        """Return the pods whose rows may have changed; None for all."""
        if entries is None or self._entries is None:
            return None
        changed = changed_pods(self._entries, entries, self._present)
        # a static pod may outlive its mirror pod
        if changed is None or any(pod.config_hash for pod in ended):
            return None
        names, gone = _names(self._present.values()), _names(ended)
        over = self._rows.keys() - names
        if any(self._rows[name].rows for name in over - gone):
            # only List shows the end of a pod that the API does not have
            return None
        # a new pod may have the name of an ended one
        asked = changed | (names & gone) | self._changed_hands()
        asked |= _names(pod for uid, pod in self._present.items() if is_prepared_since(self._pods.get(uid), pod))
        return asked if len(asked) <= _MOST_BY_GET else None

    def _changed_hands(self) -> frozenset[PodName]:
        """Return names with claims whose pod has ended or was replaced since the last reading."""
        readings = (self._pods, self._present)
        then, now = ({(pod.namespace, pod.name): uid for uid, pod in pods.items()} for pods in readings)
        claiming = (name for name, held in self._rows.items() if held.claim_rows)
        return frozenset(name for name in claiming if name not in now or now[name] != then.get(name))

    async def _get(self, kubelet: PodResources, asked: Iterable[PodName], ended: Iterable[Pod]) -> bool:
        """Read single pods; return whether the kubelet has responded for all that the API has."""
        found, names = RowsByPod(), _names(self._present.values())
        for name in sorted(asked):
            self.calls += 1
            try:
                held = await kubelet.get_pod(*name)
            except PodResourcesRefused:
                if name in names:
                    return False
                continue
            # the devices of an ended pod are free, even if the kubelet still lists them
            found[name] = held if name in names else HeldByPod((), held.claim_rows)
        replaced = {*_names(ended), *asked}
        kept = {name: held for name, held in self._rows.items() if name not in replaced}
        self._rows = kept | {name: held for name, held in found.items() if held != _NOTHING}
        return True


def _names(pods: Iterable[Pod]) -> frozenset[PodName]:
    return frozenset((pod.namespace, pod.name) for pod in pods)


def is_prepared_since(before: Pod | None, pod: Pod) -> bool:
    """Whether the pod has claims whose devices may have been prepared since `before`."""
    if pod.claims is None or not pod.claims.are_prepared:
        return False
    return before is None or before.claims is None or before.claims.stage != pod.claims.stage
