"""The table of reasons has each of them once, with a meaning and a remedy."""

import pytest
from nodedevice_api.names import Reason
from nodedevice_operator.observability.events import OF_CONDITIONS

from docs.generate_reasons import KINDS, rows


def values(kind: type) -> set[str]:
    return {value for name, value in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize("kind", KINDS)
def test_every_reason_is_there_once_with_a_meaning_and_a_remedy(kind: type) -> None:
    of_kind = list(rows(kind))
    assert sorted(row.reason for row in of_kind) == sorted(values(kind))
    assert [row for row in of_kind if not (row.meaning.endswith(".") and row.remedy.endswith("."))] == []


def test_a_reason_means_one_thing() -> None:
    reasons = [row.reason for kind in KINDS for row in rows(kind)]
    assert len(reasons) == len(set(reasons))
    assert values(Reason) >= OF_CONDITIONS
