"""The condition OfferedTwice in words: which devices, with which other resource, how many are held, and which one to switch off."""

from typing import Final

from nodedevice_agent.offered_twice.compare import MOST_DEVICES, DeviceIDs, Finding, Offer
from nodedevice_agent.offered_twice.sources import Source

# the most other resources, and the most common devices with one
_MOST_OTHERS: Final = 3
_MOST_NAMED: Final = 3
# Where both hold devices, or neither: a plugin goes before a driver, which pods that have not started yet may have claims of, and
# the kubelet's before ours.
_FIRST_TO_GO: Final = (Source.KUBELET, Source.PLUGIN, Source.BUILT_IN, Source.DRA)


def message(offer: Offer, findings: tuple[Finding, ...]) -> str:
    """findings: at least one; sorted."""
    shown = [_sentence(offer, finding) for finding in findings[:_MOST_OTHERS]]
    more = len(findings) - len(shown)
    return "; ".join(shown) + (f"; and {more} more resources offer some of its devices" if more else "")


def _sentence(offer: Offer, finding: Finding) -> str:
    count, other = len(finding.devices), finding.other
    or_more = " or more" if count == MOST_DEVICES else ""
    noun = "1 device is" if count == 1 else f"{count}{or_more} devices are"
    named = ", ".join(_named(*pair) for pair in finding.devices[:_MOST_NAMED])
    more = f" and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
    return (
        f"{noun} also offered by {other.resource_name} ({_kind(other)}) and can be allocated twice: {named}{more}; "
        f"{_held(finding)}; {_remedy(offer, finding)}"
    )


def _named(here: DeviceIDs, there: DeviceIDs) -> str:
    mine, others = " or ".join(here[:_MOST_NAMED]), " or ".join(there[:_MOST_NAMED])
    return mine if mine == others else f"{mine} (there {others})"


def _held(finding: Finding) -> str:
    if not finding.held_here and not finding.held_there:
        return "none is in use"
    twice = f", {finding.held_twice} in both" if finding.held_twice else ""
    return f"{finding.held_here} in use here and {finding.held_there} there{twice}"


def _remedy(offer: Offer, finding: Finding) -> str:
    other = finding.other
    if bool(finding.held_here) != bool(finding.held_there):
        goes, drain = (other, False) if finding.held_here else (offer, False)
    else:
        goes = min(offer, other, key=lambda each: (_FIRST_TO_GO.index(each.source), each.resource_name))
        drain = bool(finding.held_here)
    first = f"drain the pods that use devices of {goes.resource_name}, then " if drain else ""
    return f"{first}{_switch_off(goes)}"


def _switch_off(offer: Offer) -> str:
    match offer.source:
        case Source.BUILT_IN:
            return f"take {offer.resource_name} out of this node's configuration"
        case Source.DRA:
            return f"stop the DRA driver {offer.driver} on this node ({offer.resource_name})"
    return f"stop the device plugin of {offer.resource_name} on this node"


def _kind(offer: Offer) -> str:
    match offer.source:
        case Source.KUBELET:
            return "served by the kubelet"
        case Source.DRA:
            return f"DRA driver {offer.driver}"
    return "served by nodedevice"
