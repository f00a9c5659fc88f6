"""Decides where pods with parts of devices go: which nodes have a device for them, which is best, and which parts they get.

The state is what the API has, NodeDevices and bound pods, and what this process has promised since. A status is atomic: a pod that
it lists is counted by it, and by nothing else from then on. Nothing is stored: a new process has it all from two consistent lists.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final, Literal

from nodedevice_api import names
from nodedevice_api.assigned_parts import Assigned
from nodedevice_kube.planner import MOST_CONTAINERS, too_few_on_one

from nodedevice_operator.extender.filter_result import NotFitting, Verdicts, bound_elsewhere, only
from nodedevice_operator.extender.node_state import Claim, View, view_of
from nodedevice_operator.extender.pod_requests import taken
from nodedevice_operator.extender.promises import Promise, Promises
from nodedevice_operator.extender.ranking import Ranking, Rankings, Shape, best_of, ranks_of
from nodedevice_operator.extender.steps import Steps
from nodedevice_operator.extender.tentative import Tentative, Tentatives
from nodedevice_operator.extender.terminating_pods import Leaving
from nodedevice_operator.extender.with_parts import WithParts
from nodedevice_operator.objects.bound_pod import BoundPod, PodNeeds
from nodedevice_operator.objects.node_parts import NodeParts

# Source: MaxExtenderPriority, k8s.io/kube-scheduler extender/v1/types.go.
_MOST_SCORE: Final = 10
_NOTHING: Final[Assigned] = {}
# nodes whose reasons a filter collects before others have their turn
_NODES_A_TURN: Final = 1000
# nodes that are checked for room that comes soon: each takes some 0.05 ms
_MOST_SOON: Final = 40

Policy = Literal["binpack", "spread"]


class Fleet:
    """Times are monotonic seconds."""

    def __init__(self) -> None:
        self._promises = Promises()
        self._views: dict[str, dict[str, View]] = {}
        self._with_parts = WithParts()
        # by name of the NodeDevice: resource and node
        self._names: dict[str, tuple[str, str]] = {}
        # resources of a node
        self._resources: dict[str, tuple[str, ...]] = {}
        self._tentative = Tentatives()
        self._leaving = Leaving()
        self._rankings = Rankings()

    def node_changed(self, record: NodeParts, now: float) -> None:
        """A NodeDevice, new or changed. One under a name that is not its own is ignored."""
        node, resource = record.node, record.resource
        if record.name != names.node_device_name(node, resource):
            return
        views = self._views.setdefault(resource, {})
        before = views.get(node)
        if before is None:
            self._names[record.name] = resource, node
            self._resources[node] = (*self._resources.get(node, ()), resource)
        self._with_parts.changed(before.record if before is not None else None, record)
        for uid in record.holders:
            self._promises.listed(uid, node, resource)
        for promise in list(self._promises.open_on(node)):
            if promise.pod is not None and promise.pod.static_uid in record.holders:
                self._promises.listed(promise.uid, node, resource)
        self._tentative.doubt(node)
        self._put_view(self._view(record))

    def node_gone(self, key: str, now: float) -> None:
        if (place := self._names.pop(key, None)) is None:
            return
        resource, node = place
        record = self._views[resource].pop(node).record
        self._tentative.doubt(node)
        self._rankings.change(resource, node)
        if not self._views[resource]:
            del self._views[resource]
        self._with_parts.gone(record, now)
        self._resources[node] = tuple(name for name in self._resources[node] if name != resource)
        if not self._resources[node]:
            del self._resources[node]

    def pod_changed(self, pod: BoundPod, now: float) -> None:
        if not pod.needs.of:
            return
        if pod.is_ending:
            self._leaving.add(pod.uid, pod.node, now)
        before = self._promises.by_uid.get(pod.uid)
        if before is not None and before.is_as_known(pod):
            # most pods that a watch shows were bound here a moment ago: their node has as much left as before
            before.pod = pod
            self._drop(pod.uid)
            return
        listed = before.listed if before is not None and before.node == pod.node else ()
        self._drop(pod.uid)
        self._promises.remove(pod.uid)
        self._promises.put(Promise(pod.uid, pod.node, pod.needs, _NOTHING, pod, listed=listed))
        for resource in self._resources.get(pod.node, ()):
            holders = self._views[resource][pod.node].record.holders
            if pod.uid in holders or (pod.static_uid and pod.static_uid in holders):
                self._promises.listed(pod.uid, pod.node, resource)
        self._tentative.doubt(pod.node)
        self._refresh(pod.node)
        if before is not None and before.node != pod.node:
            self._refresh(before.node)

    def pod_gone(self, uid: str, now: float) -> None:
        self._drop(uid)
        found = self._promises.gone(uid, now)
        if found is not None:
            self._leaving.add(uid, found.node, now)
            self._refresh(found.node)

    def filter(
        self,
        uid: str,
        needs: PodNeeds,
        nodes: Collection[str],
        now: float,
        policy: Policy = "binpack",
        *,
        names_best: bool = False,
    ) -> Steps[Verdicts]:
        """Fitting nodes; a single one holds the parts for a while. Others run at each `yield`; the bind detects their changes.

        names_best: if the policy prefers some nodes, only the best one, and no reasons of others.
        """
        self.expire(now)
        self._drop(uid)
        if (promise := self._promised(uid)) is not None:
            return only(promise, nodes)
        if problem := self._too_many(needs):
            return Verdicts(unresolvable=dict.fromkeys(nodes, problem))
        rankings = yield from self._updated(needs, policy)
        best = self._best(rankings, nodes) if names_best else ""
        found = Verdicts([best] if best else list(nodes))
        for resource, ranking in rankings.items() if not best else ():
            found.fitting = yield from self._fitting(resource, needs, ranking, found)
        if len(found.fitting) == 1 and self._promised(uid) is None:
            self._drop(uid)
            self._hold(uid, needs, found.fitting[0], now)
        elif not found.fitting:
            found.soon = yield from self._soon(needs, found.failed)
        return found

    def score(
        self, uid: str, needs: PodNeeds, nodes: Collection[str], policy: Policy, now: float
    ) -> Steps[list[tuple[str, int]]]:
        """Scores each node from 1 to 10: only the best one has 10. Its parts are held for the pod for a while."""
        self.expire(now)
        self._drop(uid)
        rankings = yield from self._updated(needs, policy)
        if not nodes:
            return []
        ranks = ranks_of([*rankings.values()], nodes)
        in_order = sorted(set(ranks))
        scores = {
            rank: _MOST_SCORE - 1 - place * (_MOST_SCORE - 1) // len(in_order) for place, rank in enumerate(in_order)
        }
        best = min(node for node, rank in zip(nodes, ranks, strict=True) if rank == in_order[0])
        if self._promised(uid) is None:
            self._drop(uid)
            self._hold(uid, needs, best, now)
        return [(node, scores[rank] if node != best else _MOST_SCORE) for node, rank in zip(nodes, ranks, strict=True)]

    def assign(self, uid: str, needs: PodNeeds, node: str, now: float) -> Assigned | NotFitting:
        """The parts for the pod on that node, unless promised to others. Repeats the choice of a bind with unknown outcome."""
        self.expire(now)
        if (promise := self._promised(uid)) is not None:
            return promise.assigned if promise.node == node else NotFitting(bound_elsewhere(promise))
        if problem := self._too_many(needs) or (needs.problem if self._limits_percent(node, needs) else ""):
            return NotFitting(problem)
        held = self._tentative.certain(uid)
        if held is not None and (held.node, held.needs) == (node, needs):
            return held.assigned
        return self._plan(needs, node, with_tentative=False)

    def promise(self, uid: str, needs: PodNeeds, node: str, assigned: Assigned, now: float) -> None:
        is_as_held = self._tentative.certain(uid) == Tentative(uid, node, needs, assigned)
        held = self._tentative.remove(uid)
        if (before := self._promises.by_uid.get(uid)) is None or before.is_gone:
            self._promises.remove(uid)
            self._promises.put(promise := Promise(uid, node, needs, assigned))
            for resource in self._resources.get(node, ()):
                if uid in self._views[resource][node].record.holders:
                    self._promises.listed(uid, node, resource)
            if before is None and is_as_held and not promise.listed:
                # as many parts are left as before
                return
            self._tentative.doubt(node)
            self._refresh(node)
        if held is not None and held.node != node:
            self._refresh(held.node)

    def confirm(self, uid: str) -> None:
        if (promise := self._promises.by_uid.get(uid)) is not None:
            promise.is_confirmed = True

    def withdraw(self, uid: str) -> None:
        """Withdraws the promise of a bind that the API does not get. Keeps a pod that the API showed on a node."""
        promise = self._promises.by_uid.get(uid)
        if promise is not None and promise.pod is None and not promise.is_gone:
            self._promises.remove(uid)
            self._refresh(promise.node)

    def promised_units(self) -> dict[str, int]:
        """By resource name: the parts promised to pods that no status lists yet. Safe to call in another thread."""
        return {name: units for name, units in self._promises.units().items() if name in self._with_parts}

    def view(self, resource: str, node: str) -> View | None:
        return self._views.get(resource, {}).get(node)

    def fits_without(self, needs: PodNeeds, node: str, gone: frozenset[str]) -> bool:
        """Whether the node would have parts for the pod once these pods (UIDs) are gone; all parts that they hold are free then."""
        if self._too_many(needs):
            return False
        for resource, containers in needs.of:
            if resource not in self._with_parts:
                continue
            view = self.view(resource, node)
            if view is None:
                return False
            freed = self._view(view.record.without(gone), without=gone)
            if freed.percent is not None and needs.problem:
                return False
            if freed.verdict(containers, needs.sm_percent):
                return False
        return True

    def pods_on(self, node: str) -> list[BoundPod]:
        """The node's bound pods that hold parts, or wait for promised ones; without static pods."""
        held = {uid for name in self._resources.get(node, ()) for uid in self._views[name][node].record.holders}
        known = {promise.uid: promise for promise in self._promises.open_on(node)}
        known |= {uid: promise for uid in held if (promise := self._promises.by_uid.get(uid)) is not None}
        pods = (promise.pod for promise in known.values() if promise.node == node and not promise.is_gone)
        return [pod for pod in pods if pod is not None and not pod.static_uid]

    def parts_of(self, pod: BoundPod) -> dict[tuple[str, str], int]:
        """By resource and parent: the parts that the pod holds; the assigned parts if no status lists them."""
        found: dict[tuple[str, str], int] = {}
        for resource, containers in pod.needs.of:
            view = self._views.get(resource, {}).get(pod.node)
            if view is not None and pod.uid in view.record.holders:
                for held in view.record.holders[pod.uid]:
                    found[resource, view.record.parents[held.index].parent] = held.parts
            elif resource in pod.assigned:
                found |= {(resource, of): count for of, count in taken(containers, pod.assigned[resource]).items()}
        return found

    def _fitting(self, resource: str, needs: PodNeeds, ranking: Ranking, found: Verdicts) -> Steps[list[str]]:
        fitting, failed = list[str](), found.failed
        containers, ranks = needs.containers(resource), ranking.ranks
        largest = containers[0].count if len(containers) == 1 else 0
        for number, node in enumerate(found.fitting, start=1):
            if number % _NODES_A_TURN == 0:
                yield
            if node in ranks:
                fitting.append(node)
                continue
            view = self.view(resource, node)
            if view is None:
                found.unresolvable[node] = f"the node has no NodeDevice of {resource}"
            elif largest > view.plain >= 0:
                failed[node] = too_few_on_one(resource, largest, view.plain)
            elif problem := view.problem or (needs.problem if view.percent is not None else ""):
                found.unresolvable[node] = problem
            elif reason := view.verdict(containers, needs.sm_percent):
                failed[node] = reason
            else:
                # it has room since the nodes were ranked
                fitting.append(node)
        return fitting

    def _soon(self, needs: PodNeeds, failed: Mapping[str, str]) -> Steps[str]:
        """A failed node where enough parts for the pod become free without another event in the API; "" without one."""
        nodes = {node: None for node in (*self._leaving.nodes(), *self._tentative.nodes()) if node in failed}
        for node in islice(nodes, _MOST_SOON):
            yield
            without = self._leaving.on(node).union(each.uid for each in self._tentative.on(node))
            if self.fits_without(needs, node, without):
                return node
        return ""

    def _updated(self, needs: PodNeeds, policy: Policy) -> Steps[dict[str, Ranking]]:
        """A ranking for each resource of the pod whose devices have parts."""
        found: dict[str, Ranking] = {}
        for resource, containers in needs.of:
            if resource in self._with_parts:
                shape = Shape(resource, containers, needs.sm_percent, bool(needs.problem), policy == "spread")
                found[resource] = self._rankings.of(shape, self._views.get(resource, ()))
        # other requests may change nodes of the first while the second is updated
        while any(ranking.changed for ranking in found.values()):
            for resource, ranking in found.items():
                yield from ranking.update(self._views.get(resource, {}))
        return found

    def _best(self, rankings: Mapping[str, Ranking], nodes: Collection[str]) -> str:
        """The best of these nodes; "" if the pod fits on none, or if its best node has no parts that could be preferred."""
        best = best_of([*rankings.values()], nodes)
        views = (self.view(resource, best) for resource in rankings)
        return best if any(view is not None and view.sizes for view in views) else ""

    def _plan(self, needs: PodNeeds, node: str, *, with_tentative: bool) -> Assigned | NotFitting:
        assigned: dict[str, dict[str, dict[str, int]]] = {}
        for resource, containers in needs.of:
            if resource not in self._with_parts:
                continue
            view = self._views.get(resource, {}).get(node)
            if view is None:
                return NotFitting(f"the node has no NodeDevice of {resource}")
            if not with_tentative and self._tentative.on(node):
                view = self._view(view.record, with_tentative=False)
            parts = view.plan(containers, needs.sm_percent)
            if isinstance(parts, str):
                return NotFitting(parts)
            if parts:
                assigned[resource] = parts
        return assigned

    def _too_many(self, needs: PodNeeds) -> str:
        """Why a pod has too many containers to plan: each takes some microseconds on each node, and other requests wait."""
        for resource, containers in needs.of:
            if len(containers) > MOST_CONTAINERS and resource in self._with_parts:
                return f"{len(containers)} containers of the pod ask for {resource}; {MOST_CONTAINERS} may"
        return ""

    def _limits_percent(self, node: str, needs: PodNeeds) -> bool:
        found = (self._views.get(resource, {}).get(node) for resource, _ in needs.of)
        return any(view is not None and view.percent is not None for view in found)

    def _refresh(self, node: str) -> None:
        for resource in self._resources.get(node, ()):
            self._put_view(self._view(self._views[resource][node].record))

    def _put_view(self, view: View) -> None:
        record = view.record
        self._views[record.resource][record.node] = view
        self._rankings.change(record.resource, record.node)

    def _view(self, record: NodeParts, *, with_tentative: bool = True, without: frozenset[str] = frozenset()) -> View:
        claims = self._claims(record, without, with_tentative=with_tentative)
        annotated: dict[str, int | None] = {}
        if record.sm_percent is not None:
            known = ((uid, self._promises.by_uid.get(uid)) for uid in record.holders)
            annotated = {uid: promise.needs.sm_percent for uid, promise in known if promise is not None}
        return view_of(record, claims, annotated)

    def _claims(self, record: NodeParts, without: frozenset[str], *, with_tentative: bool = True) -> Iterator[Claim]:
        for promise in self._promises.open_on(record.node):
            is_counted = record.resource in promise.listed or promise.uid in record.refused
            if not is_counted and promise.uid not in without:
                yield from _claim(promise.needs, promise.assigned, record.resource)
        for tentative in self._tentative.on(record.node) if with_tentative else ():
            if tentative.uid not in without:
                yield from _claim(tentative.needs, tentative.assigned, record.resource)

    def _promised(self, uid: str) -> Promise | None:
        promise = self._promises.by_uid.get(uid)
        return None if promise is None or promise.is_gone else promise

    def _hold(self, uid: str, needs: PodNeeds, node: str, now: float) -> None:
        assigned = self._plan(needs, node, with_tentative=True)
        if isinstance(assigned, NotFitting) or not assigned:
            return
        self._tentative.put(Tentative(uid, node, needs, assigned), now)
        for resource, containers in needs.of:
            if (view := self.view(resource, node)) is not None:
                is_plain = resource in assigned and view.percent is None
                self._put_view(
                    view.without(taken(containers, assigned[resource])) if is_plain else self._view(view.record)
                )

    def _drop(self, uid: str) -> None:
        if (held := self._tentative.remove(uid)) is not None:
            self._refresh(held.node)

    def expire(self, now: float) -> None:
        self._leaving.expire(now)
        self._with_parts.expire(now)
        for tentative in self._tentative.expired(now):
            self._refresh(tentative.node)
        for promise in self._promises.expired(now):
            self._refresh(promise.node)


def _claim(needs: PodNeeds, assigned: Assigned, resource: str) -> Iterator[Claim]:
    containers = needs.containers(resource)
    if containers:
        yield Claim(containers, needs.sm_percent, assigned.get(resource))
