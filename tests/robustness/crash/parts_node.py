"""A node with eight GPUs in units of memory: the real agent, and the nvml plugin on a fake driver, each to be killed by itself."""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import yaml
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint

from hack.fake_nvml.library import MACHINES, FakeNvml
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import agent_program
from tests.cluster.processes.loopback import fetch
from tests.cluster.processes.processes import Process

UNITS = "aliyun.com/gpu-mem"
GPUS, UNITS_PER_GPU = 8, 80
_LIBRARY = "/usr/local/vgpu/libvgpu.so"
_HOST_FILES = {"libvgpu.so": "", "ld.so.preload": f"{_LIBRARY}\n"}
_POLL_SECONDS = 0.05


class PartsNode:
    """folder: of this node alone, with a path short enough for sockets. port: of the agent's HTTP server."""

    def __init__(self, control_plane: ControlPlane, name: str, folder: Path, port: int) -> None:
        self.name = name
        self.state_dir = folder / "state"
        self._vgpu = folder / "host/usr/local/vgpu"
        plugin_dir, plugin_state = folder / "plugins", folder / "plugin"
        for directory in (self.state_dir, plugin_dir, plugin_state, self._vgpu, folder / "host/dev"):
            directory.mkdir(parents=True)
        for file, content in _HOST_FILES.items():
            (self._vgpu / file).write_text(content)
        program = agent_program(control_plane, folder, name, port, stateDir=str(self.state_dir), flappingChanges=0)
        self.agent, self._address = program.process, program.address
        self.plugin = Process("gpu plugin", _plugin(folder, plugin_dir, plugin_state), folder / "plugin.log")

    def start(self) -> None:
        self.plugin.start()
        self.agent.start()

    def end(self) -> None:
        self.agent.kill()
        self.plugin.kill()

    def kill(self, process: Process) -> None:
        """kill -9. Raises ComponentError when it had ended by itself, which is the failure then."""
        process.verify_alive()
        process.kill()

    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint on disk. Raises CheckpointCorrupt."""
        return checkpoint_file.read(self.state_dir)

    def directories(self) -> list[str]:
        """Names of the directories of containers."""
        return sorted(path.name for path in (self._vgpu / "containers").glob("*"))

    async def until_ready(self, timeout_seconds: float = 60.0) -> None:
        """Wait until the agent knows its pods and every unit is healthy. Raises TimeoutError or ComponentError."""
        wanted = f'resource_name="{UNITS}",state="healthy"}} {float(GPUS * UNITS_PER_GPU)}'
        deadline = time.monotonic() + timeout_seconds
        while wanted not in await asyncio.to_thread(self._metrics):
            self.agent.verify_alive()
            self.plugin.verify_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {wanted} in the metrics of the agent of {self.name}")
            await asyncio.sleep(_POLL_SECONDS)

    def _metrics(self) -> str:
        try:
            return fetch(f"http://{self._address}/metrics")[1]
        except OSError:
            return ""


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
