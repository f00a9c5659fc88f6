"""Decodes pods, and keeps only the fields that the device manager needs, within bounds.

A container that requests devices also keeps the settings that a device plugin must not override, and the kubelet's report on its
devices. Lists of a container are decoded one by one, so that no step takes long. Pure but for the log.
"""

import logging
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Final, TypeVar

import msgspec
from msgspec import structs
from nodedevice_api import extended_resources
from nodedevice_api.assigned_parts import MAX_CHARACTERS
from nodedevice_api.device_ids import shown_id
from nodedevice_api.names import ASSIGNED_PARTS_ANNOTATION, GROUP
from nodedevice_common.decoding import Undecodable, decode
from nodedevice_common.undecodable_objects import log_skipped
from nodedevice_kube.paths import PODS

from nodedevice_agent.devicemanager.container_edits import normalized
from nodedevice_agent.devicemanager.expansion import references
from nodedevice_agent.devicemanager.pods import (
    MAX_SETTINGS,
    NO_SETTINGS,
    Container,
    ContainerKind,
    ContainerSettings,
    Pod,
)
from nodedevice_agent.devicemanager.static_pods import CONFIG_HASH, CONFIG_MIRROR, is_config_hash
from nodedevice_agent.kube.pod_claims import (
    OF_CLAIM,
    ClaimsInStatus,
    ContainerClaim,
    PodResourceClaim,
    claims_of_pod,
    unhealthy,
)
from nodedevice_agent.kube.responses import KubeMetadata, KubeObject

log = logging.getLogger(__name__)

T = TypeVar("T")

# The bound of annotations for device plugins. They stay in memory and in every Allocate call; the API allows 256 KiB.
_MAX_ANNOTATIONS = 16
_MAX_ANNOTATION = 256

# The bound of environment variables that a container's command refers to.
_MAX_REFERENCES = 64
_MAX_REFERENCE = 256

# The bound of unhealthy devices of a pod.
_MAX_UNHEALTHY = 256

# Bounds of a pod: device requests of its containers, and containers without requests, which monitors see.
MAX_REQUESTS = 256
MAX_OTHERS = 64
# The most characters in the name of a variable or the path of a mount.
MAX_SETTING = 256
# the size of one list of a container; a longer list is not decoded
_MAX_LIST_BYTES = 256 * 1024

_IS_OVER = ("Succeeded", "Failed")


class TooManyRequests(ValueError):
    """A pod's containers have more requests for devices than are kept."""


class Resources(msgspec.Struct, gc=False):
    limits: dict[str, str | int] | None = None
    claims: list[ContainerClaim] | None = None


class KeyRef(msgspec.Struct, gc=False):
    optional: bool | None = None


class EnvVar(msgspec.Struct, gc=False):
    name: str = ""
    valueFrom: dict[str, KeyRef | None] | None = None

    @property
    def may_be_missing(self) -> bool:
        """Whether its source is optional: if that does not exist the variable is not set, and the agent cannot know."""
        return any(source is not None and source.optional is True for source in (self.valueFrom or {}).values())


class VolumeMount(msgspec.Struct, gc=False):
    mountPath: str = ""


class RunAs(msgspec.Struct, gc=False):
    runAsUser: int | None = None
    runAsGroup: int | None = None


class SecurityContext(RunAs):
    privileged: bool | None = None


NO_SECURITY_CONTEXT = SecurityContext()


_NULL: Final = msgspec.Raw(b"null")


class ContainerSpec(msgspec.Struct, gc=False):
    """The lists are decoded only if the container requests devices."""

    name: str
    resources: Resources = msgspec.field(default_factory=Resources)
    restartPolicy: str | None = None
    command: msgspec.Raw = _NULL
    args: msgspec.Raw = _NULL
    env: msgspec.Raw = _NULL
    volumeMounts: msgspec.Raw = _NULL
    securityContext: SecurityContext | None = None


class PodObjectSpec(msgspec.Struct, gc=False):
    containers: list[ContainerSpec] = []
    initContainers: list[ContainerSpec] | None = None
    securityContext: RunAs | None = None
    resourceClaims: list[PodResourceClaim] | None = None


class PodObject(KubeObject):
    resource = PODS
    spec: PodObjectSpec = msgspec.field(default_factory=PodObjectSpec)
    status: ClaimsInStatus = msgspec.field(default_factory=ClaimsInStatus)
    is_unread: bool = False

    @classmethod
    def known_by_name(cls, metadata: KubeMetadata) -> "PodObject":
        """Replaces a pod that cannot be decoded: it keeps its devices and gets no more."""
        return cls(metadata=metadata, is_unread=True)


class SeenPod(msgspec.Struct, frozen=True):
    """The reduced pod object. metadata: identifies its version."""

    metadata: KubeMetadata
    pod: Pod


def seen(found: PodObject) -> SeenPod:
    meta = found.metadata
    return SeenPod(KubeMetadata(meta.name, meta.namespace, meta.uid, meta.resourceVersion), from_api(found))


