"""Which containers have which devices of DRA drivers: the kubelet's rows, with what the API says of their pods and claims. Pure.

That a container has a device is the kubelet's word alone. It shows each container all devices of a claim; where the claim has been
read, those of requests that the container does not name are left out, as the kubelet injects none of them. A claim belongs to the
pod that has that name, and is in its namespace; what it says of devices that the kubelet does not show counts for nothing.
Source: kubelet pkg/kubelet/cm/dra GetResources, GetContainerClaimInfos, UpdateAllocatedResourcesStatus @ 1.37.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from nodedevice_api.nodedevice import AllocationStatus, ClaimedDevice, ClaimStatus

from nodedevice_agent.devicemanager.pods import ClaimUse, Pod
from nodedevice_agent.dra.devices import PoolKey
from nodedevice_agent.kube.status import MAX_IDS
from nodedevice_agent.kubelet.readings import ClaimRow, PodName

# of one claim and container, as the CRD has it
MAX_CLAIMED: Final = 64
_REPORTED: Final = "its driver reports it unhealthy, by allocatedResourcesStatus in the status of the pod that holds it"

# driver, pool, device and share
DeviceKey = tuple[str, str, str, str]


class Result(Struct, frozen=True):
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


class Claim(Struct, frozen=True):
    """uid: "" where it has none."""

    uid: str
    results: tuple[Result, ...] = ()

    @property
    def devices(self) -> frozenset[DeviceKey]:
        return frozenset(result.key for result in self.results)


# the claim of that namespace and name as it was read for that pod, by UID; None where it was not
Read = Callable[[str, str, str], Claim | None]


class Holding(Struct, frozen=True):
    """A device that a container has. results: what the claim says of it, for the requests that the container names."""

    row: ClaimRow
    pod: Pod
    claim: Claim | None = None
    results: tuple[Result, ...] = ()

    @property
    def uses(self) -> tuple[ClaimUse, ...]:
        """Of the claim, by all containers of the pod."""
        return tuple(use for use in _uses(self.pod) if use.claim == self.row.claim)


class PoolHoldings(Struct, frozen=True):
    """allocations: without times, sorted by pod UID, container and claim. unhealthy: why, by device. cdi_ids: by device."""

    allocations: tuple[AllocationStatus, ...] = ()
    unhealthy: Mapping[str, str] = {}
    cdi_ids: Mapping[str, tuple[str, ...]] = {}


def device_key(row: ClaimRow) -> DeviceKey:
    return row.driver, row.pool, row.device, row.share_id


def held_by(rows: Iterable[ClaimRow], pods: Mapping[PodName, Sequence[Pod]]) -> Iterator[tuple[ClaimRow, Pod]]:
    """Each row with its pod. pods: by name, the unfinished one first. A row whose pod the API does not have is left out.

    Of two pods of one name it is the one that uses the claim.
    """
    for row in rows:
        named = pods.get((row.namespace, row.name), ())
        users = (pod for pod in named if any((u.container, u.claim) == (row.container, row.claim) for u in _uses(pod)))
        # a pod that cannot be decoded has a name alone
        pod = next(users, named[0] if named else None)
        if pod is not None:
            yield row, pod


def holdings(
    rows: Iterable[tuple[ClaimRow, Pod]], read: Read, ended: Callable[[str], bool]
) -> dict[PoolKey, PoolHoldings]:
    """By pool. rows: each with its pod. ended: whether the pod of that UID has ended, by the API."""
    held: dict[PoolKey, list[Holding]] = {}
    for row, pod in rows:
        found = _holding(row, pod, read(row.namespace, row.claim, pod.uid))
        if found is not None:
            held.setdefault((row.driver, row.pool), []).append(found)
    unhealthy = _unhealthy(each for found in held.values() for each in found)
    return {
        key: PoolHoldings(
            tuple(_allocations(found, ended)),
            {each.row.device: unhealthy[each.row] for each in found if each.row in unhealthy},
            _cdi_ids(found),
        )
        for key, found in held.items()
    }


def _uses(pod: Pod) -> tuple[ClaimUse, ...]:
    return pod.claims.uses if pod.claims is not None else ()


def _holding(row: ClaimRow, pod: Pod, claim: Claim | None) -> Holding | None:
    """None where the container names other requests of the claim than the one that the device was allocated for."""
    if claim is None:
        return Holding(row, pod)
    results = [result for result in claim.results if result.key == device_key(row)]
    named = {u.request for u in _uses(pod) if (u.container, u.claim) == (row.container, row.claim)}
    if named and "" not in named and results:
        results = [result for result in results if result.request in named]
        if not results:
            return None
    return Holding(row, pod, claim, tuple(results))


# -- allocations --------------------------------------------------------------------------------------------------------------


def _allocations(held: Iterable[Holding], ended: Callable[[str], bool]) -> Iterator[AllocationStatus]:
    by_row: dict[tuple[str, str, str], list[Holding]] = {}
    for each in held:
        by_row.setdefault((each.pod.uid, each.row.container, each.row.claim), []).append(each)
    for (uid, container, name), found in sorted(by_row.items()):
        claim, row = found[0].claim, found[0].row
        ids = sorted({each.row.device for each in found})
        shares = {(each.row.device, each.row.share_id): each for each in found}
        claimed = [said for _, share in sorted(shares.items()) if (said := _claimed(share)) is not None]
        yield AllocationStatus(
            namespace=row.namespace,
            name=row.name,
            pod_uid=uid,
            container=container,
            device_ids=ids[:MAX_IDS],
            omitted=max(len(ids) - MAX_IDS, 0),
            releasing=ended(uid),
            claim=ClaimStatus(name=name, uid=claim.uid if claim is not None else "", devices=claimed[:MAX_CLAIMED]),
        )


def _claimed(held: Holding) -> ClaimedDevice | None:
    """None where there is nothing to say beyond its name."""
    extended, consumed = _extended_resource(held), dict(held.results[0].consumed) if held.results else {}
    # for administration and for use is for use
    is_admin = bool(held.results) and all(result.admin_access for result in held.results)
    if not (held.row.share_id or extended or consumed or is_admin):
        return None
    return ClaimedDevice(
        id=held.row.device,
        share_id=held.row.share_id,
        consumed_capacity=consumed,
        admin_access=is_admin,
        extended_resource=extended,
    )


def _extended_resource(held: Holding) -> str:
    """By which name the pod asked for it. Where the claim does not say for which request it is: the one name that the pod has."""
    requests = {result.request for result in held.results}
    names = {use.extended_resource for use in held.uses if not requests or use.request in requests}
    return names.pop() if len(names) == 1 else ""


# -- what drivers say of devices ------------------------------------------------------------------------------------------------


def _unhealthy(held: Iterable[Holding]) -> dict[ClaimRow, str]:
    """Of several devices of a claim that have one CDI name, the kubelet reports the first."""
    found_held = [*held]
    pods = {each.pod.uid: each.pod.claims for each in found_held if each.pod.claims is not None}
    reported = {
        (uid, each.container, each.claim, each.resource_id): each.message
        for uid, claims in pods.items()
        for each in claims.unhealthy
    }
    found: dict[ClaimRow, str] = {}
    for each in found_held:
        row = each.row
        resource_id = row.cdi_ids[0] if row.cdi_ids else f"{row.driver}/{row.pool}/{row.device}"
        message = reported.pop((each.pod.uid, row.container, row.claim, resource_id), None)
        if message is not None:
            found[row] = f"{_REPORTED}: {message}" if message else _REPORTED
    return found


def _cdi_ids(held: Iterable[Holding]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for each in held:
        found.setdefault(each.row.device, {}).update(dict.fromkeys(each.row.cdi_ids))
    return {device: tuple(sorted(ids)) for device, ids in found.items()}
