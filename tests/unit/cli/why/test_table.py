"""The table of reasons: each row can be reached, read and typed; the docs have each; nobody is forgotten."""

import io
import re

import pytest
from kubectl_nodedevice.output import Screen
from kubectl_nodedevice.why import answer, pods
from kubectl_nodedevice.why.explanation import Explanation
from kubectl_nodedevice.why.reasons.table import TABLE

from tests.unit.cli.why.clusters import NOW, base, bound
from tests.unit.cli.why.situations import ABSENT, ALONE, BOUND, UNBOUND, Change

MADE = [(base, each) for each in (*UNBOUND, *ALONE, *ABSENT)] + [(bound, each) for each in BOUND]
_LINES = 24


def explained() -> list[tuple[Change, Explanation]]:
    return [(change, pods.explain(change.do(made()))) for made, change in MADE]


def shown(found: Explanation, form: str = "", *, is_allowed: bool | None = True) -> str:
    out = io.StringIO()
    answer.show(Screen(form, out), found, lambda _: is_allowed, NOW)
    return out.getvalue()


def test_each_row_is_what_something_comes_to() -> None:
    """A row without a situation in which it is the answer fails here."""
    reached = {finding.code for _, found in explained() for finding in found.findings}
    assert {row.code for row in TABLE} - reached == set()


@pytest.mark.parametrize(("change", "found"), [pytest.param(*each, id=each[0].id) for each in explained()])
def test_an_answer_is_whole_and_fits_a_screen(change: Change, found: Explanation) -> None:
    text = shown(found)
    assert f"[{change.code}]" in text
    assert "{" not in re.sub(r"--patch '\{.*\}'", "", text)
    assert "  :" not in text
    assert " ." not in text.replace(" ...", "")
    assert len(text.splitlines()) <= _LINES


def test_who_may_not_run_a_line_is_sent_to_who_may() -> None:
    (found,) = [found for change, found in explained() if change.code == "DevicesCordoned"]
    assert "the role nodedevice-cordon may" in shown(found, is_allowed=False)
    assert "You may not" not in shown(found, is_allowed=True)
    assert "You may not" not in shown(found, is_allowed=None)


def test_data_that_may_be_old_says_of_when() -> None:
    silent = next(each for each in UNBOUND if each.code == "AgentSilent")
    broken = next(each for each in UNBOUND if each.code == "DevicesBroken")
    text = shown(pods.explain(broken.do(silent.do(base()))))
    assert "node-a, node-b: all 4 (Xid79 for 4 min) (as of 5 s ago)" in text
