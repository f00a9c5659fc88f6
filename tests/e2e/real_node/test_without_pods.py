"""The page about agents outside of pods, typed as it stands there, up to the device in a container; with wheels from the tree.

The node of these tests has no systemd: the program of its unit is started as systemd would start it.
"""

import os
import shlex
from collections.abc import Callable, Iterator
from configparser import RawConfigParser
from pathlib import Path

import pytest
import yaml

from hack.release import distributions
from tests.cluster.build.binaries import find
from tests.cluster.node.machine import MachineProcess
from tests.cluster.processes.processes import reserved_ports
from tests.e2e.pages import ROOT, agent_yaml, commands_of_install, done
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod

_UNIT = "etc/systemd/system/nodedevice-agent.service"
_PIP_SECONDS = 300.0


@pytest.fixture
def type_in(nri_node: NodeUnderTest, tmp_path: Path) -> Callable[[str], str]:
    """Types a command of the page: wheels, paths and the node are those of this test."""
    distributions.build(ROOT, tmp_path / "dist", epoch=1_700_000_000)
    (tmp_path / "nodedevice").mkdir()
    programs = find(["kubectl"])["kubectl"].parent
    kubeconfig = str(nri_node.control_plane.admin_kubeconfig)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": kubeconfig, "HOME": str(tmp_path), "PATH": path}
    ours = {
        "/opt/nodedevice": f"{tmp_path}/opt",
        "dist/": f"{tmp_path}/dist/",
        "/etc/nodedevice": f"{tmp_path}/nodedevice",
        " agent.kubeconfig": f" {tmp_path}/nodedevice/agent.kubeconfig",
        "> agent.": f"> {tmp_path}/nodedevice/agent.",
        "node-a": nri_node.node.name,
        "systemd install": f"systemd install --root {tmp_path}",
    }

    def type_it(command: str) -> str:
        for written, mine in ours.items():
            command = command.replace(written, mine)
        return done(command, environment, _PIP_SECONDS)

    return type_it


@pytest.fixture
def address() -> Iterator[str]:
    with reserved_ports(1) as (port,):
        yield f"127.0.0.1:{port}"


def test_a_container_has_the_device_over_restart_and_upgrade(
    nri_node: NodeUnderTest, type_in: Callable[[str], str], tmp_path: Path, address: str
) -> None:
    install, account, upgrade = map(commands_of_install, ("The wheels", "The agent's account", "Restart and upgrade"))
    assert [type_in(command) for command in install][-1].startswith("nodedevice-agent, version ")
    for command in account:
        type_in(command)
    written = "systemd install"
    [type_in(command) for command in commands_of_install("systemd") if written in command]
    _write_settings(tmp_path, nri_node.node.name, address)
    with nri_node.agent_replaced(_by_unit(nri_node, tmp_path), address):
        rw = nri_node.kinds["rw"]
        checks = [word for device_id in rw.files for word in ("-open", rw.path_of(device_id))]
        nri_node.run(pod("before", [container("main", {rw.resource: 1}, checks)]))
        seen = nri_node.seen("before")
        mine = seen.env[rw.env]
        assert [each for each in rw.files if seen.modes(rw.path_of(each)) == "rw"] == [mine]
        for command in upgrade:
            if "systemctl" not in command:
                type_in(command)
        with nri_node.registering_again():
            nri_node.agent.kill()
            nri_node.start_agent()
        nri_node.run(pod("after", [container("main", {rw.resource: 1})]))
        assert nri_node.seen("after").env[rw.env] != mine
        nri_node.wait_numbers(rw.resource, allocated=2)
        assert len(nri_node.starts("before")) == 1


def _write_settings(folder: Path, node_name: str, address: str) -> None:
    """agent.yaml as the page has it, and where this agent of several on one machine answers."""
    home = folder / "nodedevice"
    ours = {"nodeName": node_name, "kubeconfig": str(home / "agent.kubeconfig"), "httpAddress": address}
    (home / "agent.yaml").write_text(yaml.safe_dump(agent_yaml() | ours))


def _by_unit(under_test: NodeUnderTest, folder: Path) -> MachineProcess:
    unit = RawConfigParser(strict=False)
    unit.read(folder / _UNIT)
    command = unit["Service"]["ExecStart"].replace("/etc/nodedevice", f"{folder}/nodedevice")
    return under_test.node.process("agent-of-the-unit", shlex.split(command))
