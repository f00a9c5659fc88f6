"""The page about agents outside of pods on a machine with systemd: installed, restarted, upgraded, reset; the pod keeps its device.

Its commands are typed as they stand there, `kubectl` here and the rest in the machine, which reaches no package index: wheels come
on a disk that is plugged in.
"""

import base64
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from hack.machine import network
from hack.machine.packages import run
from hack.machine.wheels import agent_wheels
from hack.release import distributions
from tests.cluster.build.binaries import find
from tests.cluster.control_plane.layout import api_address
from tests.e2e.chart.cluster import NODE
from tests.e2e.machine.cluster import SERIAL, MachineCluster, machine_cluster, serial_ports, talker
from tests.e2e.pages import agent_yaml, commands_of_install, done
from tests.e2e.recording import RanOn
from tests.hack.release.committed import committed_copy

_UNIT = "nodedevice-agent.service"
_CLUSTER = 1
_RELEASED, _NEWER = "0.1.0", "0.1.1"
_DISK_BYTES = 64 * 1024**2
_AT = "/mnt/wheels"
# pip in an emulated machine
_PIP_SECONDS = 600.0


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory, progress: Callable[[str], None]) -> Path:
    """A disk with two releases' wheels, released/dist and newer/dist, and `dependencies`."""
    folder = tmp_path_factory.mktemp("wheels")
    tree = folder / "tree"
    shutil.copytree(agent_wheels(progress), tree / "dependencies")
    project = committed_copy(folder / "project")
    distributions.build(project, tree / "released/dist", epoch=1_700_000_000)
    for file in (*project.glob("*/pyproject.toml"), project / "node-agent/src/nodedevice_agent/__init__.py"):
        text, found = re.subn(
            rf'^((?:__)?version(?:__)? = "){_RELEASED}"', rf'\g<1>{_NEWER}"', file.read_text(), flags=re.M
        )
        assert found == 1, file
        file.write_text(text)
    distributions.build(project, tree / "newer/dist", epoch=1_700_000_000)
    disk = folder / "wheels.img"
    with disk.open("wb") as empty:
        empty.truncate(_DISK_BYTES)
    run(["mkfs.ext4", "-q", "-F", "-d", str(tree), str(disk)])
    return disk


@pytest.fixture
def cluster(progress: Callable[[str], None]) -> Iterator[MachineCluster]:
    """The chart without agents, as the page has it."""
    with machine_cluster(progress, number=_CLUSTER) as cluster:
        cluster.release.install(cluster.values(agents={"enabled": False}, operator={"replicas": 1}))
        yield cluster


def test_a_pod_keeps_its_device_whatever_becomes_of_the_unit(
    cluster: MachineCluster, disk: Path, tmp_path: Path, progress: Callable[[str], None], ran_on: RanOn
) -> None:
    _plug_in(cluster, disk)
    assert _type(cluster, "The wheels", "released")[-1].strip() == f"nodedevice-agent, version {_RELEASED}"
    progress("the wheels are installed")
    _configure(cluster, tmp_path)
    _type(cluster, "systemd", "released")
    cluster.plug("AAA", "1")
    cluster.wait_capacity(SERIAL, 1)
    ran_on(cluster.described)
    cluster.run(talker("holds"))
    cluster.until_heard("AAA", "holds")
    held, container = cluster.devices_of("holds"), cluster.containers("default")
    assert held

    agent = _main_process(cluster)
    cluster.machine.run(f"systemctl restart {_UNIT}")
    _wait_serving(cluster, agent)
    agent = _main_process(cluster)
    _type(cluster, "Restart and upgrade", "newer")
    assert f"version {_NEWER}" in cluster.machine.run("/opt/nodedevice/bin/nodedevice-agent --version")
    _wait_serving(cluster, agent)
    progress("upgraded")
    cluster.until_heard("AAA", "holds")
    # neither has touched it
    assert (cluster.devices_of("holds"), cluster.containers("default")) == (held, container)
    cluster.plug("BBB", "2")
    cluster.wait_capacity(SERIAL, 2)
    cluster.run(talker("next"))
    cluster.until_heard("BBB", "next")

    cluster.machine.reset()
    cluster.node.wait_ready()
    for name in ("holds", "next"):
        cluster.wait(partial(cluster.is_running_again, name), f"pod {name} runs again")
    cluster.until_heard("AAA", "holds")
    cluster.until_heard("BBB", "next")
    assert cluster.devices_of("holds") == held
    assert cluster.machine.run(f"systemctl is-enabled {_UNIT}; systemctl is-active {_UNIT}").split() == [
        "enabled",
        "active",
    ]


