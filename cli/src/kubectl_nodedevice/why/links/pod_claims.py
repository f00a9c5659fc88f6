"""Explains whether the ResourceClaims of a pod can be allocated, and on which node. Pure."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from nodedevice_kube.planner import Need

from kubectl_nodedevice.cluster import Node, Pod, PodClaim
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import CLASSES, OWN_CLAIMS, SLICES, TEMPLATES, Facts
from kubectl_nodedevice.why.kinds import DeviceClass, ResourceClaim
from kubectl_nodedevice.why.links import offers
from kubectl_nodedevice.why.links.devices import Wanted
from kubectl_nodedevice.why.links.placement import matches_terms


def claims_of(facts: Facts, pod: Pod) -> tuple[ResourceClaim, ...]:
    found = (facts.claim(pod.meta.namespace, each.claim) for each in pod.claims if each.claim)
    return tuple(each for each in found if each is not None)


def obstacles(facts: Facts, pod: Pod) -> Iterator[Obstacle]:
    """Yield obstacles that do not depend on the node."""
    found = {each.meta.name: each for each in claims_of(facts, pod)}
    for wanted in pod.claims:
        if not wanted.claim:
            yield from _unmade(facts, wanted)
        elif wanted.claim not in found:
            if facts.has_read(OWN_CLAIMS):
                yield Obstacle("ClaimMissing", fields={"claim": f"The ResourceClaim {wanted.claim}"})
        elif not found[wanted.claim].is_allocated:
            yield from _classes(facts, found[wanted.claim])


def _unmade(facts: Facts, wanted: PodClaim) -> Iterator[Obstacle]:
    if wanted.template and wanted.template not in facts.templates and facts.has_read(TEMPLATES):
        yield Obstacle("ClaimMissing", fields={"claim": f"The ResourceClaimTemplate {wanted.template}"})
        return
    if facts.is_absent:
        # claims are created for an existing pod only
        return
    words = [each.message for each in facts.events if each.reason == "FailedResourceClaimCreation"]
    why = f": {words[-1]}" if words else ""
    yield Obstacle("ClaimNotMade", fields={"claim": wanted.name, "words": why})


def _classes(facts: Facts, claim: ResourceClaim) -> Iterator[Obstacle]:
    known = {each.name: each for each in facts.classes}
    for request in claim.requests:
        # The scheduler allocates from none of the listed classes if one is missing.
        missing = [each for each in request.classes or ("",) if each not in known] if facts.has_read(CLASSES) else []
        for name in missing:
            hint = did_you_mean(name, known)
            yield Obstacle("DeviceClassMissing", fields=_fields(name, hint, f"The claim {claim.meta.name}"))
        if not missing:
            yield from _offers(facts, [known[each] for each in request.classes if each in known])


def _offers(facts: Facts, classes: list[DeviceClass]) -> Iterator[Obstacle]:
    if not classes or not facts.has_read(SLICES) or any(offers.is_offered(facts, each) for each in classes):
        return
    yield nothing_offered(classes[0])


def nothing_offered(found: DeviceClass) -> Obstacle:
    return Obstacle(
        "NothingOffered", fields=_fields(found.name, f", whose driver is {found.driver}." if found.driver else ".")
    )


def _fields(device_class: str, hint: str, claim: str = "") -> dict[str, str]:
    return {"device_class": device_class, "hint": hint, "claim": claim}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence, such as `; did you mean vendor.com/gpu?`"""
    close = get_close_matches(name, known)
    return f"; did you mean {close[0]}?" if close else "."


def on_node(facts: Facts, pod: Pod, node: Node) -> Iterator[Obstacle]:
    known = {each.name: each for each in facts.classes}
    for claim in claims_of(facts, pod):
        if claim.is_allocated:
            if claim.node_selector and not matches_terms(claim.node_selector, node):
                yield Obstacle("ClaimElsewhere", node.meta.name, detail=f"claim {claim.meta.name}")
            continue
        is_tolerant = any(each.is_tolerant for each in claim.requests)
        for name in sorted(known):
            count = offers.wanted_of(claim, name)
            wanted = Wanted(f"DeviceClass {name}", (Need(count),))
            if count and offers.is_offered(facts, known[name]):
                yield from offers.obstacles(facts, node.meta.name, known[name], wanted, is_tolerant=is_tolerant)


def serves(facts: Facts, pod: Pod, node: Node) -> bool:
    """Whether the node may have devices for each unallocated claim; true without one."""
    known = {each.name: each for each in facts.classes}
    return all(
        any(offers.may_have(facts, known[name], node.meta.name) for name in request.classes if name in known)
        for claim in claims_of(facts, pod)
        if not claim.is_allocated
        for request in claim.requests
    )
