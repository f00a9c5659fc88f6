"""What the referee of the made-up host compares: what was given, what is held, what is offered, and a breach."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NoReturn

from nodedevice_agent.devicemanager.records.allocations import Allocation

from tests.robustness.host.hardware import Node, Stick, is_same
from tests.robustness.host.referee.waits import Wait


class Breach(AssertionError):
    """kind: one of a few words, by which breaches are compared."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def breach(kind: str, message: str) -> NoReturn:
    raise Breach(kind, message)


@dataclass
class Counts:
    """checks: how much was compared, by kind. waits: how often each unavoidable wait was met."""

    checks: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("grants", "refusals", "offers", "held", "held back", "unconfirmed"), 0)
    )
    waits: Counter[Wait] = field(default_factory=Counter)


@dataclass(frozen=True)
class Given:
    """A file of an allocation, and what it led to when it was allocated. by_path: the path is in the configuration, so whatever is
    there now is meant; else the thing itself is. boot: in which. port, identity: of the stick. by_port: whatever is in that port is
    meant. is_certain: whether it is known what the plugin had listed, and not a name that passed to another device just then.
    """

    path: str
    node: Node
    by_path: bool
    boot: int
    port: str = ""
    identity: tuple[str, str, str] = ("", "", "")
    by_port: bool = False
    is_certain: bool = True

    @property
    def stick(self) -> Stick | None:
        return self.node.stick


@dataclass
class Held:
    """An allocation as it was first seen. is_shared: whether it is offered for several containers, or was when it was offered last;
    was_shared: whether it ever was. ports, numbers: where its sticks have been seen, and with which numbers.
    last_units: what its names led to when they were listed last.
    """

    allocation: Allocation
    files: tuple[Given, ...]
    is_shared: bool
    was_shared: bool
    ports: set[str] = field(default_factory=set)
    last_units: set[tuple[str, ...]] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Offer:
    """A device that is listed. nodes: what a container would get with it now, without what all may use."""

    resource_name: str
    device_id: str
    nodes: tuple[Node, ...]
    is_shared: bool
    is_free: bool = False
    is_held_back: bool = False

    def __str__(self) -> str:
        files = " ".join(f"{node.path}={node.number}" for node in self.nodes)
        return f"{self.resource_name} {self.device_id} ({files}{', shared' if self.is_shared else ''})"


def clash(one: Offer, other: Offer) -> bool:
    """Whether they are one device, and not both for several containers."""
    if one.is_shared and other.is_shared:
        return False
    return any(is_same(mine, others) for mine in one.nodes for others in other.nodes)


def goes_with_device(given: Given) -> bool:
    """Not by a port, and not by a name that goes from one device to another, as a link without a serial does."""
    return not given.by_path or ("/by-id/" in given.path and bool(given.identity[2]))
