"""Calls every NVML function that this project may use, in the NVML that the loader finds, and prints the results as
JSON.

It only reads, except that it creates an event set and frees it. It runs in a separate process, so that a driver that
hangs or crashes ends nothing else. Needs only the standard library and pynvml.
"""

import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import pynvml

# Calls for each GPU: function of pynvml, arguments after the handle.
_OF_A_GPU: tuple[tuple[str, tuple[int, ...]], ...] = (
    *(
        (f"nvmlDeviceGet{what}", ())
        for what in (
            *("UUID", "Name", "Index", "MinorNumber", "Serial", "BoardId", "BoardPartNumber", "VbiosVersion", "Brand"),
            *("Architecture", "CudaComputeCapability", "MemoryInfo", "PciInfo", "NumaNodeId", "MigMode"),
            *("MaxMigDeviceCount", "PersistenceMode", "EccMode", "PowerUsage", "PowerManagementLimit"),
            *("TotalEnergyConsumption", "UtilizationRates", "RemappedRows", "RowRemapperHistogram"),
            *("RetiredPagesPendingStatus", "SupportedEventTypes", "MultiGpuBoard"),
        )
    ),
    ("nvmlDeviceIsMigDeviceHandle", ()),
    ("nvmlDeviceGetMemoryInfo", (pynvml.nvmlMemory_v2,)),
    ("nvmlDeviceGetMemoryAffinity", (16, pynvml.NVML_AFFINITY_SCOPE_NODE)),
    ("nvmlDeviceGetCpuAffinity", (64,)),
    ("nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,)),
    ("nvmlDeviceGetTotalEccErrors", (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)),
    ("nvmlDeviceGetTotalEccErrors", (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC)),
    ("nvmlDeviceGetMemoryErrorCounter", (1, 0, pynvml.NVML_MEMORY_LOCATION_DRAM)),
    ("nvmlDeviceGetRetiredPages", (pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,)),
    *(("nvmlDeviceGetGpuInstanceProfileInfo", (profile, version)) for profile in (0, 2) for version in (1, 2)),
    *(("nvmlDeviceGetTopologyNearestGpus", (level,)) for level in (10, 20, 30, 40, 50)),
)
# Calls for each MIG device.
_OF_A_MIG_DEVICE = tuple(
    f"nvmlDevice{what}"
    for what in (
        *("GetUUID", "GetName", "GetIndex", "GetMemoryInfo", "IsMigDeviceHandle", "GetGpuInstanceId"),
        *("GetComputeInstanceId", "GetAttributes_v2", "GetDeviceHandleFromMigDeviceHandle"),
    )
)
_OF_A_LINK = ("State", "Version", "RemoteDeviceType", "RemotePciInfo")
_FIELDS = {
    "NVML_FI_DEV_NVLINK_LINK_COUNT": pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT,
    "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
}
# tables list calls that take longer than this; they are never a fault
_SLOW_MS = 100.0


def plain(value: Any) -> Any:
    """The data of a value."""
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, ctypes.Array | list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, ctypes._Pointer):
        return "handle"
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def shape(value: Any) -> str:
    """The types of a value, without its numbers: equal for two compatible libraries."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shape(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{' | '.join(sorted({shape(item) for item in value}))}]"
    return "handle" if value == "handle" else type(value).__name__


def answer(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """The result of a call: `value` and `shape`, or the number of its `error`; and its duration."""
    began = time.perf_counter()
    try:
        value = plain(function(*arguments))
    except pynvml.NVMLError as error:
        found: dict[str, Any] = {"error": error.value}
    except UnicodeDecodeError as error:
        # damaged firmware: pynvml cannot return the value
        found = {"value": error.object.decode(errors="replace"), "shape": "text that is not UTF-8"}
    else:
        found = {"value": value, "shape": shape(value)}
    took = (time.perf_counter() - began) * 1000
    return {**found, "slow_ms": round(took)} if took > _SLOW_MS else found


def named(name: str, arguments: Iterable[int]) -> str:
    """The name in tables: nvmlDeviceGetTemperature(0)."""
    return f"{name}({', '.join(map(str, arguments))})"


def of_a_gpu(handle: Any) -> dict[str, Any]:
    """Everything about one GPU."""
    calls = {named(name, arguments): answer(getattr(pynvml, name), handle, *arguments) for name, arguments in _OF_A_GPU}
    for field, number in _FIELDS.items():
        calls[f"nvmlDeviceGetFieldValues({field})"] = _field(handle, number)
    return {"calls": calls, "links": _links(handle), "mig": _mig_devices(handle)}


def _field(handle: Any, number: int) -> dict[str, Any]:
    try:
        value = pynvml.nvmlDeviceGetFieldValues(handle, [number])[0]
    except pynvml.NVMLError as error:
        return {"error": error.value}
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        return {"error": value.nvmlReturn}
    return {"value": value.value.uiVal, "shape": f"value of type {value.valueType}"}


def _mig_devices(handle: Any) -> list[dict[str, Any]]:
    """For each index of a possible MIG device: its handle, and the results of its calls."""
    devices = []
    most = answer(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle).get("value", 0)
    # at least one call, to record the refusal without MIG
    for index in range(max(most, 1)):
        found = {"handle": answer(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)}
        if "value" in found["handle"]:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            found |= {what: answer(getattr(pynvml, what), device) for what in _OF_A_MIG_DEVICE}
        devices.append(found)
    return devices


def _links(handle: Any) -> list[dict[str, Any]]:
    """Links up to one after the last existing one: some drivers leave gaps, with an error for each."""
    links = [
        {what: answer(getattr(pynvml, f"nvmlDeviceGetNvLink{what}"), handle, link) for what in _OF_A_LINK}
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS)
    ]
    there = [number for number, link in enumerate(links) if "error" not in link["State"]]
    return links[: max(there, default=-1) + 2]


def of_a_pair(one: Any, other: Any) -> dict[str, Any]:
    """The connections of two GPUs."""
    return {
        "nvmlDeviceGetTopologyCommonAncestor()": answer(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other),
        "nvmlDeviceGetP2PStatus(NVLINK)": answer(
            pynvml.nvmlDeviceGetP2PStatus, one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        ),
    }


def wrong_use(handles: list[Any]) -> dict[str, Any]:
    """Results of invalid calls, by the invalid thing."""
    probes: dict[str, Callable[[], Any]] = {
        "a GPU after the last one": lambda: pynvml.nvmlDeviceGetHandleByIndex(len(handles)),
        "an unknown UUID": lambda: pynvml.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000"),
        "an unknown PCI bus ID": lambda: pynvml.nvmlDeviceGetHandleByPciBusId("0000FFFF:FF:1F.0"),
    }
    if handles:
        first = handles[0]
        probes |= {
            "an NVLink with the number 99": lambda: pynvml.nvmlDeviceGetNvLinkState(first, 99),
            "a version of memory info that there is not": lambda: pynvml.nvmlDeviceGetMemoryInfo(first, 0x7F000028),
            "a sensor of temperature that there is not": lambda: pynvml.nvmlDeviceGetTemperature(first, 77),
            "P2P status with itself": lambda: pynvml.nvmlDeviceGetP2PStatus(first, first, 2),
            "the GPU instance of a whole GPU": lambda: pynvml.nvmlDeviceGetGpuInstanceId(first),
            "attributes of a whole GPU": lambda: pynvml.nvmlDeviceGetAttributes_v2(first),
            "a profile of instances after the last one": lambda: pynvml.nvmlDeviceGetGpuInstanceProfileInfo(first, 99),
        }
    return {what: answer(probe) for what, probe in probes.items()}


def events(handles: list[Any]) -> dict[str, Any]:
    """Create, use and free an event set. No event is expected."""
    made = pynvml.nvmlEventSetCreate()
    found = {}
    if handles:
        types = pynvml.nvmlEventTypeXidCriticalError
        found["register for Xids"] = answer(pynvml.nvmlDeviceRegisterEvents, handles[0], types, made)
        found["register for what there is not"] = answer(pynvml.nvmlDeviceRegisterEvents, handles[0], 1 << 62, made)
    found["wait 0 ms"] = answer(pynvml.nvmlEventSetWait_v2, made, 0)
    found["free"] = answer(pynvml.nvmlEventSetFree, made)
    return found


def exported(symbols: Iterable[str]) -> list[str]:
    """Which of these symbols the library that is loaded has."""
    return [symbol for symbol in symbols if hasattr(pynvml.nvmlLib, symbol)]


def _handles() -> tuple[list[Any], dict[int, int]]:
    """Handles of the GPUs that respond; for the others, the error by index."""
    handles, unreachable = [], {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handles.append(pynvml.nvmlDeviceGetHandleByIndex(index))
        except pynvml.NVMLError as error:
            unreachable[index] = error.value
    return handles, unreachable


def survey(symbols: Iterable[str]) -> dict[str, Any]:
    """The whole survey. Raises NVMLError if NVML cannot be initialised."""
    pynvml.nvmlInit()
    try:
        handles, unreachable = _handles()
        pairs = [(one, other) for one in range(len(handles)) for other in range(len(handles)) if one != other]
        return {
            "system": {
                name: answer(getattr(pynvml, name))
                for name in ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion")
            },
            "symbols": exported(symbols),
            "unreachable": unreachable,
            "gpus": [of_a_gpu(handle) for handle in handles],
            "pairs": {f"{one}-{other}": of_a_pair(handles[one], handles[other]) for one, other in pairs},
            "events": events(handles),
            "wrong use": wrong_use(handles),
        }
    finally:
        pynvml.nvmlShutdown()


def main() -> None:
    try:
        found = survey(sys.argv[1:])
    except pynvml.NVMLError as error:
        found = {"init": error.value, "text": str(error)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
