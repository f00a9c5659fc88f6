"""What ends kopf's watch of configurations, and kopf with it: the operator opens it again.

It says so once, keeps the lead, its other work goes on meanwhile in the same process, and no change of a configuration is missed.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from nodedevice_api import names

from tests.cluster.api import NodeDeviceConfig
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy, refusal
from tests.integration.crds.custom_resources import node_device_config
from tests.integration.operator_process import LogFromHere, OperatorProcess, PlayedNode

KIND = names.NODE_DEVICE_CONFIGS
EXPIRED = refusal(410, "Expired", "too old resource version: 1 (9)")
BOOM = refusal(500, "InternalError", "etcd is away")
FAILED = "watch of NodeDeviceConfigs failed; relisting"
_PATIENCE_SECONDS = 60.0


@dataclass
class Config:
    """One configuration that no node takes."""

    control_plane: ControlPlane
    name: str
    generation: int = 0

    def change(self) -> None:
        self.generation += 1
        plugins = {"simulated": [{"resourceName": "example.com/gpu", "count": self.generation}]}
        body = node_device_config(self.name, plugins)
        self.control_plane.client.apply(body, field_manager="admin", force=True)

    def _observed(self) -> int:
        found: Any = self.control_plane.client.get(NodeDeviceConfig, self.name)
        return int((found.to_dict().get("status") or {}).get("observedGeneration", 0))

    def verify_followed(self) -> None:
        """Change it, and wait until its status is of that."""
        self.change()
        wait_until(lambda: self._observed() == self.generation, "the status follows", _PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def process(
    installed: ControlPlane, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One that has to keep the lead."""
    options = ("--agent-poll-seconds", "1", "--no-required-plugins")
    made = OperatorProcess(installed, tmp_path_factory.mktemp("operator"), *options)
    made.reach_by(proxy.url)
    with made.running():
        wait_until(lambda: made.leads, "it leads")
        yield made


@pytest.fixture
def config(installed: ControlPlane, node: PlayedNode, proxy: FaultProxy, process: OperatorProcess) -> Iterator[Config]:
    made = Config(installed, f"c{uuid.uuid4().hex[:6]}")
    made.verify_followed()
    wait_until(lambda: proxy.open_watches(KIND) == 1, "they are watched")
    yield made
    assert process.leads
    assert len(process.lines("leading")) == 1
    installed.client.delete(NodeDeviceConfig, made.name)


@pytest.mark.parametrize(
    "again",
    [
        pytest.param((410, EXPIRED, {"Content-Type": "application/json"}), id="410"),
        pytest.param((200, b"<html>log in</html>\n", {"Content-Type": "text/html"}), id="something else"),
    ],
)
def test_that_is_cut_and_answered_otherwise(
    config: Config, node: PlayedNode, proxy: FaultProxy, logged: LogFromHere, again: tuple[int, bytes, dict[str, str]]
) -> None:
    rule = proxy.rule("WATCH", f"/{KIND}", 2, *again)
    assert proxy.cut(KIND) == 1
    node.verify_follows()
    config.verify_followed()
    assert rule.is_over
    assert len(logged.lines(FAILED)) == 1


@pytest.mark.parametrize("line", [b'{"type":"ERROR","object":' + BOOM + b"}\n", b"<html>\n"], ids=["500", "no JSON"])
def test_that_brings_an_error_or_nonsense(
    config: Config, node: PlayedNode, proxy: FaultProxy, logged: LogFromHere, line: bytes
) -> None:
    assert proxy.send(KIND, line) == 1
    node.verify_follows()
    config.verify_followed()
    [said] = logged.lines(FAILED)
    assert "\n" not in said["error"]


def test_that_ends_as_watches_do(config: Config, proxy: FaultProxy, logged: LogFromHere) -> None:
    assert proxy.send(KIND, b'{"type":"ERROR","object":' + EXPIRED + b"}\n") == 1
    config.verify_followed()
    assert proxy.cut(KIND) == 1
    config.verify_followed()
    assert logged.lines(FAILED) == []
