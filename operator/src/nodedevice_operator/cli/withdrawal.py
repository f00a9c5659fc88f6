"""What of a Node is the operator's, and so goes when everything is uninstalled; and what stays because it is somebody else's.

Nothing else of a Node is ever touched.
"""

from dataclasses import dataclass

from nodedevice_operator.objects.node import NodeRecord


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """What to take back of one Node. capacity: resource names that leave with an apply that names none."""

    node: str
    capacity: tuple[str, ...]
    is_tainted: bool
    labels: tuple[str, ...]

    @property
    def is_nothing(self) -> bool:
        return not (self.capacity or self.is_tainted or self.labels)


def withdrawal(node: NodeRecord) -> Withdrawal:
    """What is there of ours."""
    ours = (name for name, seen in node.resources.items() if seen.is_capacity_ours or seen.is_allocatable_ours)
    return Withdrawal(
        node.name, tuple(sorted(ours)), node.taint_and_labels.is_tainted, tuple(sorted(node.taint_and_labels.labels))
    )


def staying(before: Withdrawal, after: NodeRecord) -> dict[str, str]:
    """Of what was given up, what the Node still shows, with who owns it now: by resource name."""
    found = {}
    for name in before.capacity:
        seen = after.resources.get(name)
        # a copy in allocatable goes with the kubelet's next look at capacity
        if seen is not None and seen.capacity is not None:
            found[name] = ", ".join(sorted(seen.capacity_strangers))
    return found
