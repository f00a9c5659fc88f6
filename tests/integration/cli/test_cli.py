"""`kubectl nodedevice` on a real API server: its rows, its conflicts, its refusals, and several people at once."""

import json
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
from tests.integration.crds.custom_resources import allocation, apply_status, condition, device, free, node_device

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
        return subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=120)

    return enter


def _cordons(client: Client, node: str = "node-a") -> dict[str, dict[str, str]]:
    found = client.get(NodeDevice, node_device_name(node, _GPU))["spec"].get("cordonedDevices", [])
    return {each["id"]: each for each in found}


def test_the_first_screen_and_devices(client: Client, enter: Type) -> None:
    broken = [device("gpu-0"), device("gpu-1", "Unhealthy", reason="Xid79", message="Xid 79: gone")]
    held = {
        "allocated": 1,
        "available": 0,
        "healthy": 1,
        "total": 2,
        "allocations": [allocation("u", "main", "gpu-0", name="try", namespace="default")],
    }
    apply_status(client, node_device_name("node-a", _GPU), _status("gpu-0", "gpu-1", devices=broken, **held))
    ran = enter()
    assert (ran.returncode, ran.stderr) == (1, "")
    [line] = [each for each in ran.stdout.splitlines() if each.startswith(_GPU)]
    assert line.split()[1:8] == ["nodedevice", "2", "6", "4", "1", "1", "0"]
    assert "gpu-1 (example.com/gpu) on node-a is unhealthy: Xid 79: gone" in ran.stdout
    ran = enter("devices", "--node", "node-a", "--resource", _GPU, "-o", "json")
    items = json.loads(ran.stdout)["items"]
    assert [(each["id"], each["states"]) for each in items] == [("gpu-0", ["Held"]), ("gpu-1", ["Broken"])]
    assert items[0]["holders"][0]["pod"] == "try"


def test_a_cordon_and_its_end(client: Client, enter: Type) -> None:
    ran = enter("cordon", "node-a", "--device", "gpu-3", "--reason", "fan", "--wait", "0")
    assert (ran.returncode, ran.stderr) == (0, "")
    cordon = _cordons(client)["gpu-3"]
    assert cordon["reason"] == "fan"
    assert cordon["by"]
    assert cordon["at"].endswith("Z")
    assert enter("uncordon", "node-a", "--device", "gpu-3", "--by", "eve", "--wait", "0").returncode == 1
    assert _cordons(client).keys() == {"gpu-3"}
    assert enter("uncordon", "node-a", "--device", "gpu-3", "--wait", "0").returncode == 0
    assert _cordons(client) == {}


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


def test_all_nodes(client: Client, enter: Type) -> None:
    ran = enter("cordon", "--resource", _GPU, "--all-nodes", "--reason", "move", "--yes")
    assert ran.stdout.startswith("2 nodes cordoned: node-a, node-b\n"), ran
    assert [_cordons(client, node).keys() for node in _NODES] == [{"*"}, {"*"}]
    assert enter("cordon", "--resource", _GPU, "--all-nodes", "--reason", "move", "--yes").stdout.startswith(
        "2 nodes had it already"
    )
    assert enter("uncordon", "--resource", _GPU, "--all-nodes", "--yes").returncode == 0
    assert [_cordons(client, node) for node in _NODES] == [{}, {}]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("devices", "--as", "nobody"), "may not"),
        (("devices", "--node", "none"), "nodes with NodeDevices: node-a, node-b"),
        (("holders", "none"), "pod default/none does not exist"),
        (("cordon", "node-a", "--device", "gpu-9", "--reason", "x"), "it has gpu-0, gpu-1, gpu-2, gpu-3"),
        (("cordon", "node-a", "--device", "gpu-1", "--reason", "x", "--as", "nobody"), "may not"),
    ],
)
def test_a_sentence_and_a_remedy(client: Client, enter: Type, arguments: tuple[str, ...], problem: str) -> None:
    ran = enter(*arguments)
    assert ran.returncode == 2, ran
    assert problem in ran.stderr
    assert ran.stderr.startswith("error: ")
    assert len(ran.stderr.splitlines()) == 1


_ROOT: Final = Path(__file__).parents[3]
_BLOCK: Final = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _typed_on_the_page() -> list[str]:
    page = (_ROOT / "docs/kubectl.md").read_text(encoding="utf-8")
    return [line for block in _BLOCK.findall(page) for line in block.splitlines()]


def test_the_page_as_it_is_typed(client: Client, enter: Type) -> None:
    """In its order; each line is of this program."""
    for line in _typed_on_the_page():
        assert line.startswith("kubectl nodedevice"), line
        words = shlex.split(line)[2:]
        ran = enter(*words, *(["--wait", "0"] if words[:1] in (["cordon"], ["uncordon"]) else []))
        assert ran.returncode in (0, 1), (line, ran)
        assert ran.stderr == "", (line, ran)
    assert _cordons(client) == {}
