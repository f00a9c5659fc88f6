"""`why pod`: explains each link between the request and the running container that would stop the pod alone. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from kubectl_nodedevice.cluster import BY_DRA, Meta, Node, Pod
from kubectl_nodedevice.quantities import exceeding, needs_of, requests
from kubectl_nodedevice.shell import quoted
from kubectl_nodedevice.text import age, counted, moment, some
from kubectl_nodedevice.why.controllers import absent, queues, rollouts
from kubectl_nodedevice.why.explanation import Explanation, Obstacle, findings_of, ordered
from kubectl_nodedevice.why.facts import CLASSES, NODE_DEVICES, NODES, WORKLOADS, Facts
from kubectl_nodedevice.why.links import bound, offers, placement, pod_claims, supply
from kubectl_nodedevice.why.links.devices import Wanted

# Such a pod has not reached the scheduler, so a node may be free for it.
_BEFORE: Final = frozenset({"SchedulingGated", "QueueWaits", "NoScheduler"})
# where known schedulers run; another scheduler is found by its Events
_SCHEDULERS: Final = {
    "default-scheduler": "pods --all-namespaces --output wide --selector component=kube-scheduler",
    "nodedevice-scheduler": "pods --all-namespaces --output wide --selector app.kubernetes.io/component=scheduler",
}
# a running scheduler has tried a pod by then
_PATIENCE: Final = timedelta(seconds=5)
# listed together with names of resources
_CLAIMS: Final = "its claims"


def explain(facts: Facts) -> Explanation:
    pod = facts.pod or Pod(Meta())
    subject = f"pod {facts.namespace}/{facts.name}"
    context = {"pod": facts.name, "namespace": facts.namespace, "system": facts.release.namespace}
    if facts.is_absent:
        return _absent(facts, pod, subject, context)
    if pod.is_over or pod.meta.deleted:
        return _ended(facts, pod, subject, context)
    if pod.node:
        return _on_its_node(facts, pod, subject, context)
    return _without_node(facts, pod, subject, context)


def _absent(facts: Facts, pod: Pod, subject: str, context: dict[str, str]) -> Explanation:
    """Explain a missing pod; then examine it as if its controller had made it."""
    own = absent.obstacles(facts)
    state, notes = absent.state(facts, own), tuple(absent.notes(facts))
    found = findings_of([*_namespace(facts), *own], context=context)
    if facts.pod is None:
        return Explanation(subject, state, findings=found, notes=notes, unread=facts.unread)
    made = _without_node(facts, pod, subject, context)
    findings = ordered([*found, *made.findings])
    return replace(
        made, state=f"{state} It would request {_wanted(pod)}.", findings=findings, notes=(*notes, *made.notes)
    )


def _namespace(facts: Facts) -> Iterator[Obstacle]:
    """A namespace that is being deleted takes no new pod, and its pods are deleted."""
    if facts.namespace_deleted:
        since = age(facts.namespace_deleted, facts.now)
        words = f": {facts.namespace_words}" if facts.namespace_words else ""
        fields = {"since": f" for {since}" if since else "", "words": words.rstrip(".")}
        yield Obstacle("NamespaceTerminating", fields=fields)


def _ended(facts: Facts, pod: Pod, subject: str, context: dict[str, str]) -> Explanation:
    if pod.meta.deleted:
        # also where its containers have ended well since: what holds the pod is a finalizer
        code, fields = "PodDeleted", {"since": f" for {age(pod.meta.deleted, facts.now)}"}
    elif pod.phase == "Succeeded":
        return Explanation(subject, "has ended as it should.", is_stopped=False)
    else:
        code, fields = "PodFailed", {"words": ": ".join(filter(None, [pod.reason, pod.message])) or "without a reason"}
    found = findings_of([*_namespace(facts), Obstacle(code, pod.node, fields=fields)], context=context)
    return Explanation(subject, f"{asked(pod)}.", findings=found, unread=facts.unread)


def _on_its_node(facts: Facts, pod: Pod, subject: str, context: dict[str, str]) -> Explanation:
    found = findings_of([*_namespace(facts), *bound.obstacles(facts, pod)], 1, context)
    has = "; ".join(_held(facts, pod))
    has = f" It has {has}." if has else ""
    state = f"is bound to {pod.node} and {asked(pod)}.{has}"
    is_running = pod.phase == "Running" and all(each.state == "running" or each.is_init for each in pod.containers)
    if not found and is_running:
        return Explanation(subject, f"{state} It runs.", is_stopped=False, unread=facts.unread)
    words, at = _node_words(facts)
    return Explanation(
        subject, state, findings=found, unread=facts.unread, words=words, words_by="kubelet", words_at=at
    )


def _held(facts: Facts, pod: Pod) -> Iterator[str]:
    if facts.pod_device is not None and facts.pod_device.pod_uid == pod.meta.uid:
        yield facts.pod_device.devices
        return
    for found, each in bound.held(facts, pod):
        parts = [f"{part.parts} of {part.parent}" for part in each.parts]
        yield f"{', '.join([*each.device_ids, *parts])} ({found.resource})"


def _node_words(facts: Facts) -> tuple[str, str]:
    """Return the node's last warning about the pod, such as a missing volume, with its time."""
    found = [each for each in facts.events if each.reason.startswith(("Failed", "BackOff"))]
    of_node = [each for each in found if each.reason != "FailedScheduling"]
    return (of_node[-1].message, of_node[-1].at) if of_node else ("", "")


