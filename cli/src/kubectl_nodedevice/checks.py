"""Checks an installation: one line for each part, with its problem. Pure.

A Lease counts as renewed if it changes, or by the API server's clock: the agent's own clock may be wrong.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nodedevice_kube.fields import number_of

from kubectl_nodedevice.cluster import NO_CONDITION, Json, Lease, NodeDevice, Object, Pod
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.summaries import Summary
from kubectl_nodedevice.text import age, counted, moment
from kubectl_nodedevice.why.kinds import Event

# of a longer result, only problems are listed one by one
MOST_LISTED: Final = 40
_NO_IMAGE: Final = ": the node does not get its image; docs/install.md, Images"
_REMEDIES: Final = {
    **dict.fromkeys(("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"), _NO_IMAGE),
    "ContainerCreating": ": it has its node and is being started",
    "CrashLoopBackOff": ": it started and ended; kubectl logs has why",
    "Pending": ": kubectl describe pod has why",
}
_PODS_AND_LOGS: Final = "check the {0}s' pods and logs"
_NO_PODS: Final = "the cluster refuses their pods"
_RELEASE: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})")
_QUOTA: Final = re.compile(r"exceeded quota: ([^ ,]+)")


@dataclass(frozen=True, slots=True)
class Result:
    """One line. what: the kind of part. is_good: None if the person may not see it. details: a sentence with the remedy."""

    what: str
    name: str
    is_good: bool | None
    details: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A workload whose pods the cluster refuses. message: the controller's words. at: the last attempt."""

    kind: str
    name: str
    message: str
    at: str


def refused_deployments(deployments: Iterable[Object]) -> list[Refusal]:
    """Find Deployments with ReplicaFailure. Their controller copies the condition from their ReplicaSets."""
    failures = [(each.meta.name, each.conditions.get("ReplicaFailure", NO_CONDITION)) for each in deployments]
    return [Refusal("Deployment", name, one.message, one.since) for name, one in failures if one.status == "True"]


def lacks_pods(daemon_set: Json) -> bool:
    desired = number_of(daemon_set, "status", "desiredNumberScheduled")
    return number_of(daemon_set, "status", "currentNumberScheduled") < desired


def refused_daemon_sets(lacking: Iterable[Json], events: Iterable[Event]) -> list[Refusal]:
    """Find DaemonSets that lack pods and whose last Event reports a refused pod."""
    last = {each.about_uid: each for each in sorted(events, key=lambda each: each.at) if each.reason == "FailedCreate"}
    metas = [record_of(Object, each).meta for each in lacking]
    found = ((meta.name, last.get(meta.uid)) for meta in metas)
    return [Refusal("DaemonSet", name, event.message, event.at) for name, event in found if event is not None]


def of_refusals(refusals: Iterable[Refusal], namespace: str, now: datetime) -> list[Result]:
    """Return a line for each workload, as neither a pod nor a log exists."""
    return [Result(each.kind, each.name, False, _refused(each, namespace, now)) for each in refusals]


def _refused(refusal: Refusal, namespace: str, now: datetime) -> str:
    since = age(refusal.at, now)
    return f"FailedCreate{f' ({since} ago)' if since else ''}: {refusal.message}; {_allow(refusal.message, namespace)}"


def _allow(message: str, namespace: str) -> str:
    quota = _QUOTA.search(message)
    if quota:
        return f"raise the ResourceQuota {quota[1]} in namespace {namespace}"
    if "insufficient quota to match these scopes" in message:
        return (
            f"give namespace {namespace} a ResourceQuota of that scope, or set priorityClassName in the chart's values"
        )
    if "violates PodSecurity" in message:
        return f"set the label pod-security.kubernetes.io/enforce=privileged on namespace {namespace}"
    return f"what refuses them has to allow the pods of namespace {namespace}"


def of_kind(name: str, conditions: Mapping[str, str], release: str, own: str) -> Result:
    """conditions: status by type. release: the one that installed the CRD. own: this program's."""
    if conditions.get("Established") != "True":
        is_taken = conditions.get("NamesAccepted") == "False"
        why = "its names are taken by another kind" if is_taken else "not established yet"
        return Result("kind", name, False, f"is not served: {why}")
    return Result("kind", name, True, f"is served, of release {release or 'unknown'}{_compared(release, own)}")


def _compared(release: str, own: str) -> str:
    theirs, ours = _RELEASE.match(release), _RELEASE.match(own)
    if not theirs or not ours:
        return ""
    there, here = (int(theirs[1]), int(theirs[2])), (int(ours[1]), int(ours[2]))
    if there > here:
        return f", which is newer than this program ({own}): it may have what is not shown here"
    return f", which is older than this program ({own}): helm upgrade" if there < here else ""


def is_renewed(lease: Lease, first_seen: Lease | None, now: datetime) -> bool:
    """Whether the Lease has changed since it was first seen, or has not expired by this clock."""
    if first_seen is not None and first_seen.renewed != lease.renewed:
        return True
    seconds = seconds_since(lease.renewed, now)
    return seconds is not None and abs(seconds) <= lease.duration_seconds


