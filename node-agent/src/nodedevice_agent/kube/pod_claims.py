"""Decodes the ResourceClaims of a pod, and the health of their devices from its status.

The kubelet prepares the claims of a pod before it makes the sandbox. For extended resources that a DRA driver serves, the
scheduler makes one claim for the whole pod.
Source: component-helpers resourceclaim.Name; kubelet pkg/kubelet/cm/dra UpdateAllocatedResourcesStatus @ 1.37.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec
from nodedevice_common.text import shown

from nodedevice_agent.devicemanager.pods import ClaimUse, PodClaims, UnhealthyDevice

# Bounds of a pod.
_MAX_USES: Final = 256
_MAX_UNHEALTHY: Final = 256
# the CRD's bound of resource names
_MAX_RESOURCE_NAME: Final = 308
_READY: Final = "PodReadyToStartContainers"
# the prefix of names that do not belong to a device plugin's resource
OF_CLAIM: Final = "claim:"


class ContainerClaim(msgspec.Struct, gc=False):
    name: str = ""
    request: str | None = None


class PodResourceClaim(msgspec.Struct, gc=False):
    """In the spec, the name of a claim or of its template; in the status, the claim made from it."""

    name: str = ""
    resourceClaimName: str | None = None


class RequestMapping(msgspec.Struct, gc=False):
    containerName: str = ""
    requestName: str = ""
    resourceName: str = ""


class ExtendedResourceClaimStatus(msgspec.Struct, gc=False):
    resourceClaimName: str = ""
    requestMappings: list[RequestMapping] | None = None


class ResourceHealth(msgspec.Struct, gc=False):
    resourceID: str = ""
    health: str | None = None
    message: str | None = None


class ResourceStatus(msgspec.Struct, gc=False):
    name: str = ""
    resources: list[ResourceHealth] | None = None


class ContainerStatus(msgspec.Struct, gc=False):
    name: str = ""
    allocatedResourcesStatus: list[ResourceStatus] | None = None


class PodCondition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class ClaimsInStatus(msgspec.Struct, gc=False):
    phase: str | None = None
    conditions: list[PodCondition] | None = None
    containerStatuses: list[ContainerStatus] | None = None
    resourceClaimStatuses: list[PodResourceClaim] | None = None
    extendedResourceClaimStatus: ExtendedResourceClaimStatus | None = None


# a container's name and its claims
ContainerClaims = tuple[str, Iterable[ContainerClaim]]


def claims_of_pod(
    in_spec: Iterable[PodResourceClaim], containers: Iterable[ContainerClaims], status: ClaimsInStatus
) -> PodClaims | None:
    """Claims of the pod; None if no container uses one. Claims that do not exist yet have no name and are skipped."""
    # only the status names claims made from a template
    named = [*(status.resourceClaimStatuses or ()), *in_spec]
    names = {each.name: each.resourceClaimName for each in named if each.resourceClaimName}
    uses = sorted({*islice(_uses(names, containers, status.extendedResourceClaimStatus), _MAX_USES)})
    if not uses:
        return None
    return PodClaims(
        tuple(uses), _are_prepared(status), tuple(sorted({*islice(_unhealthy(names, status), _MAX_UNHEALTHY)}))
    )


def _uses(
    names: Mapping[str, str], containers: Iterable[ContainerClaims], extended: ExtendedResourceClaimStatus | None
) -> Iterator[ClaimUse]:
    for container, claims in containers:
        for claim in claims:
            if claim.name in names:
                yield ClaimUse(container, names[claim.name], _base(claim.request or ""))
    if extended is not None and extended.resourceClaimName:
        for mapping in extended.requestMappings or ():
            name = mapping.resourceName if len(mapping.resourceName) <= _MAX_RESOURCE_NAME else ""
            yield ClaimUse(mapping.containerName, extended.resourceClaimName, mapping.requestName, name)


def _base(request: str) -> str:
    """The request's name without the chosen alternative."""
    return request.partition("/")[0]


def _are_prepared(status: ClaimsInStatus) -> bool:
    ready = next((each.status for each in status.conditions or () if each.type == _READY), None)
    # a kubelet before 1.29 has no such condition
    return ready == "True" if ready else status.phase not in (None, "", "Pending")


def _unhealthy(names: Mapping[str, str], status: ClaimsInStatus) -> Iterator[UnhealthyDevice]:
    """Never of extended resources: the kubelet reports the health of claims that a container names. On since 1.36."""
    for container, resource, device in unhealthy(status):
        claim = names.get(_base(resource.removeprefix(OF_CLAIM)))
        if claim and resource.startswith(OF_CLAIM):
            yield UnhealthyDevice(container, claim, device.resourceID, shown(device.message or ""))


def unhealthy(status: ClaimsInStatus) -> Iterator[tuple[str, str, ResourceHealth]]:
    """Container, name of the resource or claim, and unhealthy device. Source: KEP-4680, on since 1.36."""
    for container in status.containerStatuses or ():
        for resource in container.allocatedResourcesStatus or ():
            for device in resource.resources or ():
                if device.health == "Unhealthy":
                    yield container.name, resource.name, device
