"""What of a Node belongs to the operator, and is removed at an uninstall; and what stays because others own it too.

Nothing else of a Node is ever changed.
"""

from dataclasses import dataclass

from nodedevice_operator.objects.node import NodeRecord


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """What to remove from one Node. capacity: resource names that an apply without any name removes."""

    node: str
    capacity: tuple[str, ...]
    is_tainted: bool
    labels: tuple[str, ...]

    @property
    def is_nothing(self) -> bool:
        return not (self.capacity or self.is_tainted or self.labels)


def withdrawal(node: NodeRecord) -> Withdrawal:
    """What the Node has of ours."""
    ours = (name for name, seen in node.resources.items() if seen.is_capacity_ours or seen.is_allocatable_ours)
    owned = node.taint_and_labels
    return Withdrawal(node.name, tuple(sorted(ours)), owned.is_tainted, tuple(sorted(owned.labels)))


def staying(before: Withdrawal, after: NodeRecord) -> dict[str, str]:
    """The given-up resources that the Node still shows, with their owners now: by resource name."""
    found = {}
    for name in before.capacity:
        seen = after.resources.get(name)
        # a copy in allocatable goes with the kubelet's next sync
        if seen is not None and seen.capacity is not None:
            found[name] = ", ".join(sorted(seen.capacity_strangers))
    return found
