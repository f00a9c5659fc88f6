"""The resources whose devices have parts on some node: only for these does the extender decide. Pure."""

from collections import Counter, deque
from typing import Final

from nodedevice_operator.objects.node_parts import NodeParts

# An agent makes its NodeDevice again within a second, or when it next reaches the API server; so long the Node keeps the number.
_REMADE_SECONDS: Final = 35.0


class WithParts:
    """Times are monotonic seconds. Counts nodes whose devices have parts, may have, or had until lately."""

    def __init__(self) -> None:
        self._nodes: Counter[str] = Counter()
        self._gone: deque[tuple[float, str]] = deque()

    def __contains__(self, resource: str) -> bool:
        return self._nodes[resource] > 0

    def changed(self, before: NodeParts | None, record: NodeParts) -> None:
        """before: of the same node and resource."""
        self._count(record.resource, record.may_have_parts - (before is not None and before.may_have_parts))

    def gone(self, record: NodeParts, now: float) -> None:
        """Until its agent makes it again, the resource of the only node with parts still has parts."""
        if record.may_have_parts:
            self._gone.append((now + _REMADE_SECONDS, record.resource))

    def expire(self, now: float) -> None:
        while self._gone and self._gone[0][0] <= now:
            self._count(self._gone.popleft()[1], -1)

    def _count(self, resource: str, nodes: int) -> None:
        """A name without nodes is dropped: with a node's token one may invent names."""
        if total := self._nodes[resource] + nodes:
            self._nodes[resource] = total
        else:
            self._nodes.pop(resource, None)
