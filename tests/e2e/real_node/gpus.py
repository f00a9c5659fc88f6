"""GPUs for pods on a real node: the nvml plugin on a fake driver, with device files that no container may open by itself."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.fake_nvml.library import FakeNvml
from tests.e2e.real_node.device_plugins import device_files, make_device_file
from tests.e2e.real_node.node_under_test import NodeUnderTest

_NAMES = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")


@dataclass(frozen=True)
class Gpus:
    """Two GPUs of a node. uuids: in order of their device files. numbers: by path of each device file, as `c:10:229`."""

    uuids: list[str]
    numbers: dict[str, str]

    @property
    def checks(self) -> list[str]:
        """Arguments of the checker: open each device file by its path and by its number."""
        return [word for path, number in self.numbers.items() for word in ("-open", path, "-number", number)]


@contextmanager
def gpus(of: NodeUnderTest, folder: Path, machine: str = "t4-pair", **settings: Any) -> Iterator[Gpus]:
    """For the length of the block the agent serves two GPUs. machine: one with a pair. settings: of the nvml plugin."""
    fake = FakeNvml(folder / "nvml", machine)
    config = folder / "agent.yaml"
    config.write_text(yaml.safe_dump({"plugins": {"nvml": {"pollSeconds": 1, **settings}}}))
    words = fake.description.read_text().split()
    uuids = [word.removeprefix("uuid=") for word in words if word.startswith("uuid=")]
    with _device_files() as numbers, of.agent_with({"--config": str(config)}, fake.environment({})):
        yield Gpus(uuids, numbers)


@contextmanager
def _device_files() -> Iterator[dict[str, str]]:
    """The driver's device files, with the numbers of other devices. Skips where a driver has made its own."""
    made: dict[str, str] = {}
    with ExitStack() as undo:
        for name, other in zip(_NAMES, device_files(), strict=False):
            path = Path("/dev", name)
            if path.exists():
                pytest.skip(f"this machine has a {path} of its own")
            make_device_file(path, other.number)
            undo.callback(path.unlink)
            made[str(path)] = other.number
        yield made
