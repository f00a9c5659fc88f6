"""Chooses which pods to preempt for parts on a node: kube-scheduler's victims, and more if these do not suffice.

kube-scheduler counts the Node's sum: the victims that it proposes may leave room on several physical devices, and on none enough.
The extender ignores disruption budgets; kube-scheduler has counted the budgets that its own victims violate.
Source: pkg/scheduler/framework/preemption/preemption.go, callExtenders @ v1.37.1.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.steps import Steps
from nodedevice_operator.objects.bound_pod import BoundPod, PodNeeds

# Plans for further victims of one request: a quarter of a second at 80 pods a node. Later nodes that need further victims are
# dropped.
MOST_PLANS: Final = 1000


@dataclass(slots=True)
class _Search:
    fleet: Fleet
    uid: str
    needs: PodNeeds
    plans: int

    def fits(self, node: str, gone: Iterable[str]) -> Steps[bool]:
        yield
        self.plans -= 1
        return self.fleet.fits_without(self.needs, node, frozenset((self.uid, *gone)))

    def more(self, node: str, given: Sequence[str], pods: Sequence[BoundPod]) -> Steps[list[BoundPod] | None]:
        """The fewest further victims, then of the lowest priority. None if even all pods are not enough."""
        if not pods or not (yield from self.fits(node, [*given, *_uids(pods)])):
            return None
        found: list[list[BoundPod]] = []
        for order in _orders(self.fleet, pods):
            if self.plans > 0 and (chosen := (yield from self._shortest(node, given, order))):
                found.append(chosen)
        return min(found, key=_cost, default=None)

    def _shortest(self, node: str, given: Sequence[str], pods: Sequence[BoundPod]) -> Steps[list[BoundPod] | None]:
        """The shortest sufficient prefix of `pods`, without the unnecessary ones; None if all are not enough."""
        low, high = 1, len(pods)
        if not (yield from self.fits(node, [*given, *_uids(pods)])):
            return None
        while low < high:
            middle = (low + high) // 2
            if (yield from self.fits(node, [*given, *_uids(pods[:middle])])):
                high = middle
            else:
                low = middle + 1
        chosen = list(pods[:low])
        for pod in sorted(chosen, key=lambda each: -each.priority):
            others = [each for each in chosen if each is not pod]
            if self.plans > 0 and (yield from self.fits(node, [*given, *_uids(others)])):
                chosen = others
        return chosen


def choose(
    fleet: Fleet, uid: str, needs: PodNeeds, priority: int, victims: dict[str, list[str]], plans: int = MOST_PLANS
) -> Steps[dict[str, list[str]]]:
    """Returns the UIDs of the victims by node, most important first; without nodes where preemption does not help.

    victims: kube-scheduler's proposal by node, most important first. All of them stay: it needs them for other resources. Further
    victims have a lower priority than the pod. A node that fits without victims is left out.
    """
    search, found = _Search(fleet, uid, needs, plans), dict[str, list[str]]()
    for node, given in victims.items():
        yield
        if fleet.fits_without(needs, node, frozenset((uid, *given))):
            if given:
                found[node] = list(given)
            continue
        pods = [pod for pod in fleet.pods_on(node) if pod.priority < priority and pod.uid not in (uid, *given)]
        more = (yield from search.more(node, given, pods)) if search.plans > 0 else None
        if more:
            found[node] = _merged(fleet, node, given, more)
    return found


def _orders(fleet: Fleet, pods: Sequence[BoundPod]) -> Iterator[list[BoundPod]]:
    """Orders to try: all pods, then the pods of each physical device, as others do not help a pod that needs one device."""
    everywhere = {pod.uid: fleet.parts_of(pod) for pod in pods}
    sizes = [{uid: sum(parts.values()) for uid, parts in everywhere.items()}]
    for device in sorted({device for parts in everywhere.values() for device in parts}):
        sizes.append({uid: parts[device] for uid, parts in everywhere.items() if device in parts})
    for size in sizes:
        group = sorted(
            (pod for pod in pods if pod.uid in size), key=lambda pod: (pod.priority, -size[pod.uid], pod.uid)
        )
        yield group
        yield sorted(group, key=lambda pod: -size[pod.uid])


def _cost(pods: Sequence[BoundPod]) -> tuple[int, int, int, list[str]]:
    return len(pods), max(pod.priority for pod in pods), sum(pod.priority for pod in pods), sorted(_uids(pods))


def _merged(fleet: Fleet, node: str, given: Sequence[str], more: Sequence[BoundPod]) -> list[str]:
    """Merges in kube-scheduler's order: it reads the highest priority from the first. `given` keeps its order."""
    known = {pod.uid: pod.priority for pod in fleet.pods_on(node)}
    merged = list(given)
    for pod in sorted(more, key=lambda each: (-each.priority, each.uid)):
        place = next((i for i, uid in enumerate(merged) if known.get(uid, pod.priority) < pod.priority), len(merged))
        merged.insert(place, pod.uid)
    return merged


def _uids(pods: Iterable[BoundPod]) -> list[str]:
    return [pod.uid for pod in pods]
