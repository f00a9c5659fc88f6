"""Reads the facts of an explanation, each kind once. Notes a forbidden kind, and reads the rest."""

from typing import Any

from nodedevice_kube.api_errors import NotFound
from nodedevice_kube.paths import LEASES, NODES, PODS

from kubectl_nodedevice.api import CORE, DRA, GROUP, POD_DEVICES, path_of
from kubectl_nodedevice.cluster import Json, Lease, Node, NodeDevice, Object, Pod, PodDevice
from kubectl_nodedevice.quantities import requests
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.session import Session
from kubectl_nodedevice.why import facts as kinds_of
from kubectl_nodedevice.why import kinds
from kubectl_nodedevice.why.cluster_reader import Gathering
from kubectl_nodedevice.why.controllers import gather as controllers
from kubectl_nodedevice.why.facts import Facts


def of_pod(session: Session, namespace: str, name: str) -> Facts:
    """Raises ApiError if the pod is forbidden, or the API server does not respond."""
    gathering = Gathering(Reader(session.api, session.screen))
    around: dict[str, Any]
    try:
        raw = session.api.get(f"pods {name}", PODS.path(name, namespace))
    except NotFound:
        found = controllers.of_absent(gathering, namespace, name)
        raw = controllers.as_made(found["family"], namespace, name)
        around = _around(gathering, namespace, name, raw) if raw else {"namespace": namespace, "name": name}
        return gathering.facts(**around | found, **_namespace(gathering, namespace))
    around = _around(gathering, namespace, name, raw)
    found = controllers.of_pod(gathering, around["pod"])
    return gathering.facts(**around, **found, **_namespace(gathering, namespace))


def _around(gathering: Gathering, namespace: str, name: str, raw: Json) -> dict[str, Any]:
    """Read what concerns the pod, which may not exist yet."""
    pod = record_of(Pod, raw)
    resources = sorted(requests(pod))
    around: dict[str, Any] = {
        "namespace": namespace,
        "name": name,
        "pod": pod,
        "nodes": _nodes(gathering, pod.node),
        "node_devices": _node_devices(gathering, pod.node) if pod.node else _of_resources(gathering, resources),
        "leases": gathering.all_of(kinds_of.LEASES, LEASES.path(namespace=gathering.release.leases), Lease),
    }
    if pod.meta.uid:
        path = path_of(GROUP, POD_DEVICES, name, namespace)
        around["pod_device"] = gathering.record_of(kinds_of.POD_DEVICES, path, name, PodDevice)
        around["events"] = gathering.events(namespace, f"involvedObject.uid={pod.meta.uid}")
    if pod.claims or resources:
        around["classes"] = gathering.all_of(kinds_of.CLASSES, path_of(DRA, "deviceclasses"), kinds.DeviceClass)
        around["slices"] = gathering.all_of(kinds_of.SLICES, path_of(DRA, "resourceslices"), kinds.Slice)
        around["claims"] = _claims(gathering, namespace)
    if pod.claims:
        path = path_of(DRA, "resourceclaimtemplates", namespace=namespace)
        templates = gathering.all_of(kinds_of.TEMPLATES, path, Object)
        around["templates"] = frozenset(each.meta.name for each in templates)
    return around


def of_node(session: Session, name: str) -> Facts:
    """Read the facts about the node or its devices. Raises ApiError if the API server does not respond."""
    gathering = Gathering(Reader(session.api, session.screen))
    nodes, node_devices = _nodes(gathering, name), _node_devices(gathering, name)
    path = LEASES.path(name, gathering.release.leases)
    lease = gathering.record_of(kinds_of.LEASES, path, name, Lease)
    return gathering.facts(name=name, nodes=nodes, node_devices=node_devices, leases=(lease,) if lease else ())


def _nodes(gathering: Gathering, name: str) -> tuple[Node, ...]:
    if not name:
        return gathering.all_of(kinds_of.NODES, NODES.path(), Node)
    one = gathering.record_of(kinds_of.NODES, NODES.path(name), name, Node)
    return (one,) if one else ()


def _node_devices(gathering: Gathering, node: str) -> tuple[NodeDevice, ...]:
    return tuple(gathering.guarded(kinds_of.NODE_DEVICES, lambda: gathering.reader.node_devices(node), []))


def _of_resources(gathering: Gathering, resources: list[str]) -> tuple[NodeDevice, ...]:
    """Read NodeDevices of requested resources; all of them if one does not exist, as its name may be misspelled."""

    def read() -> list[NodeDevice]:
        found = [gathering.reader.node_devices(resource=each) for each in resources]
        return [one for each in found for one in each] if all(found) else gathering.reader.node_devices()

    return tuple(gathering.guarded(kinds_of.NODE_DEVICES, read, []))


def _namespace(gathering: Gathering, name: str) -> dict[str, str]:
    """Read when the namespace's deletion was requested, and what delays it."""
    path = path_of(CORE, "namespaces", name)
    namespace = gathering.record_of(kinds_of.NAMESPACES, path, name, Object) or Object()
    conditions = namespace.conditions.values() if namespace.meta.deleted else ()
    words = "; ".join(each.message for each in conditions if each.status == "True" and each.message)
    return {"namespace_deleted": namespace.meta.deleted, "namespace_words": words}


def _claims(gathering: Gathering, namespace: str) -> tuple[Any, ...]:
    """Read claims of all namespaces, as they hold devices; if that is forbidden, of the pod's namespace."""
    found = gathering.all_of(kinds_of.CLAIMS, path_of(DRA, "resourceclaims"), kinds.ResourceClaim)
    if found or all(each.kind != kinds_of.CLAIMS for each in gathering.unread):
        return found
    own = path_of(DRA, "resourceclaims", namespace=namespace)
    return gathering.all_of(kinds_of.OWN_CLAIMS, own, kinds.ResourceClaim)
