"""`why pod` of a pod that does not exist: who refused to make it, or how it is really called. Pure."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from kubectl_nodedevice.why.explanation import Explanation, Obstacle, findings_of
from kubectl_nodedevice.why.facts import Facts
from kubectl_nodedevice.why.kinds import Event

_QUOTA: Final = re.compile(r"exceeded quota: ([^ ,]+)")


def explain(facts: Facts) -> Explanation | None:
    """None where nothing refused such a pod: the name is wrong."""
    refused = [each for each in facts.events if _is_about(each, facts.name)]
    if not refused:
        return None
    last = refused[-1]
    owner = f"{last.about_kind.lower()}/{last.about_name}"
    quota = _QUOTA.search(last.message)
    fields = {"words": last.message, "owner": owner, "quota": quota.group(1) if quota else ""}
    code = "QuotaExceeded" if quota else "CreationRefused"
    context = {"pod": facts.name, "namespace": facts.namespace}
    return Explanation(
        f"pod {facts.namespace}/{facts.name}",
        f"does not exist: {last.about_kind} {last.about_name} cannot make it.",
        findings=findings_of([Obstacle(code, fields=fields)], context=context),
        unread=facts.unread,
    )


def _is_about(event: Event, name: str) -> bool:
    """Of the pod itself, of its controller, or of the controller's own: web, web-5d9c and web-5d9c-x7k are of one Deployment."""
    if event.reason != "FailedCreate" or event.about_kind == "Pod":
        return False
    return (
        name == event.about_name or name.startswith(f"{event.about_name}-") or event.about_name.startswith(f"{name}-")
    )


def similar(facts: Facts) -> list[str]:
    """Names of pods that may be meant."""
    return list(_similar(facts))[:3]


def _similar(facts: Facts) -> Iterator[str]:
    names = sorted(each.meta.name for each in facts.pods)
    begun = [each for each in names if each.startswith(facts.name)]
    yield from begun
    yield from (each for each in get_close_matches(facts.name, names) if each not in begun)
