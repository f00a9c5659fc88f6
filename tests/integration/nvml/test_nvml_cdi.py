"""GPUs by CDI: a specification is outdated or removed while pods hold GPUs; the real plugin, on the fake NVML."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.plugins.settings import PluginSettings

from hack.fake_nvml.library import MACHINES, FakeNvml
from tests.fakes.hosted_manager import hosted, pod
from tests.fakes.polling import until
from tests.integration.nvml.gpu_node import GPU, QUICK, Node

MACHINE = "h100-pair"
LIBRARY = "/usr/lib/libcuda.so.550.54.15"
WORDS = [word for line in (MACHINES / f"{MACHINE}.machine").read_text().splitlines() for word in line.split()]
UUIDS = [word.removeprefix("uuid=") for word in WORDS if word.startswith("uuid=GPU-")]


def specify(root: Path, minors: tuple[int, ...]) -> Path:
    """As nvidia-ctk writes it, when the GPUs had these numbers."""
    mount = {"hostPath": LIBRARY, "containerPath": LIBRARY, "options": ["ro", "bind"]}
    devices = [
        {"name": uuid, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{minor}"}]}}
        for uuid, minor in zip(UUIDS, minors, strict=True)
    ]
    whole = {"cdiVersion": "0.5.0", "kind": GPU, "devices": devices, "containerEdits": {"mounts": [mount]}}
    path = root / "etc/cdi/nvidia.yaml"
    path.with_name("new").write_text(json.dumps(whole))
    return path.with_name("new").rename(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "host"
    for directory in ("dev", "etc/cdi", "var/run/cdi", "usr/lib"):
        (made / directory).mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (made / "dev" / name).symlink_to("/dev/null")
    (made / LIBRARY[1:]).touch()
    return made


@asynccontextmanager
async def node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """Whose device manager knows the plugin as one of its own process."""
    gpus = FakeNvml(folder / "nvml", MACHINE)
    gpus.write()
    for name, value in gpus.environment().items():
        monkeypatch.setenv(name, value)
    raw = {"hostRoot": str(folder / "host"), "nvml": QUICK}
    async with hosted(folder) as manager:
        manager.configure(msgspec.convert(raw, PluginSettings))
        yield Node(folder, gpus, manager)


def response(here: Node, uid: str) -> ContainerEdits | None:
    """Of the pod's container, while it is known."""
    found = here.manager.manager.book.of_pod(uid)
    return found[0].edits if found else None


async def until_by_cdi(here: Node, uid: str, *, is_so: bool) -> None:
    def holds() -> bool:
        edits = response(here, uid)
        return edits is not None and bool(edits.cdi_devices) is is_so

    await until(holds)


@pytest.mark.parametrize("change", ["removed", "of another boot", "of a driver that is gone"])
async def test_a_pod_that_holds_a_gpu_by_cdi(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = specify(root, (0, 1))
    async with node(tmp_path, monkeypatch) as here:
        await here.until(lambda r: r.available == 2)
        here.manager.pod_seen(pod("first", GPU, 2))
        await until_by_cdi(here, "first", is_so=True)
        if change == "of another boot":
            specify(root, (1, 0))
        elif change == "of a driver that is gone":
            (root / LIBRARY[1:]).unlink()
            specify(root, (0, 1))
        else:
            path.unlink()
        await until_by_cdi(here, "first", is_so=False)
        edits = response(here, "first")
        assert edits is not None
        assert edits.envs["NVIDIA_VISIBLE_DEVICES"] == ",".join(sorted(UUIDS))
        resource = here.resource()
        assert resource is not None
        assert ("nvidia-ctk cdi generate" in resource.plugin_message) is (change != "removed")
