"""What `run` does around the agent: signals, its end, and callbacks that fail."""

import asyncio
import logging
import os
import signal
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nodedevice_agent.cli import run as program
from nodedevice_agent.errors import AgentError, AgentSettingsError
from nodedevice_agent.settings import AgentSettings
from nodedevice_common import logs


@pytest.fixture(autouse=True)
def _logs_are_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "set_up_logs", lambda *_: None)


def run(monkeypatch: pytest.MonkeyPatch, agent: Any) -> Result:
    """With this in place of an agent."""
    monkeypatch.setattr(program, "_run", agent)
    return CliRunner().invoke(program.main, ["run", "--node-name", "n1"], env={"NODEDEVICE_CONFIG": ""})


@pytest.mark.parametrize(
    ("number", "usual"),
    [(signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)],
    ids=["SIGTERM", "SIGINT"],
)
def test_the_first_signal_ends_the_agent_and_a_second_one_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: signal.Signals, usual: Any
) -> None:
    seen: list[Any] = []

    async def agent(settings: AgentSettings) -> None:
        # else it would end the tests
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            seen.append((settings.node_name, signal.getsignal(number)))

    caplog.set_level(logging.INFO)
    done = run(monkeypatch, agent)
    assert (done.exit_code, done.output, seen) == (0, "", [("n1", usual)])
    assert [record.message for record in caplog.records] == ["stopping", "stopped"]
    assert vars(caplog.records[0])["signal"] == number.name


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        pytest.param(AgentError("why"), 1, id="an error"),
        pytest.param(AgentSettingsError("why"), 2, id="of the settings"),
        pytest.param(BaseExceptionGroup("tasks", [ExceptionGroup("more", [AgentError("why")])]), 1, id="of a task"),
    ],
)
def test_a_failure_is_one_line(monkeypatch: pytest.MonkeyPatch, failure: BaseException, status: int) -> None:
    async def agent(settings: AgentSettings) -> None:
        raise failure

    done = run(monkeypatch, agent)
    assert (done.exit_code, done.stdout, done.stderr) == (status, "", "nodedevice-agent: why\n")


def test_a_callback_that_fails_is_logged_as_a_task_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError("No such device")

    async def agent(settings: AgentSettings) -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(0)

    assert run(monkeypatch, agent).exit_code == 0
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == ["callback failed"]