def from_api(pod: PodObject) -> Pod:
    """The result is bounded for any object. Only the name of an ended pod is used."""
    meta = pod.metadata
    known = Pod(
        uid=meta.uid or "",
        namespace=meta.namespace or "",
        name=meta.name,
        containers=(),
        has_ended=pod.status.phase in _IS_OVER,
        is_terminating=meta.deletionTimestamp is not None,
        config_hash=_config_hash(pod),
    )
    if known.has_ended:
        return known
    if pod.is_unread:
        return structs.replace(known, unread="it cannot be decoded")
    try:
        containers = _containers(pod)
    except (TooManyRequests, Undecodable) as exc:
        log_skipped(log, "pods", known.namespace, known.name, exc)
        return structs.replace(known, unread=str(exc))
    specs = (*(pod.spec.initContainers or ()), *pod.spec.containers)
    using = [(spec.name, spec.resources.claims) for spec in specs if spec.resources.claims]
    annotations, has_requests = meta.annotations or {}, any(c.limits for c in containers)
    sick = (
        (name, shown_id(device.resourceID))
        for _, name, device in unhealthy(pod.status)
        if not name.startswith(OF_CLAIM)
    )
    return structs.replace(
        known,
        containers=containers,
        annotations=_for_plugins(annotations) if has_requests else {},
        # one character more is enough to see that it is too long
        assigned_parts=annotations.get(ASSIGNED_PARTS_ANNOTATION, "")[: MAX_CHARACTERS + 1] if has_requests else "",
        unhealthy=frozenset(islice(sick, _MAX_UNHEALTHY)) if has_requests else frozenset(),
        claims=claims_of_pod(pod.spec.resourceClaims or (), using, pod.status),
    )


def _containers(pod: PodObject) -> tuple[Container, ...]:
    """Containers that request devices, and a few others. Raises TooManyRequests."""
    claims = pod.status.extendedResourceClaimStatus
    # devices allocated through dynamic resource allocation (KEP-5004) under the same name come from a DRA driver
    mappings = claims.requestMappings or () if claims is not None else ()
    by_claim = frozenset((mapping.containerName, mapping.resourceName) for mapping in mappings)
    settings = _Settings(pod.spec.securityContext or NO_SECURITY_CONTEXT)
    found: list[Container] = []
    others = requests = 0
    specs = chain(((c, True) for c in pod.spec.initContainers or ()), ((c, False) for c in pod.spec.containers))
    for spec, is_init in specs:
        limits = _limits(spec, by_claim)
        requests += len(limits)
        others += not (limits or spec.resources.claims)
        if requests > MAX_REQUESTS:
            raise TooManyRequests(f"it has more than {MAX_REQUESTS:,} requests of containers for devices")
        if limits or spec.resources.claims or others <= MAX_OTHERS:
            kind = ContainerKind.APP
            if is_init:
                kind = ContainerKind.SIDECAR if spec.restartPolicy == "Always" else ContainerKind.INIT
            found.append(Container(spec.name, kind, limits, settings.of(spec) if limits else NO_SETTINGS))
    return tuple(found)


def _limits(spec: ContainerSpec, by_claim: frozenset[tuple[str, str]]) -> dict[str, int]:
    limits = {}
    for name, quantity in (spec.resources.limits or {}).items():
        is_ours = extended_resources.is_extended_resource(name) and (spec.name, name) not in by_claim
        count = _count(quantity) if is_ours else 0
        if count > 0:
            limits[name] = count
    return limits


def _for_plugins(annotations: Mapping[str, str]) -> dict[str, str]:
    """Annotations in nodedevice.io/, which are for device plugins."""
    names = sorted(annotations.keys() - {ASSIGNED_PARTS_ANNOTATION})
    ours = [name for name in names if name.startswith(f"{GROUP}/")][:_MAX_ANNOTATIONS]
    return {name: annotations[name][:_MAX_ANNOTATION] for name in ours}


def _config_hash(pod: PodObject) -> str:
    """The UID of the static pod that this pod claims to mirror; empty for all others."""
    annotations = pod.metadata.annotations or {}
    uid = annotations.get(CONFIG_HASH, "") if CONFIG_MIRROR in annotations else ""
    return uid if is_config_hash(uid) else ""


class _Settings:
    """Settings of the containers of one pod: at most MAX_SETTINGS in sum."""

    def __init__(self, pods: RunAs) -> None:
        self._pods = pods
        self._left = MAX_SETTINGS

    def of(self, spec: ContainerSpec) -> ContainerSettings:
        """Raises Undecodable."""
        own = spec.securityContext or NO_SECURITY_CONTEXT
        variables, mounts = _listed(spec.env, EnvVar), _listed(spec.volumeMounts, VolumeMount)
        words = [*(_listed(spec.command, str) or ()), *(_listed(spec.args, str) or ())]
        envs = self._kept(env.name for env in variables or () if not env.may_be_missing)
        paths = self._kept(normalized(mount.mountPath) for mount in mounts or ())
        is_whole = None not in (variables, mounts, envs, paths)
        short_references = (name for name in references(words) if len(name) <= _MAX_REFERENCE)
        return ContainerSettings(
            envs or frozenset(),
            paths or frozenset(),
            is_privileged=own.privileged is True,
            run_as_user=self._pods.runAsUser if own.runAsUser is None else own.runAsUser,
            run_as_group=self._pods.runAsGroup if own.runAsGroup is None else own.runAsGroup,
            references=frozenset(islice(short_references, _MAX_REFERENCES)) - (envs or frozenset()),
            is_whole=is_whole,
        )

    def _kept(self, names: Iterable[str]) -> frozenset[str] | None:
        """None if there are too many, or one is too long."""
        found = frozenset(islice(names, self._left + 1))
        if len(found) > self._left or any(len(name) > MAX_SETTING for name in found):
            return None
        self._left -= len(found)
        return found


def _listed(text: msgspec.Raw, form: type[T]) -> list[T] | None:
    """A list of the container; None for one that is too long to be decoded. Raises Undecodable."""
    if memoryview(text).nbytes > _MAX_LIST_BYTES:
        return None
    found: list[T] | None = decode(text, list[form] | None)  # type: ignore[valid-type]  # a form that is made of a value
    return found or []


def _count(quantity: str | int) -> int:
    """A whole number of devices; the API server admits nothing else for an extended resource."""
    number = extended_resources.count(str(quantity))
    if number is None:
        log.warning("limit is not a whole number; counting it as zero", extra={"limit": str(quantity)[:64]})
    return number or 0
