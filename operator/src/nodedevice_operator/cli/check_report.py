"""The report of a check: one line for each part that an installation needs, and what is wrong with it.

Leases are judged by the local clock and by whether they change: an agent on a node with a wrong clock passes all the same.
"""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nodedevice_api import names

from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.objects.shared_slice import SharedSlice, by_driver
from nodedevice_operator.objects.unwatched import LeaseRecord

# With more lines than this, only problems are listed one by one.
MOST_LISTED: Final = 40
_NO_IMAGE: Final = ": the node does not get its image; docs/install.md, Images"
_REMEDIES: Final = {
    **dict.fromkeys(("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"), _NO_IMAGE),
    "ContainerCreating": ": it has its node and is being started",
    "CrashLoopBackOff": ": it started and ended; kubectl logs has why",
    "Pending": ": kubectl describe pod has why",
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line. what: the kind of part; details: one sentence, with the remedy where there is one."""

    what: str
    name: str
    is_good: bool
    details: str


def is_renewed(lease: LeaseRecord, first_seen: LeaseRecord | None, now: datetime.datetime) -> bool:
    """Whether the Lease is being renewed: it has changed since it was first seen, or has not expired by this clock."""
    if first_seen is not None and first_seen.renewed != lease.renewed:
        return True
    age = age_seconds(lease.renewed, now)
    return age is not None and abs(age) <= lease.duration_seconds


def age_seconds(renewed: str, now: datetime.datetime) -> float | None:
    """How long ago that was by this clock; None where it is not a time."""
    try:
        return (now - datetime.datetime.fromisoformat(renewed)).total_seconds()
    except (ValueError, TypeError):
        return None


def of_agents(
    leases: Mapping[str, LeaseRecord],
    first_seen: Mapping[str, LeaseRecord],
    now: datetime.datetime,
    desired: int | None,
) -> list[CheckResult]:
    """The agents as a whole, then each that does not renew its Lease. desired: how many there should be, if that is known."""
    silent = sorted(node for node, lease in leases.items() if not is_renewed(lease, first_seen.get(node), now))
    alive = len(leases) - len(silent)
    expected = max(1, desired or 0)
    details = f"{alive} renew their Leases"
    if desired is not None:
        details += f", of {desired} that the DaemonSet wants"
    if alive < expected:
        details += "; check the agents' pods and logs"
    found = [CheckResult("agents", "", alive >= expected, details)]
    for node in silent:
        age = age_seconds(leases[node].renewed, now)
        since = f"{age:.0f} s ago" if age is not None else "never"
        details = f"renewed its Lease {since}; it does not run, or does not reach the API server"
        found.append(CheckResult("agent", node, False, details))
    return found


def of_pods(waiting: Iterable[tuple[str, str, str]]) -> list[CheckResult]:
    """Pods that do not run: an image that is missing is not mistaken for a program that is slow.

    waiting: name, node ("" for none yet) and what it waits for, as the kubelet or the API server calls it.
    """
    found = [
        CheckResult("pod", pod, False, f"{reason} on {node or 'no node'}{_REMEDIES.get(reason, '')}")
        for pod, node, reason in waiting
    ]
    return found[:MOST_LISTED]


def of_node_devices(records: Iterable[NodeDeviceRecord]) -> list[CheckResult]:
    """Each NodeDevice, Ready or why not; if there are many, those that are not and should be, and how many are."""
    ordered = sorted(records, key=lambda each: (each.node, each.resource))
    found = [_of_node_device(record) for record in ordered]
    if not found:
        return [CheckResult("NodeDevices", "", True, "none yet: no device plugin has registered with an agent")]
    if len(found) <= MOST_LISTED:
        return found
    bad = [result for result in found if not result.is_good]
    ready = sum(record.is_condition(names.Condition.READY, "True") for record in ordered)
    return [CheckResult("NodeDevices", "", not bad, f"{ready} of {len(found)} are Ready"), *bad[:MOST_LISTED]]


def of_delivery(records: Iterable[NodeDeviceRecord]) -> list[CheckResult]:
    """How devices reach containers, where they do, and what does not hold there: each sentence once, the most frequent first."""
    by_message: dict[str, list[str]] = {}
    for record in sorted(records, key=lambda each: (each.node, each.resource)):
        found = record.conditions.get(names.Condition.INJECTABLE)
        if found is not None and found.status == "True":
            by_message.setdefault(found.message, []).append(record.name)
    ordered = sorted(by_message.items(), key=lambda item: -len(item[1]))[:MOST_LISTED]
    return [
        CheckResult("delivery", of[0], True, f"{message} ({len(of)} NodeDevices)" if len(of) > 1 else message)
        for message, of in ordered
    ]


def of_shared_slices(slices: Iterable[SharedSlice]) -> list[CheckResult]:
    """What DRA drivers offer that is not of one node: one line for each driver."""
    return [
        CheckResult("DRA driver", driver, True, f"offers {_number(count.devices, 'device')} in {_slices(count.slices)}")
        for driver, count in by_driver(slices).items()
    ]


def _slices(number: int) -> str:
    is_ = "is" if number == 1 else "are"
    return f"{_number(number, 'ResourceSlice')} that {is_} not of one node: no NodeDevice shows them"


def _number(number: int, of: str) -> str:
    return f"{number} {of}" if number == 1 else f"{number} {of}s"


def _of_node_device(record: NodeDeviceRecord) -> CheckResult:
    ready = record.conditions.get(names.Condition.READY)
    numbers = f"{record.available} of {record.total} available"
    if ready is None:
        return CheckResult("NodeDevice", record.name, False, f"{numbers}; no operator has reconciled it yet")
    if ready.status == "True":
        return CheckResult("NodeDevice", record.name, True, f"{numbers}, Ready")
    details = f"{numbers}; {ready.reason}: {ready.message}"
    return CheckResult("NodeDevice", record.name, record.is_unready_by_intent, details)


def table(results: Iterable[CheckResult]) -> list[str]:
    """The lines, in columns."""
    rows = [("", "WHAT", "NAME", "DETAILS")]
    rows += [("ok" if each.is_good else "NO", each.what, each.name or "-", each.details) for each in results]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows]
