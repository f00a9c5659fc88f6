"""A pod that does not exist: who refused it and in which words, or which names may be meant."""

from dataclasses import replace
from typing import Final

import pytest
from kubectl_nodedevice.cluster import Meta, Pod
from kubectl_nodedevice.why import absent
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import Facts
from kubectl_nodedevice.why.kinds import Event

from tests.unit.cli.why.clusters import NOW, OLD

_REFUSED: Final = Event("ReplicaSet", "web-5d9c", "", "FailedCreate", "no", OLD)


@pytest.mark.parametrize(
    ("name", "is_about"),
    [("web-5d9c", True), ("web", True), ("web-5d9c-x7k", True), ("we", False), ("web-5d9cx", False), ("other", False)],
)
def test_whose_refusal_it_is(name: str, is_about: bool) -> None:
    assert absent.refusal([_REFUSED], name) == (_REFUSED if is_about else None)
    assert absent.refusal([replace(_REFUSED, about_kind="Pod")], name) is None
    assert absent.refusal([replace(_REFUSED, reason="SuccessfulCreate")], name) is None


def test_the_last_refusal_counts() -> None:
    late = replace(_REFUSED, message="late")
    others = replace(late, about_name="other"), replace(late, about_kind="Pod")
    assert absent.refusal([_REFUSED, replace(late, message="early"), late, *others], "web") == late


@pytest.mark.parametrize(
    ("message", "at", "code", "words", "quota"),
    [
        ("exceeded quota: team, requested: pods=1", OLD, "QuotaExceeded", "{} (4 min ago)", "team"),
        ("exceeded quota: team", "", "QuotaExceeded", "{}", "team"),
        ("a webhook refused it", OLD, "CreationRefused", "{} (4 min ago)", ""),
    ],
)
def test_the_words_of_whoever_refused_it(message: str, at: str, code: str, words: str, quota: str) -> None:
    found = absent.obstacle(replace(_REFUSED, message=message, at=at), NOW)
    fields = {"words": words.format(message), "owner": "replicaset/web-5d9c", "quota": quota}
    assert found == Obstacle(code, fields=fields)


@pytest.mark.parametrize(
    ("names", "meant"),
    [
        (["zebra", "trian", "train-2", "train-1"], ["train-1", "train-2", "trian"]),
        ([f"train-{number}" for number in range(5)], ["train-0", "train-1", "train-2"]),
        (["zebra"], []),
    ],
)
def test_which_names_may_be_meant(names: list[str], meant: list[str]) -> None:
    assert absent.similar(Facts(NOW, name="train", pods=tuple(Pod(Meta(each)) for each in names))) == meant
