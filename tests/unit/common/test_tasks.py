"""Tasks that end the process, and those that are run again: once logged, counted, named at /healthz, with growing pauses."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from nodedevice_common import tasks
from nodedevice_common.tasks import apart, retried, vital

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time

FAILURES = [
    OSError("No such device"),
    UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"),
    ValueError("of a foreign object"),
    ExceptionGroup("several", [ExceptionGroup("inner", [OSError("the first")]), ValueError()]),
]
each_failure = pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)


class Known(Exception):
    """An error that a program raises on purpose."""


class Ended(Known):
    """The process is to end."""


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    tasks._failing.clear()


def metric(task: str) -> float:
    (family,) = tasks.TaskFailures("test").collect()
    return sum(sample.value for sample in family.samples if sample.labels == {"task": task})


class Failing:
    """Fails so many times, and then does not end. at: when it was run."""

    def __init__(self, times: int, failure: Exception) -> None:
        self.at: list[float] = []
        self._times, self._failure = times, failure

    async def run(self) -> None:
        self.at.append(asyncio.get_running_loop().time())
        if len(self.at) <= self._times:
            raise self._failure
        await asyncio.Event().wait()


class TestRetried:
    @each_failure
    @virtual_time
    async def test_is_run_again_whatever_it_raises(self, failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
        task, before = Failing(5, failure), metric("shown")
        async with background(retried("shown", task.run, resource_name="example.com/gpu")):
            await asyncio.sleep(60)
            (problem,) = tasks.problems()
        assert len(task.at) == 6
        assert metric("shown") - before == 5
        assert problem.startswith("shown example.com/gpu fails and is tried again: ")
        problem.encode()
        (logged,) = [record for record in caplog.records if record.levelno >= logging.INFO]
        assert (logged.message, vars(logged)["task"]) == ("task failed; retrying it", "shown")
        assert (vars(logged)["resource_name"], vars(logged)["retry_in_seconds"]) == ("example.com/gpu", 1.0)
        # a bug has a traceback, a problem of the node has none
        assert bool(logged.exc_info) != isinstance(tasks.innermost(failure), OSError)

    @virtual_time
    async def test_pauses_grow_to_a_minute_and_begin_anew_once_it_is_well(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        task = Failing(9, OSError("x"))
        async with background(retried("shown", task.run)):
            await asyncio.sleep(400)
            pauses = [round(after - before) for before, after in zip(task.at, task.at[1:], strict=False)]
            assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
            await asyncio.sleep(200)
            assert tasks.problems() == ()
            assert [record.message for record in caplog.records] == ["task failed; retrying it", "task runs again"]

    @virtual_time
    async def test_another_failure_is_logged_and_one_that_is_known_has_no_traceback(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        failures = iter([Known("a"), Known("a"), Known("b")])

        async def run() -> None:
            for failure in failures:
                raise failure

        await retried("shown", run, Known)
        assert [(vars(record)["error"], record.exc_info) for record in caplog.records] == [("a", None), ("b", None)]

    @virtual_time
    async def test_a_return_ends_it_and_so_does_a_cancellation(self) -> None:
        async def returns() -> None:
            """Such as one whose resource is gone."""

        await retried("never-failed", returns)
        (family,) = tasks.TaskFailures("test").collect()
        assert [each.value for each in family.samples if each.labels == {"task": "never-failed"}] == [0.0]
        running = asyncio.create_task(retried("shown", asyncio.Event().wait))
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    @virtual_time
    async def test_a_cancellation_that_meets_a_failure_ends_it(self) -> None:
        async def fails_at_its_end() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise OSError("No such device") from None

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails_at_its_end())

        running = asyncio.create_task(retried("shown", run))
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.sleep(1)
        assert running.cancelled()


@pytest.mark.parametrize(("count", "more"), [(8, []), (9, ["and 1 more"]), (1000, ["and 248 more"])])
def test_of_many_problems_eight_are_named_and_a_bounded_number_is_remembered(count: int, more: list[str]) -> None:
    for number in range(count):
        with apart("shown", config=f"c{number:04}"):
            raise OSError("x" * 10_000)
    named = [problem.split()[1] for problem in tasks.problems()[:8]]
    first = max(0, count - 256)
    assert named == [f"c{number:04}" for number in range(first, first + 8)]
    assert [*tasks.problems()[8:]] == more
    assert max(map(len, tasks.problems())) < 1000


class TestVital:
    @each_failure
    async def test_ends_with_a_sentence_whatever_it_raises(
        self, failure: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def fails() -> None:
            raise failure

        with pytest.raises(Ended, match=r"the task lease has ended \(.*\), which is a bug: report it with the log"):
            await vital("lease", fails, Known, Ended)
        assert [record.message for record in caplog.records] == ["background task ended unexpectedly"]

    async def test_a_return_is_an_end(self) -> None:
        async def returns() -> None:
            """Nothing."""

        with pytest.raises(Ended, match=r"the task lease has ended \(it returned\)"):
            await vital("lease", returns, Known, Ended)

    @pytest.mark.parametrize("is_grouped", [False, True])
    async def test_what_is_raised_on_purpose_passes(self, is_grouped: bool, caplog: pytest.LogCaptureFixture) -> None:
        async def fails() -> None:
            raise ExceptionGroup("g", [Known("held")]) if is_grouped else Known("held")

        with pytest.raises(Known, match="held"):
            await vital("lease", fails, Known, Ended)
        assert not caplog.records


class TestApart:
    @each_failure
    async def test_one_of_many_fails_alone_and_is_logged_once(
        self, failure: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        done = []
        for _ in range(3):
            for name in ("good", "bad", "later"):
                with apart("objects", config=name):
                    if name == "bad":
                        raise failure
                    done.append(name)
        assert done == ["good", "later"] * 3
        assert len([record for record in caplog.records if record.levelno >= logging.INFO]) == 1
        with apart("objects", config="bad"):
            pass

    def test_the_same_is_no_news_and_a_problem_for_ten_minutes(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [1000.0]
        monkeypatch.setattr("time.monotonic", lambda: now[0])
        for pause, are_problems, logged in ((0, [], 1), (600, [1], 1), (600.5, [], 2)):
            now[0] += pause
            assert [1 for _ in tasks.problems()] == are_problems
            with apart("shown"):
                raise OSError("No such device")
            assert len([record for record in caplog.records if record.levelno >= logging.INFO]) == logged

    async def test_what_the_loop_takes_itself_passes(self) -> None:
        with pytest.raises(Known), apart("objects", Known, config="bad"):
            raise Known


class TestCallbacks:
    @each_failure
    async def test_are_logged_once_whatever_they_raise(
        self, failure: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        tasks.log_failed_callbacks()
        loop, before = asyncio.get_running_loop(), metric("callback")
        call, over = Failing(3, failure), asyncio.Event()

        def fail() -> None:
            call.at.append(0.0)
            loop.call_soon(fail if len(call.at) < 3 else over.set)
            raise failure

        loop.call_soon(fail)
        await over.wait()
        (logged,) = [record for record in caplog.records if record.levelno >= logging.INFO]
        assert (logged.message, logged.levelname) == ("callback failed", "ERROR")
        assert vars(logged)["callback"].endswith("fail")
        assert bool(logged.exc_info) != isinstance(tasks.innermost(failure), OSError)
        assert metric("callback") - before == 3
        (problem,) = tasks.problems()
        assert problem.startswith("callback TestCallbacks.")

    async def test_one_is_named_without_what_it_was_called_with(self) -> None:
        tasks.log_failed_callbacks()
        message = "Exception in callback Watcher.dispatch(Event(1))"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": OSError("x")})
        assert tasks.problems() == ("callback Watcher.dispatch fails and is tried again: x",)

    async def test_what_is_no_failure_is_asyncios(self, caplog: pytest.LogCaptureFixture) -> None:
        tasks.log_failed_callbacks()
        asyncio.get_running_loop().call_exception_handler({"message": "Unclosed connection"})
        assert [record.message for record in caplog.records] == ["Unclosed connection"]
        assert tasks.problems() == ()
