"""The reader with results that no machine of the fake NVML returns."""

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from nodedevice_agent.plugins.nvml.gpu import Gpu, Ports
from nodedevice_agent.plugins.nvml.reader import driver
from nodedevice_agent.plugins.nvml.reader.__main__ import Reader
from nodedevice_agent.plugins.nvml.reader.driver import Handle
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

    for function in (
        nvmlDeviceGetNvLinkState,
        nvmlDeviceGetNvLinkRemotePciInfo,
        nvmlDeviceGetNvLinkRemoteDeviceType,
    ):
        monkeypatch.setattr(pynvml, function.__name__, function)
    reader = Reader(ReaderOptions(poll_seconds=1, call_seconds=30, host_root="/nowhere"))
    ports = reader._ports_of(Handle(None, Gpu("GPU-a")), {"0000:1b:00.0": "GPU-b"})
    assert ports == Ports({"GPU-b": 1}, to_switches=1)


def test_an_invalid_bus_id_is_ignored() -> None:
    info = pynvml.nvmlPciInfo_t()
    assert driver._bus_id(info) == ""
    info.busId = b"00000000:1B:00.0"
    assert driver._bus_id(info) == "0000:1b:00.0"
    info.busId = b"\xff\xfe"
    assert driver._bus_id(info) == ""
    assert driver._bus_id(None) == ""
