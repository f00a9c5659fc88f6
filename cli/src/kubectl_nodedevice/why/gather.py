"""Reads what an answer needs, each kind once. What may not be read is noted, and the rest is read all the same."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kubectl_nodedevice import objects
from kubectl_nodedevice.api import APPS, DRA, core_path, group_path, lease_path, path_of
from kubectl_nodedevice.cluster import Json, NodeDevice
from kubectl_nodedevice.errors import Forbidden, NotFound
from kubectl_nodedevice.fields import list_of, map_of, text_of
from kubectl_nodedevice.quantities import requests
from kubectl_nodedevice.reading import AGENTS_NAMESPACE, Reader
from kubectl_nodedevice.session import Session
from kubectl_nodedevice.why import absent, kinds
from kubectl_nodedevice.why import facts as kinds_of
from kubectl_nodedevice.why.facts import Facts, Unread

T = TypeVar("T")
# who makes pods, and where it is
_CONTROLLERS: Final[Mapping[str, str]] = {
    "ReplicaSet": APPS,
    "StatefulSet": APPS,
    "DaemonSet": APPS,
    "Job": "/apis/batch/v1",
    "ReplicationController": "/api/v1",
}
_FLEET_VIEW: Final = "nodedevice-fleet-view"
# with which role each kind can be read; the others by whoever may read pods
_ROLES: Final[Mapping[str, str]] = {
    kinds_of.NODES: _FLEET_VIEW,
    kinds_of.NODE_DEVICES: _FLEET_VIEW,
    kinds_of.LEASES: _FLEET_VIEW,
    kinds_of.CLASSES: _FLEET_VIEW,
    kinds_of.SLICES: _FLEET_VIEW,
    kinds_of.POD_DEVICES: "nodedevice-view",
}


@dataclass
class Gathering:
    """What is read for one answer."""

    reader: Reader
    unread: list[Unread] = field(default_factory=list)

    def guarded(self, kind: str, read: Callable[[], T], otherwise: T) -> T:
        """What `read` gives. A kind that may not be read is noted; one that the cluster lacks has none.

        Raises ApiError for all else.
        """
        try:
            return read()
        except Forbidden:
            self.unread.append(Unread(kind, "you may not read them", _ROLES.get(kind, "view")))
        except NotFound:
            # an older release of Kubernetes, or no CRD
            pass
        return otherwise

    def all_of(
        self, kind: str, path: str, make: Callable[[Json], T], query: Mapping[str, str] | None = None
    ) -> list[T]:
        """Each object of a kind. Raises ApiError."""
        plural = kind.partition(".")[0]
        self.reader.screen.progress(f"reading {plural}")
        return self.guarded(kind, lambda: [make(each) for each in self.reader.api.objects(plural, path, query)], [])

    def one_of(self, kind: str, path: str, name: str) -> Any:
        """The object; None where it is missing, or may not be read. Raises ApiError."""
        return self.guarded(kind, lambda: self.reader.api.get(f"{kind.partition('.')[0]} {name}", path), None)

    def facts(self, **found: Any) -> Facts:
        """By the clock of the API server, now that it has answered."""
        self.reader.screen.end_progress()
        return Facts(self.reader.now, unread=tuple(self.unread), **found)


def of_pod(session: Session, namespace: str, name: str) -> Facts:
    """All that an answer about the pod needs. Raises ApiError where the pod itself may not be read, or nothing answers."""
    gathering = Gathering(Reader(session.api, session.screen))
    try:
        raw = session.api.get(f"pods {name}", core_path("pods", name, namespace))
    except NotFound:
        return _of_absent(gathering, namespace, name)
    return gathering.facts(**_around(gathering, namespace, name, raw))


def _around(gathering: Gathering, namespace: str, name: str, raw: Json) -> dict[str, Any]:
    """All that matters to that pod, which may not exist yet."""
    pod = objects.pod_of(raw)
    nodes, owners = _nodes(gathering, text_of(raw, "spec", "nodeName"))
    has_claims = bool(pod.claims) or bool(requests(pod))
    return {
        "namespace": namespace,
        "name": name,
        "pod": pod,
        "pod_device": _pod_device(gathering, namespace, name) if pod.meta.uid else None,
        "extended_claim": text_of(raw, "status", "extendedResourceClaimStatus", "resourceClaimName"),
        "nodes": nodes,
        "node_devices": _node_devices(gathering, pod.node)
        if pod.node
        else _of_resources(gathering, sorted(requests(pod))),
        "leases": tuple(gathering.all_of(kinds_of.LEASES, lease_path(AGENTS_NAMESPACE), objects.lease_of)),
        "classes": _dra(gathering, kinds_of.CLASSES, "deviceclasses", kinds.class_of) if has_claims else (),
        "slices": _dra(gathering, kinds_of.SLICES, "resourceslices", kinds.slice_of) if has_claims else (),
        "claims": _claims(gathering, namespace) if has_claims else (),
        "templates": _templates(gathering, namespace) if pod.claims else frozenset(),
        "events": _events(gathering, namespace, f"involvedObject.uid={pod.meta.uid}") if pod.meta.uid else (),
        "capacity_owners": owners,
    }


def _of_absent(gathering: Gathering, namespace: str, name: str) -> Facts:
    """Of a pod that a controller cannot make: as its template has it."""
    refused = absent.refusal(_events(gathering, namespace, "reason=FailedCreate"), name)
    if refused is None:
        pods = gathering.all_of("pods", core_path("pods", namespace=namespace), objects.pod_of)
        return gathering.facts(namespace=namespace, name=name, pods=tuple(pods))
    template = _template(gathering, namespace, refused)
    if not template:
        return gathering.facts(namespace=namespace, name=name, refused=refused)
    raw = {"metadata": {"name": name, "namespace": namespace}, "spec": map_of(template, "spec")}
    return gathering.facts(refused=refused, **_around(gathering, namespace, name, raw))


def _template(gathering: Gathering, namespace: str, refused: kinds.Event) -> Json:
    """Of the controller that the Event is about; empty where it is not one of Kubernetes' own, or may not be read."""
    base = _CONTROLLERS.get(refused.about_kind)
    if base is None:
        return {}
    plural = f"{refused.about_kind.lower()}s"
    path = group_path(base, plural, refused.about_name, namespace)
    return map_of(gathering.one_of(plural, path, refused.about_name), "spec", "template")


