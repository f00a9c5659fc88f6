"""Asks the NVML that the loader finds what h100_one.json has the answers to, and prints the answers in its form."""

import ctypes
import json
import sys
from collections.abc import Mapping
from typing import Any

import pynvml

from hack.gpu_check.survey import answer

_UNION = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def with_a_handle(handle: Any, name: str) -> Any:
    """name: a function, with further numbers behind it."""
    if name == "fabric v2":
        return answer(_fabric, handle)
    function, *numbers = name.split()
    if not function.startswith("nvml"):
        clock = pynvml.nvmlDeviceGetMaxClockInfo if function == "max" else pynvml.nvmlDeviceGetClockInfo
        return answer(clock, handle, int(numbers[-1]))
    arguments: list[Any] = list(map(int, numbers))
    if "Affinity" in function and arguments:
        arguments = [16, *arguments]
    handles = [] if function.startswith("nvmlSystem") or function in _WITHOUT_A_HANDLE else [handle]
    try:
        return answer(getattr(pynvml, function), *handles, *arguments)
    except (pynvml.NVMLLibraryMismatchError, TypeError):
        # the binding misses a newer version of it, or it needs more than is recorded: neither is in the fake
        return {"error": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}


_WITHOUT_A_HANDLE = ("nvmlDeviceGetCount", "nvmlGetExcludedDeviceCount")


def _fabric(handle: Any) -> Any:
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    info.version = pynvml.nvmlGpuFabricInfo_v2
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return info


def field(handle: Any, name: str) -> Any:
    """Its value, or its error."""
    found = pynvml.nvmlDeviceGetFieldValues(handle, [getattr(pynvml, name)])[0]
    if found.nvmlReturn != pynvml.NVML_SUCCESS:
        return {"error": found.nvmlReturn}
    return getattr(found.value, _UNION[found.valueType])


def mig(handle: Any, what: str) -> Any:
    """what: mode, max, device at N, or `profile N` with v1, v2, remaining or placements."""
    if what == "mode":
        return answer(pynvml.nvmlDeviceGetMigMode, handle)
    if what == "max":
        return answer(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)
    words = what.split()
    if words[0] == "device":
        return answer(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, int(words[-1]))
    number = int(words[1])
    if words[2] in ("v1", "v2"):
        return answer(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number, int(words[2][1]))
    profile = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, 2).id
    return answer(_remaining if words[2] == "remaining" else _placements, handle, profile)


def _remaining(handle: Any, profile: int) -> Any:
    count = ctypes.c_uint()
    _check(_pointer("nvmlDeviceGetGpuInstanceRemainingCapacity")(handle, profile, ctypes.byref(count)))
    return count


def _placements(handle: Any, profile: int) -> Any:
    count = ctypes.c_uint()
    ask = _pointer("nvmlDeviceGetGpuInstancePossiblePlacements_v2")
    _check(ask(handle, profile, None, ctypes.byref(count)))
    found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    _check(ask(handle, profile, found, ctypes.byref(count)))
    return found


def _pointer(name: str) -> Any:
    return getattr(pynvml.nvmlLib, name)


def _check(result: int) -> None:
    if result:
        raise pynvml.NVMLError(result)


def events(handle: Any, what: str) -> Any:
    """what: as in the file."""
    offered = pynvml.nvmlDeviceGetSupportedEventTypes(handle)
    if what == "supported":
        return answer(pynvml.nvmlDeviceGetSupportedEventTypes, handle)
    made = pynvml.nvmlEventSetCreate()
    if what == "wait in an empty set":
        return answer(pynvml.nvmlEventSetWait_v2, made, 10)
    if what == "wait 10":
        pynvml.nvmlDeviceRegisterEvents(handle, offered, made)
        return answer(pynvml.nvmlEventSetWait_v2, made, 10)
    if what == "twice, the same":
        kinds = (pynvml.nvmlEventTypeXidCriticalError,) * 2 + (pynvml.nvmlEventTypeDoubleBitEccError,)
        return [answer(pynvml.nvmlDeviceRegisterEvents, handle, kind, made) for kind in kinds]
    named = {"none (0)": 0, "all that are offered": offered, "a bit that is not offered": 1 << 62}
    wanted = what.removeprefix("register ")
    return answer(pynvml.nvmlDeviceRegisterEvents, handle, named.get(wanted, getattr(pynvml, wanted, 0)), made)


def main() -> None:
    recorded: Mapping[str, Any] = json.load(sys.stdin)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    names = recorded["supported_events"]["names"]
    offered = pynvml.nvmlDeviceGetSupportedEventTypes(handle)
    found = {
        "calls_with_a_handle_alone": {
            name: with_a_handle(handle, name) for name in recorded["calls_with_a_handle_alone"]
        },
        "fields": {name: field(handle, name) for name in recorded["fields"]},
        "fields_invalid_argument": {name: field(handle, name) for name in recorded["fields_invalid_argument"]},
        "mig": {what: mig(handle, what) for what in recorded["mig"]},
        "supported_events": {what: events(handle, what) for what in recorded["supported_events"] if what != "names"},
        "names": {name: bool(offered & getattr(pynvml, name)) for name in names},
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
