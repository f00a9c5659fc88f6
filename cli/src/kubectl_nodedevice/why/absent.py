"""`why pod` of a pod that does not exist: who refused to make it, or how it is really called. Pure."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from difflib import get_close_matches
from typing import Final

from kubectl_nodedevice.text import age
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import Facts
from kubectl_nodedevice.why.kinds import Event

_QUOTA: Final = re.compile(r"exceeded quota: ([^ ,]+)")


def refusal(events: Iterable[Event], name: str) -> Event | None:
    """The last Event of a controller that could not make such a pod; None where there is none, and the name is wrong."""
    refused = [each for each in events if _is_about(each, name)]
    return refused[-1] if refused else None


def obstacle(event: Event, now: datetime) -> Obstacle:
    """Whoever refused the pod, and in which words."""
    quota = _QUOTA.search(event.message)
    since = age(event.at, now)
    words = f"{event.message}{f' ({since} ago)' if since else ''}"
    fields = {"words": words, "owner": f"{event.about_kind.lower()}/{event.about_name}"}
    return Obstacle(
        "QuotaExceeded" if quota else "CreationRefused", fields={**fields, "quota": quota[1] if quota else ""}
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
