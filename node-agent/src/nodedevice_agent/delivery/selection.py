"""`--delivery auto`: chooses the delivery of a node once and stores it.

The capacity of a name that the kubelet has managed is pinned on the Node, so a later start never changes the choice.
"""

from collections.abc import Sequence

from msgspec import Struct
from nodedevice_api.names import DELIVERY_KUBELET, DELIVERY_NRI

CHOICES = (DELIVERY_NRI, DELIVERY_KUBELET)
_NAMED = 3


class Evidence(Struct, frozen=True):
    """stored: an earlier choice, or "". shared_names: resources in the kubelet's checkpoint that are this agent's too."""

    stored: str
    has_nri_socket: bool
    shared_names: Sequence[str] = ()


def choose(evidence: Evidence) -> tuple[str, str]:
    """The delivery that `auto` stands for on this node, and the reason."""
    if evidence.stored:
        return evidence.stored, "it was selected before"
    shared = evidence.shared_names
    if shared:
        more = ", …" if len(shared) > _NAMED else ""
        return DELIVERY_KUBELET, f"the kubelet's checkpoint has {', '.join(shared[:_NAMED])}{more}"
    if evidence.has_nri_socket:
        return DELIVERY_NRI, "the container runtime has an NRI socket"
    return DELIVERY_KUBELET, "the container runtime has no NRI socket"
