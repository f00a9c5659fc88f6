"""Whether an installation works: one line for each thing that has to be there, and what is wrong with it.

Leases are judged by the clock of whoever looks and by whether they change: a node whose clock is wrong is well all the same.
"""

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nodedevice_api import names

from nodedevice_operator.objects.lease import LeaseRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

# More lines than this nobody reads: then only what is wrong is told of one by one.
MOST_LISTED: Final = 40


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line. what: the kind of thing; says: in words, with the remedy where there is one."""

    what: str
    name: str
    is_good: bool
    says: str


def is_renewed(lease: LeaseRecord, first_seen: LeaseRecord | None, now: datetime.datetime) -> bool:
    """Whether somebody renews it: it has changed since it was seen first, or its time is not over by this clock."""
    if first_seen is not None and first_seen.renewed != lease.renewed:
        return True
    age = age_seconds(lease.renewed, now)
    return age is not None and abs(age) <= lease.duration_seconds


def age_seconds(renewed: str, now: datetime.datetime) -> float | None:
    """How long ago that was by this clock; None where it is no time."""
    try:
        return (now - datetime.datetime.fromisoformat(renewed)).total_seconds()
    except (ValueError, TypeError):
        return None


def of_agents(
    leases: Mapping[str, LeaseRecord],
    first_seen: Mapping[str, LeaseRecord],
    now: datetime.datetime,
    wanted: int | None,
) -> list[Verdict]:
    """The agents as a whole, then each that does not renew its Lease. wanted: how many there should be, if that is known."""
    silent = sorted(node for node, lease in leases.items() if not is_renewed(lease, first_seen.get(node), now))
    alive = len(leases) - len(silent)
    expected = max(1, wanted or 0)
    says = f"{alive} renew their Leases" + (f", of {wanted} that the DaemonSet wants" if wanted is not None else "")
    if alive < expected:
        says += "; look at the agents' pods and their logs"
    found = [Verdict("agents", "", alive >= expected, says)]
    for node in silent:
        age = age_seconds(leases[node].renewed, now)
        since = f"{age:.0f} s ago" if age is not None else "never"
        found.append(
            Verdict(
                "agent", node, False, f"renewed its Lease {since}; it does not run, or does not reach the API server"
            )
        )
    return found


def of_node_devices(records: Iterable[NodeDeviceRecord]) -> list[Verdict]:
    """Each NodeDevice, Ready or why not; where there are many, those that are not, and how many are."""
    found = [_of_node_device(record) for record in sorted(records, key=lambda each: (each.node, each.resource))]
    if not found:
        return [Verdict("NodeDevices", "", True, "none yet: no device plugin has registered with an agent")]
    if len(found) <= MOST_LISTED:
        return found
    wrong = [verdict for verdict in found if not verdict.is_good]
    return [
        Verdict("NodeDevices", "", not wrong, f"{len(found) - len(wrong)} of {len(found)} are Ready"),
        *wrong[:MOST_LISTED],
    ]


def _of_node_device(record: NodeDeviceRecord) -> Verdict:
    ready = record.conditions.get(names.Condition.READY)
    numbers = f"{record.available} of {record.total} available"
    if ready is None:
        return Verdict("NodeDevice", record.name, False, f"{numbers}; no operator has looked at it yet")
    if ready.status == "True":
        return Verdict("NodeDevice", record.name, True, f"{numbers}, Ready")
    return Verdict("NodeDevice", record.name, False, f"{numbers}; {ready.reason}: {ready.message}")


def table(verdicts: Iterable[Verdict]) -> list[str]:
    """The lines, in columns."""
    rows = [("", "WHAT", "NAME", "SAYS")]
    rows += [("ok" if each.is_good else "NO", each.what, each.name or "-", each.says) for each in verdicts]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows]
