"""Names the state of a device in words and in codes: free, in use, unhealthy, cordoned. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kubectl_nodedevice.cluster import ALL_DEVICES, BY_DRA, Allocation, Cordon, Device, NodeDevice
from kubectl_nodedevice.styles import BAD, FAINT, GOOD, HELD, WARN
from kubectl_nodedevice.text import age

# Codes for programs: stable across releases. A newer API may have other values of `health`.
BROKEN, MISSING, NO_PLUGIN, CORDONED, TAINTED = "Broken", "Missing", "NoPlugin", "Cordoned", "Tainted"
RELEASING, HELD_BY_POD, FREE, PARTLY_FREE, UNKNOWN = "Releasing", "Held", "Free", "PartlyFree", "Unknown"
_STYLES: Final = {
    BROKEN: BAD,
    MISSING: BAD,
    NO_PLUGIN: BAD,
    CORDONED: WARN,
    TAINTED: WARN,
    RELEASING: HELD,
    HELD_BY_POD: HELD,
    FREE: GOOD,
    PARTLY_FREE: GOOD,
    UNKNOWN: FAINT,
}
_LONGEST_REASON: Final = 60


@dataclass(frozen=True, slots=True)
class State:
    """codes: all that apply, the worst first. since: the time of the first; "" if unknown."""

    codes: tuple[str, ...]
    text: str
    since: str = ""

    @property
    def style(self) -> str:
        return _STYLES[self.codes[0]]


@dataclass(frozen=True, slots=True)
class Holder:
    """A container that uses a device. parts: how many parts of the device it has.

    is_admin: other containers may use the device at the same time.
    """

    allocation: Allocation
    parts: int = 0
    is_admin: bool = False

    @property
    def pod(self) -> str:
        return pod_name(self.allocation.namespace, self.allocation.pod, self.allocation.pod_uid)


def pod_name(namespace: str, name: str, uid: str = "") -> str:
    """Return namespace/name; the UID if the API has no name."""
    return f"{namespace}/{name}" if name else f"pod {uid}"


def holders_of(found: NodeDevice) -> Mapping[str, Sequence[Holder]]:
    everybody = {device_id: [each for each in of if not each.is_admin] for device_id, of in everybody_of(found).items()}
    return {device_id: of for device_id, of in everybody.items() if of}


def everybody_of(found: NodeDevice) -> Mapping[str, Sequence[Holder]]:
    """Add containers that have a device for administration, such as a monitor of all devices."""
    holders: dict[str, list[Holder]] = {}
    for allocation in found.allocations:
        administered = _administered(allocation)
        for device_id in allocation.device_ids:
            holders.setdefault(device_id, []).append(Holder(allocation, is_admin=device_id in administered))
        for held in allocation.parts:
            holders.setdefault(held.parent, []).append(Holder(allocation, held.parts))
    return holders


def _administered(allocation: Allocation) -> set[str]:
    """Return devices with shares for administration alone."""
    shares = allocation.claim.devices if allocation.claim else ()
    return {each.id for each in shares if each.admin_access} - {each.id for each in shares if not each.admin_access}


def cordons_of(found: NodeDevice, device_id: str) -> list[Cordon]:
    """Return the cordons in force: by its own ID or for all devices; the agent may remember some."""
    return [each for each in _cordons(found) if each.id == device_id or each.id in ALL_DEVICES]


def part_cordons(found: NodeDevice, device: Device) -> list[Cordon]:
    return [each for each in _cordons(found) if is_part(each.id, device.id)] if device.parts else []


def _cordons(found: NodeDevice) -> Iterable[Cordon]:
    cordons = {each.id: each for each in (*found.remembered_cordons, *found.cordons)}
    return cordons.values() if found.honours_cordons else ()


def is_part(device_id: str, parent: str) -> bool:
    """Whether the ID names a part of the device. Source: nodedevice_api.parts."""
    rest = device_id.removeprefix(parent)
    return rest != device_id and any(rest.startswith(each) and rest[len(each) :].isdecimal() for each in ("::", "-"))


def state_of(found: NodeDevice, device: Device, holders: Sequence[Holder], now: datetime) -> State:
    """Return all states of the device, the worst first: it can be unhealthy, cordoned and in use at once."""
    pieces = list(_pieces(found, device, holders, now))
    codes = tuple(code for code, _, _ in pieces)
    text = "; ".join(words for _, words, _ in pieces)
    return State(codes, text, pieces[0][2])


def _pieces(
    found: NodeDevice, device: Device, holders: Sequence[Holder], now: datetime
) -> Iterator[tuple[str, str, str]]:
    """Yield code, words and since."""
    bad = _broken(found, device, now)
    if bad:
        yield bad
    for cordon in [*cordons_of(found, device.id), *part_cordons(found, device)]:
        part = f" part {cordon.id}" if is_part(cordon.id, device.id) else ""
        yield CORDONED, f"cordoned{part}{cordon_words(cordon)}", device.cordoned_since or cordon.at
    for taint in device.taints:
        value = f"={taint.value}" if taint.value else ""
        yield TAINTED, f"tainted {taint.effect}: {taint.key}{value}", taint.since
    yield from _use(found, device, holders, is_first=not bad)


def _broken(found: NodeDevice, device: Device, now: datetime) -> tuple[str, str, str] | None:
    if device.presence == "Missing":
        lister = "driver" if found.served_by == BY_DRA else "plugin"
        return MISSING, _timed("missing", device.since, now, f"its {lister} no longer lists it"), device.since
    if device.is_healthy:
        return None
    if found.endpoint.state in ("Stopped", "Gone") and not device.reason:
        return NO_PLUGIN, _timed("no device plugin", found.endpoint.since, now, ""), found.endpoint.since
    if device.health != "Unhealthy":
        return UNKNOWN, device.health or "unknown", device.since
    return BROKEN, _timed("unhealthy", device.since, now, short_reason(device)), device.since


def _use(
    found: NodeDevice, device: Device, holders: Sequence[Holder], *, is_first: bool
) -> Iterator[tuple[str, str, str]]:
    since = next((each.allocation.since for each in holders if each.allocation.since), "")
    if device.parts is not None and device.parts.total:
        if is_first or holders:
            code = PARTLY_FREE if device.parts.available else HELD_BY_POD if holders else UNKNOWN
            yield code, f"{device.parts.available} of {device.parts.total} free", since
    elif holders:
        releasing = all(each.allocation.releasing for each in holders)
        yield (RELEASING, "releasing", since) if releasing else (HELD_BY_POD, "in use", since)
    elif is_first and not cordons_of(found, device.id) and not any(each.is_exclusive for each in device.taints):
        yield FREE, "free", device.since


def cordon_words(cordon: Cordon) -> str:
    """Return words such as ` by alice: ecc`; "" if nothing is known."""
    return (f" by {cordon.by}" if cordon.by else "") + (f": {cordon.reason}" if cordon.reason else "")


def short_reason(device: Device) -> str:
    words = device.message.split("; ")[0].split(". ")[0].rstrip(".") or device.reason
    return words if len(words) <= _LONGEST_REASON else device.reason or f"{words[:_LONGEST_REASON]}…"


def _timed(word: str, since: str, now: datetime, reason: str) -> str:
    ago = age(since, now)
    return f"{word}{f' ({ago})' if ago else ''}{f': {reason}' if reason else ''}"


def held_words(holders: Sequence[Holder]) -> str:
    """Return the pods with their number of parts; "-" if no pod uses it."""
    found: dict[str, int] = {}
    for each in holders:
        name = f"{each.pod} (admin access)" if each.is_admin else each.pod
        found[name] = found.get(name, 0) + each.parts
    return ", ".join(f"{pod} ({parts})" if parts else pod for pod, parts in found.items()) or "-"
