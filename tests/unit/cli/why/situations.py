"""What can be done to a cluster: each changes one thing, which has one code.

`slots`: of changes that share one at most one is done, as each replaces or hides what the other did.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kubectl_nodedevice.cluster import (
    Allocation,
    Condition,
    Container,
    Cordon,
    Device,
    Endpoint,
    Meta,
    Node,
    NodeDevice,
    PartCounts,
    PartRules,
    Pod,
    PodClaim,
    Taint,
    Waiting,
)
from kubectl_nodedevice.why.controllers.controller import Controller
from kubectl_nodedevice.why.facts import Facts
from kubectl_nodedevice.why.kinds import DeviceClass, Event, Request, ResourceClaim, SliceDevice, Workload

from tests.unit.cli.why.clusters import (
    FPGA,
    GPU,
    HOLDING,
    NIC,
    OLD,
    RECENT,
    asking,
    each_device,
    each_found,
    each_node,
    of_node_a,
    pod_of,
    pod_with,
    with_condition,
)


def _shown(facts: Facts, number: str, resource: str = GPU) -> Facts:
    """By each node; of GPUs by those that have any."""

    def change(node: Node) -> Node:
        has_it = resource != GPU or GPU in node.allocatable
        return replace(node, allocatable={**node.allocatable, resource: number}) if has_it else node

    return each_node(facts, change)


def _conflict(facts: Facts) -> Facts:
    facts = _shown(with_condition("Conflict", "True", "ForeignOwner")(facts), "0")
    return each_node(facts, lambda node: replace(node, writers={GPU: "kubelet"}))


def _unadvertised(reason: str) -> Callable[[Facts], Facts]:
    return lambda facts: _shown(with_condition("Advertised", "False", reason)(facts), "0")


def _stopped(reason: str, state: str) -> Callable[[Facts], Facts]:
    def change(facts: Facts) -> Facts:
        facts = with_condition("Registered", "False", reason)(facts)
        return each_found(facts, lambda found: replace(found, endpoint=Endpoint(state, since=OLD), available=0))

    return change


def _held(facts: Facts) -> Facts:
    other = Allocation("other", "big", "uid-9", "main", device_ids=("gpu-1", "gpu-2", "gpu-3"))
    return each_found(facts, lambda found: replace(found, allocations=(other,), allocated=3, available=1))


def _port(facts: Facts, *, taints: tuple[Taint, ...] = (), number: int = 4) -> Facts:
    ports = tuple(SliceDevice(f"port-{i}", taints) for i in range(number))
    return replace(facts, slices=tuple(replace(each, devices=ports) for each in facts.slices))


def _claim(facts: Facts, **changes: Any) -> Facts:
    changed = [replace(each, **changes) if each.meta.name == "train-port" else each for each in facts.claims]
    return replace(facts, claims=tuple(changed))


def _requesting(*classes: str) -> Callable[[Facts], Facts]:
    return lambda facts: _claim(facts, requests=(Request(classes),))


def _elsewhere(facts: Facts) -> Facts:
    field_of = {"key": "metadata.name", "operator": "In", "values": ["node-z"]}
    return _claim(facts, is_allocated=True, node_selector={"nodeSelectorTerms": [{"matchFields": [field_of]}]})


def _nothing_offered(facts: Facts) -> Facts:
    claim = ResourceClaim(Meta("second", "team"), (Request(("disk.example.com",)),))
    known = DeviceClass("disk.example.com", "", "disk.example.com")
    facts = _claims(PodClaim("second", "second"))(facts)
    return replace(facts, claims=(*facts.claims, claim), classes=(*facts.classes, known))


def _claims(added: PodClaim) -> Callable[[Facts], Facts]:
    return lambda facts: pod_with(facts, claims=(*pod_of(facts).claims, added))


def _stray(facts: Facts) -> Facts:
    return _shown(facts, "1", NIC)


def _runs_by_stray(facts: Facts) -> Facts:
    """Counted by that number, it runs, and has no claim."""
    facts = _stray(of_node_a(facts, lambda found: replace(found, allocations=())))
    running = Container("main", requests={NIC: "1"}, state="running")
    return pod_with(facts, phase="Running", containers=(running,), claims=())


def _pressed(facts: Facts) -> Facts:
    pressure = Taint("node.kubernetes.io/memory-pressure", "", "NoSchedule")
    return each_node(facts, lambda node: replace(node, taints=(*node.taints, pressure)))


def _not_ready(facts: Facts) -> Facts:
    ready = Condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    return each_node(facts, lambda node: replace(node, conditions={"Ready": ready}))


@dataclass(frozen=True)
class Change:
    """One thing that is done to a cluster. code: by which it is named."""

    code: str
    do: Callable[[Facts], Facts]
    slots: str = ""
    name: str = ""

    def goes_with(self, other: "Change") -> bool:
        return not {self.id, *self.slots.split()} & {other.id, *other.slots.split()}

    @property
    def id(self) -> str:
        return self.name or self.code


def _unscheduled(facts: Facts) -> Facts:
    return pod_with(facts, conditions={}, scheduler="none", meta=replace(pod_of(facts).meta, created=OLD))


def _unhealthy(reason: str) -> Callable[[Facts], Facts]:
    return lambda facts: each_device(facts, lambda each: replace(each, health="Unhealthy", reason=reason), healthy=0)


def _cordoned(facts: Facts) -> Facts:
    return each_found(facts, lambda found: replace(found, cordons=(Cordon("*", "ecc", "alice"),), available=0))


_TAINT = Taint("gpu", "broken", "NoSchedule")


def _no_devices(**conditions: Condition) -> Callable[[Facts], Facts]:
    """Configured, and nothing of it is there."""

    def none(found: NodeDevice) -> NodeDevice:
        known = {**found.conditions, **conditions}
        return replace(found, total=0, healthy=0, available=0, devices=(), conditions=known)

    return lambda facts: _shown(each_found(facts, none), "0")


def _by_predecessor(facts: Facts) -> Facts:
    old = Allocation("team", "old", "uid-8", "main", device_ids=("gpu-1", "gpu-2", "gpu-3"))
    facts = each_found(facts, lambda found: replace(found, allocations=(old,), allocated=3, available=1))
    root = Controller("Deployment", Meta("web", "team"), is_surging=True)
    return replace(facts, predecessors=frozenset({"team/old"}), rollout=root)


_NO_FILE = Condition("Healthy", "False", "NoDevices", "no file of the host matches /dev/serial/by-id/*")
_REFUSED_IDS = Condition("Registered", "True", "DevicesRefused", "device IDs have control characters")
_QUOTA = Condition("QuotaReserved", "False", "Pending", "insufficient unused quota for gpu in flavor default")
_WORKLOAD = Workload(Meta("pod-train-1", "team"), ("uid-1",), queue="gpus", conditions={"QuotaReserved": _QUOTA})
UNBOUND = (
    Change("NamespaceTerminating", lambda f: replace(f, namespace_deleted=OLD, namespace_words="pods has 1 finalizer")),
    Change(
        "QueueWaits",
        lambda f: replace(pod_with(f, gates=("kueue.x-k8s.io/admission",)), workload=_WORKLOAD, has_queue=True),
        "gate",
    ),
    Change("SchedulingGated", lambda f: pod_with(f, gates=("example.com/queue",)), "gate"),
    Change("NoScheduler", _unscheduled, "gate lost"),
    Change("ClaimMissing", _claims(PodClaim("lost", "lost")), "lost"),
    Change("ClaimMissing", _claims(PodClaim("lost", "", "no-template")), "lost", name="template"),
    Change(
        "ClaimNotMade",
        lambda f: replace(_claims(PodClaim("new", "", "there"))(f), templates=frozenset({"there"})),
        "lost",
    ),
    Change("DeviceClassMissing", _requesting("prot.example.com"), "claim"),
    # the scheduler asks for each of a list
    Change("DeviceClassMissing", _requesting("prot.example.com", "port.example.com"), "claim", "several classes"),
    Change("NothingOffered", _nothing_offered),
    Change("NothingServes", lambda f: asking(f, "example.com/gpus", 1)),
    Change("NodeSelector", lambda f: pod_with(f, node_selector={"zone": "z2"})),
    Change("ClaimElsewhere", _elsewhere, "claim"),
    Change("NodeCordoned", lambda f: each_node(f, lambda n: replace(n, unschedulable=True))),
    Change("NodeNotReady", _pressed),
    Change("NodeTaint", lambda f: each_node(f, lambda n: replace(n, taints=(*n.taints, _TAINT)))),
    Change("NoAgent", lambda f: replace(f, leases=()), "agent"),
    Change("AgentSilent", with_condition("AgentReady", "Unknown", "LeaseExpired"), "agent"),
    Change("NotConfigured", _stopped("NotConfigured", "Gone"), "plugin"),
    Change("PluginAway", _stopped("EndpointStopped", "Stopped"), "plugin"),
    Change("PluginAway", _stopped("DeviceListPending", "Running"), "plugin", "list pending"),
    Change("PlaceTaken", _stopped("PlaceTaken", "Running"), "plugin"),
    Change("NotInjectable", with_condition("Injectable", "False", "NoRuntimeSocket")),
    Change("CapacityConflict", _conflict, "number"),
    Change("PolicyRefuses", _unadvertised("NameExcluded"), "number"),
    Change("CapacityRefused", _unadvertised("WriteRefused"), "number"),
    Change("NodeDeviceInvalid", with_condition("Advertised", "False", "WrongName"), "number"),
    Change("StrayCapacity", _stray, "nic"),
    Change("TooFewTogether", lambda f: asking(f, GPU, 9), "count"),
    Change("NoDevices", _no_devices(Healthy=_NO_FILE), "count health cordon number plugin"),
    Change("DevicesRefused", _no_devices(Registered=_REFUSED_IDS), "count health cordon number plugin", "all refused"),
    Change("HeldByPredecessor", _by_predecessor, "count"),
    Change("DevicesCordoned", _cordoned, "cordon"),
    Change("DevicesBroken", _unhealthy("Xid79"), "health"),
    Change("DevicesInOtherUse", _unhealthy("InOtherUse"), "health"),
    Change("PoolRefused", lambda f: replace(f, slices=tuple(replace(each, count=2) for each in f.slices)), "nic"),
    Change("DevicesTainted", lambda f: _port(f, taints=(_TAINT,)), "nic"),
    Change("DevicesHeld", _held, "count"),
    Change("NodeShowsFewer", lambda f: _shown(asking(f, FPGA, 3), "1", FPGA)),
)


def _waits(final: bool) -> Callable[[Facts], Facts]:
    waiting = Waiting("team", "train", "uid-1", "main", "AllocateFailed", "the plugin refused", OLD, final=final)
    return lambda facts: of_node_a(facts, lambda found: replace(found, waiting=(waiting,), allocations=()))


def _container(reason: str, message: str, **more: Any) -> Callable[[Facts], Facts]:
    def change(facts: Facts) -> Facts:
        (found,) = pod_of(facts).containers
        return pod_with(facts, containers=(replace(found, state="waiting", reason=reason, message=message, **more),))

    return change


def _not_injected(facts: Facts) -> Facts:
    def change(found: NodeDevice) -> NodeDevice:
        return replace(found, allocations=tuple(replace(each, not_injected=True) for each in found.allocations))

    return of_node_a(facts, change)


def _unprepared(facts: Facts) -> Facts:
    event = Event("Pod", "train", "uid-1", "FailedPrepareDynamicResources", "NodePrepareResources failed", RECENT)
    return replace(facts, events=(*facts.events, event))


_MISSING = 'required plugin "nodedevice" not present'
_POISONED = "endpoint not found in cache for a registered resource: x"
BOUND = (
    Change("NodeMissing", lambda f: replace(f, nodes=()), "container agent's prepared kubelet", name="node gone"),
    Change("NodeNotReady", _not_ready, name="kubelet"),
    Change("WaitsOnNode", _waits(False), "agent's"),
    Change("WaitsForGood", _waits(True), "agent's"),
    Change("RequiredPluginMissing", _container("CreateContainerError", _MISSING), "container"),
    Change("NameKeptByKubelet", _container("CreateContainerConfigError", _POISONED), "container"),
    Change("ImageNotPulled", _container("ImagePullBackOff", "back-off"), "container"),
    Change("ContainerNotStarted", _container("CrashLoopBackOff", "back-off"), "container"),
    Change(
        "DeviceFileRefused",
        _container("CrashLoopBackOff", "back-off", last_words="open /dev/ttyUSB0: Permission denied"),
        "container agent's",
    ),
    Change("ClaimNotPrepared", _unprepared, "prepared container"),
    Change("StrayCapacity", _runs_by_stray, "container agent's prepared", "stray and running"),
    Change("RunsWithoutDevices", _not_injected, "agent's"),
)


def _apart(facts: Facts) -> Facts:
    """A third resource is on the one node that has none of the others."""
    facts = asking(facts, FPGA, 1)
    return each_node(facts, lambda node: node if node.meta.name in HOLDING else replace(node, allocatable={FPGA: "1"}))


def _split(facts: Facts) -> Facts:
    """Two devices of 8 parts, of which 5 and 6 are held: 5 are free, at most 3 on one."""
    devices = tuple(Device(f"gpu-{n}", "Healthy", parts=PartCounts(8, 8, 5 + n, 3 - n)) for n in range(2))
    counts: dict[str, Any] = {"total": 16, "healthy": 16, "allocated": 11, "available": 5}
    facts = _shown(asking(facts, GPU, 4), "16")
    return each_found(facts, lambda found: replace(found, devices=devices, parts=PartRules("SameParent"), **counts))


# of these the others would hide one another: each stands by itself
ALONE = (
    Change("PodFailed", lambda f: pod_with(f, phase="Failed", reason="UnexpectedAdmissionError", message="no devices")),
    # its containers have ended well since; a finalizer holds it
    Change("PodDeleted", lambda f: pod_with(f, phase="Succeeded", meta=replace(pod_of(f).meta, deleted=OLD))),
    Change("CapacityBehind", lambda f: _shown(f, "1")),
    Change("NodeLacks", _apart),
    Change("TooFewOnOneDevice", _split),
)


def _absent(*family: Controller, **more: Any) -> Callable[[Facts], Facts]:
    """The pod as they would make it."""

    def change(facts: Facts) -> Facts:
        meta = replace(pod_of(facts).meta, uid="", created="")
        return replace(pod_with(facts, meta=meta, conditions={}), family=family, **more)

    return change


def _refused(message: str) -> Callable[[Facts], Facts]:
    failure = Condition("ReplicaFailure", "True", "FailedCreate", message, RECENT)
    return _absent(Controller("ReplicaSet", Meta("train", uid="uid-rs"), conditions={failure.type: failure}))


def _of_kind(kind: str, **more: Any) -> Controller:
    return Controller(kind, Meta("train", uid="uid-c"), **more)


_FAILED = Condition("Failed", "True", "BackoffLimitExceeded", "it has reached its backoff limit")
_FIRST = Pod(Meta("train-0", "team", "uid-0", owner="StatefulSet/train"), node="node-z", phase="Running")
_OVER_QUOTA = "exceeded quota: team, requested: requests.example.com/gpu=2"
ABSENT = (
    Change("QuotaExceeded", _refused(f'pods "train-x" is forbidden: {_OVER_QUOTA}')),
    Change("CreationRefused", _refused('pods "train-x" is forbidden: error looking up service account team/nobody')),
    Change("NoReplicas", _absent(_of_kind("Deployment", wanted=0))),
    Change("JobSuspended", _absent(_of_kind("Job", is_suspended=True))),
    Change("QueueWaits", _absent(_of_kind("Job", is_suspended=True), workload=_WORKLOAD, has_queue=True), name="queue"),
    Change("JobFailed", _absent(_of_kind("Job", conditions={"Failed": _FAILED}))),
    Change("DeploymentPaused", _absent(_of_kind("Deployment", is_paused=True))),
    Change("EarlierPodNotReady", _absent(_of_kind("StatefulSet", wanted=2, is_ordered=True, made=1), pods=(_FIRST,))),
)
