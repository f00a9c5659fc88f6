"""`--runtime auto`: which runtime a node has, decided once and kept.

A name that the kubelet's device manager has known stays the kubelet's: its number on the Node is pinned, and pods that ask for it
fail at the kubelet. So what was chosen before is never changed by what happens to be there at a later start.
"""

from collections.abc import Collection
from dataclasses import dataclass

from nodedevice_api.names import RUNTIME_KUBELET, RUNTIME_NRI

CHOICES = (RUNTIME_NRI, RUNTIME_KUBELET)
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """kept: what an earlier start or an administrator wrote down, "" where nobody did.

    ours: resource names of this agent, as far as they are known before any plugin registers. of_kubelet: those that the kubelet's
    checkpoint names.
    """

    kept: str
    is_nri_there: bool
    ours: Collection[str]
    of_kubelet: Collection[str]


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    runtime: str
    why: str


def choose(evidence: Evidence) -> RuntimeChoice:
    """What `auto` comes to on this node."""
    if evidence.kept:
        return RuntimeChoice(evidence.kept, "it was chosen before")
    shared = sorted(set(evidence.ours) & set(evidence.of_kubelet))
    if shared:
        more = ", …" if len(shared) > _NAMED else ""
        return RuntimeChoice(RUNTIME_KUBELET, f"the kubelet knows {', '.join(shared[:_NAMED])}{more} from before")
    if evidence.is_nri_there:
        return RuntimeChoice(RUNTIME_NRI, "the container runtime's NRI socket is there")
    return RuntimeChoice(RUNTIME_KUBELET, "the container runtime has no NRI socket here")
