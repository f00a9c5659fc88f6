"""`kubectl nodedevice` on a real API server: its rows, its conflicts, its refusals, and several people at once."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from nodedevice_api.names import AGENT_FIELD_MANAGER, node_device_name

from tests.cluster.api import Client, NodeDevice
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.crds.custom_resources import apply_status, condition, free, node_device

pytestmark = pytest.mark.cluster

_GPU: Final = "example.com/gpu"
_NODES: Final = ("node-a", "node-b")
Typed = subprocess.CompletedProcess[str]
Type = Callable[..., Typed]


@pytest.fixture
def client(installed: ControlPlane) -> Iterator[Client]:
    """NodeDevices of two nodes, whose statuses tests play."""
    names = [node_device_name(node, _GPU) for node in _NODES]
    for node, name in zip(_NODES, names, strict=True):
        installed.client.apply(node_device(name, nodeName=node), field_manager=AGENT_FIELD_MANAGER)
        apply_status(installed.client, name, _status("gpu-0", "gpu-1", "gpu-2", "gpu-3"))
    yield installed.client
    for name in names:
        installed.client.delete(NodeDevice, name)


def _status(*ids: str, **more: Any) -> dict[str, Any]:
    agent = {"servedBy": "nodedevice", "delivery": "nri", "version": "0.1.0"}
    ready = [condition("AgentReady"), condition("Ready", reason="Ready")]
    return {**free(*ids), "agent": agent, "endpoint": {"state": "Running"}, "conditions": ready, **more}


@pytest.fixture
def enter(installed: ControlPlane, tmp_path: Path) -> Type:
    """What became of one command line, in a process as people start it."""
    environment = {**os.environ, "KUBECONFIG": str(installed.admin_kubeconfig), "HOME": str(tmp_path)}

    def enter(*arguments: str, **more: str) -> Typed:
        command = [sys.executable, "-m", "kubectl_nodedevice", *arguments]
        given = {**environment, **more}
        return subprocess.run(
            command, cwd=tmp_path, env=given, capture_output=True, text=True, check=False, timeout=120
        )

    return enter


def _cordons(client: Client, node: str = "node-a") -> dict[str, dict[str, str]]:
    found = client.get(NodeDevice, node_device_name(node, _GPU))["spec"].get("cordonedDevices", [])
    return {each["id"]: each for each in found}


def test_many_people_at_once_lose_nothing(client: Client, enter: Type) -> None:
    """While the status changes, too, as it does in a cluster that works."""
    ids = [f"gpu-{number:02}" for number in range(12)]
    name = node_device_name("node-a", _GPU)
    apply_status(client, name, _status(*ids))

    def cordon(device_id: str) -> Typed:
        return enter(
            "cordon", "node-a", "--device", device_id, "--reason", device_id, "--by", f"of-{device_id}", "--wait", "0"
        )

    with ThreadPoolExecutor(6) as people:
        running = [people.submit(cordon, each) for each in ids]
        while not all(each.done() for each in running):
            apply_status(client, name, _status(*ids, reserved=0))
    assert [each.result().stderr for each in running] == [""] * len(ids)
    assert {each["id"]: each["by"] for each in _cordons(client).values()} == {each: f"of-{each}" for each in ids}


_ROOT: Final = Path(__file__).parents[3]
_BLOCK: Final = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _typed_on_the_page() -> list[str]:
    page = (_ROOT / "docs/kubectl.md").read_text(encoding="utf-8")
    return [line for block in _BLOCK.findall(page) for line in block.splitlines()]


def test_the_page_as_it_is_typed(client: Client, enter: Type) -> None:
    """In its order; each line is of this program. What goes on until Ctrl-C has tests elsewhere."""
    for line in _typed_on_the_page():
        assert line.startswith("kubectl nodedevice"), line
        words = shlex.split(line)[2:]
        if "--watch" in words or (words[:1] == ["open"] and "--snapshot" not in words):
            continue
        ran = enter(*words, *(["--wait", "0"] if words[:1] in (["cordon"], ["uncordon"]) else []))
        assert ran.returncode in (0, 1), (line, ran)
        assert ran.stderr == "", (line, ran)
    assert _cordons(client) == {}
