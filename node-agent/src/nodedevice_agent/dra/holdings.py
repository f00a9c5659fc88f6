"""Joins the kubelet's rows of DRA devices in containers with their pods and claims from the API. Pure.

Only the kubelet decides that a container has a device. It shows each container all devices of a claim: devices of requests that
the container does not name are left out once the claim was read. A claim belongs to the pod of that name in its namespace.
Source: kubelet pkg/kubelet/cm/dra GetResources, GetContainerClaimInfos, UpdateAllocatedResourcesStatus @ 1.37.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Final

from msgspec import Struct
from nodedevice_api.nodedevice import AllocationStatus, ClaimedDevice, ClaimStatus

from nodedevice_agent.devicemanager.attribution.attribute import PodName
from nodedevice_agent.devicemanager.pods import ClaimUse, Pod
from nodedevice_agent.dra.devices import PoolKey
from nodedevice_agent.kube.status import MAX_IDS
from nodedevice_agent.kubelet.readings import ClaimRow

# the CRD's bound for one claim and container
MAX_CLAIMED: Final = 64
_REPORTED: Final = "its driver reports it unhealthy, by allocatedResourcesStatus in the status of the pod that holds it"

# driver, pool, device and share
DeviceKey = tuple[str, str, str, str]


class Result(Struct, frozen=True, gc=False):
    """A device that was allocated for a claim. request: which of the claim's. consumed: quantities by name, sorted."""

    request: str
    driver: str
    pool: str
    device: str
    share_id: str = ""
    admin_access: bool = False
    consumed: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> DeviceKey:
        return self.driver, self.pool, self.device, self.share_id


class Claim(Struct, frozen=True, dict=True):
    """uid: "" if it is missing. Derived values are cached: each decision uses all claims of the node."""

    uid: str
    results: tuple[Result, ...] = ()

    @cached_property
    def by_key(self) -> Mapping[DeviceKey, Sequence[Result]]:
        found: dict[DeviceKey, list[Result]] = {}
        for result in self.results:
            found.setdefault(result.key, []).append(result)
        # tuples of immutable items are not tracked by the garbage collector
        return {key: tuple(results) for key, results in found.items()}

    @cached_property
    def devices(self) -> frozenset[DeviceKey]:
        return frozenset(self.by_key)


# the claim of that namespace and name from a read for the pod of that UID, or None
Read = Callable[[str, str, str], Claim | None]


class Held(Struct, frozen=True, gc=False):
    """The devices of one claim in a container, from the kubelet. claim: its name. uses: how the container uses it."""

    pod: Pod
    container: str
    claim: str
    uses: tuple[ClaimUse, ...]
    rows: tuple[ClaimRow, ...]


class PoolHoldings(Struct, frozen=True, gc=False):
    """The devices of a pool in containers. allocations: without times, sorted by pod UID, container and claim.

    unhealthy: by device, the reason in the status of the pod that holds it. cdi_ids: CDI names by device; sorted.
    """

    allocations: tuple[AllocationStatus, ...] = ()
    unhealthy: Mapping[str, str] = {}
    cdi_ids: Mapping[str, tuple[str, ...]] = {}


NO_HOLDINGS: Final = PoolHoldings()


def device_key(row: ClaimRow) -> DeviceKey:
    return row.driver, row.pool, row.device, row.share_id


def held_by(rows: Iterable[ClaimRow], pods: Mapping[PodName, Sequence[Pod]]) -> list[Held]:
    """Sorted by pod UID, container and claim. pods: by name, the unfinished one first.

    A row without a pod in the API is left out. If two pods have one name, the pod that uses the claim counts.
    """
    found: dict[tuple[PodName, str, str], list[ClaimRow]] = {}
    for row in rows:
        found.setdefault(((row.namespace, row.name), row.container, row.claim), []).append(row)
    held: list[Held] = []
    for (name, container, claim), own in found.items():
        named = [(pod, _uses(pod, container, claim)) for pod in pods.get(name, ())]
        # a pod that cannot be decoded has a name alone
        pod, uses = next((each for each in named if each[1]), named[0] if named else (None, ()))
        if pod is not None:
            held.append(Held(pod, container, claim, uses, tuple(own)))
    return sorted(held, key=lambda each: (each.pod.uid, each.container, each.claim))


