"""The reader with results that no machine of the fake NVML returns, and its calls with a deadline."""

import threading
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from nodedevice_agent.plugins.nvml.gpu import Gpu, Ports
from nodedevice_agent.plugins.nvml.reader import driver
from nodedevice_agent.plugins.nvml.reader.__main__ import CallHangs, Calls, Reader
from nodedevice_agent.plugins.nvml.reader.driver import Handle
from nodedevice_agent.plugins.nvml.reader.events import DOUBLE_BIT_ECC, READ_GPUS, GpuEvent
from nodedevice_agent.plugins.nvml.reader.messages import ReaderOptions


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_UNKNOWN])
def test_a_dead_link_does_not_hide_later_links(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def nvmlDeviceGetNvLinkState(_: Any, link: int) -> int:
        if link in (1, 3):
            return int(pynvml.NVML_FEATURE_ENABLED)
        raise pynvml.NVMLError(error)

    def nvmlDeviceGetNvLinkRemotePciInfo(_: Any, link: int) -> Any:
        return SimpleNamespace(busId="00000000:1B:00.0" if link == 1 else "00000000:C1:00.0")

    def nvmlDeviceGetNvLinkRemoteDeviceType(*_: Any) -> int:
        return 2

    for function in (nvmlDeviceGetNvLinkState, nvmlDeviceGetNvLinkRemotePciInfo, nvmlDeviceGetNvLinkRemoteDeviceType):
        monkeypatch.setattr(pynvml, function.__name__, function)
    reader = Reader(ReaderOptions(poll_seconds=1, call_seconds=30, host_root="/nowhere"))
    ports = reader._ports_of(Handle(None, Gpu("GPU-a")), {"0000:1b:00.0": "GPU-b"})
    assert ports == Ports({"GPU-b": 1}, to_switches=1)


@pytest.mark.parametrize(
    ("event", "message"),
    [(GpuEvent("GPU-a", DOUBLE_BIT_ECC, 0), b'{"type":"ecc","uuid":"GPU-a"}\n'), (READ_GPUS, b"")],
)
def test_after_an_event_without_an_xid_the_gpus_are_read(
    capfdbinary: pytest.CaptureFixture[bytes], event: GpuEvent, message: bytes
) -> None:
    reader = Reader(ReaderOptions(poll_seconds=1, call_seconds=30, host_root="/nowhere"))
    assert not reader._report_events()
    reader._events._count(event)
    assert reader._report_events()
    assert capfdbinary.readouterr().out == message


def test_an_invalid_bus_id_is_ignored() -> None:
    info = pynvml.nvmlPciInfo_t()
    assert driver._bus_id(info) == ""
    info.busId = b"00000000:1B:00.0"
    assert driver._bus_id(info) == "0000:1b:00.0"
    info.busId = b"\xff\xfe"
    assert driver._bus_id(info) == ""
    assert driver._bus_id(None) == ""


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
        calls.do(lambda: let_go.wait(60))
    assert not hang.value.call.done()
    assert Calls(30).do(lambda: 1) == 1
    let_go.set()
    assert hang.value.call.result(60) is True
