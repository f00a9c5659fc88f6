"""`why pod` in random situations on a real control plane: all that was done is named, first things first, and nothing else.

WHY_SITUATIONS: how many; WHY_SEED: which ones.
"""

import json
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest

from tests import examples
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.why.absent import ABSENT, QUEUE
from tests.integration.why.situations import MAKERS, Situation, ask, codes, expected
from tests.integration.why.verbs import BOUND, FINISH_BOUND, UNBOUND, Verb

COUNT = int(os.environ.get("WHY_SITUATIONS") or 20)
SEED = examples.seed("WHY_SEED", in_gate=1)
# so many at once: each has two Nodes, and what is waited for is waited for by all together
_AT_ONCE = 20
Plan = tuple[bool, tuple[Verb, ...]]


def plans(count: int, seed: int) -> Iterator[Plan]:
    """Whether the pod is bound, and what is done; two things in each third situation. Each verb comes before any comes again."""
    drawing = random.Random(seed)
    waiting: list[tuple[bool, Verb]] = []
    for number in range(count):
        if not waiting:
            waiting = [(False, each) for each in (*UNBOUND, *ABSENT)] + [(True, each) for each in BOUND]
            drawing.shuffle(waiting)
        is_bound, first = waiting.pop()
        others = [each for each in (BOUND if is_bound else (*UNBOUND, *ABSENT)) if each.goes_with(first)]
        yield is_bound, (first, *([drawing.choice(others)] if number % 3 == 2 and others else []))


def _each(verbs: Sequence[Verb], stage: str, situation: Situation) -> None:
    for verb in verbs:
        found = getattr(verb, stage)
        if found is not None:
            found(situation)


def _make(cluster: ControlPlane, namespace: str, numbered: Sequence[tuple[int, Plan]]) -> list[tuple[Situation, Plan]]:
    made = [(Situation(cluster, namespace, number, is_bound=plan[0]), plan) for number, plan in numbered]
    for situation, (_, verbs) in made:
        situation.make_nodes()
        _each(verbs, "before", situation)
        situation.make_agents()
    for situation, (_, verbs) in made:
        situation.wait_shown()
        _each(verbs, "do", situation)
    # what is collected after some seconds is made last, and asked about first
    made.sort(key=lambda each: any("hasty" in verb.slots for verb in each[1][1]))
    for situation, (_, verbs) in made:
        situation.wait_lowered()
        situation.make_pod()
        _each(verbs, "after", situation)
        if situation.is_bound:
            FINISH_BOUND(situation)
    return made[::-1]


def _named(cluster: ControlPlane, situation: Situation, wanted: list[str]) -> list[str]:
    """The codes, once they are those, or as they are after a minute: what was done takes time to be seen."""
    found: list[str] = []

    def is_so() -> bool:
        answer = ask(cluster.admin_kubeconfig, "pod", situation.asked, "--namespace", situation.namespace)
        found[:] = codes(answer)
        # a node is named only of a pod that no scheduler has refused
        is_refused = answer["causes"] == [] and any("No obstacle is known on" in each for each in answer["notes"])
        found.extend(["could take it"] * is_refused)
        return found == wanted

    with suppress(TimeoutError):
        wait_until(is_so, "all is named")
    return found


@pytest.fixture(scope="module")
def queue(installed: ControlPlane) -> Iterator[None]:
    """Kueue's kind, without Kueue."""
    installed.apply(json.dumps(QUEUE))
    wait_until(lambda: installed.kubectl("get", "workloads.kueue.x-k8s.io", check=False) is not None, "it is served")
    yield
    installed.kubectl("delete", "crd", QUEUE["metadata"]["name"])


@pytest.mark.usefixtures("operator", "queue")
def test_all_that_was_done_is_named_and_nothing_else(installed: ControlPlane, namespace: str) -> None:
    print(f"\nWHY_SITUATIONS={COUNT} WHY_SEED={SEED}")
    wrong = []
    numbered = list(enumerate(plans(COUNT, SEED)))
    for first in range(0, COUNT, _AT_ONCE):
        made = _make(installed, namespace, numbered[first : first + _AT_ONCE])
        for situation, (_, verbs) in made:
            wanted = expected([each.code for each in verbs])
            found = _named(installed, situation, wanted)
            if found != wanted:
                wrong.append(f"{situation.name}, {' and '.join(each.name for each in verbs)}: {found}, not {wanted}")
                print(wrong[-1], flush=True)
        # or they would make the pods again that go with the namespace
        installed.kubectl("delete", MAKERS, "--all", "--namespace", namespace)
        for situation, _ in made:
            situation.remove()
    assert not wrong, "\n".join(wrong)