def _plug_in(cluster: MachineCluster, disk: Path) -> None:
    machine = cluster.machine
    machine.command("blockdev-add", driver="file", node_name="wheels", filename=str(disk), read_only=True)
    machine.add("virtio-blk-pci", drive="wheels", serial="WHEELS", bus="rp1")
    by_id = "/dev/disk/by-id/virtio-WHEELS"
    cluster.machine.run(
        f"until [ -e {by_id} ]; do sleep 0.2; done; mkdir -p {_AT}; mount -o ro {by_id} {_AT}; "
        # what the page says of a node without a network, for every command of pip; byte code of what nobody imports takes long here
        f"printf '[install]\\nno-index = yes\\nfind-links = {_AT}/dependencies\\nno-compile = yes\\n' > /etc/pip.conf"
    )


def _type(cluster: MachineCluster, title: str, release: str) -> list[str]:
    """Type a section's commands in the machine, where `dist/` is that release's; what each printed."""
    shell = f"set -eu; cd {_AT}/{release}"
    return [cluster.machine.run(f"{shell}; {command}", _PIP_SECONDS) for command in commands_of_install(title)]


def _configure(cluster: MachineCluster, folder: Path) -> None:
    """The account by an administrator's kubectl here, and agent.yaml as the page has it, with a device."""
    plane = cluster.control_plane
    admin = folder / "admin.kubeconfig"
    address = api_address(network.services(_CLUSTER))
    admin.write_text(plane.admin_kubeconfig.read_text().replace(plane.url, f"https://{address}:443"))
    programs = find(["kubectl"])["kubectl"].parent
    environment = {"KUBECONFIG": str(admin), "HOME": str(folder), "PATH": f"{programs}:/usr/bin:/bin"}
    for command in commands_of_install("The agent's account"):
        command = re.sub(r"(?<= )agent\.(?=token$|kubeconfig\b)", f"{folder}/agent.", command.replace("node-a", NODE))
        done(command, environment)
    settings = agent_yaml() | {"nodeName": NODE, "plugins": {"generic": [serial_ports()]}}
    (folder / "agent.yaml").write_text(yaml.safe_dump(settings))
    for name in ("agent.token", "agent.kubeconfig", "agent.yaml"):
        content = base64.b64encode((folder / name).read_bytes()).decode()
        cluster.machine.run(f"umask 077; mkdir -p /etc/nodedevice; echo {content} | base64 -d > /etc/nodedevice/{name}")


def _main_process(cluster: MachineCluster) -> str:
    return cluster.machine.run(f"systemctl show --property MainPID --value {_UNIT}").strip()


def _wait_serving(cluster: MachineCluster, former: str) -> None:
    """Until another process than that one serves."""
    cluster.wait(lambda: _is_serving(cluster, former), "the agent serves again", every_seconds=1.0)


def _is_serving(cluster: MachineCluster, former: str) -> bool:
    """Whether another process than that one has what the agent is for: its devices, from its own plugin."""
    if _main_process(cluster) in (former, "0"):
        return False
    ready = "python3 -c 'import urllib.request as r; r.urlopen(\"http://127.0.0.1:9808/readyz\")' 2>/dev/null"
    return cluster.machine.run(f"{ready} && echo yes || echo no").strip() == "yes"
