"""How far a GPU has joined the fabric of its NVSwitches; each version of the call is one function, as drivers know some of them.

Source: NVML API reference, nvmlGpuFabricInfoV_t; drivers from 525 on have the first, from 535 the second, from 560 the third.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

from nodedevice_agent.plugins.nvml.driver_troubles import Fabric


def _asking(name: str, structure: Any) -> Callable[[Any], Fabric]:
    def ask(nvml: Any) -> Fabric:
        # which names its version itself
        info = structure()
        try:
            getattr(pynvml, name)(nvml, ctypes.byref(info))
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from error
            raise
        return Fabric(int(info.state), int(info.status), int(getattr(info, "healthSummary", 0)))

    # reported when it hangs
    ask.__name__ = name
    return ask


# newest first
ASK_FABRIC = (
    _asking("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v3_t),
    _asking("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v2_t),
    _asking("nvmlDeviceGetGpuFabricInfo", pynvml.c_nvmlGpuFabricInfo_t),
)
