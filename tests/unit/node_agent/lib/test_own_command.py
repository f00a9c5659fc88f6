"""How an administrator types a command of the agent that a message names: with the GPU in it, and where the program runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nodedevice_agent.lib import own_command
from nodedevice_agent.plugins.nvml import health
from nodedevice_agent.plugins.nvml.devices import device_of
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice
from nodedevice_agent.plugins.nvml.health import GpuHealth, HealthRules
from nodedevice_agent.plugins.nvml.host_files import on_host

UUID = "GPU-5d4a024a-f4bf-512b-ab91-737576f76795"
IN_POD = f"kubectl exec --namespace devices nodedevice-agent-x7k2p -- nodedevice-agent gpu clear {UUID}"


@pytest.fixture(autouse=True)
def _asked_again() -> Iterator[None]:
    own_command.typed.cache_clear()
    yield
    own_command.typed.cache_clear()


def in_pod(monkeypatch: pytest.MonkeyPatch, folder: Path, namespace: bytes = b"devices\n") -> None:
    (folder / "namespace").write_bytes(namespace)
    monkeypatch.setattr(own_command, "_NAMESPACE", folder / "namespace")
    monkeypatch.setenv("HOSTNAME", "nodedevice-agent-x7k2p")


TROUBLES = [health.with_xid(GpuHealth(), 79, HealthRules()).trouble, health.ECC, health.ECC_BEFORE, health.GONE]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda each: str(each.reason))
def test_a_message_ends_with_the_command(trouble: Trouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_pod(monkeypatch, tmp_path)
    gpu = Gpu(UUID)
    message = device_of(gpu, trouble, on_host(str(tmp_path), [GpuDevice(gpu)], {}, hands_over_files=False)).message
    assert message.endswith(IN_POD)
    assert len(message) <= 1024


@pytest.mark.parametrize(
    ("namespace", "host_name"),
    [
        pytest.param(None, "host", id="no pod"),
        pytest.param(b"devices", "", id="no host name"),
        pytest.param(b"", "host", id="empty namespace"),
        pytest.param(b"\xff\xfe", "host", id="no text"),
    ],
)
def test_elsewhere_it_is_the_programs_name(
    namespace: bytes | None, host_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_pod(monkeypatch, tmp_path, namespace or b"")
    if namespace is None:
        (tmp_path / "namespace").unlink()
    monkeypatch.setenv("HOSTNAME", host_name)
    assert own_command.typed() == "nodedevice-agent"
