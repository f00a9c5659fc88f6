"""The process in which a test's calls run: real pynvml, whatever library the loader finds.

Requests come as lines of JSON on stdin; each runs in a thread of its own, and its answer goes out as a line with its number.
A value `{"kept": NAME}` in the arguments stands for what an earlier request kept under that name: handles stay here.
"""

import ctypes
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import pynvml

_kept: dict[str, Any] = {}
_output = threading.Lock()


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        threading.Thread(target=_carry_out, args=(request,), daemon=True).start()
    # for good: an interpreter that ends while a thread is still writing to stdout aborts
    _output.acquire()


def _carry_out(request: dict[str, Any]) -> None:
    answer = {"number": request["number"], **_answer(request)}
    with _output:
        print(json.dumps(answer), flush=True)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        function = _OWN.get(request["function"]) or getattr(pynvml, request["function"])
        result = function(*map(_argument, request["arguments"]))
    except pynvml.NVMLError as error:
        return {"error": error.value}
    if request["keep"]:
        _kept[request["keep"]] = result
    return {"result": _plain(result)}


def possible_placements(device: Any, profile_id: int) -> Any:
    """pynvml hands references through here: first for the number alone, then for the placements."""
    count = ctypes.c_uint()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, None, ctypes.byref(count))
    found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile_id, found, ctypes.byref(count))
    return found


def fabric(device: Any) -> Any:
    """The newest form of it that this project asks for."""
    info = pynvml.c_nvmlGpuFabricInfo_v3_t()
    info.version = pynvml.nvmlGpuFabricInfo_v3
    pynvml.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(info))
    return {"state": info.state, "status": info.status, "healthSummary": info.healthSummary}


_OWN: dict[str, Callable[..., Any]] = {"possible_placements": possible_placements, "fabric": fabric}


def _argument(value: Any) -> Any:
    return _kept[value["kept"]] if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    """The value as data; a handle becomes the name under which it is kept, or an address."""
    if isinstance(value, ctypes.Structure | ctypes.Union):
        return {name: _plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, ctypes.Array | list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, ctypes._Pointer):
        address = ctypes.cast(value, ctypes.c_void_p).value
        names = [name for name, kept in list(_kept.items()) if _address(kept) == address]
        return names[0] if names else address
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.decode() if isinstance(value, bytes) else value


def _address(value: Any) -> int | None:
    return ctypes.cast(value, ctypes.c_void_p).value if isinstance(value, ctypes._Pointer) else None


if __name__ == "__main__":
    main()
