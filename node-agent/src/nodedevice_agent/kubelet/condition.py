"""The condition Injectable of a resource that the kubelet allocates, from the state of its registration with the kubelet."""

from dataclasses import dataclass
from enum import Enum

from nodedevice_api.names import Reason

_MAX_DETAIL = 512


class KubeletRegistrationState(Enum):
    REGISTERED = "registered"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    LIST_TOO_BIG = "list too big"
    CANNOT_SERVE = "cannot serve"
    NOT_ADVERTISED = "not advertised"


@dataclass(frozen=True, slots=True)
class KubeletRegistration:
    """detail: the cause, such as the kubelet's error message."""

    state: KubeletRegistrationState
    detail: str = ""


def injectable(registration: KubeletRegistration) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    detail = "".join(c if c.isprintable() else " " for c in registration.detail[:_MAX_DETAIL])
    match registration.state:
        case KubeletRegistrationState.REGISTERED:
            message = "the kubelet accepted the registration and injects devices into containers"
            return "True", Reason.KUBELET_REGISTERED, message
        case KubeletRegistrationState.UNREACHABLE:
            remedy = "start the kubelet, or set --kubelet-dir to its directory"
            return "False", Reason.KUBELET_UNREACHABLE, f"cannot register with the kubelet ({detail}): {remedy}"
        case KubeletRegistrationState.REFUSED:
            return "False", Reason.KUBELET_REFUSED, f"the kubelet refused the registration; retrying: {detail}"
        case KubeletRegistrationState.LIST_TOO_BIG:
            remedy = "list fewer devices on this node, or use --runtime nri"
            return "False", Reason.KUBELET_LIST_TOO_BIG, f"{detail}; the kubelet accepts at most 4 MiB: {remedy}"
        case KubeletRegistrationState.CANNOT_SERVE:
            return "False", Reason.KUBELET_CANNOT_SERVE, f"cannot serve a socket for the kubelet; retrying: {detail}"
        case KubeletRegistrationState.NOT_ADVERTISED:
            message = "not registered with the kubelet until the device plugin lists devices and the cordons are known"
            return "False", Reason.NOTHING_FOR_KUBELET, message
