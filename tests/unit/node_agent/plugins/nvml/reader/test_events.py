"""Events of the driver: which GPUs report them, what each becomes, and drivers that have none."""

import threading
from types import SimpleNamespace

import pynvml
import pytest
from nodedevice_agent.plugins.nvml.health import Place
from nodedevice_agent.plugins.nvml.reader import events
from nodedevice_agent.plugins.nvml.reader.events import DOUBLE_BIT_ECC, READ_GPUS, XID, GpuEvent

from tests.fakes.loaded_nvml import CountedEvents, LoadedNvml
from tests.fakes.polling import until

WAIT = "nvmlEventSetWait_v2"
# what an H100 offers and the plugin has no use for
CLOCK = f"event 0 {pynvml.nvmlEventTypeClock} 0"


class Watch(CountedEvents):
    """Of three GPUs, the last of which it does not know. slept: between two errors."""

    def __init__(self, nvml: LoadedNvml) -> None:
        super().__init__()
        self._nvml = nvml
        self.slept: list[float] = []
        nvml.describe("a", "b", "c")
        driver = nvml.driver()
        self.open()
        for place in range(3):
            self.register(driver.describe(place))
        self._uuids = {key: uuid for key, uuid in self._uuids.items() if uuid != "GPU-c"}

    def received(self, *statements: str, count: int) -> dict[GpuEvent, int]:
        """What is to be taken after so many events."""
        self._nvml.write(*statements)
        self.await_events(count)
        return dict(self.take())


@pytest.fixture
def watch(nvml: LoadedNvml, monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch(nvml)

    def sleep(seconds: float) -> None:
        made.slept.append(seconds)
        if len(made.slept) == 2:
            nvml.break_function("*", WAIT, "NOT_SUPPORTED")

    monkeypatch.setattr(events, "time", SimpleNamespace(sleep=sleep))
    return made


class TestRegistration:
    def test_for_what_is_wanted_and_offered(self, nvml: LoadedNvml) -> None:
        # as of an older GPU: to register for more is an error
        nvml.set(0, events=XID | pynvml.nvmlEventTypeClock)
        watch = Watch(nvml)
        assert watch.tried == {"GPU-a", "GPU-b", "GPU-c"}
        assert watch.reports("GPU-a")
        assert watch.reports("GPU-b")
        assert not watch.reports("GPU-d")
        watch.start()
        assert watch.received(CLOCK, "xid 0 31", count=1) == {GpuEvent("GPU-a", XID, 31): 1}

    @pytest.mark.parametrize("function", ["nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"])
    def test_of_a_gpu_without_events(self, nvml: LoadedNvml, function: str) -> None:
        nvml.break_function(0, function, "NOT_SUPPORTED")
        watch = Watch(nvml)
        assert watch.tried == {"GPU-a", "GPU-b", "GPU-c"}
        assert not watch.reports("GPU-a")
        assert watch.reports("GPU-b")

    def test_of_a_driver_without_events(self, nvml: LoadedNvml) -> None:
        nvml.break_function("*", "nvmlEventSetCreate", "NOT_SUPPORTED")
        watch = Watch(nvml)
        watch.start()
        assert not watch.reports("GPU-a")
        assert nvml.count("nvmlDeviceRegisterEvents") == 0
        assert "nvml events" not in {thread.name for thread in threading.enumerate()}


class TestEvents:
    @pytest.mark.parametrize(
        ("statement", "taken"),
        [
            pytest.param("xid 0 31", GpuEvent("GPU-a", XID, 31), id="an Xid"),
            pytest.param("xid 1 31", GpuEvent("GPU-b", XID, 31), id="of the second GPU"),
            pytest.param("xid 2 31", GpuEvent("", XID, 31), id="of a GPU that is not known"),
            pytest.param("xid 0 31 1 3/0", GpuEvent("GPU-a", XID, 31, Place(3, 0)), id="of a MIG instance"),
            pytest.param("xid 0 31 1 0", GpuEvent("GPU-a", XID, 31, Place(0)), id="of a GPU instance"),
            pytest.param("event 0 2 0", GpuEvent("GPU-a", DOUBLE_BIT_ECC, 0), id="a double bit error"),
            pytest.param(f"event 0 {pynvml.nvmlEventTypeGpuUnavailableError} 0", READ_GPUS, id="an unavailable GPU"),
            pytest.param(f"event 0 {pynvml.nvmlEventTypeGpuRecoveryAction} 0", READ_GPUS, id="another recovery action"),
            pytest.param("set 0 mig=enabled", READ_GPUS, id="other instances"),
        ],
    )
    def test_what_each_is(self, watch: Watch, statement: str, taken: GpuEvent) -> None:
        watch.start()
        assert watch.received(statement, count=1) == {taken: 1}

    def test_a_storm_is_counted(self, watch: Watch) -> None:
        # as after each registration: one thread receives them
        for _ in range(2):
            watch.start()
        assert [thread.name for thread in threading.enumerate()].count("nvml events") == 1
        found = watch.received("xid 0 31 3", "xid 0 13", "xid 1 31", count=5)
        assert found == {GpuEvent("GPU-a", XID, 31): 3, GpuEvent("GPU-a", XID, 13): 1, GpuEvent("GPU-b", XID, 31): 1}
        assert watch.take() == {}

    def test_a_lost_gpu_that_ends_each_wait_costs_a_reading_a_second(self, watch: Watch) -> None:
        watch.start()
        assert watch.received("xid 0 31", "lose 1", count=4) == {GpuEvent("GPU-a", XID, 31): 1, READ_GPUS: 3}
        assert watch.slept == [1.0, 1.0]

    @pytest.mark.parametrize("error", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND"])
    async def test_a_driver_that_cannot_wait_reports_none(
        self, nvml: LoadedNvml, watch: Watch, monkeypatch: pytest.MonkeyPatch, error: str
    ) -> None:
        monkeypatch.setattr(events, "_WAIT_MS", 1)
        watch.start()
        # a wait without an event is no failure
        timeout = (WAIT, pynvml.NVML_ERROR_TIMEOUT)
        await until(lambda: timeout in [(call.function, call.result) for call in nvml.recorded_calls()])
        assert watch.reports("GPU-a")
        assert watch.received(f"break * {WAIT} {error}", count=1) == {READ_GPUS: 1}
        assert not watch.reports("GPU-a")
        assert watch.slept == []
