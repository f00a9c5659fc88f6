"""How a resource stands with the kubelet that gives it out, as its NodeDevice's condition Injectable says it."""

from dataclasses import dataclass
from enum import Enum

from nodedevice_api.names import Reason

_MAX_DETAIL = 512


class Stand(Enum):
    REGISTERED = "registered"
    AWAY = "away"
    REFUSED = "refused"
    TOO_MANY = "too many"
    CANNOT_SERVE = "cannot serve"
    NOTHING_TO_SHOW = "nothing to show"


@dataclass(frozen=True, slots=True)
class KubeletStanding:
    """detail: what is known beside it, such as the kubelet's own words."""

    stand: Stand
    detail: str = ""


def injectable(standing: KubeletStanding) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    shown = "".join(c if c.isprintable() else " " for c in standing.detail[:_MAX_DETAIL])
    match standing.stand:
        case Stand.REGISTERED:
            return (
                "True",
                Reason.KUBELET_REGISTERED,
                "the kubelet has taken the registration and puts devices into containers",
            )
        case Stand.AWAY:
            remedy = "start the kubelet, or say with --kubelet-dir where its directory is"
            return "False", Reason.KUBELET_UNREACHABLE, f"the kubelet takes no registration ({shown}): {remedy}"
        case Stand.REFUSED:
            return (
                "False",
                Reason.KUBELET_REFUSED,
                f"the kubelet has refused the registration; it is tried again: {shown}",
            )
        case Stand.TOO_MANY:
            remedy = "list fewer devices on this node, or use --runtime nri"
            return "False", Reason.KUBELET_LIST_TOO_BIG, f"{shown}, and the kubelet takes 4 MiB at most: {remedy}"
        case Stand.CANNOT_SERVE:
            return (
                "False",
                Reason.KUBELET_CANNOT_SERVE,
                f"there is no socket for the kubelet to call; it is tried again: {shown}",
            )
        case Stand.NOTHING_TO_SHOW:
            why = "registered with the kubelet once its device plugin has listed its devices and the cordons are known"
            return "False", Reason.NOTHING_FOR_KUBELET, why
