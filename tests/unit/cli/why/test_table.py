"""The table of reasons: each row can be reached, read and typed; the docs have each; nobody is forgotten."""

import io
import re
import shlex
from dataclasses import replace
from string import Formatter

import pytest
from kubectl_nodedevice.cluster import Condition
from kubectl_nodedevice.output import Screen
from kubectl_nodedevice.why import answer, pods
from kubectl_nodedevice.why.explanation import Explanation
from kubectl_nodedevice.why.reasons.rights import OF_THE_POD, OF_THE_RELEASE, Role
from kubectl_nodedevice.why.reasons.row import Row, line_of
from kubectl_nodedevice.why.reasons.table import TABLE

from tests.unit.cli.why.clusters import NOW, base, bound, each_found
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


def test_codes_are_words_that_occur_once() -> None:
    codes = [row.code for row in TABLE]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", code) for code in codes)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.code)
def test_a_row_says_something_in_each_of_its_fields(row: Row) -> None:
    assert row.advice.endswith(":")
    assert row.line.text.startswith("kubectl ")
    assert isinstance(row.line.role, Role)
    assert row.line.needs.namespace in ("", OF_THE_POD, OF_THE_RELEASE)


@pytest.mark.parametrize(("change", "found"), [pytest.param(*each, id=each[0].id) for each in explained()])
def test_an_answer_is_whole_and_fits_a_screen(change: Change, found: Explanation) -> None:
    text = shown(found)
    assert f"[{change.code}]" in text
    assert "{" not in re.sub(r"--patch '\{.*\}'", "", text)
    assert "  :" not in text
    assert " ." not in text.replace(" ...", "")
    assert len(text.splitlines()) <= _LINES


@pytest.mark.parametrize(("change", "found"), [pytest.param(*each, id=each[0].id) for each in explained()])
def test_a_line_is_words_of_a_shell(change: Change, found: Explanation) -> None:
    for finding in found.findings:
        words = shlex.split(line_of(finding.row, finding.fields))
        assert all(words), words
        assert change.code == finding.code


def test_names_of_others_stay_one_word() -> None:
    (row,) = [row for row in TABLE if row.code == "NodeCordoned"]
    assert shlex.split(line_of(row, {"node": "a; rm -rf ~"})) == ["kubectl", "uncordon", "a; rm -rf ~"]


def test_a_line_without_its_options_ends_with_its_last_word() -> None:
    """As of a driver's devices, which have no resource to select by."""
    (row,) = [row for row in TABLE if row.code == "DevicesHeld"]
    assert line_of(row, {"resource_options": ""}) == "kubectl nodedevice devices"


def test_only_known_fields_are_asked_for() -> None:
    """So that a template does not fail in the one situation in which it is needed."""
    known = {name for _, found in explained() for finding in found.findings for name in finding.fields}
    asked = {
        name
        for row in TABLE
        for text in (row.sentence, row.line.text)
        for _, name, _, _ in Formatter().parse(text)
        if name
    }
    assert asked - known == set()


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


def test_a_stale_watch_makes_data_old_too() -> None:
    stale = Condition("WatchesCurrent", "False", "WatchStale", since="2026-01-02T02:54:05Z")
    broken = next(each for each in UNBOUND if each.code == "DevicesBroken")
    facts = each_found(
        broken.do(base()), lambda found: replace(found, conditions={**found.conditions, "WatchesCurrent": stale})
    )
    assert "(as of 10 min ago)" in shown(pods.explain(facts))
