"""Decides which objects need attention, the worst first, and names the command that explains each. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from kubectl_nodedevice.cluster import Lease, NodeDevice, Pod
from kubectl_nodedevice.device_state import held_words, holders_of, pod_name, short_reason
from kubectl_nodedevice.quantities import requests
from kubectl_nodedevice.shell import NONE, Typed, typed
from kubectl_nodedevice.summaries import NO_DEVICES
from kubectl_nodedevice.summaries import Summary as Summary
from kubectl_nodedevice.text import age, counted, moment, some

# codes, the worst first; stable across releases
ORDER: Final = (
    OPERATOR_SILENT := "OperatorSilent",
    WITHOUT_DEVICES := "ContainerWithoutDevices",
    BROKEN_HELD := "DeviceBrokenHeld",
    AGENT_SILENT := "AgentSilent",
    NOT_READY := "NotReady",
    BROKEN := "DeviceBroken",
    OFFERED_TWICE := "OfferedTwice",
    CONFIG_REFUSED := "ConfigRefused",
    CONFIG_CONFLICT := "ConfigConflict",
    CONFIG_UNMATCHED := "ConfigMatchesNoDevice",
    POD_WAITING := "PodWaiting",
    POD_UNSCHEDULABLE := "PodUnschedulable",
)
# The plugin's words in a message of NoDevices if NVIDIA's driver hides the GPUs. NoGpu and DriverReleased are intended.
# Source: nodedevice_agent.plugins.nvml.reasons
_DRIVER_PROBLEM: Final = (
    r"[^;]*; (?P<words>.+) \((?P<reason>"
    r"Driver(?:Failed|Hangs|Mismatch|NotLoaded|TooOld)|GpuUnreadable|NoDriverLibrary|ReaderFailed)\)"
)
# reasons that single devices explain better
_BY_DEVICES: Final = frozenset({"NoHealthyDevices", "SomeDevicesUnhealthy"})
_NOT_DELIVERED: Final = frozenset({"DevicesNotInjected", "DevicesInUseAfterRelease", "DevicesRenumbered"})


@dataclass(frozen=True, slots=True)
class Need:
    """text: a sentence. command: explains it. about: its object, for programs. since: a time."""

    code: str
    text: str
    command: Typed = NONE
    since: str = ""
    about: Mapping[str, str] = field(default_factory=dict)


def command(*words: str) -> Typed:
    return typed("kubectl", "nodedevice", *words)


def ordered(needs: Iterable[Need]) -> list[Need]:
    """Sort by code, the worst first, and each code by time, the oldest first."""
    return sorted(needs, key=lambda each: (ORDER.index(each.code), each.since or "~", each.text))


def of_operator(lease: Lease | None, now: datetime) -> Iterator[Need]:
    """A stopped operator releases its Lease; a crashed one leaves it to become overdue."""
    if lease is None or moment(lease.renewed) is None or (lease.holder and not lease.is_overdue(now)):
        return
    text = f"no operator is running: its Lease was renewed {age(lease.renewed, now)} ago"
    yield Need(OPERATOR_SILENT, text, command("check"), lease.renewed, {"lease": lease.meta.name})


def of_summaries(summaries: Iterable[Summary], whole: Mapping[str, NodeDevice], now: datetime) -> Iterator[Need]:
    """One line for each reason why agents are silent, and for each resource and reason why it is not Ready."""
    silent: dict[str, list[Summary]] = {}
    unready: dict[tuple[str, str], list[Summary]] = {}
    for each in summaries:
        read = whole.get(each.name)
        problem = _driver_problem(read) if read else None
        if problem:
            unready.setdefault((each.resource, problem["reason"]), []).append(each)
        elif not each.is_unready:
            continue
        elif each.agent not in ("True", "") and each.served_by != "":
            silent.setdefault(each.reason, []).append(each)
        elif each.reason not in _BY_DEVICES or read is None:
            unready.setdefault((each.resource, each.reason), []).append(each)
    for reason, rows in silent.items():
        nodes, since = sorted({each.node for each in rows}), _since(rows, whole, "AgentReady")
        why = f"{reason}{_message(rows, whole)}".removeprefix(": ")
        text = f"the agent on {_nodes(nodes)} is silent{_ago(since, now)}{f': {why}' if why else ''}"
        yield _of_node(AGENT_SILENT, text, nodes[0], since, nodes=str(len(nodes)))
    for (resource, reason), rows in unready.items():
        nodes, since = sorted({each.node for each in rows}), _since(rows, whole, "Ready")
        why = (reason or "the operator has not reconciled it yet") + _message(rows, whole)
        text = f"{resource} on {_nodes(nodes)} is not ready{_ago(since, now)}: {why}"
        code = WITHOUT_DEVICES if reason in _NOT_DELIVERED else NOT_READY
        yield _of_node(code, text, nodes[0], since, resource=resource, reason=reason)


def _of_node(code: str, text: str, node: str, since: str, **about: str) -> Need:
    return Need(code, text, command("why", "node", node), since, {"node": node, **about})


def _driver_problem(found: NodeDevice) -> re.Match[str] | None:
    """Reason and words of the NVIDIA driver's problem if it hides all devices; None for any other NoDevices."""
    ready = found.condition("Ready")
    return re.fullmatch(_DRIVER_PROBLEM, ready.message) if ready.reason == NO_DEVICES else None


