import logging

import pytest
from nodedevice_common.log_once import LogOnce

log = logging.getLogger("test")


def test_a_problem_is_logged_when_it_begins_whatever_becomes_of_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    problems = LogOnce(log)
    changes = [problems.report("the disk is full", error, path="/a") for error in ("", "one", "two", "", "", "three")]
    assert changes == [False, True, False, True, False, True]
    found = [
        (record.message, record.levelname, vars(record)["path"], vars(record)["error"]) for record in caplog.records
    ]
    assert found == [("the disk is full", "WARNING", "/a", "one"), ("the disk is full", "WARNING", "/a", "three")]


def test_each_message_is_a_problem_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    problems = LogOnce(log)
    assert problems.report("first", "x", logging.ERROR)
    assert problems.report("second", "x")
    assert not problems.report("first", "x", logging.ERROR)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
