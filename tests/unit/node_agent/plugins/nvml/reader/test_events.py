"""Events of the driver: which GPUs report them, what each becomes, and drivers that have none."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.health import Place
from nodedevice_agent.plugins.nvml.reader import events
from nodedevice_agent.plugins.nvml.reader.driver import Handle
from nodedevice_agent.plugins.nvml.reader.events import DOUBLE_BIT_ECC, READ_GPUS, XID, EventWatch, GpuEvent
from nodedevice_agent.plugins.nvml.reader.fabric import ASK_FABRIC

from tests.fakes.nvml_answers import NvmlAnswers
from tests.fakes.polling import until

NOWHERE = 0xFFFFFFFF
UNKNOWN, WITHOUT, TIMEOUT, MISSING, LOST, OTHER_VERSION = (
    pynvml.NVMLError(number)
    for number in (
        pynvml.NVML_ERROR_UNKNOWN,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_TIMEOUT,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    )
)
# what a GPU offers that the plugin has no use for
CLOCK = pynvml.nvmlEventTypeClock


def device(address: int) -> Any:
    """A new object each time, as of the binding."""
    return ctypes.cast(address, ctypes.c_void_p)


def handle(name: str, address: int) -> Handle:
    return Handle(device(address), Gpu(name))


def event(kind: int, data: int = 0, address: int = 1, gpu_instance: int = NOWHERE, compute: int = NOWHERE) -> Any:
    return SimpleNamespace(
        device=device(address), eventType=kind, eventData=data, gpuInstanceId=gpu_instance, computeInstanceId=compute
    )


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> NvmlAnswers:
    answers = NvmlAnswers(monkeypatch)
    answers.answers |= {
        ("nvmlEventSetCreate",): "set",
        "nvmlDeviceGetSupportedEventTypes": XID | CLOCK | pynvml.nvmlEventMigConfigChange,
        "nvmlDeviceRegisterEvents": None,
    }
    return answers


async def received(nvml: NvmlAnswers, watch: EventWatch, *answers: Any) -> dict[GpuEvent, int]:
    """What is to be taken after these answers of the driver. Then its thread ends, as that of a driver without events."""
    left = [*answers]
    taken: list[dict[GpuEvent, int]] = []

    def wait(the_set: Any, milliseconds: int) -> Any:
        assert (the_set, milliseconds) == ("set", 1000)
        answer = left.pop(0) if left else WITHOUT
        if answer is WITHOUT or answer is MISSING:
            taken.append(dict(watch.take()))
        if isinstance(answer, Exception):
            raise answer
        return answer

    nvml.answers["nvmlEventSetWait_v2"] = wait
    watch.start()
    await until(lambda: not watch.reports("GPU-a"))
    return taken[0]


@pytest.fixture
def watch(nvml: NvmlAnswers, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One with two GPUs. slept: between two errors."""
    made: Any = EventWatch()
    made.slept = []
    monkeypatch.setattr(events, "time", SimpleNamespace(sleep=made.slept.append))
    made.open()
    made.register(handle("GPU-a", 1))
    made.register(handle("GPU-b", 2))
    return made


class TestRegistration:
    def test_for_what_is_wanted_and_offered(self, nvml: NvmlAnswers, watch: Any) -> None:
        registrations = [call for call in nvml.calls if call[0] == "nvmlDeviceRegisterEvents"]
        assert [call[1:] for call in registrations] == [
            (address, XID | pynvml.nvmlEventMigConfigChange, "set") for address in (1, 2)
        ]
        assert watch.tried == {"GPU-a", "GPU-b"}
        assert watch.reports("GPU-a")
        assert not watch.reports("GPU-c")

    @pytest.mark.parametrize("function", ["nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"])
    def test_of_a_gpu_without_events(self, nvml: NvmlAnswers, function: str) -> None:
        nvml.answers[function] = WITHOUT
        without = EventWatch()
        without.open()
        without.register(handle("GPU-a", 1))
        assert without.tried == {"GPU-a"}
        assert not without.reports("GPU-a")


class TestEvents:
    @pytest.mark.parametrize(
        ("came", "taken"),
        [
            pytest.param(event(XID, 31), GpuEvent("GPU-a", XID, 31), id="an Xid"),
            pytest.param(event(XID, 31, 2), GpuEvent("GPU-b", XID, 31), id="of the second GPU"),
            pytest.param(event(XID, 31, 9), GpuEvent("", XID, 31), id="of a GPU that is not known"),
            pytest.param(event(XID, 31, 1, 3, 0), GpuEvent("GPU-a", XID, 31, Place(3, 0)), id="of a MIG instance"),
            pytest.param(event(XID, 31, 1, 0), GpuEvent("GPU-a", XID, 31, Place(0)), id="of a GPU instance"),
            pytest.param(event(DOUBLE_BIT_ECC), GpuEvent("GPU-a", DOUBLE_BIT_ECC, 0), id="a double bit error"),
            pytest.param(event(pynvml.nvmlEventTypeGpuUnavailableError), READ_GPUS, id="a GPU is not available"),
            pytest.param(event(pynvml.nvmlEventTypeGpuRecoveryAction), READ_GPUS, id="another recovery action"),
            pytest.param(event(pynvml.nvmlEventMigConfigChange), READ_GPUS, id="other instances"),
        ],
    )
    async def test_what_each_is(self, nvml: NvmlAnswers, watch: Any, came: Any, taken: GpuEvent) -> None:
        assert await received(nvml, watch, came) == {taken: 1}

    async def test_a_storm_is_counted(self, nvml: NvmlAnswers, watch: Any) -> None:
        storm = [event(XID, 31)] * 3 + [event(XID, 13)] + [event(XID, 31, 2)]
        assert await received(nvml, watch, *storm) == {
            GpuEvent("GPU-a", XID, 31): 3,
            GpuEvent("GPU-a", XID, 13): 1,
            GpuEvent("GPU-b", XID, 31): 1,
        }
        assert watch.take() == {READ_GPUS: 1}

    async def test_a_lost_gpu_that_ends_each_wait_costs_a_reading_a_second(self, nvml: NvmlAnswers, watch: Any) -> None:
        assert await received(nvml, watch, LOST, LOST, event(XID, 31)) == {READ_GPUS: 2, GpuEvent("GPU-a", XID, 31): 1}
        assert watch.slept == [1.0, 1.0]

    @pytest.mark.parametrize("error", [WITHOUT, MISSING])
    async def test_a_driver_that_cannot_wait_reports_none(
        self, nvml: NvmlAnswers, watch: Any, error: Exception
    ) -> None:
        assert await received(nvml, watch, TIMEOUT, error, event(XID, 31)) == {}
        assert watch.take() == {READ_GPUS: 1}
        assert watch.slept == []


class TestFabric:
    @pytest.mark.parametrize(
        ("error", "becomes"),
        [
            # a driver that lacks this version lacks the function
            (OTHER_VERSION, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
            (WITHOUT, pynvml.NVML_ERROR_NOT_SUPPORTED),
            (LOST, pynvml.NVML_ERROR_GPU_IS_LOST),
        ],
    )
    def test_its_errors(self, nvml: NvmlAnswers, error: Exception, becomes: int) -> None:
        nvml.answers["nvmlDeviceGetGpuFabricInfoV"] = error
        with pytest.raises(pynvml.NVMLError) as found:
            ASK_FABRIC[0]("h0")
        assert found.value.value == becomes
