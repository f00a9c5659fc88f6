"""Watches the pods bound to this node, decodes them, and feeds the device manager; recovers a lost checkpoint before that.

Only what the device manager needs is decoded: extended resources in limits, the kind of each container, phase and deletion; and
of a container that requests devices, the settings that a device plugin must not override, and what the kubelet says of its devices.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import msgspec
from lightkube.core import resource as res
from nodedevice_api import extended_resources
from nodedevice_api.assigned_parts import MAX_CHARACTERS
from nodedevice_api.device_ids import shown_id
from nodedevice_api.names import ASSIGNED_PARTS_ANNOTATION, GROUP
from nodedevice_api.nodedevice import NodeDeviceSpec, NodeDeviceStatus
from nodedevice_api.parts import parent_and_number

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint, by_numa, each_device_once
from nodedevice_agent.devicemanager.allocation.container_edits import normalized
from nodedevice_agent.devicemanager.expansion import references
from nodedevice_agent.devicemanager.omitted_allocations import PODS_NOT_SYNCED
from nodedevice_agent.devicemanager.pods import NO_SETTINGS, Container, ContainerKind, ContainerSettings, Pod
from nodedevice_agent.devicemanager.resources.cordons import Cordons
from nodedevice_agent.devicemanager.static_pods import CONFIG_HASH, CONFIG_MIRROR, is_config_hash
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.objects import NodeDeviceObject, api_info
from nodedevice_agent.kube.observed import (
    cordons_of,
    held_ids,
    is_only_shown,
    observed_spec,
    observed_status,
    resource_name_of,
    since_of,
)
from nodedevice_agent.kube.pod_claims import OF_CLAIM, ClaimsInStatus, ContainerClaim, PodResourceClaim, claims_of_pod
from nodedevice_agent.kube.publisher import PODS, Publisher
from nodedevice_agent.kube.responses import KubeMetadata, KubeObject
from nodedevice_agent.kube.retries import until_done
from nodedevice_agent.metrics import AgentHealth

log = logging.getLogger(__name__)

# Of annotations for device plugins. They stay in memory and go into every Allocate call; the API allows 256 KiB.
_MAX_ANNOTATIONS = 16
_MAX_ANNOTATION = 256

# Of environment variables that a container's command refers to.
_MAX_REFERENCES = 64
_MAX_REFERENCE = 256

# Of devices that a pod holds and that are not healthy.
_MAX_UNHEALTHY = 256

_IS_OVER = ("Succeeded", "Failed")


class Resources(msgspec.Struct):
    limits: dict[str, str | int] | None = None
    claims: list[ContainerClaim] | None = None


class KeyRef(msgspec.Struct):
    optional: bool | None = None


class EnvVarSource(msgspec.Struct):
    """The sources of a variable that may be optional."""

    configMapKeyRef: KeyRef | None = None
    secretKeyRef: KeyRef | None = None
    fileKeyRef: KeyRef | None = None


class EnvVar(msgspec.Struct):
    name: str = ""
    valueFrom: EnvVarSource | None = None


class VolumeMount(msgspec.Struct):
    mountPath: str = ""


class RunAs(msgspec.Struct):
    runAsUser: int | None = None
    runAsGroup: int | None = None


class SecurityContext(RunAs):
    privileged: bool | None = None


NO_SECURITY_CONTEXT = SecurityContext()


class ContainerSpec(msgspec.Struct):
    name: str
    resources: Resources = msgspec.field(default_factory=Resources)
    restartPolicy: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    volumeMounts: list[VolumeMount] | None = None
    securityContext: SecurityContext | None = None


class PodObjectSpec(msgspec.Struct):
    containers: list[ContainerSpec] = []
    initContainers: list[ContainerSpec] | None = None
    securityContext: RunAs | None = None
    resourceClaims: list[PodResourceClaim] | None = None


class PodObject(KubeObject, res.NamespacedResourceG):
    spec: PodObjectSpec = msgspec.field(default_factory=PodObjectSpec)
    status: ClaimsInStatus = msgspec.field(default_factory=ClaimsInStatus)
    _api_info = api_info("", "v1", "Pod", "pods", "global_list", "global_watch")

    @classmethod
    def known_by_name(cls, metadata: KubeMetadata) -> "PodObject":
        """In place of one that cannot be decoded: what it holds stays its own, and it gets nothing more."""
        return cls(metadata=metadata)


class PodObserver(Protocol):
    """Somebody else who is notified of this node's pods."""

    def pods_synced(self, pods: Iterable[Pod]) -> None:
        """The complete list."""

    def pod_seen(self, pod: Pod) -> None:
        """New or changed."""

    def pod_gone(self, pod_uid: str) -> None:
        """The API has it no more."""


