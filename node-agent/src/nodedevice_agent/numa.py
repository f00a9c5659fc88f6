"""Reads the machine's NUMA nodes from the kernel; settings override them.

Source: /sys/devices/system/node/online, a list such as `0-1,4`.
"""

import re
from pathlib import Path

from nodedevice_agent.devicemanager.allocation.topology import MAX_NUMA_NODES, Topology, TopologyPolicy, TopologyScope
from nodedevice_agent.errors import AgentSettingsError

ONLINE = Path("/sys/devices/system/node/online")
# the kernel's own limit
_MAX_NODE = 1023
_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


def read_topology(policy: str, scope: str, numa_nodes: str = "", online: Path = ONLINE) -> Topology:
    """The topology to align devices by. numa_nodes: a list in the kernel's format; empty: the kernel's list.

    Raises AgentSettingsError for an invalid list, and for a policy on a machine with more nodes than it can align.
    """
    nodes = _parse(numa_nodes) if numa_nodes.strip() else _online_nodes(online)
    chosen = TopologyPolicy(policy)
    if chosen is not TopologyPolicy.NONE and len(nodes) > MAX_NUMA_NODES:
        raise AgentSettingsError(
            f"--topology-policy {policy} takes at most {MAX_NUMA_NODES} NUMA nodes and this machine has {len(nodes)}; "
            "set --topology-policy none, or name the nodes that have devices with --numa-nodes"
        )
    return Topology(chosen, TopologyScope(scope), nodes)


def _online_nodes(online: Path) -> tuple[int, ...]:
    try:
        return _parse(online.read_text(encoding="ascii"))
    except FileNotFoundError:
        # a kernel without NUMA support has one node
        return (0,)
    except (OSError, UnicodeDecodeError) as exc:
        raise AgentSettingsError(f"{online} cannot be read ({exc}); set --numa-nodes, such as 0") from exc


def _parse(text: str) -> tuple[int, ...]:
    nodes: set[int] = set()
    for part in text.strip().split(","):
        found = _RANGE.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last or last > _MAX_NODE:
            raise AgentSettingsError(f"NUMA nodes {text.strip()[:80]!r}: must be a list such as 0 or 0-1,4")
        nodes.update(range(first, last + 1))
    return tuple(sorted(nodes))
