"""What the kubelet's pod resources say of the node's pods, kept up to date with as few questions as possible.

All pods by List, from time to time; those that changed since by Get, which leaves out the same containers, and unlike List frees
nothing in the kubelet. Claims are in no checkpoint: a pod that has some is asked for once it has a sandbox, before which they are
prepared, and once it has ended, until the kubelet does not show them any more. Get is served since 1.34, for good since 1.36. A
kubelet before refuses it with the status of a pod that is not there, or does not know it.
Source: kubelet pkg/kubelet/apis/podresources server_v1.go and pkg/features @ 1.37.
"""

import logging
import math
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from nodedevice_agent.devicemanager.attribution.attribute import PodName, PodResourcesRow, changed_pods
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.kubelet.pod_resources import PodResources, PodResourcesRefused
from nodedevice_agent.kubelet.readings import ClaimRow, HeldByPod, RowsByPod
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity

log = logging.getLogger(__name__)

# more are listed with all others: the kubelet answers ten calls at once, to everybody together
_MOST_BY_GET: Final = 4
_NOTHING: Final = HeldByPod()
# A kubelet that has just started does not know its pods yet, and lists none; then it is believed.
DOUBTED_SECONDS: Final = 60.0


class PodRows:
    """read() after each change of the kubelet's checkpoint or of a pod.

    listed_at: when all pods were listed last. calls: how many were made so far.
    """

    def __init__(self, socket: Path, files: FileReads) -> None:
        self.listed_at = -math.inf
        self.calls = 0
        self._socket = socket
        self._files = files
        self._rows: RowsByPod = {}
        # the checkpoint's entries, and the API's pods, to which they belong; None: next time all are listed
        self._entries: tuple[Allocation, ...] | None = None
        self._pods: Mapping[str, Pod] | None = None
        # the entries whose IDs the next rows share
        self._newest: tuple[Allocation, ...] = ()
        # the API's pods as they are now, and whose pods the rows are, by name
        self._present: Mapping[str, Pod] = {}
        self._uids: dict[PodName, str] = {}
        # pods that the kubelet lists without their claims, and since when
        self._doubted: dict[PodName, float] = {}
        # of a kubelet that does not answer for single pods
        self._without_get: FileIdentity | None = None

    @property
    def rows(self) -> tuple[PodResourcesRow, ...]:
        return tuple(chain.from_iterable(held.rows for held in self._rows.values()))

    @property
    def claim_rows(self) -> tuple[ClaimRow, ...]:
        return tuple(chain.from_iterable(held.claim_rows for held in self._rows.values()))

    async def read(
        self, kubelet: PodResources, entries: Iterable[Allocation] | None, pods: Mapping[str, Pod], now: float
    ) -> None:
        """Those that may have changed, or all. entries: of the checkpoint, None where it cannot be used. pods: the API's unfinished
        ones, by UID. Raises PodResourcesUnavailable; then the next time all are listed.
        """
        known, self._pods = self._pods, None
        # what ends meanwhile is missing the next time
        present, entries = dict(pods), None if entries is None else tuple(entries)
        self._present, self._newest = present, entries or ()
        ended = [pod for uid, pod in (known or {}).items() if uid not in present]
        asked = None if known is None else await self._to_ask(entries, known, ended, present)
        if asked is None:
            await self.list(kubelet, now)
        elif (refused := await self._get(kubelet, asked, ended, present)) is not None:
            await self._list_refused(kubelet, now, asked, refused)
        self._entries, self._pods = entries, present
        self._uids = {(pod.namespace, pod.name): uid for uid, pod in present.items()}

    async def list(self, kubelet: PodResources, now: float) -> Collection[PodName]:
        """The names of those that have devices by this answer. Raises PodResourcesUnavailable."""
        self.calls += 1
        listed = await kubelet.list_pods(self._newest)
        self.listed_at = now
        self._rows = listed | self._still_held(listed, now)
        return listed.keys()

    def forget(self) -> None:
        """The next time all are listed."""
        self._pods = None

    def _still_held(self, rows: RowsByPod, now: float) -> RowsByPod:
        """Claims of pods that the kubelet has not listed, although they have a sandbox as they had before."""
        found: dict[PodName, HeldByPod] = {}
        for uid, pod in self._present.items():
            name = pod.namespace, pod.name
            is_same = self._uids.get(name) == uid and pod.claims is not None and pod.claims.are_prepared
            held, listed = self._rows.get(name, _NOTHING), rows.get(name, _NOTHING)
            if is_same and held.claim_rows and not listed.claim_rows:
                found[name] = HeldByPod(listed.rows, held.claim_rows)
        self._doubted = {name: self._doubted.get(name, now) for name in found}
        return {name: held for name, held in found.items() if now - self._doubted[name] < DOUBTED_SECONDS}

    # -- internals --------------------------------------------------------------------------------------------------------

    async def _to_ask(
        self,
        entries: tuple[Allocation, ...] | None,
        known: Mapping[str, Pod],
        ended: Collection[Pod],
        pods: Mapping[str, Pod],
    ) -> frozenset[PodName] | None:
        """Pods of which the rows may be others. None: all. known: the pods of the last time."""
        if entries is None or self._entries is None:
            return None
        changed = changed_pods(self._entries, entries, pods)
        # the end of a mirror pod is not that of its static pod
        if changed is None or any(pod.config_hash for pod in ended):
            return None
        names, gone = _names(pods.values()), _names(ended)
        over = self._rows.keys() - names
        if any(self._rows[name].rows for name in over - gone):
            # the end of one that the API does not have shows in a list alone
            return None
        # one of the same name may have come since
        asked = changed | (names & gone) | self._changed_hands(known, pods)
        asked |= _names(pod for uid, pod in pods.items() if is_prepared_since(known.get(uid), pod))
        if len(asked) > _MOST_BY_GET:
            return None
        if asked and self._without_get is not None and self._without_get == await self._served_socket():
            return None
        return asked

    def _changed_hands(self, known: Mapping[str, Pod], pods: Mapping[str, Pod]) -> frozenset[PodName]:
        """Names with claims whose pod has ended, or is another one than the last time."""
        then, now = ({(pod.namespace, pod.name): uid for uid, pod in some.items()} for some in (known, pods))
        claiming = (name for name, held in self._rows.items() if held.claim_rows)
        return frozenset(name for name in claiming if name not in now or now[name] != then.get(name))

    async def _get(
        self, kubelet: PodResources, asked: Iterable[PodName], ended: Iterable[Pod], pods: Mapping[str, Pod]
    ) -> PodResourcesRefused | None:
        """How the kubelet refuses to say, if it does."""
        found, names = RowsByPod(), _names(pods.values())
        for name in sorted(asked):
            self.calls += 1
            try:
                held = await kubelet.get_pod(*name)
            except PodResourcesRefused as exc:
                if name in names:
                    return exc
                # nor does the API have it
                continue
            # what the device manager gave to a pod that has ended is free, whatever the kubelet remembers of it
            found[name] = held if name in names else HeldByPod((), held.claim_rows)
        replaced = {*_names(ended), *asked}
        kept = {name: held for name, held in self._rows.items() if name not in replaced}
        self._rows = kept | {name: held for name, held in found.items() if held != _NOTHING}
        return None

    async def _list_refused(
        self, kubelet: PodResources, now: float, asked: Collection[PodName], refused: PodResourcesRefused
    ) -> None:
        """If List has one of those that Get did not answer for, it is Get that is missing, and not the pod."""
        listed = await self.list(kubelet, now)
        if not {*listed}.isdisjoint(asked):
            self._without_get = await self._served_socket()
            message = "the kubelet does not answer for single pods; all are listed at each change"
            log.info(message, extra={"socket": str(self._socket), "error": str(refused)})

    async def _served_socket(self) -> FileIdentity | None:
        try:
            return await self._files.run(partial(file_identity, self._socket))
        except OSError:
            # no thread can be started: then all are listed
            return self._without_get


def _names(pods: Iterable[Pod]) -> frozenset[PodName]:
    return frozenset((pod.namespace, pod.name) for pod in pods)


def is_prepared_since(before: Pod | None, pod: Pod) -> bool:
    """Whether it has claims, and may have got their devices since then."""
    if pod.claims is None or not pod.claims.are_prepared:
        return False
    return before is None or before.claims is None or before.claims.stage != pod.claims.stage