def of_devices(found: NodeDevice, now: datetime) -> Iterator[Need]:
    """One line for each unhealthy device, and for each container that runs without its devices."""
    holders = holders_of(found)
    for device in found.devices:
        if device.is_healthy or (found.endpoint.state != "Running" and not device.reason):
            continue
        held = [each for each in holders.get(device.id, ()) if not each.allocation.releasing]
        by = f"; in use by {held_words(held)}" if held else ""
        what = "is missing" if device.presence == "Missing" else "is unhealthy"
        text = f"{device.id} ({found.resource}) on {found.node} {what}{_ago(device.since, now)}: {short_reason(device)}{by}"
        about = {"node": found.node, "resource": found.resource, "device": device.id, "reason": device.reason}
        # Another resource of the node may list the same device.
        explained = command("why", "device", *_last(found.node, device.id, "--resource", found.resource))
        yield Need(BROKEN_HELD if held else BROKEN, text, explained, device.since, about)
    for allocation in found.allocations:
        if allocation.not_injected:
            pod = pod_name(allocation.namespace, allocation.pod, allocation.pod_uid)
            text = f"{pod} on {found.node} runs without its {found.resource}: restart the pod"
            yield Need(
                WITHOUT_DEVICES, text, _why_pod(allocation.namespace, allocation.pod), allocation.since, {"pod": pod}
            )
    twice = found.condition("OfferedTwice")
    if twice.status == "True":
        text = f"{found.resource} on {found.node}: {twice.message or twice.reason}"
        yield _of_node(OFFERED_TWICE, text, found.node, twice.since)


def of_waiting(found: NodeDevice, now: datetime) -> Iterator[Need]:
    """One line for each container that is bound to the node and has no devices."""
    for each in found.waiting:
        pod = pod_name(each.namespace, each.pod, each.pod_uid)
        why = each.message or each.reason
        if each.not_injected or each.final:
            words = "runs without" if each.not_injected else "cannot get"
            text = f"{pod} {words} {found.resource} on {found.node}{_ago(each.since, now)}: {why}"
        else:
            text = f"{pod} is pending{_ago(each.since, now)}: {found.node} cannot allocate {found.resource} yet: {why}"
        code = WITHOUT_DEVICES if each.not_injected else POD_WAITING
        about = {"pod": pod, "node": found.node, "resource": found.resource, "reason": each.reason}
        yield Need(code, text, _why_pod(each.namespace, each.pod), each.since, about)


def of_pending(pods: Iterable[Pod], now: datetime) -> Iterator[Need]:
    """One line for each pod that requests devices and has no node."""
    for pod in pods:
        asked = asked_for(pod)
        if pod.node or not asked or pod.meta.deleted:
            continue
        scheduled = pod.conditions.get("PodScheduled")
        reason = scheduled.reason if scheduled and scheduled.reason else "Pending"
        name = pod_name(pod.meta.namespace, pod.meta.name)
        wanted = some(sorted(asked))
        text = f"{name} is pending{_ago(pod.meta.created, now)}: it requests {wanted} ({reason})"
        about = {"pod": name, "reason": reason, "requests": wanted}
        yield Need(POD_UNSCHEDULABLE, text, _why_pod(pod.meta.namespace, pod.meta.name), pod.meta.created, about)


def asked_for(pod: Pod) -> set[str]:
    return {*requests(pod), *(f"claim {each.name}" for each in pod.claims)}


def of_configs(name: str, refused: int, conflict: str, result: str, missing: str = "") -> Iterator[Need]:
    """Yield the needs of one NodeDeviceConfig, from its row. missing: its resources without a device on any node."""
    explained = typed("kubectl", "get", "nodedeviceconfig", name, "-o", "wide")
    if refused:
        words = result or f"{counted(refused, 'node')} {'refuses' if refused == 1 else 'refuse'} it"
        yield Need(CONFIG_REFUSED, f"NodeDeviceConfig {name}: {words}", explained, "", {"config": name})
    if conflict == "True":
        text = f"NodeDeviceConfig {name}: another one configures the same resource"
        yield Need(CONFIG_CONFLICT, text, explained, "", {"config": name})
    if missing:
        yield Need(CONFIG_UNMATCHED, f"NodeDeviceConfig {name}: {missing}", explained, "", {"config": name})


def _why_pod(namespace: str, name: str) -> Typed:
    return command("why", "pod", name, "-n", namespace) if name else NONE


def _last(node: str, device: str, *options: str) -> list[str]:
    """Order arguments so that no device ID is taken for an option."""
    return [node, *options, "--", device] if device.startswith("-") else [node, device, *options]


def _nodes(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{counted(len(nodes), 'node')} ({some(list(nodes))})"


def _ago(since: str, now: datetime) -> str:
    ago = age(since, now)
    return f" ({ago})" if ago else ""


def _since(found: Sequence[Summary], whole: Mapping[str, NodeDevice], kind: str) -> str:
    times = [whole[each.name].condition(kind).since for each in found if each.name in whole]
    return min(filter(None, times), default="")


def _message(found: Sequence[Summary], whole: Mapping[str, NodeDevice]) -> str:
    read = next((whole[each.name] for each in found if each.name in whole), NodeDevice())
    problem = _driver_problem(read)
    message = problem["words"] if problem else read.condition("Ready").message
    return f": {message}" if message else ""
