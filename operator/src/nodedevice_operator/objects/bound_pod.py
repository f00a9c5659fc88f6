"""A bound pod that has not ended: its needs, and its assigned parts. The needs come from its spec, in the order of allocation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from nodedevice_api import assigned_parts, names
from nodedevice_api.assigned_parts import Assigned
from nodedevice_api.extended_resources import count, is_extended_resource
from nodedevice_kube.interning import intern
from nodedevice_kube.planner import Need

from nodedevice_operator.objects.meta import ObjectMetadata, Schema, shared

# Source: pkg/kubelet/types/pod_update.go, ConfigHashAnnotationKey and ConfigMirrorAnnotationKey
_CONFIG_HASH: Final = "kubernetes.io/config.hash"
CONFIG_MIRROR: Final = "kubernetes.io/config.mirror"
_NOTHING: Final[Assigned] = {}
_SIDECAR: Final = "Always"
_ALL_PERCENT: Final = 100
_LONGEST_QUOTE: Final = 40


class _Limits(Schema):
    limits: dict[str, str | int] | None = None


class _PodContainer(Schema):
    name: str = ""
    resources: _Limits = msgspec.field(default_factory=_Limits)
    restart_policy: str | None = None


class BoundPodSpec(Schema):
    node_name: str = ""
    priority: int | None = None
    containers: list[_PodContainer] | None = None
    init_containers: list[_PodContainer] | None = None


class _Annotated(ObjectMetadata):
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class BoundPodSchema(Schema):
    """The fields of a pod, bound or not, that its needs and its assignment depend on."""

    metadata: _Annotated
    spec: BoundPodSpec = msgspec.field(default_factory=BoundPodSpec)


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """By resource name: the containers that request it, in the kubelet's order. problem: why the annotation is invalid."""

    of: tuple[tuple[str, tuple[Need, ...]], ...] = ()
    sm_percent: int | None = None
    problem: str = ""

    def containers(self, resource: str) -> tuple[Need, ...]:
        return next((containers for name, containers in self.of if name == resource), ())


NO_NEEDS: Final = PodNeeds()
# Pods of one template have one object.
_pod_needs = shared(PodNeeds)
_need = shared(Need)


def pod_needs(obj: BoundPodSchema) -> PodNeeds:
    """The pod's needs of extended resources. A limit that is not a whole number is ignored, as in the agent."""
    found: dict[str, list[Need]] = {}
    for container in obj.spec.init_containers or ():
        _add(found, container, is_init=container.restart_policy != _SIDECAR)
    for container in obj.spec.containers or ():
        _add(found, container, is_init=False)
    if not found:
        return NO_NEEDS
    percent, problem = _sm_percent((obj.metadata.annotations or {}).get(names.SM_PERCENT_ANNOTATION))
    return _pod_needs(tuple((resource, tuple(found[resource])) for resource in sorted(found)), percent, problem)


def _add(found: dict[str, list[Need]], container: _PodContainer, *, is_init: bool) -> None:
    for resource, quantity in (container.resources.limits or {}).items():
        if is_extended_resource(resource) and (number := count(str(quantity)) or 0) > 0:
            found.setdefault(intern(resource), []).append(_need(number, is_init, intern(container.name)))


def _sm_percent(text: str | None) -> tuple[int | None, str]:
    if text is None:
        return None, ""
    if text.isascii() and text.isdigit() and len(text) <= len("100") and 1 <= int(text) <= _ALL_PERCENT:
        return int(text), ""
    return None, (
        f"annotation {names.SM_PERCENT_ANNOTATION}: {text[:_LONGEST_QUOTE]!a} must be a whole number from 1 to 100, the percent of "
        "a GPU's multiprocessors for each container of the pod; delete the pod, and create it with another value"
    )


@dataclass(frozen=True, slots=True)
class BoundPod:
    """parts: its assignment, without resources for which the annotation contradicts the pod's limits. Where each container has
    parts of one parent, just these, in the order of the needs: there are a hundred thousand pods.

    static_uid: of the static pod that it mirrors, under which an agent may list it; "" for others. is_ending: it is being deleted.
    """

    namespace: str
    name: str
    uid: str
    resource_version: int = field(compare=False)
    node: str
    priority: int = 0
    needs: PodNeeds = PodNeeds()
    parts: Assigned | tuple[str, ...] = ()
    static_uid: str = ""
    is_ending: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def assigned(self) -> Assigned:
        """By resource, container and parent; empty without an assignment."""
        if not isinstance(self.parts, tuple):
            return self.parts
        if not self.parts:
            return _NOTHING
        parents = iter(self.parts)
        return {
            resource: {each.container: {next(parents): each.count} for each in containers}
            for resource, containers in self.needs.of
        }


def bound_pod(obj: BoundPodSchema) -> BoundPod:
    """Its record. An assignment that does not decode counts as none: anybody who may write the pod can write it."""
    meta, needs = obj.metadata, pod_needs(obj)
    annotations = meta.annotations or {}
    is_mirror = CONFIG_MIRROR in annotations
    return BoundPod(
        intern(meta.namespace),
        meta.name,
        intern(meta.uid),
        int(meta.resource_version),
        intern(obj.spec.node_name),
        obj.spec.priority or 0,
        needs,
        _parts(annotations.get(names.ASSIGNED_PARTS_ANNOTATION), meta.uid, needs),
        annotations.get(_CONFIG_HASH, "") if is_mirror else "",
        meta.deletion_timestamp is not None,
    )


def _parts(text: str | None, uid: str, needs: PodNeeds) -> Assigned | tuple[str, ...]:
    if text is None or not needs.of:
        return ()
    try:
        found = assigned_parts.decode(text, uid)
    except ValueError:
        return ()
    kept = {
        resource: found[resource]
        for resource, containers in needs.of
        if resource in found and _sums(found[resource]) == {each.container: each.count for each in containers}
    }
    ordered = [kept[resource][each.container] for resource, of in needs.of if resource in kept for each in of]
    if len(kept) == len(needs.of) and all(len(parents) == 1 for parents in ordered):
        return tuple(intern(next(iter(parents))) for parents in ordered)
    return kept


def _sums(parts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {container: sum(of.values()) for container, of in parts.items()}