class PodWatch:
    """Feeds the device manager with this node's pods. run() until cancelled."""

    # pods are not written
    known_version = 0

    def __init__(
        self, host: PluginHost, publisher: Publisher, health: AgentHealth, observers: Sequence[PodObserver] = ()
    ) -> None:
        self._observers = observers
        self._host = host
        self._publisher = publisher
        self._health = health

    async def run(self) -> None:
        """Recovers a lost checkpoint first: pods are matched with its allocations."""
        cluster, node_name, manager = self._publisher.cluster, self._publisher.node_name, self._host.manager
        if manager.is_recovering:
            known = await recover_checkpoint(cluster, node_name, self._publisher.recovered)
            if known.registered:
                log.warning("allocations recovered from the API", extra={"allocations": len(known.allocations)})
            self._host.do(manager.recovered(known, self._host.now()))
        await self._publisher.watches.follow(PODS, PodObject, {"spec.nodeName": node_name}, self, is_urgent=True)

    def synced(self, objects: list[PodObject], version: int) -> None:
        self._health.report("pods")
        self._publisher.are_pods_known = True
        pods = [from_api(pod) for pod in objects]
        self._host.do(self._host.manager.pods_synced(pods, self._host.now()))
        for observer in self._observers:
            observer.pods_synced(pods)
        self._host.bound_names()
        self._publisher.refresh_all()

    def updated(self, found: PodObject) -> None:
        pod = from_api(found)
        self._host.do(self._host.manager.pod_seen(pod, self._host.now()))
        for observer in self._observers:
            observer.pod_seen(pod)

    def deleted(self, found: PodObject) -> None:
        self._host.do(self._host.manager.pod_gone(found.metadata.uid or "", self._host.now()))
        for observer in self._observers:
            observer.pod_gone(found.metadata.uid or "")


def from_api(pod: PodObject) -> Pod:
    claims = pod.status.extendedResourceClaimStatus
    # devices allocated through dynamic resource allocation (KEP-5004) under the same name come from a DRA driver
    mappings = claims.requestMappings or () if claims is not None else ()
    run_as = pod.spec.securityContext or NO_SECURITY_CONTEXT
    by_claim = frozenset((mapping.containerName, mapping.resourceName) for mapping in mappings)
    containers = (
        *(_container(c, run_as, by_claim, is_init=True) for c in pod.spec.initContainers or ()),
        *(_container(c, run_as, by_claim, is_init=False) for c in pod.spec.containers),
    )
    specs = (*(pod.spec.initContainers or ()), *pod.spec.containers)
    using = [(spec.name, spec.resources.claims) for spec in specs if spec.resources.claims]
    annotations, has_requests = pod.metadata.annotations or {}, any(c.limits for c in containers)
    return Pod(
        uid=pod.metadata.uid or "",
        namespace=pod.metadata.namespace or "",
        name=pod.metadata.name,
        containers=containers,
        has_ended=pod.status.phase in _IS_OVER,
        is_terminating=pod.metadata.deletionTimestamp is not None,
        config_hash=_config_hash(pod),
        annotations=_own_annotations(pod) if has_requests else {},
        # one character more is enough to see that it is too long
        assigned_parts=annotations.get(ASSIGNED_PARTS_ANNOTATION, "")[: MAX_CHARACTERS + 1] if has_requests else "",
        unhealthy=frozenset(islice(_unhealthy(pod.status), _MAX_UNHEALTHY)) if has_requests else frozenset(),
        claims=claims_of_pod(pod.spec.resourceClaims or (), using, pod.status),
    )


