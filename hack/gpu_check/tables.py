"""A survey as tables for people. Pure: surveys in, lines out."""

from collections.abc import Mapping, Sequence
from typing import Any

import pynvml

from hack.gpu_check.comparison import Finding, Survey, refused

_ANCESTORS = {0: "same", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_EVENTS = {
    name.removeprefix("nvmlEvent").removeprefix("Type"): number
    for name, number in vars(pynvml).items()
    if name.startswith("nvmlEvent") and isinstance(number, int) and number and number & (number - 1) == 0
}
_ERRORS = {
    number: name.removeprefix("NVML_ERROR_")
    for name, number in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(number, int)
}
_WORD_BITS = 64


def error_name(number: int) -> str:
    """NVML's own name of an error."""
    return str(_ERRORS.get(number, f"error {number}"))


def value(answer: Mapping[str, Any], otherwise: object = "-") -> Any:
    """The value that a call returned, or a text for an error."""
    return answer.get("value", otherwise)


def whole(survey: Survey) -> list[str]:
    """Everything about one library."""
    unreachable = [
        f"GPU {index} cannot be reached: {error_name(error)}" for index, error in survey["unreachable"].items()
    ]
    lines = [_versions(survey), *unreachable, "", *gpus(survey)]
    if len(survey["gpus"]) > 1:
        lines += ["", *matrix(survey)]
    if mig := mig_devices(survey):
        lines += ["", *mig]
    return [*lines, "", *refusals(survey)]


def _versions(survey: Survey) -> str:
    system = survey["system"]
    cuda = value(system["nvmlSystemGetCudaDriverVersion"], 0)
    return (
        f"driver {value(system['nvmlSystemGetDriverVersion'])}, NVML {value(system['nvmlSystemGetNVMLVersion'])}, "
        f"CUDA {cuda // 1000}.{cuda % 1000 // 10}, {len(survey['gpus'])} GPUs"
    )


def gpus(survey: Survey) -> list[str]:
    """A row for each GPU."""
    head = ["GPU", "UUID", "MODEL", "MIB", "PCI", "MINOR", "NUMA", "LINKS", "MIG", "ECC", "EVENTS"]
    rows = [head, *(_row(index, gpu) for index, gpu in enumerate(survey["gpus"]))]
    types = {_event_types(gpu) for gpu in survey["gpus"]} - {0}
    return [*aligned(rows), *(f"events {number:#x}: {_event_names(number)}" for number in sorted(types))]


def _row(index: int, gpu: Mapping[str, Any]) -> list[str]:
    calls = gpu["calls"]
    pci, memory = value(calls["nvmlDeviceGetPciInfo()"], {}), value(calls["nvmlDeviceGetMemoryInfo()"], {})
    return [
        str(index),
        str(value(calls["nvmlDeviceGetUUID()"])),
        str(value(calls["nvmlDeviceGetName()"])),
        str(memory["total"] >> 20) if memory else "-",
        pci.get("busId", "-"),
        str(value(calls["nvmlDeviceGetMinorNumber()"])),
        _numa(calls),
        str(_active(gpu)) if _active(gpu) or "error" not in gpu["links"][0]["State"] else "-",
        _mode(calls["nvmlDeviceGetMigMode()"]),
        _mode(calls["nvmlDeviceGetEccMode()"]),
        f"{_event_types(gpu):#x}" if _event_types(gpu) else "-",
    ]


def _numa(calls: Mapping[str, Any]) -> str:
    words = value(calls["nvmlDeviceGetMemoryAffinity(16, 0)"], [])
    nodes = [at * _WORD_BITS + bit for at, word in enumerate(words) for bit in range(_WORD_BITS) if word >> bit & 1]
    return ",".join(map(str, nodes)) or "-"


def _mode(answer: Mapping[str, Any]) -> str:
    return "-" if "error" in answer else ("on" if answer["value"][0] else "off")


def _event_types(gpu: Mapping[str, Any]) -> int:
    return int(value(gpu["calls"]["nvmlDeviceGetSupportedEventTypes()"], 0))


def _event_names(types: int) -> str:
    return ", ".join(name for name, number in _EVENTS.items() if types & number) or "none with a name"


def _active(gpu: Mapping[str, Any]) -> int:
    return sum(value(link["State"], 0) == 1 for link in gpu["links"])


def mig_devices(survey: Survey) -> list[str]:
    """A row for each MIG device, if any."""
    rows = [
        _mig_row(index, device) for index, gpu in enumerate(survey["gpus"]) for device in gpu["mig"] if len(device) > 1
    ]
    return aligned([["GPU", "INSTANCE", "UUID", "MODEL", "MIB", "SLICES"], *rows]) if rows else []


def _mig_row(gpu: int, device: Mapping[str, Any]) -> list[str]:
    attributes = value(device["nvmlDeviceGetAttributes_v2"], {})
    return [
        str(gpu),
        f"{value(device['nvmlDeviceGetGpuInstanceId'])}/{value(device['nvmlDeviceGetComputeInstanceId'])}",
        str(value(device["nvmlDeviceGetUUID"])),
        str(value(device["nvmlDeviceGetName"])),
        str(attributes.get("memorySizeMB", "-")),
        f"{attributes.get('computeInstanceSliceCount', '-')} of {attributes.get('gpuInstanceSliceCount', '-')}",
    ]


def matrix(survey: Survey) -> list[str]:
    """Connections of each pair of GPUs: NV and the number of direct links, SW and that to switches, or the way over
    PCIe.
    """
    count = len(survey["gpus"])
    head = ["", *(f"GPU{index}" for index in range(count))]
    rows = [
        [f"GPU{one}", *("X" if one == other else _joined(survey, one, other) for other in range(count))]
        for one in range(count)
    ]
    return aligned([head, *rows])


def _joined(survey: Survey, one: int, other: int) -> str:
    address = value(survey["gpus"][other]["calls"]["nvmlDeviceGetPciInfo()"], {}).get("busId")
    links = [link for link in survey["gpus"][one]["links"] if value(link["State"], 0) == 1]
    direct = sum(value(link["RemotePciInfo"], {}).get("busId") == address for link in links)
    pair = survey["pairs"][f"{one}-{other}"]
    if direct:
        return f"NV{direct}"
    if value(pair["nvmlDeviceGetP2PStatus(NVLINK)"], 1) == pynvml.NVML_P2P_STATUS_OK:
        return f"SW{min(_active(survey['gpus'][one]), _active(survey['gpus'][other]))}"
    level = value(pair["nvmlDeviceGetTopologyCommonAncestor()"])
    return _ANCESTORS.get(level, str(level))


def refusals(survey: Survey) -> list[str]:
    """Calls that return an error, by function."""
    rows = [
        [function, f"{error_name(number)} on {count} of {len(survey['gpus'])}"]
        for function, errors in sorted(refused(survey).items())
        for number, count in errors.items()
    ]
    return ["calls that fail:", *(f"  {line}" for line in aligned(rows))] if rows else ["every call succeeds"]


def findings(found: Sequence[Finding], machine: str) -> list[str]:
    """Differences from the fake."""
    if not found:
        return [f"no call differs from the fake's {machine}"]
    rows = [
        ["", "CALL", "HERE", f"FAKE {machine}"],
        *([("FAULT" if one.is_fault else "note"), one.function, _named(one.real), _named(one.fake)] for one in found),
    ]
    return aligned(rows)


def _named(outcome: str) -> str:
    parts = outcome.split(" or ")
    return " or ".join(
        error_name(int(part.removeprefix("error "))) if part.startswith("error ") else part for part in parts
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
