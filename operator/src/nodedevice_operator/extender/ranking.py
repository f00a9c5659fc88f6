"""The nodes where pods of one shape fit, in the order of preference. Pure.

A changed node is ranked when the next pod of the shape comes: between two pods a few nodes change.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodedevice_kube.planner import Need, at_once

from nodedevice_operator.extender.node_state import View
from nodedevice_operator.extender.steps import Steps

# The ranks of one shape take about 1 MB at 5,000 nodes. The least recently used shape is dropped.
_MOST_SHAPES: Final = 8
# Containers times nodes that are ranked before other requests run: each takes some microseconds.
_CONTAINERS_A_TURN: Final = 256
_MOST_EQUAL: Final = 16
# The factor of the first of two sort keys; the second one is the free parts of a node.
_FIRST_KEY: Final = 1 << 40
# after all other ranks
WORST: Final = 1 << 100


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides where pods fit, and which node is the best. has_problem: the pod's annotation is invalid."""

    resource: str
    containers: tuple[Need, ...]
    sm_percent: int | None
    has_problem: bool
    is_spread: bool


class Ranking:
    """The ranks of nodes for one shape; the least is the best. Ranks of several resources may be added.

    changed: nodes that have to be ranked.
    """

    def __init__(self, shape: Shape, nodes: Iterable[str]) -> None:
        self._shape = shape
        self._whole = at_once(shape.containers)
        self._nodes_a_turn = max(_CONTAINERS_A_TURN // len(shape.containers), 1)
        self._turn = 0
        self._order: list[tuple[int, str]] = []
        # without nodes where the pods do not fit
        self.ranks: dict[str, int] = {}
        self.changed = set(nodes)

    def update(self, views: Mapping[str, View]) -> Steps[None]:
        """Ranks the changed nodes. Other requests run at each `yield`."""
        ranked = 0
        while self.changed:
            if ranked == self._nodes_a_turn:
                ranked = 0
                yield
                continue
            ranked += 1
            node = self.changed.pop()
            self._rank(node, views.get(node))

    def best(self, nodes: Collection[str]) -> str:
        """The best of these nodes; "" if the pods fit on none of them. Equally good nodes take turns."""
        equal: list[str] = []
        least = WORST
        for rank, node in self._order:
            if rank > least or len(equal) == _MOST_EQUAL:
                break
            if node in nodes:
                least = rank
                equal.append(node)
        if not equal:
            return ""
        self._turn += 1
        return equal[(self._turn - 1) % len(equal)]

    def _rank(self, node: str, view: View | None) -> None:
        before = self.ranks.pop(node, None)
        if before is not None:
            del self._order[bisect_left(self._order, (before, node))]
        if view is not None and self._fits(view):
            rank = self.ranks[node] = self._rank_of(view)
            insort(self._order, (rank, node))

    def _fits(self, view: View) -> bool:
        if view.problem or (self._shape.has_problem and view.percent is not None):
            return False
        return not view.verdict(self._shape.containers, self._shape.sm_percent)

    def _rank_of(self, view: View) -> int:
        if not view.sizes:
            return 0
        left, free = view.rank(self._whole)
        rank = left * _FIRST_KEY + free
        return -rank if self._shape.is_spread else rank


class Rankings:
    """The rankings of the recently used shapes."""

    def __init__(self) -> None:
        # least recently used first
        self._by_shape: dict[Shape, Ranking] = {}

    def of(self, shape: Shape, nodes: Iterable[str]) -> Ranking:
        """nodes: all that have the resource."""
        ranking = self._by_shape.pop(shape, None) or Ranking(shape, nodes)
        self._by_shape[shape] = ranking
        if len(self._by_shape) > _MOST_SHAPES:
            del self._by_shape[next(iter(self._by_shape))]
        return ranking

    def change(self, resource: str, node: str) -> None:
        for shape, ranking in self._by_shape.items():
            if shape.resource == resource:
                ranking.changed.add(node)


def ranks_of(rankings: Sequence[Ranking], nodes: Collection[str]) -> list[int]:
    """The rank of each of these nodes; WORST if the pod does not fit."""
    if len(rankings) == 1:
        rank_of = rankings[0].ranks.get
        return [rank_of(node, WORST) for node in nodes]
    of_node = ([ranking.ranks.get(node, WORST) for ranking in rankings] for node in nodes)
    return [WORST if WORST in ranks else sum(ranks) for ranks in of_node]


def best_of(rankings: Sequence[Ranking], nodes: Collection[str]) -> str:
    """The best of these nodes for pods of all these shapes; "" if they fit on none."""
    if len(rankings) == 1:
        return rankings[0].best(nodes)
    rank, best = min(zip(ranks_of(rankings, nodes), nodes, strict=True), default=(WORST, ""))
    return best if rank < WORST else ""
