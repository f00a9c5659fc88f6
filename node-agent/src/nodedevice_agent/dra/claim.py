"""Decodes a ResourceClaim: its UID and its allocated devices. Parameters and consumers are skipped while decoding.

A driver's parameters may be a tenant's secrets: they are never stored, logged or shown. Other fields are bounded, even if a
later API server accepts more. Source: k8s.io/api resource/v1 types.go @ 1.37.
"""

from itertools import islice
from typing import Final

import msgspec
from nodedevice_kube.paths import Resource

from nodedevice_agent.dra.holdings import Claim, Result
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.responses import KubeObject

# The limit of a claim with parameters and consumers.
MAX_BYTES: Final = 1024 * 1024
# The API server's are 32 devices, and 32 capacities of a device with names of 96 characters.
MAX_RESULTS: Final = 64
_MAX_CAPACITIES: Final = 32
_MAX_NAME: Final = 253
_MAX_QUANTITY: Final = 64
_MAX_UID: Final = 36


class DeviceResult(msgspec.Struct):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    adminAccess: bool | None = None
    shareID: str | None = None
    consumedCapacity: dict[str, str | int] | None = None


class AllocatedDevices(msgspec.Struct):
    results: list[DeviceResult] | None = None


class ClaimAllocation(msgspec.Struct):
    devices: AllocatedDevices = msgspec.field(default_factory=AllocatedDevices)


class ResourceClaimStatus(msgspec.Struct):
    allocation: ClaimAllocation | None = None


class ResourceClaimObject(KubeObject):
    resource = Resource("resource.k8s.io/v1", "resourceclaims", is_namespaced=True)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


async def read_claim(cluster: KubeClient, namespace: str, name: str) -> Claim:
    """Raises ApiError."""
    return claim_of(await cluster.object_of(ResourceClaimObject, namespace, name, MAX_BYTES))


def claim_of(found: ResourceClaimObject) -> Claim:
    allocation = found.status.allocation
    results = (allocation.devices.results or ()) if allocation is not None else ()
    return Claim((found.metadata.uid or "")[:_MAX_UID], tuple(map(_result, islice(results, MAX_RESULTS))))


def _result(found: DeviceResult) -> Result:
    capacities = (
        (name, str(quantity))
        for name, quantity in sorted((found.consumedCapacity or {}).items())
        if 0 < len(name) <= _MAX_NAME and len(str(quantity)) <= _MAX_QUANTITY
    )
    return Result(
        # without the chosen alternative
        found.request.partition("/")[0][:_MAX_NAME],
        found.driver[:_MAX_NAME],
        found.pool[:_MAX_NAME],
        found.device[:_MAX_NAME],
        (found.shareID or "")[:_MAX_UID],
        found.adminAccess is True,
        tuple(islice(capacities, _MAX_CAPACITIES)),
    )