def of_node(session: Session, name: str) -> Facts:
    """All that an answer about the node, or a device of it, needs. Raises ApiError where nothing answers."""
    gathering = Gathering(Reader(session.api, session.screen))
    nodes, owners = _nodes(gathering, name)
    return gathering.facts(
        name=name,
        nodes=nodes,
        node_devices=_node_devices(gathering, name),
        leases=tuple(
            objects.lease_of(each)
            for each in [gathering.one_of(kinds_of.LEASES, lease_path(AGENTS_NAMESPACE, name), name)]
            if each
        ),
        capacity_owners=owners,
    )


def _nodes(gathering: Gathering, name: str) -> tuple[tuple[Any, ...], Mapping[tuple[str, str], str]]:
    """All Nodes, or the one of that name; and who wrote which number of an extended resource."""
    if name:
        one = gathering.one_of(kinds_of.NODES, core_path("nodes", name), name)
        raw = [one] if one else []
    else:
        raw = gathering.all_of(kinds_of.NODES, core_path("nodes"), lambda each: each)
    owners = {key: manager for each in raw for key, manager in _owners(each)}
    return tuple(objects.node_of(each) for each in raw), owners


def _owners(node: Json) -> list[tuple[tuple[str, str], str]]:
    name = text_of(node, "metadata", "name")
    return [
        ((name, key.removeprefix("f:")), text_of(entry, "manager"))
        for entry in list_of(node, "metadata", "managedFields")
        for key in map_of(entry, "fieldsV1", "f:status", "f:allocatable")
        if "/" in key
    ]


def _node_devices(gathering: Gathering, node: str) -> tuple[NodeDevice, ...]:
    return tuple(gathering.guarded(kinds_of.NODE_DEVICES, lambda: gathering.reader.node_devices(node), []))


def _of_resources(gathering: Gathering, resources: list[str]) -> tuple[NodeDevice, ...]:
    """Those that the pod asks for; all where one of them is nobody's, as its name may be another's, misspelled."""

    def read() -> list[NodeDevice]:
        found = [gathering.reader.node_devices(resource=each) for each in resources]
        return [one for each in found for one in each] if all(found) else gathering.reader.node_devices()

    return tuple(gathering.guarded(kinds_of.NODE_DEVICES, read, []))


def _pod_device(gathering: Gathering, namespace: str, name: str) -> Any:
    found = gathering.one_of(kinds_of.POD_DEVICES, path_of("poddevices", name, namespace), name)
    return objects.pod_device_of(found) if found else None


def _dra(gathering: Gathering, kind: str, plural: str, make: Callable[[Json], T]) -> tuple[T, ...]:
    return tuple(gathering.all_of(kind, group_path(DRA, plural), make))


def _claims(gathering: Gathering, namespace: str) -> tuple[Any, ...]:
    """Of all namespaces, as they hold devices; where these may not be read, the pod's own, and the others are unknown."""
    found = gathering.all_of(kinds_of.CLAIMS, group_path(DRA, "resourceclaims"), kinds.claim_of)
    if found or all(each.kind != kinds_of.CLAIMS for each in gathering.unread):
        return tuple(found)
    own = group_path(DRA, "resourceclaims", namespace=namespace)
    return tuple(gathering.all_of(kinds_of.OWN_CLAIMS, own, kinds.claim_of))


def _templates(gathering: Gathering, namespace: str) -> frozenset[str]:
    path = group_path(DRA, "resourceclaimtemplates", namespace=namespace)
    return frozenset(gathering.all_of(kinds_of.TEMPLATES, path, lambda each: text_of(each, "metadata", "name")))


def _events(gathering: Gathering, namespace: str, selector: str) -> tuple[kinds.Event, ...]:
    path = core_path("events", namespace=namespace)
    found = gathering.all_of(kinds_of.EVENTS, path, kinds.event_of, {"fieldSelector": selector})
    return tuple(sorted(found, key=lambda each: each.at))
