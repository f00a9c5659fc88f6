"""Xids and other events of the fake NVML: who gets them, in which order, and how a wait for them ends."""

import pynvml

from hack.fake_nvml.library import FakeNvml
from tests.nvml.answers import INVALID, NOT_SUPPORTED, TIMEOUT
from tests.nvml.nvml_process import NvmlProcess


def test_an_xid_ends_the_wait(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    events = nvml.watch(*nvml.open())
    waiting = nvml.start("nvmlEventSetWait_v2", events, 60_000)
    dgx.xid(3, 79)
    event = waiting.result(60)
    assert (event["device"], event["eventType"], event["eventData"]) == ("gpu3", 8, 79)
    assert event["gpuInstanceId"] == event["computeInstanceId"] == 0xFFFFFFFF
    assert nvml.error("nvmlEventSetWait_v2", events, 0) == TIMEOUT


def test_xids_come_in_order_and_only_for_registered_gpus(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpus = nvml.open()
    events = nvml.watch(gpus[1], gpus[2])
    dgx.write("xid 1 13", "xid 0 79", "xid 2 31", "event 1 2 5")
    seen = [nvml.call("nvmlEventSetWait_v2", events, 1000) for _ in range(2)]
    assert [(event["device"], event["eventData"]) for event in seen] == [("gpu1", 13), ("gpu2", 31)]
    assert nvml.error("nvmlEventSetWait_v2", events, 0) == TIMEOUT


def test_a_storm_of_xids_arrives_whole(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    events = nvml.watch(*nvml.open())
    dgx.xid(0, 13, times=500)
    dgx.xid(7, 48)
    seen = [nvml.call("nvmlEventSetWait_v2", events, 1000)["eventData"] for _ in range(501)]
    assert seen == [13] * 500 + [48]


def test_an_unsupported_type_of_event_is_refused(nvml: NvmlProcess) -> None:
    gpus = nvml.open()
    nvml.watch()
    types = nvml.call("nvmlDeviceGetSupportedEventTypes", gpus[0])
    assert types & pynvml.nvmlEventTypeXidCriticalError
    assert nvml.error("nvmlDeviceRegisterEvents", gpus[0], 1 << 40, {"kept": "events"}) == NOT_SUPPORTED


def test_past_events_are_not_reported(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    dgx.xid(0, 79)
    events = nvml.watch(*nvml.open())
    assert nvml.error("nvmlEventSetWait_v2", events, 0) == TIMEOUT


def test_an_event_set_that_is_freed_ends_the_wait_in_it(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    events = nvml.watch(*nvml.open())
    waiting = nvml.start("nvmlEventSetWait_v2", events, 60_000)
    nvml.call("nvmlEventSetFree", events)
    assert getattr(waiting.exception(60), "number", 0) == INVALID
    assert nvml.error("nvmlEventSetFree", events) == INVALID


def test_events_may_come_as_late_as_they_did(dgx: FakeNvml, nvml: NvmlProcess) -> None:
    gpu = nvml.open()[0]
    events = nvml.watch(gpu)
    dgx.write("events late")
    dgx.xid(0, 13)
    dgx.xid(0, 31)
    # in their order, the first one after 107 ms
    assert nvml.error("nvmlEventSetWait_v2", events, 0) == pynvml.NVML_ERROR_TIMEOUT
    assert [nvml.call("nvmlEventSetWait_v2", events, 60000)["eventData"] for _ in range(2)] == [13, 31]
