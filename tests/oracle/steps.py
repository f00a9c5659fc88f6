"""What can be done to a device manager: plain values, so that a sequence that shows something can be pasted as a case.

Pods have no names here: the n-th Admit is the pod `pn`. Steps that make no sense where they stand (ending a pod that never
was) do nothing, on both sides alike, so that any part of a sequence is a sequence too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["init", "sidecar", "app"]
Limits = Mapping[str, int]


@dataclass(frozen=True)
class Dev:
    """One device as a plugin lists it."""

    id: str
    healthy: bool = True
    numa: tuple[int, ...] = ()


@dataclass(frozen=True)
class Ctr:
    """One container and its limits."""

    kind: Kind = "app"
    limits: Limits = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """What the managers are started with: NUMA nodes, and the topology policy and scope as the kubelet spells them."""

    policy: str = "none"
    scope: str = "container"
    numa: tuple[int, ...] = (0, 1)


@dataclass(frozen=True)
class Register:
    """A plugin registers and lists its devices. One that serves the resource already is ended after that: a takeover.

    advice: it answers which devices it prefers (the highest IDs), which makes every choice the plugin's, and so comparable.
    """

    resource: str
    devices: tuple[Dev, ...]
    advice: bool = True


@dataclass(frozen=True)
class Update:
    """The plugin sends a new list."""

    resource: str
    devices: tuple[Dev, ...]


@dataclass(frozen=True)
class Stop:
    """The plugin goes away."""

    resource: str


@dataclass(frozen=True)
class Failing:
    """From now on the plugin's Allocate fails, or no longer does."""

    resource: str
    is_failing: bool = True


@dataclass(frozen=True)
class Admit:
    """A pod comes to the node. If it is refused it goes away again, as a Failed pod's replacement would be another pod."""

    containers: tuple[Ctr, ...]


@dataclass(frozen=True)
class End:
    """The n-th pod is over and gone."""

    pod: int


@dataclass(frozen=True)
class Restart:
    """The manager ends and starts again; the plugins come back, then the pods that were there are seen again."""


Step = Register | Update | Stop | Failing | Admit | End | Restart


@dataclass(frozen=True)
class Case:
    """A machine and what happens on it."""

    steps: tuple[Step, ...]
    machine: Machine = field(default_factory=Machine)


def pasted(case: Case) -> str:
    """The case as Python, one step a line, for a table of named cases."""
    steps = "".join(f"        {step!r},\n" for step in case.steps)
    return f"Case(\n    steps=(\n{steps}    ),\n    machine={case.machine!r},\n)"
