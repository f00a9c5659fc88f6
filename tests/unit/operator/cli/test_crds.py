"""Which release is older, and so must not take the place of another."""

import pytest
from nodedevice_operator.cli.crds import is_older, release

IN_ORDER = (
    *("0.1.0-alpha", "0.1.0-rc.2", "0.1.0-rc.10", "0.1.0-rc.x"),
    *("0.1.0", "0.1.1", "0.2.0", "0.10.0", "1.0.0", "10.0.0"),
)


def test_order() -> None:
    for index, older in enumerate(IN_ORDER):
        for newer in IN_ORDER[index + 1 :]:
            assert is_older(older, newer), (older, newer)
            assert not is_older(newer, older), (newer, older)


@pytest.mark.parametrize(("ours", "there"), [("0.1.0", "0.1.0"), ("v0.1.0", "0.1.0+build.7"), ("0.1.0", "")])
def test_equals_are_not_older(ours: str, there: str) -> None:
    assert not is_older(ours, there)
    assert not is_older(there, ours)


@pytest.mark.parametrize("text", ["", "1", "1.2", "1.2.x", "newest", "1.2.3-", "9999999999.0.0"])
def test_what_names_no_release_is_as_old_as_can_be(text: str) -> None:
    assert release(text) is None
    assert not is_older("0.0.1", text)
