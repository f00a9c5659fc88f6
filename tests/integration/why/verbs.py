"""What can be done so that a pod waits: each does one thing by the API, and has the code by which `why` names it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nodedevice_api import names

from tests.cluster.api import Lease, Namespace, NodeDevice, NodeDeviceConfig, PatchType, Pod
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import node_device_config
from tests.integration.why.situations import Situation, workload

Do = Callable[[Situation], None]
_DRA = "resource.k8s.io/v1"


@dataclass(frozen=True)
class Verb:
    """code: by which `why` names it; several, or none for what must not be named. slots: words; of verbs that share one at most one
    is done, and with `alone` nothing else. before: the agents have made anything. after: the pod is made.
    """

    code: str
    name: str
    do: Do | None = None
    slots: str = ""
    before: Do | None = None
    after: Do | None = None

    def goes_with(self, other: "Verb") -> bool:
        """Whether both can be done, and be seen, in one situation."""
        mine, others = ({each.code or each.name, *each.slots.split()} for each in (self, other))
        return "alone" not in mine | others and not mine & others


def _gate(at: Situation) -> None:
    at.spec["schedulingGates"] = [{"name": "example.com/queue"}]


def _other_scheduler(at: Situation) -> None:
    at.spec["schedulerName"] = "nobody"


def _misspelled(at: Situation) -> None:
    at.requests[f"{at.resource}s"] = "1"


def _claim(at: Situation, **how: str) -> None:
    at.spec.setdefault("resourceClaims", []).append({"name": f"claim-{len(at.spec.get('resourceClaims', []))}", **how})


def _lost_claim(at: Situation) -> None:
    _claim(at, resourceClaimName="lost")


def _lost_template(at: Situation) -> None:
    _claim(at, resourceClaimTemplateName="lost")


def _ask_for_one(at: Situation, suffix: str, **how: Any) -> str:
    """A claim for one device, and its name."""
    meta = {"name": f"{at.name}-{suffix}", "namespace": at.namespace}
    spec = {"devices": {"requests": [{"name": "one", **how}]}}
    at.apply({"apiVersion": _DRA, "kind": "ResourceClaim", "metadata": meta, "spec": spec})
    _claim(at, resourceClaimName=meta["name"])
    return meta["name"]


def _of_class(at: Situation, suffix: str, device_class: str) -> str:
    return _ask_for_one(at, suffix, exactly={"deviceClassName": device_class})


def _device_class(at: Situation, name: str, driver: str, extended_resource: str = "") -> None:
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}
    spec |= {"extendedResourceName": extended_resource} if extended_resource else {}
    at.apply({"apiVersion": _DRA, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec})


def _slices(at: Situation, driver: str, taint: str = "", *, count: int = 1) -> None:
    device: dict[str, Any] = {"name": "port-0"}
    if taint:
        device["taints"] = [{"key": taint, "effect": "NoSchedule"}]
    for node in at.nodes:
        pool = {"name": node, "generation": 1, "resourceSliceCount": count}
        spec = {"driver": driver, "pool": pool, "nodeName": node, "devices": [device]}
        at.apply({"apiVersion": _DRA, "kind": "ResourceSlice", "metadata": {"name": f"{node}-{driver}"}, "spec": spec})


def _offered(at: Situation, word: str, taint: str = "", *, count: int = 1, resource: str = "") -> str:
    """A driver with a class of its devices, one on each node. Returns its name, which is that of the class."""
    driver = f"{at.name}.{word}.example.com"
    _device_class(at, driver, driver, resource)
    _slices(at, driver, taint, count=count)
    return driver


def _lost_class(at: Situation) -> None:
    _of_class(at, "classless", f"{at.name}.lost.example.com")


def _nothing_offered(at: Situation) -> None:
    driver = f"{at.name}.idle.example.com"
    _device_class(at, driver, driver)
    _of_class(at, "idle", driver)


def _tainted(at: Situation) -> None:
    _of_class(at, "tainted", _offered(at, "tainted", "example.com/broken"))


def _incomplete(at: Situation) -> None:
    _of_class(at, "incomplete", _offered(at, "parts", count=2))


def _elsewhere(at: Situation) -> None:
    driver = _offered(at, "else")
    name = _of_class(at, "elsewhere", driver)
    # a claim that nobody uses the scheduler takes back
    using = {"resourceClaims": [{"name": "claim", "resourceClaimName": name}], "nodeName": at.nodes[0]}
    uid = at.make_other("user", using)
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["another-node"]}]}
    result = {"request": "one", "driver": driver, "pool": "another-node", "device": "port-0"}
    allocated = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    reserved = [{"resource": "pods", "name": f"{at.name}-user", "uid": uid}]
    body = json.dumps({"status": {"allocation": allocated, "reservedFor": reserved}})
    at.cluster.kubectl(
        "patch", "resourceclaim", name, "-n", at.namespace, "--subresource=status", "--type=merge", "-p", body
    )


def _stray(at: Situation) -> None:
    resource = f"{at.name}.example.com/nic"
    _offered(at, "stray", resource=resource)
    at.show(resource, 1)
    at.requests[resource] = "1"


def _only_a_number(at: Situation) -> None:
    resource = f"{at.name}.example.com/fpga"
    at.show(resource, 1)
    at.requests[resource] = "3"


def _selector(at: Situation) -> None:
    at.spec["nodeSelector"] = {"example.com/zone": "nowhere"}


def _node_cordoned(at: Situation) -> None:
    at.patch_nodes({"spec": {"unschedulable": True}})


def _taint(at: Situation) -> None:
    for node in at.nodes:
        at.cluster.kubectl("taint", "node", node, "example.com/repair=now:NoSchedule")


def _no_lease(at: Situation) -> None:
    for node in at.nodes:
        at.client.delete(Lease, node, namespace=names.AGENTS_NAMESPACE)


def _expired_lease(at: Situation) -> None:
    """The operator counts by its own clock, from when it first saw that renewal."""
    for node in at.nodes:
        at.renew(node, seconds=1)
    for node in at.nodes:
        _wait(at, node, "AgentReady", "Unknown")


def _wait(at: Situation, node: str, kind: str, status: str) -> None:
    wait_until(lambda: at.condition(node, kind).get("status") == status, f"{kind} of {node} is {status}", 120)


def _changed(**changes: Any) -> Do:
    def do(at: Situation) -> None:
        for agent in at.agents.values():
            for key, value in changes.items():
                setattr(agent, key, value)
        at.publish()
        at.is_lowered = True

    return do


def _config_deleted(at: Situation) -> None:
    """A NodeDeviceConfig of the resource is there, and is taken away; the agents end the plugin."""
    plugins = {"simulated": [{"resourceName": at.resource, "count": 4}]}
    at.client.create(node_device_config(at.name, plugins, nodeSelector={"of": at.name}))
    at.client.delete(NodeDeviceConfig, at.name)
    # it stays as long as somebody holds a device of it
    for node in at.nodes:
        at.hold(node, f"{node}-keeps", "gpu-3")
    at.publish()
    _changed(state="Gone", registered="NotConfigured")(at)


def _foreign(at: Situation) -> None:
    at.show(at.resource, 0)
    at.shown = 0


def _cordoned(at: Situation) -> None:
    cordon = {"spec": {"cordonedDevices": [{"id": "all", "reason": "firmware", "by": "alice"}]}}
    for node in at.nodes:
        at.client.patch(NodeDevice, at.node_device(node), cordon, patch_type=PatchType.MERGE, field_manager="alice")
    _changed(cordoned=4)(at)


def _asks(quantity: str) -> Do:
    """The API server stores it letter for letter."""

    def do(at: Situation) -> None:
        at.requests[at.resource] = quantity

    return do


def _held(at: Situation) -> None:
    """A pod on each node has three of the four devices."""
    for node in at.nodes:
        at.hold(node, node, "gpu-0", "gpu-1", "gpu-2")
    at.publish()
    at.is_lowered = True


def _first_available(at: Situation) -> None:
    """A prioritized list whose first class is missing; the second has a device on each node."""
    driver = _offered(at, "first")
    classes = (f"{driver}.lost", driver)
    choices = [{"name": f"c{n}", "deviceClassName": name} for n, name in enumerate(classes)]
    _ask_for_one(at, "first", firstAvailable=choices)


def _near_another(at: Situation) -> None:
    """To a pod that there is not: only the scheduler knows that no node will do."""
    selector = {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}
    at.spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}


def _queue_gate(at: Situation) -> None:
    at.spec["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]


def _queue_of_pod(at: Situation) -> None:
    at.apply(workload(at, "pod", at.name, at.uid))


UNBOUND = (
    Verb("SchedulingGated", "gate", _gate, "gate"),
    Verb("QueueWaits", "queue", _queue_gate, "gate made", after=_queue_of_pod),
    Verb("NoScheduler", "another scheduler", _other_scheduler, "gate lost made"),
    Verb("DeviceClassMissing", "list of classes", _first_available),
    Verb("TooFewTogether", "ask for too many, oddly", _asks("9e0"), "count"),
    Verb("", "spell the number oddly", _asks("+2"), "count"),
    Verb("", "affinity to no pod", _near_another, "affinity"),
    Verb("ClaimMissing", "claim without object", _lost_claim, "lost"),
    Verb("ClaimMissing", "claim without template", _lost_template, "lost"),
    Verb("DeviceClassMissing", "claim without class", _lost_class),
    Verb("NothingOffered", "class without driver", _nothing_offered),
    Verb("NothingServes", "misspell", _misspelled),
    Verb("NodeSelector", "select", _selector),
    Verb("ClaimElsewhere", "allocate elsewhere", _elsewhere),
    Verb("NodeCordoned", "cordon nodes", _node_cordoned),
    Verb("NodeTaint", "taint", _taint),
    Verb("NoAgent", "delete the Lease", _no_lease, "agent"),
    Verb("AgentSilent", "expire the Lease", _expired_lease, "agent"),
    Verb("NotConfigured", "delete the config", _config_deleted, "plugin"),
    Verb("PluginAway", "stop the plugin", _changed(state="Stopped", registered="EndpointStopped"), "plugin"),
    Verb("NotInjectable", "lose the runtime", _changed(injectable="NoRuntimeSocket")),
    Verb("CapacityConflict", "write the number first", slots="number", before=_foreign),
    Verb("StrayCapacity", "stray number", _stray),
    Verb("TooFewTogether", "ask for too many", _asks("9"), "count"),
    Verb("DevicesCordoned", "cordon devices", _cordoned, "cordon"),
    Verb("DevicesBroken", "break", _changed(broken="Xid79"), "health"),
    Verb("DevicesInOtherUse", "use otherwise", _changed(broken="InOtherUse"), "health"),
    Verb("PoolRefused", "publish a part", _incomplete),
    Verb("DevicesTainted", "taint devices", _tainted),
    Verb("DevicesHeld", "hold", _held, "count"),
    Verb("NodeShowsFewer", "only a number", _only_a_number),
)


def _allocated(at: Situation) -> None:
    """Where nothing else keeps its agent from it, it has its devices."""
    agent = at.agents[at.nodes[0]]
    if not agent.waiting and not agent.allocations:
        agent.allocations.append(at.held("gpu-0", "gpu-1"))
    at.publish()


def _at_agent(reason: str, **more: Any) -> Do:
    def do(at: Situation) -> None:
        at.agents[at.nodes[0]].waiting.append(at.waits(reason, **more))

    return do


def _lost_node(at: Situation) -> None:
    at.node = f"{at.name}-gone"


def _kept(at: Situation) -> None:
    at.finalizers = ["example.com/hold"]


def _deleted(at: Situation) -> None:
    at.client.delete(Pod, at.name, namespace=at.namespace)


def _own_namespace(at: Situation) -> None:
    _kept(at)
    at.namespace = f"why-{at.name}"
    at.cluster.add_namespace(at.namespace)


def _namespace_deleted(at: Situation) -> None:
    at.client.delete(Namespace, at.namespace)
    wait_until(lambda: bool(at.deleted()), f"{at.namespace} is being emptied")


BOUND = (
    Verb("NodeMissing", "bind to no node", _lost_node, "alone hasty"),
    Verb("PodDeleted", "delete the pod", _kept, "alone", after=_deleted),
    Verb("NamespaceTerminating PodDeleted", "delete the namespace", _own_namespace, "alone", after=_namespace_deleted),
    Verb("WaitsOnNode", "refuse to allocate", slots="agent's", after=_at_agent("AllocateFailed")),
    Verb("WaitsForGood", "refuse for good", slots="agent's", after=_at_agent("AllocateFailed", final=True)),
)
FINISH_BOUND = _allocated
