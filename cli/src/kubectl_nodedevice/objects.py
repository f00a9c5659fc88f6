"""Objects as the API server has them become records: the one place that knows their form in JSON.

Each `…_of` takes an object and never fails: what is absent, or of another form than expected, as with the CRDs of another
release, has the default of its field. NodeDevices and PodDevices are read as `nodedevice_api` writes them; a test compares the two.
"""

from collections.abc import Mapping

from kubectl_nodedevice.cluster import (
    Agent,
    Allocation,
    Claim,
    ClaimedDevice,
    Condition,
    Config,
    Container,
    Cordon,
    Device,
    Endpoint,
    HeldDevice,
    HeldParts,
    HeldResource,
    HoldingContainer,
    Json,
    Lease,
    Meta,
    Node,
    NodeDevice,
    PartCounts,
    PartRules,
    Pod,
    PodClaim,
    PodDevice,
    Taint,
    Toleration,
    Waiting,
)
from kubectl_nodedevice.fields import (
    each_of,
    is_set,
    list_of,
    map_of,
    number_of,
    numbers_of,
    text_of,
    texts_of,
    value_at,
    words_of,
)


def meta_of(obj: Json) -> Meta:
    meta = map_of(obj, "metadata")
    owners = [each for each in list_of(meta, "ownerReferences") if is_set(each, "controller")]
    return Meta(
        text_of(meta, "name"),
        text_of(meta, "namespace"),
        text_of(meta, "uid"),
        text_of(meta, "resourceVersion"),
        number_of(meta, "generation"),
        text_of(meta, "creationTimestamp"),
        text_of(meta, "deletionTimestamp"),
        f"{text_of(owners[0], 'kind')}/{text_of(owners[0], 'name')}" if owners else "",
        texts_of(meta, "labels"),
        texts_of(meta, "annotations"),
    )


def conditions_of(obj: Json) -> Mapping[str, Condition]:
    """Those of its status, by type."""
    return {each.type: each for each in each_of(_condition, obj, "status", "conditions")}


def _condition(obj: Json) -> Condition:
    return Condition(
        text_of(obj, "type"),
        text_of(obj, "status"),
        text_of(obj, "reason"),
        text_of(obj, "message"),
        text_of(obj, "lastTransitionTime"),
        number_of(obj, "observedGeneration"),
    )


def cordon_of(obj: Json) -> Cordon:
    return Cordon(text_of(obj, "id"), text_of(obj, "reason"), text_of(obj, "by"), text_of(obj, "at"))


def node_device_of(obj: Json) -> NodeDevice:
    status = map_of(obj, "status")
    total = value_at(status, "total")
    return NodeDevice(
        meta_of(obj),
        text_of(obj, "spec", "nodeName"),
        text_of(obj, "spec", "resourceName"),
        each_of(cordon_of, obj, "spec", "cordonedDevices"),
        total if isinstance(total, int) else None,
        number_of(status, "healthy"),
        number_of(status, "cordoned"),
        number_of(status, "allocated"),
        number_of(status, "releasing"),
        number_of(status, "reserved"),
        number_of(status, "available"),
        _endpoint(map_of(status, "endpoint")),
        _agent(map_of(status, "agent")),
        text_of(status, "driver"),
        text_of(status, "pool"),
        _part_rules(map_of(status, "parts")),
        each_of(_device, status, "devices"),
        number_of(status, "devicesOmitted"),
        each_of(_allocation, status, "allocations"),
        number_of(status, "allocationsOmitted"),
        each_of(_waiting, status, "waiting"),
        number_of(status, "waitingPods"),
        each_of(cordon_of, status, "rememberedCordons"),
        conditions_of(obj),
    )


def _endpoint(obj: Json) -> Endpoint:
    return Endpoint(
        text_of(obj, "state"),
        text_of(obj, "since"),
        is_set(obj, "preStartRequired"),
        is_set(obj, "getPreferredAllocationAvailable"),
    )


def _agent(obj: Json) -> Agent:
    return Agent(text_of(obj, "version"), text_of(obj, "runtime"), text_of(obj, "servedBy"))


