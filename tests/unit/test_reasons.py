"""The table of reasons has all of them, each with a remedy, and is made from the code as it is."""

from typing import Final

import pytest
from nodedevice_api.names import Reason
from nodedevice_operator.observability.events import OF_CONDITIONS, EventReason

from docs.generate_reasons import BEGIN, END, KINDS, PAGE, PageError, page_with, rows


def values(kind: type) -> set[str]:
    return {value for name, value in vars(kind).items() if not name.startswith("_")}


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with(page), "run `make generate`"


@pytest.mark.parametrize("kind", KINDS)
def test_every_reason_is_there_once_with_a_meaning_and_a_remedy(kind: type) -> None:
    of_kind = list(rows(kind))
    assert sorted(row.reason for row in of_kind) == sorted(values(kind))
    assert [row for row in of_kind if not (row.meaning.endswith(".") and row.remedy.endswith("."))] == []


def test_a_reason_means_one_thing() -> None:
    reasons = [row.reason for kind in KINDS for row in rows(kind)]
    assert len(reasons) == len(set(reasons))
    assert values(Reason) >= OF_CONDITIONS


def test_events_are_named_as_such() -> None:
    where = {row.reason: row.where for kind in KINDS for row in rows(kind)}
    assert where[EventReason.REGISTRATION_REFUSED] == "Event: Node"
    assert where[Reason.ENDPOINT_GONE] == "Registered; Event"
    assert where[Reason.ALL_HEALTHY] == "Healthy"


class WithoutADocstring:
    """Its reason has a group alone."""

    # device
    LONELY: Final = "Lonely"


class WithoutARemedy:
    """Its reason has a meaning alone."""

    # device
    LONELY: Final = "Lonely"
    """No other device is near."""


class WithoutAGroup:
    """Its reason appears nowhere."""

    LONELY: Final = "Lonely"
    """No other device is near. Remedy: none."""


@pytest.mark.parametrize("kind", [WithoutADocstring, WithoutARemedy, WithoutAGroup])
def test_a_reason_without_an_explanation_is_refused(kind: type) -> None:
    with pytest.raises(ValueError, match="Lonely needs"):
        list(rows(kind))


def test_pages_that_a_remedy_names_are_linked() -> None:
    row = next(line for line in page_with(f"{BEGIN}\n{END}").splitlines() if line.startswith("| `NoDefaultValidator`"))
    assert row.endswith("[install](install.md). |")


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(PageError, match="needs the lines"):
        page_with("# Troubleshooting\n")