def holdings(
    found: Iterable[Held], read: Read, ended: Collection[str]
) -> Generator[None, None, dict[PoolKey, PoolHoldings]]:
    """Holdings by pool. Yields for each device.

    found: sorted by pod UID, container and claim. ended: UIDs of pods that have ended, by the API.
    """
    allocations: dict[PoolKey, list[AllocationStatus]] = {}
    unhealthy: dict[PoolKey, dict[str, str]] = {}
    cdi_ids: dict[PoolKey, dict[str, set[str]]] = {}
    for held in found:
        claim = read(held.pod.namespace, held.claim, held.pod.uid)
        of_pools: dict[PoolKey, list[_Row]] = {}
        for row, results in _injected(held, claim):
            of_pools.setdefault((row.driver, row.pool), []).append((row, results))
        for key, own in of_pools.items():
            is_over = held.pod.uid in ended
            allocations.setdefault(key, []).append(_allocation(held, claim, own, is_releasing=is_over))
            ids = cdi_ids.setdefault(key, {})
            for row, _ in own:
                ids.setdefault(row.device, set()).update(row.cdi_ids)
            yield from repeat(None, len(own))
        for row, message in _unhealthy(held):
            unhealthy.setdefault((row.driver, row.pool), {})[row.device] = message
    return {
        key: PoolHoldings(
            tuple(rows_of_pool),
            unhealthy.get(key, {}),
            {device: tuple(sorted(ids)) for device, ids in cdi_ids[key].items()},
        )
        for key, rows_of_pool in allocations.items()
    }


def _uses(pod: Pod, container: str, claim: str) -> tuple[ClaimUse, ...]:
    uses = pod.claims.uses if pod.claims is not None else ()
    return tuple(use for use in uses if use.container == container and use.claim == claim)


# a device, and its results in the claim for the requests that the container names
_Row = tuple[ClaimRow, Sequence[Result]]


def _injected(held: Held, claim: Claim | None) -> Iterator[_Row]:
    """Leave out devices of requests that the container does not name."""
    by_key: Mapping[DeviceKey, Sequence[Result]] = claim.by_key if claim is not None else {}
    named = {use.request for use in held.uses}
    is_whole = not named or "" in named
    for row in held.rows:
        results = by_key.get(device_key(row), ())
        own = results if is_whole else [result for result in results if result.request in named]
        if own or not results:
            yield row, own


# -- allocations --------------------------------------------------------------------------------------------------------------


def _allocation(held: Held, claim: Claim | None, rows: Sequence[_Row], *, is_releasing: bool) -> AllocationStatus:
    ids = sorted({row.device for row, _ in rows})
    shares = {(row.device, row.share_id): results for row, results in rows}
    claimed = [_claimed(held, *share, results) for share, results in sorted(shares.items())]
    return AllocationStatus(
        namespace=held.pod.namespace,
        name=held.pod.name,
        pod_uid=held.pod.uid,
        container=held.container,
        device_ids=ids[:MAX_IDS],
        omitted=max(len(ids) - MAX_IDS, 0),
        releasing=is_releasing,
        claim=ClaimStatus(
            name=held.claim,
            uid=claim.uid if claim is not None else "",
            devices=[each for each in claimed if each is not None][:MAX_CLAIMED],
        ),
    )


def _claimed(held: Held, device: str, share_id: str, results: Sequence[Result]) -> ClaimedDevice | None:
    """Details of a device; None if only its name is known."""
    extended, consumed = _extended_resource(held, results), dict(results[0].consumed) if results else {}
    # a device requested for administration and for use counts as in use
    is_admin = bool(results) and all(result.admin_access for result in results)
    if not (share_id or extended or consumed or is_admin):
        return None
    return ClaimedDevice(
        id=device,
        share_id=share_id,
        consumed_capacity=consumed,
        admin_access=is_admin,
        extended_resource=extended,
    )


def _extended_resource(held: Held, results: Sequence[Result]) -> str:
    """The extended resource of the pod's request. If the claim does not name the request, the only one of the pod."""
    requests = {result.request for result in results}
    uses = held.pod.claims.uses if held.pod.claims is not None and not requests else held.uses
    names = {
        use.extended_resource for use in uses if use.claim == held.claim and (not requests or use.request in requests)
    }
    return names.pop() if len(names) == 1 else ""


def _unhealthy(held: Held) -> Iterator[tuple[ClaimRow, str]]:
    """If several devices of a claim have one CDI name, the kubelet reports the first."""
    reported = {
        each.resource_id: each.message
        for each in (held.pod.claims.unhealthy if held.pod.claims is not None else ())
        if (each.container, each.claim) == (held.container, held.claim)
    }
    if not reported:
        return
    for row in held.rows:
        resource_id = row.cdi_ids[0] if row.cdi_ids else f"{row.driver}/{row.pool}/{row.device}"
        message = reported.pop(resource_id, None)
        if message is not None:
            yield row, f"{_REPORTED}: {message}" if message else _REPORTED