def _unhealthy(status: ClaimsInStatus) -> Iterator[tuple[str, str]]:
    """The kubelet counts a device that it does not know any more as healthy. Source: KEP-4680, on since 1.36."""
    for container in status.containerStatuses or ():
        for resource in container.allocatedResourcesStatus or ():
            for device in resource.resources or ():
                if device.health == "Unhealthy" and not resource.name.startswith(OF_CLAIM):
                    yield resource.name, shown_id(device.resourceID)


def _own_annotations(pod: PodObject) -> dict[str, str]:
    """Those in nodedevice.io/, which are for device plugins."""
    found = sorted((pod.metadata.annotations or {}).items())
    ours = [(name, value[:_MAX_ANNOTATION]) for name, value in found if _is_for_plugins(name)]
    return dict(ours[:_MAX_ANNOTATIONS])


def _is_for_plugins(annotation: str) -> bool:
    return annotation.startswith(f"{GROUP}/") and annotation != ASSIGNED_PARTS_ANNOTATION


def _config_hash(pod: PodObject) -> str:
    """The UID of the static pod that this pod claims to mirror; empty for all others."""
    annotations = pod.metadata.annotations or {}
    found = annotations.get(CONFIG_HASH, "") if CONFIG_MIRROR in annotations else ""
    return found if is_config_hash(found) else ""


def _container(spec: ContainerSpec, pods: RunAs, by_claim: frozenset[tuple[str, str]], *, is_init: bool) -> Container:
    kind = ContainerKind.APP
    if is_init:
        kind = ContainerKind.SIDECAR if spec.restartPolicy == "Always" else ContainerKind.INIT
    limits = {}
    for name, quantity in (spec.resources.limits or {}).items():
        is_ours = extended_resources.is_extended_resource(name) and (spec.name, name) not in by_claim
        count = _count(quantity) if is_ours else 0
        if count > 0:
            limits[name] = count
    return Container(spec.name, kind, limits, _own_settings(spec, pods) if limits else NO_SETTINGS)


def _own_settings(spec: ContainerSpec, pods: RunAs) -> ContainerSettings:
    own = spec.securityContext or NO_SECURITY_CONTEXT
    envs = frozenset(env.name for env in spec.env or () if not _may_be_missing(env))
    return ContainerSettings(
        envs,
        frozenset(normalized(mount.mountPath) for mount in spec.volumeMounts or ()),
        is_privileged=own.privileged is True,
        run_as_user=pods.runAsUser if own.runAsUser is None else own.runAsUser,
        run_as_group=pods.runAsGroup if own.runAsGroup is None else own.runAsGroup,
        references=frozenset(_short_references(spec)) - envs,
    )


def _short_references(spec: ContainerSpec) -> Iterator[str]:
    found = references([*(spec.command or ()), *(spec.args or ())])
    return islice((name for name in found if len(name) <= _MAX_REFERENCE), _MAX_REFERENCES)


def _may_be_missing(env: EnvVar) -> bool:
    """Whether its source is optional. If the source does not exist the variable is not set, and the agent cannot know."""
    source = env.valueFrom
    found = (source.configMapKeyRef, source.secretKeyRef, source.fileKeyRef) if source is not None else ()
    return any(ref is not None and ref.optional is True for ref in found)


