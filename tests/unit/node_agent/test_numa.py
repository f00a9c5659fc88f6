"""The machine's NUMA nodes, from the kernel or from the settings; and more nodes than a policy can align."""

from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy, TopologyScope
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.numa import read_topology


@pytest.mark.parametrize(
    ("text", "nodes"), [("0\n", (0,)), ("0-1\n", (0, 1)), ("0-1,4\n", (0, 1, 4)), ("3, 0-1", (0, 1, 3))]
)
def test_is_read_as_the_kernel_writes_it(tmp_path: Path, text: str, nodes: tuple[int, ...]) -> None:
    online = tmp_path / "online"
    online.write_text(text)
    assert read_topology("restricted", "pod", "", online) == Topology(
        TopologyPolicy.RESTRICTED, TopologyScope.POD, nodes
    )
    assert read_topology("restricted", "pod", text, tmp_path / "nothing here").numa_nodes == nodes


def test_a_kernel_without_numa_has_one_node(tmp_path: Path) -> None:
    assert read_topology("best-effort", "container", "", tmp_path / "online").numa_nodes == (0,)


def test_settings_come_before_the_kernel(tmp_path: Path) -> None:
    online = tmp_path / "online"
    online.write_text("0-3")
    assert read_topology("none", "container", "7", online).numa_nodes == (7,)


@pytest.mark.parametrize("text", ["x", "1-0", "0,,1", "-1", "0-99999", "1024", "0;1"])
def test_an_invalid_list_of_nodes_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(AgentSettingsError, match="must be a list such as 0 or 0-1,4"):
        read_topology("none", "container", text, tmp_path / "online")


def test_a_file_that_cannot_be_read_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(AgentSettingsError, match="--numa-nodes"):
        read_topology("none", "container", "", tmp_path)


def test_a_policy_takes_eight_nodes_and_no_more(tmp_path: Path) -> None:
    assert len(read_topology("restricted", "container", "0-7", tmp_path).numa_nodes) == 8
    assert len(read_topology("none", "container", "0-35", tmp_path).numa_nodes) == 36
    with pytest.raises(AgentSettingsError, match=r"at most 8 NUMA nodes .* has 9; set --topology-policy none"):
        read_topology("restricted", "container", "0-8", tmp_path)
