"""Explains why a bound pod does not run, or runs without its devices: agent, runtime, driver, image. Pure."""

from collections.abc import Iterator
from typing import Final

from kubectl_nodedevice.cluster import BY_NODEDEVICE, Allocation, Container, NodeDevice, Pod, Waiting
from kubectl_nodedevice.quantities import requests
from kubectl_nodedevice.text import some
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import NODE_DEVICES, NODES, POD_DEVICES, Facts
from kubectl_nodedevice.why.links import devices, offers, supply

# reasons of a container that waits for its image. Source: kubelet, pkg/kubelet/images/types.go
_IMAGE: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing", ""})
# words of a kubelet whose device manager once served the name. Source: cm/devicemanager, GetDeviceRunContainerOptions
_POISONED: Final = "endpoint not found in cache for a registered resource"
# texts of EACCES in C libraries and languages
_REFUSED: Final = ("Permission denied", "permission denied", "EACCES", "[Errno 13]")
_LONGEST: Final = 300
_REQUIRED: Final = "required plugin"
# reasons with words of the agent, which its NodeDevice has as well
_CREATION: Final = frozenset({"CreateContainerError", "RunContainerError"})
_SHORT: Final = frozenset({"NotEnoughDevices", "DeviceUnconfirmed", "NoDeviceFits"})


def obstacles(facts: Facts, pod: Pod) -> tuple[Obstacle, ...]:
    waiting = list(_waiting(facts, pod))
    at_agent = [_of_agent(facts, found, each) for found, each in waiting] or list(_by_event(facts, pod))
    without = [*_not_injected(facts, pod), *_by_stray(facts, pod)]
    agent = _agent(facts, pod) if not is_served(facts, pod) else ()
    containers = _containers(pod, bool(at_agent), bool(held(facts, pod)) or _has_devices(facts, pod))
    node = facts.node(pod.node)
    if node is None and facts.has_read(NODES):
        return (Obstacle("NodeMissing", pod.node),)
    kubelet = supply.kubelet_obstacles(node) if node else ()
    return (*kubelet, *agent, *at_agent, *_claims(facts, pod), *containers, *without)


def held(facts: Facts, pod: Pod) -> tuple[tuple[NodeDevice, Allocation], ...]:
    return tuple(
        (found, each)
        for found in facts.node_devices
        if found.node == pod.node
        for each in found.allocations
        if each.pod_uid == pod.meta.uid and not each.releasing
    )


def is_served(facts: Facts, pod: Pod) -> bool:
    """Whether it has its requested devices, or requests none that an agent allocates."""
    mine = {each.resource for each in facts.node_devices if each.node == pod.node and each.served_by == BY_NODEDEVICE}
    has = {found.resource for found, _ in held(facts, pod)}
    return not (mine & requests(pod).keys()) - has


def _agent(facts: Facts, pod: Pod) -> tuple[Obstacle, ...]:
    asked = requests(pod)
    found = next(each for each in facts.node_devices if each.node == pod.node and each.resource in asked)
    return supply.agent_obstacles(facts, pod.node, found)


def _waiting(facts: Facts, pod: Pod) -> Iterator[tuple[NodeDevice, Waiting]]:
    for found in facts.node_devices:
        if found.node == pod.node:
            yield from ((found, each) for each in found.waiting if each.pod_uid == pod.meta.uid)


def _of_agent(facts: Facts, found: NodeDevice, waiting: Waiting) -> Obstacle:
    words = f"{waiting.reason}{f' ({waiting.message})' if waiting.message else ''}"
    if waiting.not_injected:
        fields = {"container": waiting.container, "words": f": {words}"}
        return Obstacle("RunsWithoutDevices", found.node, found.resource, fields=fields)
    code = "WaitsForGood" if waiting.final else "WaitsOnNode"
    taken = _taken(facts, found) if waiting.reason in _SHORT else ""
    fields = {"words": words, "reason": waiting.reason}
    return Obstacle(code, found.node, found.resource, taken, supply.as_of(facts, found), fields)


