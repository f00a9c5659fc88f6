"""Decides what a cordon changes, and its consequences. Pure: objects in, patches and sentences out.

A patch names the version that was read, so that of two people who cordon at the same time neither overwrites the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from kubectl_nodedevice.cluster import ALL_DEVICES, BY_DRA, BY_KUBELET, Cordon, Device, NodeDevice
from kubectl_nodedevice.device_state import (
    HELD_BY_POD,
    cordon_words,
    cordons_of,
    held_words,
    holders_of,
    is_part,
    state_of,
)
from kubectl_nodedevice.errors import UsageProblem
from kubectl_nodedevice.shell import NONE, Typed, typed
from kubectl_nodedevice.text import age, some

# codes of a change, for programs
CORDONED, UNCORDONED, UNCHANGED, OTHERS, UNKNOWN = "Cordoned", "Uncordoned", "Unchanged", "OthersCordon", "NotCordoned"
EVERY: Final = "*"
_LIST: Final = "/spec/cordonedDevices"
_MOST_NAMED: Final = 16


@dataclass(frozen=True, slots=True)
class Done:
    """The change of one device. text: a sentence about it. cordon: the current or former one.

    left: devices that stay cordoned by their own ID after `--device '*'`. command: lifts these cordons.
    """

    id: str
    code: str
    text: str
    cordon: Cordon | None = None
    left: tuple[Cordon, ...] = ()
    command: Typed = NONE


@dataclass
class Change:
    """patch: a JSON patch; [] if nothing changes."""

    done: list[Done] = field(default_factory=list)
    patch: list[Mapping[str, Any]] = field(default_factory=list)


def targets(found: Sequence[NodeDevice], device_ids: Sequence[str]) -> list[tuple[NodeDevice, list[str]]]:
    """Find the NodeDevice of each ID on one node. Raises UsageProblem unless exactly one has it."""
    by_name: dict[str, tuple[NodeDevice, list[str]]] = {}
    for device_id in device_ids:
        having = [each for each in found if has(each, device_id)]
        if not having and len(found) == 1 and not knows_all(found[0]):
            # Its list is incomplete, so the cordon takes effect when the device appears.
            having = list(found)
        if not having:
            raise _unknown(found, device_id)
        if len(having) > 1:
            names = some(sorted(each.resource for each in having), _MOST_NAMED)
            problem = f"{device_id} may be a device of {names}"
            raise UsageProblem(problem, "name one of them by --resource", code="AmbiguousDevice")
        by_name.setdefault(having[0].name, (having[0], []))[1].append(device_id)
    return list(by_name.values())


def has(found: NodeDevice, device_id: str) -> bool:
    """Whether the ID names one of its devices, a part of one, all devices, or an existing cordon."""
    known = {*(each.id for each in found.cordons), *(each.id for each in found.devices)}
    if device_id in ALL_DEVICES or device_id in known:
        return True
    return any(device.parts is not None and is_part(device_id, device.id) for device in found.devices)


def knows_all(found: NodeDevice) -> bool:
    """Whether every device is listed: none is omitted, and the plugin is connected."""
    return not found.devices_omitted and found.endpoint.state in ("Running", "")


def _unknown(found: Sequence[NodeDevice], device_id: str) -> UsageProblem:
    node = found[0].node
    there = [
        f"{some([device.id for device in each.devices], _MOST_NAMED) or 'none'} ({each.resource})" for each in found
    ]
    return UsageProblem(f"{node} has no device {device_id}", f"it has {'; '.join(there)}", code="NoSuchDevice")


def check_served(found: NodeDevice, device_ids: Sequence[str], *, has_rules: bool) -> None:
    """Raises UsageProblem if a cordon has no effect; its remedy is a command that has one.

    has_rules: whether the API server serves the stable kind DeviceTaintRule.
    """
    away = f"kubectl cordon {found.node} keeps new pods from the whole node"
    if found.served_by == BY_KUBELET:
        problem = f"the kubelet allocates {found.resource} on {found.node}, so that a cordon of a device has no effect"
        raise UsageProblem(
            problem, f"{away}; or let nodedevice allocate it (docs/device-plugins.md)", code="ServedByKubelet"
        )
    if found.served_by == BY_DRA:
        problem = f"a DRA driver allocates {found.resource} on {found.node}, so that a cordon of a device has no effect"
        way = _rule(found, device_ids) if has_rules else "only its driver can, by a taint in its ResourceSlices"
        raise UsageProblem(problem, f"{way}; {away}", code="ServedByDRA")


def _rule(found: NodeDevice, device_ids: Sequence[str]) -> str:
    """Describe the DeviceTaintRules that have the same effect: one for each device, or one for the whole pool."""
    selector = f"driver: {found.driver}, pool: {found.pool}"
    ids = [] if ALL_DEVICES.intersection(device_ids) else [*device_ids]
    selector += f", device: {ids[0]}" if ids else ""
    others = f", and one for each of {some(ids[1:], _MOST_NAMED)}" if ids[1:] else ""
    return f"a DeviceTaintRule with deviceSelector {{{selector}}} and a taint of effect NoSchedule does{others}"


def cordon(found: NodeDevice, device_ids: Sequence[str], wanted: Cordon, *, takes_over: bool) -> Change:
    """Plan cordons like `wanted`. Another person's cordon stays, unless it is taken over."""
    change = Change()
    additions: list[Mapping[str, Any]] = []
    for device_id in device_ids:
        at = _index(found, device_id)
        value = _entry(device_id, wanted)
        if at is None:
            additions.append(value)
            change.done.append(Done(device_id, CORDONED, "cordoned"))
            continue
        there = found.cordons[at]
        if there.by != wanted.by and not takes_over:
            text = f"cordoned already{cordon_words(there)}; with --take-over the cordon becomes yours"
            change.done.append(Done(device_id, OTHERS, text, there))
        elif there.by == wanted.by and there.reason == wanted.reason:
            change.done.append(Done(device_id, UNCHANGED, f"cordoned already{cordon_words(there)}", there))
        else:
            change.patch.append({"op": "replace", "path": f"{_LIST}/{at}", "value": value})
            change.done.append(Done(device_id, CORDONED, f"cordoned; it was cordoned{cordon_words(there)}", there))
    if additions and not found.cordons:
        change.patch.append({"op": "add", "path": _LIST, "value": additions})
    else:
        change.patch += [{"op": "add", "path": f"{_LIST}/-", "value": value} for value in additions]
    return _of_version(found, change)