def asked(pod: Pod) -> str:
    return f"requests {_wanted(pod)}"


def _wanted(pod: Pod) -> str:
    wanted = [f"{number} {resource}" for resource, number in requests(pod).items()]
    wanted += [f"claim {each.claim or each.template or each.name}" for each in pod.claims]
    return listed(wanted) if wanted else "no device"


def listed(words: list[str]) -> str:
    """Return `a, b and c`."""
    *others, last = words
    return " and ".join(filter(None, [", ".join(others), last]))


def _without_node(facts: Facts, pod: Pod, subject: str, context: dict[str, str]) -> Explanation:
    claims = tuple(pod_claims.obstacles(facts, pod))
    # the scheduler waits for its claims
    is_tried = not any(each.code in ("ClaimMissing", "ClaimNotMade") for each in claims)
    own = [*_namespace(facts), *_own(facts, pod, is_tried), *claims, *_resources(facts, pod)]
    having = _having(facts, pod)
    having_all = _candidates(_nodes(facts), having)
    nodes = _chosen(facts, pod, having_all)
    on_nodes = {node.meta.name: tuple(_on_node(facts, pod, node, having)) for node in nodes}
    # one node without obstacles is enough for the pod
    is_everywhere = all(on_nodes.values())
    shared = [each for found in on_nodes.values() for each in found] if is_everywhere else []
    words, at = _scheduler(facts, pod)
    # The scheduler alone knows possible nodes of a pod that it refuses, or weighs by other rules.
    is_over = any(each.code == "JobFailed" for each in absent.obstacles(facts))
    is_refused = bool(words) and not pod.gates
    is_free = not (is_refused or pod.is_constrained or is_over) and all(each.code in _BEFORE for each in own)
    return Explanation(
        subject,
        f"is pending and {asked(pod)}.",
        findings=findings_of([*own, *shared], len(nodes), {**context, **rollouts.fields(facts.rollout)}),
        notes=tuple(_notes(facts, pod, len(having_all), on_nodes, is_free)),
        words=words,
        words_at=at,
        unread=facts.unread,
    )


def _own(facts: Facts, pod: Pod, is_tried: bool) -> Iterator[Obstacle]:
    if pod.gates:
        yield from _gates(facts, pod)
        return
    created = moment(pod.meta.created)
    is_answered = "PodScheduled" in pod.conditions or any(e.reason == "FailedScheduling" for e in facts.events)
    if is_tried and created is not None and facts.now - created > _PATIENCE and not is_answered:
        scheduler = pod.scheduler or "default-scheduler"
        options = _SCHEDULERS.get(scheduler) or f"events --all-namespaces --field-selector source={quoted(scheduler)}"
        fields = {"scheduler": scheduler, "since": age(pod.meta.created, facts.now), "scheduler_options": options}
        yield Obstacle("NoScheduler", fields=fields)


def _gates(facts: Facts, pod: Pod) -> Iterator[Obstacle]:
    """A queue explains its gate; other gates have only a name."""
    queued = queues.gates_of_queue(pod) if facts.has_queue else ()
    if queued:
        yield queues.obstacle(facts.workload, is_read=facts.has_read(WORKLOADS))
    others = [each for each in pod.gates if each not in queued]
    if others:
        # its controller may have explained it in an Event of the pod
        words = [f"{each.reason}: {each.message}" for each in facts.events if each.reason != "FailedScheduling"]
        yield Obstacle("SchedulingGated", detail=words[-1] if words else "", fields={"gates": ", ".join(others)})