def _taken(facts: Facts, found: NodeDevice) -> str:
    units = devices.units_of(found, facts.now)
    taken = [
        some([f"{unit.id} {unit.why.get(taker, '')}".strip() for unit in units if unit.taken.get(taker)])
        for taker in devices.TAKERS
    ]
    return "; ".join(filter(None, taken))


def _by_event(facts: Facts, pod: Pod) -> Iterator[Obstacle]:
    """Read the pod's Events for readers who may not see NodeDevices."""
    if (
        facts.has_read(NODE_DEVICES)
        or _has_devices(facts, pod)
        or any(each.state == "running" for each in pod.containers)
    ):
        return
    found = [each for each in facts.events if each.reason == "DevicesWaiting"]
    if found:
        code = "WaitsForGood" if " cannot get " in found[-1].message else "WaitsOnNode"
        resource = next(iter(requests(pod)), "devices")
        yield Obstacle(code, pod.node, resource, fields={"words": found[-1].message})


def _has_devices(facts: Facts, pod: Pod) -> bool:
    found = facts.pod_device
    return facts.has_read(POD_DEVICES) and found is not None and found.pod_uid == pod.meta.uid


def _not_injected(facts: Facts, pod: Pod) -> Iterator[Obstacle]:
    for found, each in held(facts, pod):
        if each.not_injected:
            words = f", although {some(list(each.device_ids))} are allocated to it"
            fields = {"container": each.container, "words": words}
            yield Obstacle("RunsWithoutDevices", found.node, found.resource, fields=fields)


def _by_stray(facts: Facts, pod: Pod) -> Iterator[Obstacle]:
    """A stale number on a Node with a DRA driver let the pod be scheduled: it has no claim, so it has no device."""
    node = facts.node(pod.node)
    if node is None or pod.extended_claim or pod.phase != "Running":
        return
    for resource in requests(pod):
        is_served_there = facts.node_device(pod.node, resource) is not None
        if is_served_there or not offers.classes_for(facts, resource) or not supply.shown_number(node, resource):
            continue
        containers = some([each.name for each in pod.containers if resource in each.requests])
        detail = f"{supply.stray_number(node, resource)}, and container {containers} runs without it"
        yield Obstacle("StrayCapacity", pod.node, resource, detail)


def _claims(facts: Facts, pod: Pod) -> Iterator[Obstacle]:
    found = [each for each in facts.events if each.reason == "FailedPrepareDynamicResources"]
    # A created container, or one that ran before, has its devices.
    is_before = all(each.state in ("", "waiting") and each.reason in _STARTING for each in pod.containers)
    if found and is_before and not any(each.last_words for each in pod.containers):
        yield Obstacle("ClaimNotPrepared", pod.node, fields={"words": found[-1].message})


def _containers(pod: Pod, waits_at_agent: bool, has_devices: bool) -> Iterator[Obstacle]:
    for each in pod.containers:
        if has_devices and each.state != "running" and any(words in each.last_words for words in _REFUSED):
            fields = {"container": each.name, "words": _last_line(each.last_words)}
            yield Obstacle("DeviceFileRefused", pod.node, fields=fields)
        elif each.state == "waiting" and each.reason not in _STARTING:
            yield from _container(pod, each, waits_at_agent)


def _last_line(words: str) -> str:
    """Return the line that names the refusal, as a program's last words may be long."""
    lines = [line.strip() for line in words.splitlines() if any(each in line for each in _REFUSED)]
    return lines[-1][:_LONGEST]


def _container(pod: Pod, found: Container, waits_at_agent: bool) -> Iterator[Obstacle]:
    words = ": ".join(filter(None, [found.reason, found.message]))
    fields = {"container": found.name, "words": words}
    if found.reason in _IMAGE:
        words = ", ".join(filter(None, [found.image, words]))
        yield Obstacle("ImageNotPulled", pod.node, fields={**fields, "words": words})
    elif _REQUIRED in found.message:
        yield Obstacle("RequiredPluginMissing", pod.node, fields=fields)
    elif _POISONED in found.message:
        yield Obstacle("NameKeptByKubelet", pod.node, fields=fields)
    elif not (waits_at_agent and found.reason in _CREATION):
        yield Obstacle("ContainerNotStarted", pod.node, fields=fields)