def _count(quantity: str | int) -> int:
    """A whole number of devices; the API server admits nothing else for an extended resource."""
    number = extended_resources.count(str(quantity))
    if number is None:
        log.warning("limit is not a whole number; counting it as zero", extra={"limit": str(quantity)[:64]})
    return number or 0


# -- a lost checkpoint ----------------------------------------------------------------------------------------------------


async def recover_checkpoint(
    cluster: KubeClient, node_name: str, shown: Callable[[str, NodeDeviceStatus], None] = lambda name, status: None
) -> Checkpoint:
    """Allocations of the NodeDevices without the plugins' responses: Allocate is called again with the same device IDs.

    shown: called with the resource names and statuses of those that others give out.
    Retried until the API server responds: without it, devices in use would be allocated again. Resources without allocations are
    included, so that their status is kept up to date too. An edited status may list one device for two pods: the first keeps it.
    """
    listed = await until_done(lambda: cluster.node_devices_of(node_name))
    objects: list[_Observed] = []
    for found in map(_observed, listed):
        if is_only_shown(found.status):
            # it was never allocated here
            shown(found.spec.resource_name, found.status)
        else:
            objects.append(found)
    names = dict.fromkeys(filter(None, (found.resource_name for found in objects)), ())
    kept, conflicts = each_device_once(a for found in objects for a in _allocations(found))
    for lost in conflicts:
        others = (a for a in kept if a.resource_name == lost.resource_name and {*a.device_ids} & {*lost.device_ids})
        extra = {
            "pod_uid": lost.pod_uid,
            "held_by": sorted({a.pod_uid for a in others}),
            "device_ids": list(lost.device_ids),
        }
        log.error("conflict: two pods hold the same device in the status; keeping the first", extra=extra)
    cordons = {found.resource_name: _cordons(found) for found in objects}
    return Checkpoint(
        kept,
        names,
        cordons={name: found for name, found in cordons.items() if name and found.device_ids},
        possible_holders={found.resource_name: tuple(PODS_NOT_SYNCED) for found in objects if _omits(found)},
    )


class _Observed(msgspec.Struct, frozen=True):
    """resource_name: "" where the object has no valid one."""

    name: str
    uid: str
    resource_name: str
    spec: NodeDeviceSpec
    status: NodeDeviceStatus


def _observed(found: NodeDeviceObject) -> _Observed:
    meta, spec = found.metadata, observed_spec(found.spec)
    return _Observed(meta.name or "", meta.uid or "", resource_name_of(spec), spec, observed_status(found.status))


def _omits(found: _Observed) -> bool:
    omitted = found.status.allocations_omitted + sum(held_ids(entry)[1] for entry in found.status.allocations)
    if omitted and found.resource_name:
        extra = {"nodedevice": found.name, "omitted": omitted}
        log.error("NodeDevice status omits allocations; holding the resource back until its pods are gone", extra=extra)
    return bool(omitted and found.resource_name)


def _cordons(found: _Observed) -> Cordons:
    in_spec, remembered = cordons_of(found.spec.cordoned_devices), cordons_of(found.status.remembered_cordons)
    return Cordons(found.uid, in_spec, {i: cordon for i, cordon in remembered.items() if i not in in_spec})


def _allocations(found: _Observed) -> list[Allocation]:
    name, status = found.resource_name, found.status
    if not name:
        log.error(
            "invalid NodeDevice without a resource name; its allocations are lost", extra={"nodedevice": found.name}
        )
        return []
    numa = {device.id: tuple(device.numa_nodes) for device in status.devices}
    held = [(entry, ids) for entry in status.allocations if (ids := held_ids(entry)[0])]
    numa |= {i: numa[parent] for _, ids in held for i in ids if i not in numa and (parent := _parent(i)) in numa}
    return [
        Allocation(each.pod_uid, each.container, name, by_numa(ids, numa), None, since=since_of(each.since))
        for each, ids in held
    ]


def _parent(device_id: str) -> str:
    found = parent_and_number(device_id)
    return found[0] if found is not None else ""
