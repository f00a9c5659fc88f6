"""Encodes the agent's part of a NodeDevice's status: a snapshot, with the time stamps of the observed status; and decodes those.

A time stamp is the time of the last change, so it is copied from the observed status while its entry is the same. Equal state
therefore gives an equal status, after a restart too, and nothing is written. Since when a container has its devices is known
without the observed status, which may be deleted; that is copied where the checkpoint does not have it.
Malformed parts of an observed status count as absent, and are overwritten.
Bounds are the CRD's. Above them the numbers stay exact, and lists are truncated and count what they omit.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from msgspec import structs
from nodedevice_api.names import AGENT_CONDITIONS, SERVED_BY_NODEDEVICE, Condition, Reason
from nodedevice_api.parts import Advertise, PartRules

from nodedevice_agent.devicemanager.places import MAX_NAMES
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.cordons import Cordon
from nodedevice_agent.devicemanager.resources.resource import EndpointState
from nodedevice_agent.devicemanager.snapshot import MAX_NAMED_DEVICES, AllocationView, DeviceView, PendingView, Snapshot
from nodedevice_agent.kube import parts
from nodedevice_agent.kube.observed import Json

MAX_ALLOCATIONS = 1024
MAX_IDS = 1024
MAX_WAITING = 256
MAX_MESSAGE = 2048
# of plugins that serve one resource, in a message
MAX_SOCKETS = 4
# Of one list, as JSON: the API server rejects an object of 1.5 MiB, with an error that looks like a server error.
MAX_LIST_BYTES = 256 * 1024

# status, reason and message
_Condition = tuple[str, str, str]

_NOT_INJECTED: _Condition = (
    "False",
    Reason.RUNTIME_NONE,
    "devices do not reach containers (--runtime none), so only held ones are advertised: set --runtime auto, nri or kubelet, or "
    "--advertise-without-injection for pods that need none in their containers",
)

_RUNNING: _Condition = ("True", Reason.ENDPOINT_RUNNING, "the device plugin is connected")
_NOT_CONFIGURED: _Condition = (
    "False",
    Reason.NOT_CONFIGURED,
    "no configuration of this node names this resource any more; this object is deleted once no pod holds or awaits a device and "
    "none is cordoned; to serve it again, name it in a NodeDeviceConfig that selects this node or in the agent's configuration",
)
_CURRENT: _Condition = ("True", Reason.WATCHES_CURRENT, "changes of pods and cordons reach the agent")
_STALE: _Condition = (
    "False",
    Reason.WATCH_STALE,
    "the API server has sent nothing for more than 90 s over a watch of pods or of this object, so changes reach the agent late "
    "or not at all: check proxies and load balancers between this node and the API server",
)


def node_device_status(
    now: Snapshot,
    before: Json,
    *,
    wall_time: str,
    version: str,
    runtime: str,
    served_by: str = SERVED_BY_NODEDEVICE,
    unsaved: str = "",
    notes: str = "",
    registered: tuple[str, str, str] | None = None,
    injectable: tuple[str, str, str] | None = None,
    is_watch_stale: bool = False,
) -> Json:
    """Every field of status that the agent owns.

    before: the observed status (with any owner's fields; {} when there is none). wall_time: RFC 3339, whole seconds.
    unsaved: why the agent's checkpoint cannot be written now; empty while it can.
    notes: a problem that an administrator should know of, such as an unreadable checkpoint.
    registered: status, reason and message of the condition while nothing is wrong; None for a plugin's.
    injectable: the same, from the backend; None where nothing is injected.
    is_watch_stale: whether the API server is silent over the watch of the node's pods, or of this NodeDevice.
    """
    devices, omitted = _devices(now, before, wall_time)
    earlier = _by_container(before.get("allocations", ()))
    by_parent = now.part_rules is not None
    shown = (_allocation(a, earlier, wall_time, by_parent=by_parent) for a in now.held)
    held = sorted(shown, key=lambda a: (a["podUID"], a["container"]))
    allocations, omitted_allocations = _truncated(held, MAX_ALLOCATIONS)
    earlier = _by_container(before.get("waiting", ()))
    waiting, _ = _truncated([_waiting(w, earlier, wall_time) for w in now.pending], MAX_WAITING)
    # the operator sets those that fit again, and the others follow
    remembered, _ = _truncated([_cordon(*c) for c in now.remembered_cordons], MAX_NAMED_DEVICES)
    return {
        "total": now.total,
        "healthy": now.healthy,
        "cordoned": now.cordoned,
        "allocated": now.allocated,
        "releasing": now.releasing,
        "reserved": now.reserved,
        "available": now.available,
        "endpoint": _endpoint(now, before, wall_time),
        "agent": {"version": version, "runtime": runtime, "servedBy": served_by},
        **({"parts": _part_rules(now, now.part_rules)} if now.part_rules is not None else {}),
        "devices": devices,
        "devicesOmitted": omitted,
        "allocations": allocations,
        # also when 0 or empty: a field that is not applied would keep the value of another writer
        "allocationsOmitted": omitted_allocations + now.possible_holders,
        "waiting": waiting,
        "rememberedCordons": remembered,
        "conditions": _conditions(
            before,
            wall_time,
            {
                Condition.REGISTERED: _registered(now, unsaved, notes, registered or _RUNNING),
                Condition.HEALTHY: _healthy(now),
                Condition.INJECTABLE: injectable or _NOT_INJECTED,
                Condition.WATCHES_CURRENT: _STALE if is_watch_stale else _CURRENT,
            },
        ),
    }


def _part_rules(now: Snapshot, rules: PartRules) -> Json:
    # another pod may hold what is unknown here, so one parent has no more than all of them
    largest = max((device.parts.available for device in now.devices if device.parts is not None), default=0)
    shown = asdict(rules)
    percent = shown.pop("sm_percent")
    words = {name: str(word) for name, word in shown.items()}
    limit = {} if percent is None else {"smPercent": percent}
    return {**words, **limit, "largestAvailable": min(largest, now.available)}


def _endpoint(now: Snapshot, before: Json, wall_time: str) -> Json:
    shown = {
        "state": now.state.value,
        "preStartRequired": now.options.pre_start_required,
        "getPreferredAllocationAvailable": now.options.get_preferred_allocation_available,
    }
    return shown | {"since": _since(before.get("endpoint", {}), shown, wall_time, "state")}


def _devices(now: Snapshot, before: Json, wall_time: str) -> tuple[list[Json], int]:
    earlier = {d["id"]: d for d in before.get("devices", ())}
    listed, _ = _truncated([_device(d, earlier.get(d.id, {}), wall_time) for d in now.devices], MAX_NAMED_DEVICES)
    return listed, now.total - sum(device["parts"]["total"] if "parts" in device else 1 for device in listed)


def _device(device: DeviceView, earlier: Json, wall_time: str) -> Json:
    shown: Json = {"id": device.id, "health": "Healthy" if device.healthy else "Unhealthy"}
    if device.parts is None or not device.present:
        shown["presence"] = "Present" if device.present else "Missing"
    if device.reason:
        shown |= {"reason": device.reason, "message": device.message}
    if device.parts is not None:
        shown["parts"] = structs.asdict(device.parts)
    shown["since"] = _since(earlier, shown, wall_time, "health", "presence", "reason")
    if device.cordoned:
        shown["cordonedSince"] = earlier.get("cordonedSince", wall_time)
    if device.cordoned_by:
        shown["cordonedBy"] = device.cordoned_by
    if device.numa_nodes:
        shown["numaNodes"] = list(device.numa_nodes)
    if device.attributes:
        shown["attributes"] = dict(device.attributes)
    return shown


def _by_container(entries: Iterable[Json]) -> Mapping[tuple[str, str], Json]:
    return {(entry["podUID"], entry["container"]): entry for entry in entries}


def _allocation(
    held: AllocationView, before: Mapping[tuple[str, str], Json], wall_time: str, *, by_parent: bool
) -> Json:
    allocation = held.allocation
    ids: Sequence[str] = allocation.device_ids
    omitted = 0
    uid = _shown_uid(allocation.pod_uid, held.pod)
    earlier = before.get((uid, allocation.container), {})
    shown: Json = {
        # the name of a deleted pod is copied from the observed status
        "namespace": held.pod.namespace if held.pod else earlier.get("namespace", ""),
        "name": held.pod.name if held.pod else earlier.get("name", ""),
        "podUID": uid,
        "container": allocation.container,
        "since": _text(allocation.since) if allocation.since else earlier.get("since", wall_time),
    }
    if by_parent:
        of_parents, ids, omitted = parts.by_parent(ids)
        # a node holds hundreds of these: no time of its own, which the age of the PodDevice shows
        shown = {**{k: v for k, v in shown.items() if k != "since"}, "parts": of_parents} if of_parents else shown
    if ids:
        shown["deviceIDs"] = list(ids[:MAX_IDS])
    omitted += max(len(ids) - MAX_IDS, 0)
    if omitted:
        shown["deviceIDsOmitted"] = omitted
    if held.releasing:
        shown["releasing"] = True
    if held.not_injected:
        shown["notInjected"] = True
    return shown


def _waiting(entry: PendingView, before: Mapping[tuple[str, str], Json], wall_time: str) -> Json:
    waiting, pod = entry.pending, entry.pod
    uid = _shown_uid(waiting.pod_uid, pod)
    earlier = before.get((uid, waiting.container), {})
    shown: Json = {
        "namespace": pod.namespace if pod else "",
        "name": pod.name if pod else "",
        "podUID": uid,
        "container": waiting.container,
        "reason": waiting.reason,
        "message": waiting.message[:1024],
    }
    shown["since"] = _since(earlier, shown, wall_time, "reason")
    if entry.not_injected:
        shown["notInjected"] = True
    if waiting.is_final:
        shown["final"] = True
    return shown


def _cordon(device_id: str, cordon: Cordon) -> Json:
    return {"id": device_id} | {name: note for name, note in structs.asdict(cordon).items() if note}


def _shown_uid(pod_uid: str, pod: Pod | None) -> str:
    return pod.uid_in_api if pod is not None else pod_uid


def _text(seconds: int) -> str:
    """Unix seconds as the API has them. A clock that was set back makes it a time in the future, which stays as it is."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _since(earlier: Json, shown: Json, wall_time: str, *keys: str) -> str:
    """The observed time stamp while these values are the same."""
    return earlier.get("since", wall_time) if all(earlier.get(k) == shown.get(k) for k in keys) else wall_time


def _truncated(entries: list[Json], limit: int) -> tuple[list[Json], int]:
    """As many entries as the bounds allow, and the number of omitted ones."""
    kept, size = entries[:limit], 0
    for index, entry in enumerate(kept):
        size += len(json.dumps(entry, separators=(",", ":")))
        if size > MAX_LIST_BYTES:
            kept = kept[:index]
            break
    return kept, len(entries) - len(kept)


def _conditions(before: Json, wall_time: str, values: Mapping[str, _Condition]) -> list[Json]:
    earlier = {c["type"]: c for c in before.get("conditions", ())}
    return [_condition(kind, *values[kind], earlier.get(kind, {}), wall_time) for kind in AGENT_CONDITIONS]


def _condition(kind: str, status: str, reason: str, message: str, earlier: Mapping[str, Any], wall_time: str) -> Json:
    same = earlier.get("status") == status
    since = earlier.get("lastTransitionTime", wall_time) if same else wall_time
    shown = message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"
    return {"type": kind, "status": status, "reason": reason, "message": shown, "lastTransitionTime": since}


def _registered(now: Snapshot, unsaved: str, notes: str, running: _Condition) -> _Condition:
    if now.lost_to is not None:
        return "False", Reason.PLACE_TAKEN, _place_taken(now.lost_to)
    if now.is_not_configured:
        return _NOT_CONFIGURED
    if now.state is EndpointState.GONE:
        return "False", Reason.ENDPOINT_GONE, "no device plugin has served this resource for five minutes"
    if now.state is EndpointState.STOPPED and now.is_silent:
        return (
            "False",
            Reason.ENDPOINT_STOPPED,
            "the device plugin is connected and does not answer: it hangs, or is paused",
        )
    if now.state is EndpointState.STOPPED:
        return "False", Reason.ENDPOINT_STOPPED, "the device plugin is disconnected; waiting for it to register again"
    if not now.is_live:
        return "False", Reason.DEVICE_LIST_PENDING, "the device plugin has registered; waiting for its device list"
    if unsaved:
        return "True", Reason.CHECKPOINT_NOT_WRITTEN, unsaved
    if notes:
        return "True", Reason.CHECKPOINT_UNREADABLE, notes
    if now.id_error:
        return "True", Reason.DEVICES_REFUSED, now.id_error
    if len(now.sockets) > 1:
        message = f"{len(now.sockets)} device plugins serve this resource, and the list of the newest counts; stop all but one: "
        return "True", Reason.SEVERAL_PLUGINS, message + ", ".join(now.sockets[-MAX_SOCKETS:])
    if now.unknown_cordons:
        named = ", ".join(now.unknown_cordons)
        message = f"spec.cordonedDevices has IDs that the device plugin does not list: {named}; correct or remove them"
        return "True", Reason.CORDONED_DEVICE_UNKNOWN, message
    return running


def _place_taken(by: str) -> str:
    whose = f"{by} has its place" if by else "others have all places"
    return (
        f"a node has {MAX_NAMES} resource names at most, and {whose}; this object is deleted once no pod holds or awaits a device "
        "and none is cordoned; stop device plugins that this node does not need, and have this one register again"
    )


def _healthy(now: Snapshot) -> tuple[str, str, str]:
    if now.total == 0 and now.is_not_configured:
        return "False", Reason.NO_DEVICES, "no device plugin serves this resource"
    if now.total == 0:
        return "False", Reason.NO_DEVICES, _with_plugin_message("the device plugin lists no devices", now)
    if not now.is_live:
        message = f"no device plugin is connected: none of {now.total} devices counts as healthy"
        return "False", Reason.NONE_HEALTHY, message
    noun = "devices" if now.part_rules is None else "parts"
    shown = [f"{device.id} ({device.reason})" for device in now.unhealthy]
    unhealthy = now.total - now.healthy
    if unhealthy == 0:
        return "True", Reason.ALL_HEALTHY, _with_plugin_message(f"all {now.total} {noun} are healthy", now)
    of_shown = sum(d.parts.total - d.parts.healthy if d.parts is not None else 1 for d in now.unhealthy)
    named = ", ".join(shown) + (", …" if unhealthy > of_shown else "")
    reason = Reason.NONE_HEALTHY if now.healthy == 0 else Reason.SOME_UNHEALTHY
    return "False", reason, _with_plugin_message(f"{unhealthy} of {now.total} {noun} are unhealthy: {named}", now)


def _with_plugin_message(message: str, now: Snapshot) -> str:
    """With the plugin's message about the whole list, while the plugin is connected."""
    return f"{message}; {now.plugin_message}" if now.plugin_message and now.is_live else message


def owned(observed: Json, status: Json) -> Json:
    """The observed status without fields of other writers, in our order: comparable with the desired one."""
    found = {c.get("type"): c for c in observed.get("conditions", ())}
    ours = [_same_keys(found.get(desired["type"], {}), desired) for desired in status["conditions"]]
    return {**_same_keys(observed, status), "conditions": ours}


def _same_keys(observed: Json, desired: Json) -> Json:
    return {key: value for key, value in observed.items() if key in desired}


def is_loss(before: Json, after: Json) -> bool:
    """Whether the scheduler could count on fewer devices after that write: the sum that the operator writes into the Node."""
    return _countable(after) < _countable(before)


def is_bulk(before: Json, after: Json) -> bool:
    """Whether that write is an object's first, or one about a plugin that is gone: hundreds of plugins may come or go at once."""
    running = EndpointState.RUNNING.value
    return not before or after.get("endpoint", {}).get("state", running) != running


def _countable(status: Json) -> int:
    injectable = [c.get("status") for c in status.get("conditions", ()) if c.get("type") == Condition.INJECTABLE]
    rules = status.get("parts", {})
    counts_largest = rules.get("advertise") == Advertise.LARGEST
    available = rules.get("largestAvailable") if counts_largest else status.get("available")
    numbers = [status.get("allocated"), status.get("reserved"), 0 if injectable == ["False"] else available]
    return sum(number for number in numbers if isinstance(number, int))