def _part_rules(obj: Json) -> PartRules | None:
    if not obj:
        return None
    percent = obj.get("smPercent")
    return PartRules(
        text_of(obj, "placement"),
        text_of(obj, "choice"),
        text_of(obj, "containers"),
        text_of(obj, "advertise"),
        percent if isinstance(percent, int) else None,
        number_of(obj, "largestAvailable"),
    )


def _device(obj: Json) -> Device:
    parts = map_of(obj, "parts")
    return Device(
        text_of(obj, "id"),
        text_of(obj, "health"),
        text_of(obj, "presence"),
        text_of(obj, "reason"),
        text_of(obj, "message"),
        text_of(obj, "since"),
        text_of(obj, "cordonedSince"),
        text_of(obj, "cordonedBy"),
        _part_counts(parts) if parts else None,
        numbers_of(obj, "numaNodes"),
        texts_of(obj, "attributes"),
        each_of(_device_taint, obj, "taints"),
    )


def _part_counts(obj: Json) -> PartCounts:
    return PartCounts(*(number_of(obj, key) for key in ("total", "healthy", "allocated", "available")))


def _device_taint(obj: Json) -> Taint:
    """As an agent writes it."""
    return Taint(text_of(obj, "key"), text_of(obj, "value"), text_of(obj, "effect"), text_of(obj, "since"))


def _allocation(obj: Json) -> Allocation:
    claim = map_of(obj, "claim")
    return Allocation(
        text_of(obj, "namespace"),
        text_of(obj, "name"),
        text_of(obj, "podUID"),
        text_of(obj, "container"),
        text_of(obj, "since"),
        each_of(_held_parts, obj, "parts"),
        words_of(obj, "deviceIDs"),
        number_of(obj, "deviceIDsOmitted"),
        is_set(obj, "releasing"),
        is_set(obj, "notInjected"),
        Claim(text_of(claim, "name"), text_of(claim, "uid"), each_of(_claimed, claim, "devices")) if claim else None,
    )


def _held_parts(obj: Json) -> HeldParts:
    return HeldParts(
        text_of(obj, "parent"), number_of(obj, "parts"), text_of(obj, "numbers"), text_of(obj, "sep") or "-"
    )


def _claimed(obj: Json) -> ClaimedDevice:
    return ClaimedDevice(
        text_of(obj, "id"),
        text_of(obj, "shareID"),
        texts_of(obj, "consumedCapacity"),
        is_set(obj, "adminAccess"),
        text_of(obj, "extendedResource"),
    )


def _waiting(obj: Json) -> Waiting:
    return Waiting(
        text_of(obj, "namespace"),
        text_of(obj, "name"),
        text_of(obj, "podUID"),
        text_of(obj, "container"),
        text_of(obj, "reason"),
        text_of(obj, "message"),
        text_of(obj, "since"),
        is_set(obj, "notInjected"),
        is_set(obj, "final"),
    )


def pod_device_of(obj: Json) -> PodDevice:
    return PodDevice(
        meta_of(obj),
        text_of(obj, "spec", "nodeName"),
        text_of(obj, "spec", "podUID"),
        text_of(obj, "status", "resources"),
        text_of(obj, "status", "devices"),
        text_of(obj, "status", "health"),
        each_of(_holding, obj, "status", "containers"),
    )


def _holding(obj: Json) -> HoldingContainer:
    return HoldingContainer(text_of(obj, "name"), each_of(_held_resource, obj, "resources"))


def _held_resource(obj: Json) -> HeldResource:
    return HeldResource(
        text_of(obj, "resourceName"), text_of(obj, "driver"), text_of(obj, "pool"), each_of(_held, obj, "devices")
    )


def _held(obj: Json) -> HeldDevice:
    return HeldDevice(
        text_of(obj, "id"),
        text_of(obj, "health"),
        numbers_of(obj, "numaNodes"),
        number_of(obj, "parts"),
        number_of(obj, "of"),
        text_of(obj, "claim"),
        text_of(obj, "shareID"),
        text_of(obj, "extendedResource"),
        each_of(_device_taint, obj, "taints"),
    )


def node_of(obj: Json) -> Node:
    return Node(
        meta_of(obj),
        is_set(obj, "spec", "unschedulable"),
        each_of(taint_of, obj, "spec", "taints"),
        texts_of(obj, "status", "capacity"),
        texts_of(obj, "status", "allocatable"),
        conditions_of(obj),
    )


