"""A node with eight GPUs in units of memory: the real agent, and the nvml plugin on a fake driver, each to be killed by itself."""

import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from hack.fake_nvml.library import MACHINES, FakeNvml
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.processes.processes import Process
from tests.robustness.crash.node import KilledNode

UNITS = "aliyun.com/gpu-mem"
GPUS, UNITS_PER_GPU = 8, 80
_LIBRARY = "/usr/local/vgpu/libvgpu.so"
_HOST_FILES = {"libvgpu.so": "", "ld.so.preload": f"{_LIBRARY}\n"}


class PartsNode(KilledNode):
    """With one plugin."""

    def __init__(self, control_plane: ControlPlane, name: str, folder: Path, port: int) -> None:
        super().__init__(control_plane, name, folder, port)
        self._vgpu = folder / "host/usr/local/vgpu"
        plugin_state = folder / "plugin"
        for directory in (plugin_state, self._vgpu, folder / "host/dev"):
            directory.mkdir(parents=True)
        for file, content in _HOST_FILES.items():
            (self._vgpu / file).write_text(content)
        command = _plugin(folder, self.plugin_dir, plugin_state)
        self.plugins = [Process("gpu plugin", command, folder / "plugin.log")]

    def directories(self) -> list[str]:
        """Names of the directories of containers."""
        return sorted(path.name for path in (self._vgpu / "containers").glob("*"))

    async def until_ready(self, timeout_seconds: float = 60.0) -> None:
        """Wait until the agent knows its pods and every unit is healthy. Raises as until_metrics."""
        wanted = f'resource_name="{UNITS}",state="healthy"}} {float(GPUS * UNITS_PER_GPU)}'
        await self.until_metrics([wanted], timeout_seconds)


def _plugin(folder: Path, plugin_dir: Path, state_dir: Path) -> list[str]:
    machine = folder / "machine"
    # whole units, beside what the driver and one program take
    machine.write_text((MACHINES / "dgx-h100.machine").read_text().replace("memory=81559MiB", "memory=83040MiB"))
    fake = FakeNvml(folder / "nvml", machine)
    settings = folder / "plugins.yaml"
    nvml = {"pollSeconds": 1, "rescanSeconds": 1, "sharing": [{"memory": {"limits": {"library": _LIBRARY}}}]}
    settings.write_text(yaml.safe_dump({"hostRoot": str(folder / "host"), "nvml": nvml}))
    module = [sys.executable, "-m", "tests.robustness.crash.gpu_plugin"]
    return ["/usr/bin/env", *_variables(fake), *module, str(settings), str(plugin_dir), str(state_dir)]


def _variables(fake: FakeNvml) -> Iterator[str]:
    return (f"{name}={value}" for name, value in fake.environment({}).items())
