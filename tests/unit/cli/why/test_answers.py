"""Answers whole: each situation as a person sees it and as programs get it. `GOLDEN=write make unit` writes the files."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from kubectl_nodedevice.why import answer, pods
from kubectl_nodedevice.why.explanation import Explanation, Obstacle, findings_of
from kubectl_nodedevice.why.facts import Unread

from tests.unit import golden
from tests.unit.cli.why.clusters import NOW, base, bound
from tests.unit.cli.why.situations import ABSENT, ALONE, BOUND, UNBOUND
from tests.unit.cli.why.test_table import shown

FOLDER: Final = Path(__file__).with_name("answers")
GROUPS: Final = {
    "unbound": (base, UNBOUND),
    "alone": (base, ALONE),
    "absent": (base, ABSENT),
    "bound": (bound, BOUND),
}
_LONGEST: Final = 256 * 1024


@pytest.mark.parametrize("name", GROUPS)
def test_answers(name: str) -> None:
    made, changes = GROUPS[name]
    texts = []
    for change in changes:
        found = pods.explain(change.do(made()))
        data = json.dumps(answer.data(found, lambda _: None), indent=1)
        texts.append(f"# {change.id}\n{shown(found, is_allowed=False)}\n{data}\n")
    golden.check(FOLDER, name, "\n".join(texts).encode(), "txt", _LONGEST)


def test_the_files_are_of_groups() -> None:
    assert golden.names(FOLDER) == GROUPS.keys()


# -- what is shown of an explanation ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Explanation("x", "waits."), "x waits.\n\nNothing is known to stop it.\n"),
        (Explanation("x", "runs.", is_stopped=False, notes=("One.", "Two.")), "x runs.\n\nOne.\nTwo.\n"),
        (
            Explanation("x", "waits.", words="no", words_at=(NOW - timedelta(hours=2)).isoformat()),
            "x waits.\n\nNothing is known to stop it.\nThe scheduler, 2 h ago: no\n",
        ),
        (
            Explanation("x", "runs.", is_stopped=False, words="no", words_by="kubelet"),
            "x runs.\n\nThe kubelet: no\n",
        ),
        (
            Explanation(
                "x",
                "runs.",
                is_stopped=False,
                unread=(Unread("b.group", "no", "r"), Unread("a", "no", ""), Unread("a", "no", "q")),
            ),
            "x runs.\n\nNot known: a, b. You may not read them (roles q, r).\n",
        ),
        (
            Explanation("x", "runs.", is_stopped=False, unread=(Unread("a", "no", ""),)),
            "x runs.\n\nNot known: a. You may not read them.\n",
        ),
    ],
)
def test_what_is_shown_beside_causes(found: Explanation, text: str) -> None:
    assert shown(found) == text


@pytest.mark.parametrize(
    ("nodes", "of_nodes", "on", "has"),
    [
        (["a"], 1, "node a", "has"),
        (["a", "b"], 2, "all 2 nodes", "have"),
        (["a"], 3, "1 of 3 nodes", "has"),
        (["a", "b"], 3, "2 of 3 nodes", "have"),
    ],
)
def test_on_which_nodes_it_is(nodes: list[str], of_nodes: int, on: str, has: str) -> None:
    obstacles = [Obstacle("NodeCordoned", node, "x.com/a b") for node in nodes]
    [found] = findings_of([*obstacles, *obstacles], of_nodes, {"pod": "p"})
    assert found.nodes == tuple(nodes)
    expected = {"on": on, "has": has, "node": "a", "pod": "p", "resource": "x.com/a b"}
    assert found.fields == {**expected, "resource_options": "--resource 'x.com/a b'"}
