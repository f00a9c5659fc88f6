"""What tests share of helm's answers: each is asked for once, and no test changes another's."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hack.cluster.errors import CommandError
from tests.chart import rendering

Asked = list[tuple[Sequence[str], Mapping[str, Any]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What helm was asked. In its place: takes every value but `wrong`, of which it complains."""
    calls: Asked = []

    def run(arguments: Sequence[str], values: Mapping[str, Any]) -> "subprocess.CompletedProcess[str]":
        calls.append((arguments, values))
        is_wrong = "wrong" in values
        return subprocess.CompletedProcess(list(arguments), int(is_wrong), "kind: A\n---\nkind: B\n", "wrong is wrong")

    monkeypatch.setattr(rendering, "run_helm", run)
    return calls


def test_each_set_of_values_is_rendered_once_and_handed_out_unchanged(asked: Asked) -> None:
    first = rendering.render({"made-up": 1})
    first.pop()["kind"] = "C"
    assert rendering.render({"made-up": 1}) == [{"kind": "A"}, {"kind": "B"}]
    assert len(asked) == 1


def test_other_flags_and_values_are_another_question(asked: Asked) -> None:
    for values, flags in (({"made-up": 2}, ()), ({"made-up": 2.5}, ()), ({"made-up": 2}, ("--flag",))):
        rendering.render(values, *flags)
    assert [values for _, values in asked] == [{"made-up": 2}, {"made-up": 2.5}, {"made-up": 2}]
    assert asked[-1][0][-1] == "--flag"


def test_a_refusal_is_remembered_too(asked: Asked) -> None:
    values = {"made-up": 3, "wrong": True}
    assert "wrong is wrong" in rendering.refusal(values)
    with pytest.raises(CommandError, match="wrong is wrong"):
        rendering.render(values)
    assert len(asked) == 1