def _resources(facts: Facts, pod: Pod) -> Iterator[Obstacle]:
    """Find resources that nothing in the cluster serves. This is certain only if all kinds were read."""
    for resource in requests(pod):
        classes = offers.classes_for(facts, resource)
        if any(supply.serves(facts, node, resource) for node in _nodes(facts)):
            continue
        unoffered = [each for each in classes if not offers.is_offered(facts, each)]
        if classes:
            yield from (pod_claims.nothing_offered(each) for each in unoffered[:1] if len(unoffered) == len(classes))
        elif all(facts.has_read(kind) for kind in (NODES, CLASSES)):
            hint = pod_claims.did_you_mean(resource, _known(facts))
            yield Obstacle("NothingServes", resource=resource, fields={"hint": hint})


def _known(facts: Facts) -> set[str]:
    by_node = {name for node in facts.nodes for name in node.allocatable if "/" in name}
    shown = {each.resource for each in facts.node_devices if each.served_by != BY_DRA}
    return by_node | shown | {each.extended_resource for each in facts.classes if each.extended_resource}


def _nodes(facts: Facts) -> tuple[Node, ...]:
    """Return all Nodes; if they are forbidden, nodes of NodeDevices, without labels, taints and numbers."""
    if facts.has_read(NODES):
        return facts.nodes
    return tuple(Node(Meta(name)) for name in sorted({each.node for each in facts.node_devices}))


def _having(facts: Facts, pod: Pod) -> Mapping[str, frozenset[str]]:
    """Return the nodes that have each requested resource. A resource that no node has is left out."""
    nodes = _nodes(facts)
    found = {
        resource: frozenset(node.meta.name for node in nodes if supply.serves(facts, node, resource))
        for resource in requests(pod)
    }
    found[_CLAIMS] = frozenset(node.meta.name for node in nodes if pod_claims.serves(facts, pod, node))
    return {what: names for what, names in found.items() if names}


def _candidates(nodes: tuple[Node, ...], having: Mapping[str, frozenset[str]]) -> tuple[Node, ...]:
    """Return the nodes that have all of it; if none has, the nodes that have some."""
    if not having:
        return nodes
    names = frozenset.intersection(*having.values()) or frozenset.union(*having.values())
    return tuple(node for node in nodes if node.meta.name in names)


def _chosen(facts: Facts, pod: Pod, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return nodes that match the pod's selector and affinity; all if none match, as the mismatch is then the cause."""
    allowed = tuple(node for node in nodes if not placement.unmatched(pod, node)) if facts.has_read(NODES) else ()
    return allowed or nodes


def _on_node(facts: Facts, pod: Pod, node: Node, having: Mapping[str, frozenset[str]]) -> Iterator[Obstacle]:
    """having: the nodes with each requested resource. A node lacks one only if no node has all."""
    if facts.has_read(NODES):
        yield from placement.obstacles(pod, node)
    lacking = [what for what, names in having.items() if node.meta.name not in names]
    if lacking:
        yield Obstacle("NodeLacks", node.meta.name, detail=f"without {listed(lacking)}")
    if _CLAIMS not in lacking:
        yield from pod_claims.on_node(facts, pod, node)
    for resource in requests(pod):
        if supply.serves(facts, node, resource):
            yield from supply.obstacles(facts, node, Wanted(resource, needs_of(pod, resource)))


def _scheduler(facts: Facts, pod: Pod) -> tuple[str, str]:
    """Return the scheduler's last message about the pod, with its time."""
    found = [each for each in facts.events if each.reason == "FailedScheduling"]
    scheduled = pod.conditions.get("PodScheduled")
    if found and (scheduled is None or not scheduled.message or found[-1].message == scheduled.message):
        return found[-1].message, found[-1].at
    return (scheduled.message, scheduled.since) if scheduled else ("", "")


def _notes(
    facts: Facts, pod: Pod, having: int, on_nodes: Mapping[str, tuple[Obstacle, ...]], is_free: bool
) -> Iterator[str]:
    """having: how many nodes have its resources. on_nodes: the obstacles on its possible nodes. is_free: only nodes stop it."""
    others = len(_nodes(facts)) - having
    if others:
        yield f"{counted(others, 'further node')} {'lacks' if others == 1 else 'lack'} what it requests."
    excluded = having - len(on_nodes)
    if excluded:
        yield f"{counted(excluded, 'further node')} {'is' if excluded == 1 else 'are'} excluded by its selector or affinity."
    if pod.nominated_node:
        yield f"The scheduler preempted pods on {pod.nominated_node} for it."
    fitting = [name for name, found in on_nodes.items() if not found and _has_room(facts, pod, name)]
    if is_free and fitting and (requests(pod) or pod.claims) and facts.has_read(NODE_DEVICES):
        yield f"No obstacle is known on {some(fitting)}."


def _has_room(facts: Facts, pod: Pod, name: str) -> bool:
    """Whether the empty node has as much CPU, memory and so on as the pod requests."""
    node = facts.node(name)
    return node is None or not exceeding(pod, node.allocatable)