def seconds_since(renewed: str, now: datetime) -> float | None:
    then = moment(renewed)
    return None if then is None else (now - then).total_seconds()


def of_operator(lease: Lease | None, first_seen: Lease | None, now: datetime, is_refused: bool = False) -> Result:
    """is_refused: the cluster refuses the operator's pods, and another line reports that."""
    if lease is None or not lease.holder:
        advice = _NO_PODS if is_refused else f"{_PODS_AND_LOGS.format('operator')}, and its namespace (-n)"
        return Result("operator", "", False, f"none leads; {advice}")
    if not is_renewed(lease, first_seen, now):
        return Result("operator", lease.holder, False, f"renewed its Lease at {lease.renewed}, and not since")
    return Result("operator", lease.holder, True, "leads")


def of_agents(
    leases: Mapping[str, Lease],
    first_seen: Mapping[str, Lease],
    now: datetime,
    desired: int | None,
    is_refused: bool = False,
) -> list[Result]:
    """Return a line for all agents, then one for each agent that does not renew its Lease.

    desired: how many should run, or None. is_refused: the cluster refuses their pods, and another line reports that.
    """
    silent = sorted(node for node, lease in leases.items() if not is_renewed(lease, first_seen.get(node), now))
    alive = len(leases) - len(silent)
    expected = desired or 1
    details = f"{alive} renew their Leases"
    if desired is not None:
        details += f", of {desired} that the DaemonSet wants"
    if alive < expected:
        details += f"; {_NO_PODS if is_refused else _PODS_AND_LOGS.format('agent')}"
    found = [Result("agents", "", alive >= expected, details)]
    for node in silent[:MOST_LISTED]:
        seconds = seconds_since(leases[node].renewed, now)
        since = f"{seconds:.0f} s ago" if seconds is not None else "never"
        details = f"renewed its Lease {since}; it does not run, or does not reach the API server"
        found.append(Result("agent", node, False, details))
    return found


def of_pods(pods: Iterable[Pod]) -> list[Result]:
    """Report our pods that do not run, so that a missing image is not mistaken for a slow program."""
    found = []
    for pod in sorted(pods, key=lambda each: each.meta.name):
        waits = (each.reason for each in pod.containers if each.state == "waiting" and each.reason)
        reason = next(waits, pod.phase if pod.phase == "Pending" else "")
        if reason:
            details = f"{reason} on {pod.node or 'no node'}{_REMEDIES.get(reason, '')}"
            found.append(Result("pod", pod.meta.name, False, details))
    return found[:MOST_LISTED]


def of_summaries(summaries: Sequence[Summary], messages: Mapping[str, str]) -> list[Result]:
    """Return a line for each NodeDevice; of many, only those with a problem, and how many are Ready.

    messages: of the condition Ready, by name, if they were read.
    """
    if not summaries:
        return [Result("NodeDevices", "", True, "none yet: no device plugin has registered with an agent")]
    results = [
        _of_summary(each, messages.get(each.name, ""))
        for each in sorted(summaries, key=lambda each: (each.node, each.resource))
    ]
    if len(results) <= MOST_LISTED:
        return results
    bad = [result for result in results if not result.is_good]
    ready = sum(each.ready == "True" for each in summaries)
    return [Result("NodeDevices", "", not bad, f"{ready} of {len(results)} are Ready"), *bad[:MOST_LISTED]]


def of_shared_slices(slices: Iterable[tuple[str, int]]) -> list[Result]:
    """Return a line for each DRA driver that offers devices of more than one node. slices: driver and number of devices."""
    counts: dict[str, list[int]] = {}
    for driver, number in slices:
        counts.setdefault(driver, []).append(number)
    found = []
    for driver, numbers in sorted(counts.items())[:MOST_LISTED]:
        devices, is_ = counted(sum(numbers), "device"), "is" if len(numbers) == 1 else "are"
        in_slices = f"{counted(len(numbers), 'ResourceSlice')} that {is_} not of one node: no NodeDevice shows them"
        found.append(Result("DRA driver", driver, True, f"offers {devices} in {in_slices}"))
    return found


def _of_summary(found: Summary, message: str) -> Result:
    numbers = f"{found.available} of {found.total} available"
    if found.ready == "True":
        return Result("NodeDevice", found.name, True, f"{numbers}, Ready")
    if not found.ready:
        return Result("NodeDevice", found.name, False, f"{numbers}; no operator has reconciled it yet")
    details = f"{numbers}; {found.reason}{f': {message}' if message else ''}"
    return Result("NodeDevice", found.name, not found.is_unready, details)


def of_delivery(found: Iterable[NodeDevice]) -> list[Result]:
    """Report how devices reach containers: each message once, the most frequent first."""
    by_message: dict[str, list[str]] = {}
    for each in sorted(found, key=lambda each: (each.node, each.resource)):
        condition = each.condition("Injectable")
        if condition.status == "True":
            by_message.setdefault(condition.message, []).append(each.name)
    ordered = sorted(by_message.items(), key=lambda item: -len(item[1]))[:MOST_LISTED]
    return [
        Result("delivery", of[0], True, f"{message} ({len(of)} NodeDevices)" if len(of) > 1 else message)
        for message, of in ordered
    ]
