"""Pods as the device manager sees them: each container's device requests, and whether the pod has ended."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import ClassVar

import msgspec
from msgspec import structs

from nodedevice_agent.devicemanager.derived import Record

# Limits for all containers of a pod that request devices: kept names of variables and paths of mounts.
MAX_SETTINGS = 512


class ContainerKind(Enum):
    """How long a container holds its devices, which decides whether others may reuse them. INIT ends before the app containers
    start; SIDECAR is an init container that stays. Source: kubelet device manager, init container reuse and KEP-753.
    """

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class ContainerSettings(msgspec.Struct, frozen=True, gc=False):
    """envs: names of the environment variables that are certainly set. references: names in its command of other variables. paths:
    mount paths of volumes, normalized. run_as_user, run_as_group: of its own securityContext, else of its pod's; None if neither
    sets it. is_whole: False if it sets more than is kept, so that envs and paths are incomplete.
    """

    envs: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    is_privileged: bool = False
    run_as_user: int | None = None
    run_as_group: int | None = None
    references: frozenset[str] = frozenset()
    is_whole: bool = True


NO_SETTINGS = ContainerSettings()


class Container(msgspec.Struct, frozen=True, gc=False):
    """limits: extended resources only, resource name to count, without zero counts. settings: only of containers with limits,
    because a node has many containers and most have none.
    """

    name: str
    kind: ContainerKind = ContainerKind.APP
    limits: Mapping[str, int] = msgspec.field(default_factory=dict)
    settings: ContainerSettings = NO_SETTINGS


class ClaimUse(msgspec.Struct, frozen=True, order=True, gc=False):
    """claim: the object's name. request: the name of the used request in it, "" for all. extended_resource: the resource name that
    the container has requested, "" if it names the claim itself.
    """

    container: str
    claim: str
    request: str = ""
    extended_resource: str = ""


class UnhealthyDevice(msgspec.Struct, frozen=True, order=True, gc=False):
    """A device of a claim that the kubelet reports unhealthy. resource_id: its first CDI name, else driver/pool/device."""

    container: str
    claim: str
    resource_id: str
    message: str = ""


class PodClaims(msgspec.Struct, frozen=True, gc=False):
    """uses, unhealthy: sorted. are_prepared: whether the pod has a sandbox; the kubelet prepares claims before it creates one."""

    uses: tuple[ClaimUse, ...]
    are_prepared: bool = False
    unhealthy: tuple[UnhealthyDevice, ...] = ()

    @property
    def stage(self) -> tuple[tuple[ClaimUse, ...], bool]:
        """The inputs of the kubelet's pod resources of the pod."""
        return self.uses, self.are_prepared


class Pod(Record, frozen=True, eq=False):
    """containers: init containers and sidecars in their order, then app containers. has_ended: Succeeded or Failed. uid: of the API
    object; of a proven static pod as the runtime knows it. api_uid: the UID in the API if that differs. annotations: as far as a
    device plugin may read them, of a pod that requests devices, bounded. assigned_parts: a scheduler's assignment of parts, not
    checked. config_hash: the UID of the static pod that its annotation names, which any pod can claim; see static_pods. unhealthy:
    resource name and ID of devices that the kubelet allocated and reports unhealthy. claims: None if no container uses one. Device
    managers use neither of these two. unread: why its requests are unknown; such a pod keeps its devices, and gets no more.
    """

    UNCOMPARED: ClassVar = frozenset(("unhealthy", "device_requests"))

    uid: str
    namespace: str
    name: str
    containers: tuple[Container, ...]
    has_ended: bool = False
    is_terminating: bool = False
    api_uid: str = ""
    config_hash: str = ""
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    assigned_parts: str = ""
    unhealthy: frozenset[tuple[str, str]] = frozenset()
    claims: PodClaims | None = None
    unread: str = ""
    # Derived: what to allocate, in the kubelet's order; within a container by resource name.
    device_requests: "tuple[DeviceRequest, ...]" = ()

    def __post_init__(self) -> None:
        requests = [
            DeviceRequest(c.name, c.kind, name, c.limits[name]) for c in self.containers for name in sorted(c.limits)
        ]
        structs.force_setattr(self, "device_requests", tuple(requests))

    @property
    def uid_in_api(self) -> str:
        return self.api_uid or self.uid

    def container_settings(self, container: str) -> ContainerSettings:
        return next((c.settings for c in self.containers if c.name == container), NO_SETTINGS)

    def without(self, requests: Collection[tuple[str, str]]) -> "Pod":
        """A copy without these requests, each a container and a resource name."""
        containers = (
            structs.replace(c, limits={name: n for name, n in c.limits.items() if (c.name, name) not in requests})
            for c in self.containers
        )
        return structs.replace(self, containers=tuple(containers))

    def requested_count(self, resource_name: str) -> int:
        """The number of devices that the scheduler counts for this pod."""
        return pod_request(self.device_requests).get(resource_name, 0)


class DeviceRequest(msgspec.Struct, frozen=True, gc=False):
    container: str
    kind: ContainerKind
    resource_name: str
    count: int


def pod_request(requests: Iterable[DeviceRequest]) -> dict[str, int]:
    """The maximum of each resource that a pod has at one time: while it starts, or once it runs.

    Init containers run one by one, next to the sidecars before them. Source: Kubernetes component-helpers, resource.PodRequests.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for request in requests:
        name = request.resource_name
        at_once = running.get(name, 0) + request.count
        if request.kind is not ContainerKind.INIT:
            running[name] = at_once
        peak[name] = max(peak.get(name, 0), at_once)
    return peak
