"""The MIG instances of a GPU, as its driver lists them. As the rest of the driver's calls, each of these may hang."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pynvml

from nodedevice_agent.plugins.nvml.gpu import is_uuid
from nodedevice_agent.plugins.nvml.mig import MigInstance, profile_name

# profiles of one size differ by their engines
_SUFFIXES = {
    profile: suffix
    for ending, suffix in (("REV1", "+me"), ("ALL_ME", "+me.all"), ("GFX", "+gfx"), ("NO_ME", "-me"))
    for name, profile in vars(pynvml).items()
    if name.startswith("NVML_GPU_INSTANCE_PROFILE_") and name.endswith(f"_SLICE_{ending}")
}

# slices, decoders, encoders, JPEG and optical flow engines
_Shape = tuple[int, int, int, int, int]


class InstanceReader:
    """Asks for everything each time: a new instance may have the UUID of another one that was there before."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        # by model and memory of the GPU
        self._suffixes: dict[tuple[str, int | None], dict[_Shape, str]] = {}

    def read(self, nvml: Any, count: int, model: str, gpu_bytes: int | None) -> tuple[MigInstance, ...]:
        """The instances of a GPU, in the driver's order. count: how many it may have at most. Raises NVMLError."""
        found = []
        suffixes = self._suffixes_of(nvml, model, gpu_bytes)
        for index in range(count):
            try:
                device = self._call(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, nvml, index)
                found.append(self._describe(device, suffixes, gpu_bytes))
            except pynvml.NVMLError as error:
                # nothing at this index, or no longer
                if error.value not in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT):
                    raise
        return tuple(each for each in found if is_uuid(each.uuid))

    def _describe(self, device: Any, suffixes: dict[_Shape, str], gpu_bytes: int | None) -> MigInstance:
        its = self._call(pynvml.nvmlDeviceGetAttributes_v2, device)
        slices, memory_mib = int(its.gpuInstanceSliceCount), int(its.memorySizeMB)
        shape = (slices, its.sharedDecoderCount, its.sharedEncoderCount, its.sharedJpegCount, its.sharedOfaCount)
        return MigInstance(
            self._call(pynvml.nvmlDeviceGetUUID, device),
            profile_name(int(its.computeInstanceSliceCount), slices, memory_mib, gpu_bytes, suffixes.get(shape, "")),
            int(self._call(pynvml.nvmlDeviceGetGpuInstanceId, device)),
            int(self._call(pynvml.nvmlDeviceGetComputeInstanceId, device)),
            memory_mib,
        )

    def _suffixes_of(self, nvml: Any, model: str, gpu_bytes: int | None) -> dict[_Shape, str]:
        """The suffix for each shape that only profiles with a suffix have."""
        key = (model, gpu_bytes)
        if key not in self._suffixes:
            found: dict[_Shape, str] = {}
            # plain profiles last: a shape that they have too is plain
            for profile in sorted(range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT), key=lambda one: one not in _SUFFIXES):
                with suppress(pynvml.NVMLError):
                    its = self._call(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, nvml, profile, 1)
                    shape = (its.sliceCount, its.decoderCount, its.encoderCount, its.jpegCount, its.ofaCount)
                    found[shape] = _SUFFIXES.get(profile, "")
            self._suffixes[key] = found
        return self._suffixes[key]