def uncordon(found: NodeDevice, device_ids: Sequence[str], me: str, *, takes_over: bool) -> Change:
    """Plan to lift cordons. A cordon of another person, or without a name, is lifted only with --take-over."""
    change = Change()
    indexes: list[int] = []
    for device_id in device_ids:
        at = _index(found, device_id)
        if at is None:
            change.done.append(_not_cordoned(found, device_id, device_ids, me))
            continue
        there = found.cordons[at]
        if there.by != me and not takes_over:
            by = f"by {there.by}" if there.by else "by an unknown person"
            reason = f": {there.reason}" if there.reason else ""
            text = f"cordoned {by}{reason}; --take-over lifts it all the same"
            change.done.append(Done(device_id, OTHERS, text, there))
            continue
        indexes.append(at)
        whose = cordon_words(there) if there.by != me else ""
        text = f"uncordoned{f'; it was cordoned{whose}' if whose else ''}"
        change.done.append(_with_left(found, Done(device_id, UNCORDONED, text, there), device_ids, me))
    # from the end, so that the other indexes stay valid
    change.patch += [{"op": "remove", "path": f"{_LIST}/{at}"} for at in sorted(set(indexes), reverse=True)]
    return _of_version(found, change)


def _not_cordoned(found: NodeDevice, device_id: str, device_ids: Sequence[str], me: str) -> Done:
    same = ALL_DEVICES if device_id in ALL_DEVICES else {device_id}
    others = [each for each in cordons_of(found, device_id) if each.id not in same]
    if others:
        text = f"not cordoned by its own ID, but with all devices{cordon_words(others[0])}"
        return Done(device_id, UNKNOWN, text, others[0], command=lifting(found, others[:1], me))
    if any(each.id in same for each in found.remembered_cordons):
        text = "its agent remembers a cordon, which the operator will set again; uncordon it then, or cordon it and uncordon it now"
        return Done(device_id, UNKNOWN, text)
    return _with_left(found, Done(device_id, UNCHANGED, "not cordoned"), device_ids, me)