def taint_of(obj: Json) -> Taint:
    """As Kubernetes writes it, of a Node or in a ResourceSlice."""
    return Taint(text_of(obj, "key"), text_of(obj, "value"), text_of(obj, "effect"), text_of(obj, "timeAdded"))


def pod_of(obj: Json) -> Pod:
    spec = map_of(obj, "spec")
    return Pod(
        meta_of(obj),
        text_of(spec, "nodeName"),
        text_of(obj, "status", "phase"),
        text_of(spec, "schedulerName"),
        number_of(spec, "priority"),
        text_of(spec, "runtimeClassName"),
        tuple(text_of(each, "name") for each in list_of(spec, "schedulingGates")),
        _containers(obj),
        _pod_claims(obj),
        texts_of(spec, "nodeSelector"),
        map_of(spec, "affinity"),
        each_of(_toleration, spec, "tolerations"),
        conditions_of(obj),
        text_of(obj, "status", "reason"),
        text_of(obj, "status", "message"),
        text_of(obj, "status", "nominatedNodeName"),
        _is_constrained(spec),
    )


def _is_constrained(spec: Json) -> bool:
    """Whether the scheduler compares it with other pods, or with volumes."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    by_pods = any(list_of(spec, "affinity", kind, required) for kind in ("podAffinity", "podAntiAffinity"))
    spread = list_of(spec, "topologySpreadConstraints")
    ports = [port for each in list_of(spec, "containers") for port in list_of(each, "ports")]
    volumes = list_of(spec, "volumes")
    return (
        by_pods
        or any(text_of(each, "whenUnsatisfiable") != "ScheduleAnyway" for each in spread)
        or any(number_of(each, "hostPort") for each in ports)
        or any(map_of(each, "persistentVolumeClaim") or map_of(each, "ephemeral") for each in volumes)
    )


def _containers(pod: Json) -> tuple[Container, ...]:
    """Init containers first, as they start."""
    found: list[Container] = []
    for key, statuses in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        states = {text_of(each, "name"): each for each in list_of(pod, "status", statuses)}
        for each in list_of(pod, "spec", key):
            found.append(_container(each, key == "initContainers", states.get(text_of(each, "name"), {})))
    return tuple(found)


def _container(obj: Json, is_init: bool, status: Json) -> Container:
    states = map_of(status, "state")
    state = next(iter(states), "")
    return Container(
        text_of(obj, "name"),
        text_of(obj, "image"),
        {**texts_of(obj, "resources", "limits"), **texts_of(obj, "resources", "requests")},
        tuple(text_of(each, "name") for each in list_of(obj, "resources", "claims")),
        is_init,
        is_init and text_of(obj, "restartPolicy") == "Always",
        state,
        text_of(states, state, "reason"),
        text_of(states, state, "message"),
        text_of(states, "terminated", "message") or text_of(status, "lastState", "terminated", "message"),
    )


def _pod_claims(pod: Json) -> tuple[PodClaim, ...]:
    made = {
        text_of(each, "name"): text_of(each, "resourceClaimName")
        for each in list_of(pod, "status", "resourceClaimStatuses")
    }
    return tuple(
        PodClaim(
            text_of(each, "name"),
            text_of(each, "resourceClaimName") or made.get(text_of(each, "name"), ""),
            text_of(each, "resourceClaimTemplateName"),
        )
        for each in list_of(pod, "spec", "resourceClaims")
    )


def _toleration(obj: Json) -> Toleration:
    return Toleration(
        text_of(obj, "key"), text_of(obj, "operator") or "Equal", text_of(obj, "value"), text_of(obj, "effect")
    )


def config_of(obj: Json) -> Config:
    return Config(
        meta_of(obj),
        number_of(obj, "spec", "priority"),
        map_of(obj, "spec", "nodeSelector"),
        map_of(obj, "spec", "plugins"),
        number_of(obj, "status", "nodes", "selected"),
        number_of(obj, "status", "nodes", "accepted"),
        number_of(obj, "status", "nodes", "refused"),
        conditions_of(obj),
    )


def lease_of(obj: Json) -> Lease:
    return Lease(
        meta_of(obj),
        text_of(obj, "spec", "holderIdentity"),
        text_of(obj, "spec", "renewTime"),
        number_of(obj, "spec", "leaseDurationSeconds"),
    )
