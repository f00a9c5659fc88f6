"""The page of reasons has all of them, and is made from the code as it is."""

import pytest
from nodedevice_api.names import Reason
from nodedevice_operator.observability.events import OF_CONDITIONS, EventReason

from docs.generate_reasons import PAGE, page, rows


def values(kind: type) -> set[str]:
    return {value for name, value in vars(kind).items() if not name.startswith("_")}


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make generate`"


@pytest.mark.parametrize("kind", [Reason, EventReason])
def test_every_reason_is_there_once_and_says_something(kind: type) -> None:
    found = list(rows(kind))
    assert sorted(row.reason for row in found) == sorted(values(kind))
    assert {row.reason for row in found if not row.meaning.endswith(".")} == set()


def test_a_reason_means_one_thing() -> None:
    assert values(Reason).isdisjoint(values(EventReason))
    assert values(Reason) >= OF_CONDITIONS


class Undocumented:
    """One without a docstring."""

    # a group
    LONELY: str = "Lonely"


def test_a_reason_that_nobody_explains_is_refused() -> None:
    with pytest.raises(ValueError, match="Lonely needs a docstring"):
        list(rows(Undocumented))