def _with_left(found: NodeDevice, done: Done, device_ids: Sequence[str], me: str) -> Done:
    """Add the devices that stay cordoned one by one if all devices were requested."""
    left = tuple(each for each in found.cordons if each.id not in {*ALL_DEVICES, *device_ids})
    if done.id not in ALL_DEVICES or not left:
        return done
    words = some([f"{each.id}{cordon_words(each)}" for each in left], _MOST_NAMED)
    whole = " as a whole" if done.code == UNCHANGED else ""
    text = f"{done.text}{whole}; cordoned one by one: {words}"
    return replace(done, text=text, left=left, command=lifting(found, left[:_MOST_NAMED], me))


def lifting(found: NodeDevice, there: Sequence[Cordon], me: str) -> Typed:
    """Return the command that lifts these cordons; with --take-over if another person set one."""
    words = [word for each in there for word in ("--device", each.id)]
    takes = ["--take-over"] if any(each.by != me for each in there) else []
    return typed("kubectl", "nodedevice", "uncordon", found.node, "--resource", found.resource, *words, *takes)


def _index(found: NodeDevice, device_id: str) -> int | None:
    same = ALL_DEVICES if device_id in ALL_DEVICES else {device_id}
    return next((at for at, each in enumerate(found.cordons) if each.id in same), None)


def _entry(device_id: str, wanted: Cordon) -> Mapping[str, Any]:
    values = {"id": device_id, "reason": wanted.reason, "by": wanted.by, "at": wanted.at}
    return {key: value for key, value in values.items() if value}


def _of_version(found: NodeDevice, change: Change) -> Change:
    """Make the patch fail with 409 if the object has changed."""
    if change.patch:
        version = {"op": "replace", "path": "/metadata/resourceVersion", "value": found.meta.resource_version}
        change.patch.insert(0, version)
    return change


def is_in_force(found: NodeDevice, done: Done, before: NodeDevice) -> bool:
    """Whether the agent has applied the change; True if the device manager (kubelet, DRA driver) ignores cordons.

    before: the object before the change.
    """
    if not found.honours_cordons:
        return True
    if done.code == CORDONED:
        if done.id in ALL_DEVICES:
            return found.cordoned >= (found.total or 0)
        device = _device(found, done.id)
        return bool(device.cordoned_since) if device else found.cordoned != before.cordoned
    if done.code != UNCORDONED:
        return True
    if done.id in ALL_DEVICES:
        return all(not device.cordoned_since or cordons_of(found, device.id) for device in found.devices)
    device = _device(found, done.id)
    if device is None and _device(before, done.id) is None:
        return found.cordoned != before.cordoned
    return device is None or not device.cordoned_since or bool(cordons_of(found, done.id))


def is_alive(found: NodeDevice) -> bool:
    return found.condition("AgentReady").status in ("True", "")


def effect(found: NodeDevice, done: Done, now: datetime) -> str:
    if done.code not in (CORDONED, UNCORDONED):
        return ""
    if not is_alive(found):
        since = age(found.condition("AgentReady").since, now)
        return (
            f"takes effect when the agent on {found.node} reports again; it is silent{f' ({since})' if since else ''}"
        )
    words = list(_effects(found, done, now))
    return "; ".join(words)


def _effects(found: NodeDevice, done: Done, now: datetime) -> Iterator[str]:
    holders = holders_of(found)
    if done.id in ALL_DEVICES:
        held = sorted({each.pod for of in holders.values() for each in of})
        if done.code == UNCORDONED:
            yield f"{found.available} of {found.total or 0} available now"
        else:
            yield (
                f"in use until {some(held)} ended; no device is free"
                if held
                else "none is in use: all are out of service now"
            )
        return
    device = _device(found, done.id) or next((each for each in found.devices if is_part(done.id, each.id)), None)
    if device is None:
        yield "free now" if done.code == UNCORDONED else "takes effect when a device of that ID appears"
        return
    held_by = holders.get(device.id, [])
    if done.code == UNCORDONED:
        state = state_of(found, device, held_by, now)
        by = f" by {held_words(held_by)}" if state.codes == (HELD_BY_POD,) else ""
        yield f"{state.text}{by} now"
    elif held_by and device.parts is None:
        yield f"in use until {held_words(held_by)} ends, then out of service"
    elif held_by:
        yield f"partly in use by {held_words(held_by)}: each part leaves when its pod ends"
    else:
        yield "free, so it is out of service now"


def _device(found: NodeDevice, device_id: str) -> Device | None:
    return next((each for each in found.devices if each.id == device_id), None)
