"""Calls with a deadline: a hanging one is abandoned, and can be checked later."""

import threading

import pytest
from nodedevice_agent.plugins.nvml.reader.calls import CallHangs, Calls


def fail() -> None:
    raise ValueError("no")


def test_results_and_errors_are_returned() -> None:
    calls = Calls(30)
    assert calls.do(lambda: 7) == 7
    with pytest.raises(ValueError, match="no"):
        calls.do(fail)
    assert calls.do(lambda: 8) == 8


def test_all_calls_are_made_in_one_thread() -> None:
    calls = Calls(30)
    assert calls.do(threading.get_ident) == calls.do(threading.get_ident) != threading.get_ident()


def test_a_hanging_call_is_abandoned() -> None:
    calls = Calls(0.05)
    let_go = threading.Event()
    with pytest.raises(CallHangs) as hang:
        calls.do(lambda: let_go.wait(30))
    assert not hang.value.job.wait(0)
    assert Calls(30).do(lambda: 1) == 1
    let_go.set()
    assert hang.value.job.wait(30)
    assert hang.value.job.result() is True
