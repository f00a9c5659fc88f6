"""Answers whole: each situation as a person sees it, and one of each group as programs get it.

`GOLDEN=write make unit` writes the files.
"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from kubectl_nodedevice.errors import CliError
from kubectl_nodedevice.why import answer, pods
from kubectl_nodedevice.why.explanation import Explanation, Finding, Obstacle, findings_of
from kubectl_nodedevice.why.facts import Unread

from tests.unit import golden
from tests.unit.cli.why.clusters import NOW, base, bound
from tests.unit.cli.why.situations import ABSENT, ALONE, BOUND, UNBOUND
from tests.unit.cli.why.test_table import shown

FOLDER: Final = Path(__file__).with_name("answers")
GROUPS: Final = {"unbound": (base, UNBOUND), "alone": (base, ALONE), "absent": (base, ABSENT), "bound": (bound, BOUND)}
# the other answers have the same fields
IN_JSON: Final = frozenset({"DevicesCordoned", "CapacityBehind", "QuotaExceeded", "WaitsOnNode"})
_LONGEST: Final = 256 * 1024


@pytest.mark.parametrize("name", GROUPS)
def test_answers(name: str) -> None:
    made, changes = GROUPS[name]
    texts = []
    for change in changes:
        found = pods.explain(change.do(made()))
        texts.append(f"# {change.id}\n{shown(found, is_allowed=False)}\n")
        if change.id in IN_JSON:
            texts.append(json.dumps(answer.data(found, lambda _: None), indent=1) + "\n")
    golden.check(FOLDER, name, "\n".join(texts).encode(), "txt", _LONGEST)


_AT: Final = (NOW - timedelta(hours=2)).isoformat()
_UNREAD: Final = (Unread("b.group", "no", "r"), Unread("a", "no", ""), Unread("a", "no", "q"))


@pytest.mark.parametrize(
    ("is_stopped", "more", "text"),
    [
        (True, {}, "Nothing about devices is known to stop it."),
        (True, {"words": "no", "words_at": _AT}, "Nothing about devices is known to stop it.\nThe scheduler, 2 h ago: no"),
        (False, {"notes": ("One.", "Two.")}, "One.\nTwo."),
        (False, {"words": "no", "words_by": "kubelet"}, "The kubelet: no"),
        (False, {"unread": _UNREAD}, "Not known: a, b. You may not read them (roles q, r)."),
        (False, {"unread": _UNREAD[1:2]}, "Not known: a. You may not read them."),
    ],
)  # fmt: skip
def test_what_is_shown_beside_causes(is_stopped: bool, more: dict[str, Any], text: str) -> None:
    assert shown(Explanation("x", "is so.", is_stopped=is_stopped, **more)) == f"x is so.\n\n{text}\n"


def of_nodes(details: list[str]) -> Explanation:
    """Each on a node of its own, of a hundred."""
    found = [Obstacle("NodeCordoned", f"n{at}", detail=each) for at, each in enumerate(details)]
    return Explanation("x", "waits.", findings=findings_of(found, 100))


@pytest.mark.parametrize(("number", "rest"), [(3, ""), (4, "   and so on: 1 more\n"), (5, "   and so on: 2 more\n")])
def test_three_details_are_shown_and_programs_get_all(number: int, rest: str) -> None:
    found = of_nodes([f"d{at}" for at in range(number)])
    details = "".join(f"   n{at}: d{at}\n" for at in range(3))
    assert f"[NodeCordoned]\n{details}{rest}   After its maintenance, uncordon it:\n" in shown(found)
    assert len(answer.data(found, lambda _: None)["causes"][0]["where"]) == number


@pytest.mark.parametrize(
    ("by", "name", "expected"),
    [
        ("alice", "alice", "--device gpu-0"),
        ("alice", "bob", "--device gpu-0 --take-over"),
        ("alice", "", "--device gpu-0 --take-over"),
    ],
)
def test_only_somebody_elses_cordon_is_taken_over(by: str, name: str, expected: str) -> None:
    def own_name() -> str:
        if not name:
            raise CliError("not known")
        return name

    fields = {"device_options": "--device gpu-0 --take-over", "cordoned_by": by}
    found = Finding("DevicesCordoned", "example.com/gpu", (Obstacle("DevicesCordoned", "n", fields=fields),), 1)
    [changed] = answer.of_own_cordons(Explanation("x", "waits.", findings=(found,)), own_name).findings
    assert changed.fields["device_options"] == expected
