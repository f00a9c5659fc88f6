"""Explains why a pod does not exist: its controller has not made it, or its name is different. Pure.

Each function in _CAUSES returns an obstacle of the controller, or None.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Final

from kubectl_nodedevice.cluster import NO_CONDITION, Pod
from kubectl_nodedevice.shell import quoted
from kubectl_nodedevice.text import age, some
from kubectl_nodedevice.why.controllers import queues
from kubectl_nodedevice.why.controllers.controller import Controller
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import WORKLOADS, Facts

_QUOTA: Final = re.compile(r"exceeded quota: ([^ ,]+)")
_RESUME: Final = '{"spec": {"suspend": false}}'
_TERMINATING: Final = "because it is being terminated"
REFUSED: Final = frozenset({"QuotaExceeded", "CreationRefused"})


def obstacles(facts: Facts) -> tuple[Obstacle, ...]:
    return tuple(found for cause in _CAUSES if facts.family and (found := cause(facts)) is not None)


def _suspended(facts: Facts) -> Obstacle | None:
    for each in facts.family:
        if each.is_suspended and not _ended(each):
            if facts.workload is not None or (facts.has_queue and queues.is_queued(each.meta)):
                return queues.obstacle(facts.workload, is_read=facts.has_read(WORKLOADS))
            of = (
                f", and belongs to {each.meta.owner.replace('/', ' ')}"
                if each.meta.owner and each.kind == "Job"
                else ""
            )
            return Obstacle("JobSuspended", fields={**_named(each), "of": of, "resume_patch": _RESUME})
    return None


def _no_replicas(facts: Facts) -> Obstacle | None:
    root = facts.family[0]
    if root.kind in ("DaemonSet", "CronJob") or _ended(root):
        return None
    ordinal = _ordinal(facts.name, root)
    if root.wanted and not _is_beyond(ordinal, root):
        return None
    field, options = ("replicas", f"scale {quoted(root.argument)} --replicas {max(root.wanted, 0) + 1}")
    if ordinal is not None and root.wanted:
        options = f"scale {quoted(root.argument)} --replicas {max(ordinal - root.first, 0) + 1}"
    if root.kind == "Job":
        field, options = (
            "parallelism",
            f"""patch {quoted(root.argument)} --patch '{{"spec": {{"parallelism": 1}}}}'""",
        )
    asked = f"spec.{field} is {root.wanted}"
    if ordinal is not None and root.wanted:
        last = root.first + root.wanted - 1
        asked += f", {root.meta.name}-{root.first} to {root.meta.name}-{last}"
    return Obstacle("NoReplicas", fields={**_named(root), "asked": asked, "scale_options": options})


def _paused(facts: Facts) -> Obstacle | None:
    """A paused Deployment makes no ReplicaSet, but scales existing ones."""
    root = facts.family[0]
    if root.is_paused and not any(each.wanted for each in facts.family[1:]):
        return Obstacle("DeploymentPaused", fields=_named(root))
    return None


def _earlier_pod(facts: Facts) -> Obstacle | None:
    """An ordered StatefulSet makes a pod when all earlier ones are Ready."""
    root = facts.family[0]
    ordinal = _ordinal(facts.name, root)
    if not root.is_ordered or _is_beyond(ordinal, root):
        return None
    by_name = {each.meta.name: each for each in facts.pods}
    for number in range(root.first, root.first + min(root.wanted, len(facts.pods) + 1)):
        pod = by_name.get(f"{root.meta.name}-{number}")
        if pod is None or number == ordinal:
            return None
        if not is_ready(pod):
            return Obstacle("EarlierPodNotReady", fields={**_named(root), "earlier": pod.meta.name})
    return None


def _refused(facts: Facts) -> Obstacle | None:
    """Find why a controller lacks pods: in its conditions, else in its last Event."""
    lacking = [
        each
        for each in reversed(facts.family)
        if each.makes_pods and not _ended(each) and _made(facts, each) < each.wanted
    ]
    for each in lacking:
        failure = each.condition("ReplicaFailure")
        if failure.message:
            return _refusal(each, failure.message, failure.since, facts)
    progress = facts.family[0].conditions.get("Progressing", NO_CONDITION)
    if progress.reason == "ReplicaSetCreateError" and progress.status == "False":
        return _refusal(facts.family[0], progress.message, progress.since, facts)
    for each in lacking:
        own = [event for event in facts.events if (event.about_kind, event.about_name) == (each.kind, each.meta.name)]
        # A former controller of the same name may have been refused.
        own = [event for event in own if event.about_uid in ("", each.meta.uid) or not each.meta.uid]
        if own and own[-1].reason == "FailedCreate":
            return _refusal(each, own[-1].message, own[-1].at, facts)
    return None


def _made(facts: Facts, found: Controller) -> int:
    """Count its pods, by its status or by the pods themselves."""
    return max(found.made, len([each for each in facts.pods if each.meta.owner == found.key and not each.is_over]))


def _refusal(found: Controller, message: str, at: str, facts: Facts) -> Obstacle | None:
    if _TERMINATING in message:
        # NamespaceTerminating is an obstacle of its own
        return None
    quota = _QUOTA.search(message)
    since = age(at, facts.now)
    words = f"{message}{f' ({since} ago)' if since else ''}"
    fields = {**_named(found), "words": words, "quota": quota[1] if quota else ""}
    return Obstacle("QuotaExceeded" if quota else "CreationRefused", fields=fields)


def _failed(facts: Facts) -> Obstacle | None:
    root = facts.family[0]
    failed = root.condition("Failed")
    if root.kind != "Job" or not failed.type:
        return None
    words = ": ".join(filter(None, [failed.reason, failed.message])) or "without a reason"
    return Obstacle("JobFailed", fields={**_named(root), "words": words})


_CAUSES: Final[tuple[Callable[[Facts], Obstacle | None], ...]] = (
    _suspended,
    _no_replicas,
    _paused,
    _earlier_pod,
    _refused,
    _failed,
)


def _named(found: Controller) -> dict[str, str]:
    return {"owner": found.argument, "controller": found.label}


def _ended(found: Controller) -> str:
    """Return how a Job ended; "" while it runs."""
    return next((each for each in ("Complete", "Failed") if found.condition(each).type), "")


def _ordinal(name: str, found: Controller) -> int | None:
    rest = name.removeprefix(f"{found.meta.name}-")
    is_one = found.kind == "StatefulSet" and rest != name and rest.isascii() and rest.isdecimal() and len(rest) < 10
    return int(rest) if is_one else None


def _is_beyond(ordinal: int | None, root: Controller) -> bool:
    """Whether the StatefulSet never makes a pod of that number."""
    return ordinal is not None and not root.first <= ordinal < root.first + root.wanted


def is_ready(pod: Pod) -> bool:
    ready = pod.conditions.get("Ready")
    return ready is not None and ready.status == "True" and not pod.meta.deleted


def is_lacking(facts: Facts) -> bool:
    if not facts.family:
        return False
    root = facts.family[0]
    alive = [each for each in facts.pods if not each.is_over]
    return root.kind != "CronJob" and not _ended(root) and len(alive) < root.wanted


def state(facts: Facts, found: tuple[Obstacle, ...]) -> str:
    if not facts.family:
        return "does not exist."
    maker = facts.maker or facts.family[0]
    cannot = any(each.code in REFUSED for each in found)
    return f"does not exist: {maker.label} {'cannot make it' if cannot else 'has not made it'}."


def remedy(facts: Facts) -> str:
    """Suggest names, or say when the pod will be made."""
    meant = list(_similar(facts))[:3]
    if meant:
        return f"did you mean {', '.join(meant)}?"
    if not facts.family:
        return "kubectl get pods --all-namespaces has all names"
    root = facts.family[0]
    if _ended(root):
        return f"{root.label} has ended: {_ended(root)}"
    if root.schedule:
        return f"{root.label} makes its next Job by its schedule, {root.schedule}"
    return f"kubectl describe {root.argument} --namespace {facts.namespace} has what its controller says"


def notes(facts: Facts) -> Iterator[str]:
    names = sorted(each.meta.name for each in facts.pods if not each.is_over)
    if facts.family and names:
        yield f"{facts.family[0].label} has {len(names)} of {facts.family[0].wanted} pods: {some(names)}."


def _similar(facts: Facts) -> Iterator[str]:
    """Yield pods of its controllers; else pods with similar names."""
    own = sorted(each.meta.name for each in facts.pods)
    if own:
        yield from own
        return
    names = sorted(facts.pod_names)
    begun = [each for each in names if each.startswith(facts.name)]
    yield from begun
    yield from (each for each in get_close_matches(facts.name, names) if each not in begun)
