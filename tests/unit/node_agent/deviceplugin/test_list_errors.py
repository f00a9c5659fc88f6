"""Errors of device lists in the log: each one, until there are too many."""

import pytest
from nodedevice_agent.deviceplugin.list_errors import ListErrors


def test_many_are_a_line_now_and_then_which_says_how_many_more_there_were(caplog: pytest.LogCaptureFixture) -> None:
    errors = ListErrors(0.0)
    for number in range(1000):
        errors.add(f"example.com/r{number}", number, f"error {number}", number * 0.01)
    # at once, and one each five seconds
    assert len(caplog.records) == 64 + 1
    fields = [(record.__dict__["resource_name"], record.__dict__.get("more")) for record in caplog.records]
    assert fields[:64] == [(f"example.com/r{number}", None) for number in range(64)]
    assert fields[64] == ("example.com/r500", 436)
    errors.add("example.com/last", 5, "error", 100.0)
    last = caplog.records[-1].__dict__
    assert (last["resource_name"], last["devices"], last["error"], last["more"]) == (
        "example.com/last",
        5,
        "error",
        499,
    )
    errors.add("example.com/last", 5, "error", 101.0)
    assert "more" not in caplog.records[-1].__dict__
    assert {record.getMessage() for record in caplog.records} == {"invalid device list"}
