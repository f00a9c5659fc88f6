"""Reads one node, device or pod for its view, with the rights of the person who opens it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from kubectl_nodedevice.commands import devices, holders
from kubectl_nodedevice.errors import CliError, UsageProblem
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.session import Session
from kubectl_nodedevice.shell import typed
from kubectl_nodedevice.why import answer, nodes, pods, read_facts
from kubectl_nodedevice.why import device as why_device
from kubectl_nodedevice.why.access import rights_of
from kubectl_nodedevice.why.controllers import absent
from kubectl_nodedevice.why.explanation import Explanation
from kubectl_nodedevice.why.facts import Facts
from kubectl_nodedevice.why.links import chain

Data = dict[str, Any]


def of_node(session: Session, query: Mapping[str, str]) -> Data:
    """Why the node serves no devices, and its devices with their state. Raises ApiError, CliError."""
    name = _asked(query, "name")
    facts = read_facts.of_node(session, name)
    if not facts.nodes and not facts.node_devices and not facts.unread:
        raise CliError(f"node {name} does not exist", "it may have been removed meanwhile")
    lines = [devices.data_of(line) for each in facts.node_devices for line in devices.lines_of(each, facts.now)]
    conditions = [
        {"resource": each.resource, **asdict(condition)}
        for each in facts.node_devices
        for condition in each.conditions.values()
    ]
    return {
        "devices": lines,
        "conditions": conditions,
        "why": _explained(session, facts, nodes.explain(facts)),
        "commands": [
            session.screen.typed(typed("kubectl", "nodedevice", verb, *words))
            for verb, *words in (("why", "node", name), ("devices", "--node", name))
        ],
    }


def of_device(session: Session, query: Mapping[str, str]) -> Data:
    """All that is known of a device. Raises ApiError, CliError."""
    node, resource, device_id = _asked(query, "node"), _asked(query, "resource"), _asked(query, "id")
    facts = read_facts.of_node(session, node)
    found = next((each for each in facts.node_devices if each.resource == resource), None)
    lines = devices.lines_of(found, facts.now) if found is not None else ()
    line = next((each for each in lines if each.device.id == device_id), None)
    if found is None or line is None:
        raise CliError(f"node {node} has no device {device_id} of {resource}", "it may have been removed meanwhile")
    explained = _explained(session, facts, why_device.explain(facts, found, device_id))
    data = devices.data_of(line)
    place = [node, "--resource", resource, f"--device={device_id}"]
    cordon = typed("kubectl", "nodedevice", "cordon", *place, "--reason", "WHY")
    return {
        "device": data,
        "why": explained,
        # a cause of a cordoned device has the command that lifts the cordon
        "commands": [session.screen.typed(cordon)] if found.honours_cordons and not data["cordons"] else [],
    }


def of_pod(session: Session, query: Mapping[str, str]) -> Data:
    """The devices of a pod, and why it does not run. Raises ApiError, CliError."""
    namespace, name = _asked(query, "namespace"), _asked(query, "name")
    facts = read_facts.of_pod(session, namespace, name)
    if facts.is_absent and not absent.is_lacking(facts) and not absent.obstacles(facts):
        raise CliError(f"pod {name} does not exist in namespace {namespace}", "it may have been deleted meanwhile")
    explanation = pods.explain(facts)
    # A PodDevice may be of an earlier pod with that name.
    held, live = facts.pod_device, facts.pod
    return {
        "devices": holders.data_of_pod(held) if held and live and held.pod_uid == live.meta.uid else [],
        "chain": chain.of(facts, explanation),
        "why": _explained(session, facts, explanation),
        "commands": [
            session.screen.typed(typed("kubectl", "nodedevice", "why", "pod", name, "--namespace", namespace)),
            session.screen.typed(typed("kubectl", "describe", "pod", name, "--namespace", namespace)),
        ],
    }


def of_labels(session: Session, query: Mapping[str, str]) -> Data:
    """Names of the nodes that a label selector selects, as kubectl's --selector. Raises ApiError, CliError."""
    return {"nodes": sorted(Reader(session.api, session.screen).nodes_with(_asked(query, "selector")))}


def of_namespace(session: Session, _: Mapping[str, str]) -> Data:
    """The devices of the pods of a namespace, for people who may not see the cluster's. Raises ApiError."""
    reader = Reader(session.api, session.screen)
    namespace = session.namespace or "default"
    found = reader.pod_devices(namespace)
    return {"namespace": namespace, "devices": [one for each in found for one in holders.data_of_pod(each)]}


def _explained(session: Session, facts: Facts, found: Explanation) -> Any:
    may = rights_of(session, facts.namespace, facts.release.namespace)
    explained = answer.data(found, may)
    for cause in explained["causes"]:
        cause["help"]["command"] = session.screen.typed(cause["help"]["command"])
    return explained


def _asked(query: Mapping[str, str], name: str) -> str:
    """Raises UsageProblem."""
    if not query.get(name):
        raise UsageProblem(f"the address lacks {name}", "follow a link of the page")
    return query[name]


VIEWS: Final = {"node": of_node, "device": of_device, "pod": of_pod, "labels": of_labels, "namespace": of_namespace}
