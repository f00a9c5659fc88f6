"""The machines of the fake NVML in the form that the plugin's core reads: from the descriptions, without a library."""

import shlex
from functools import cache

from nodedevice_agent.plugins.nvml.gpu import Ancestor, Gpu, Pair, Ports, pair, scores, sysfs_bus_id

from hack.fake_nvml.library import MACHINES as FOLDER

# number of GPUs
MACHINES = {"dgx-h100": 8, "dgx1-v100": 8, "dgx2-v100": 16, "t4-pair": 2}

NumaNodes = dict[str, tuple[int, ...]]


@cache
def described(machine: str) -> tuple[dict[Pair, int], NumaNodes]:
    """The score of each pair, and the NUMA nodes of each GPU."""
    lines = [shlex.split(line, comments=True) for line in (FOLDER / f"{machine}.machine").read_text().splitlines()]
    attributes = [dict(word.split("=", 1) for word in line[2:]) for line in lines if line[:1] == ["gpu"]]
    gpus = [Gpu(a["uuid"], pci_bus_id=sysfs_bus_id(a["pci"]), numa_node=int(a["numa"])) for a in attributes]
    peers: list[dict[str, int]] = [{} for _ in gpus]
    to_switches = [0] * len(gpus)
    for line in lines:
        if line[:1] == ["link"]:
            one, other, count = int(line[1]), int(line[2]), int(line[3]) if len(line) > 3 else 1
            peers[one][gpus[other].uuid] = peers[one].get(gpus[other].uuid, 0) + count
            peers[other][gpus[one].uuid] = peers[other].get(gpus[one].uuid, 0) + count
        elif line[:1] == ["switch"]:
            for place in range(len(gpus)) if line[2] == "*" else [int(line[2])]:
                to_switches[place] += int(line[3]) if len(line) > 3 else 1
    ports = {gpu.uuid: Ports(peers[place], to_switches[place]) for place, gpu in enumerate(gpus)}
    ancestors = {
        pair(gpus[i].uuid, gpus[j].uuid): _ancestor(attributes[i], attributes[j])
        for i in range(len(gpus))
        for j in range(i + 1, len(gpus))
    }
    return scores(gpus, ports, ancestors), {gpu.uuid: gpu.numa_nodes() for gpu in gpus}


def _ancestor(one: dict[str, str], other: dict[str, str]) -> Ancestor:
    if one["numa"] != other["numa"]:
        return Ancestor.SYSTEM
    if one["host-bridge"] != other["host-bridge"]:
        return Ancestor.NUMA_NODE
    return Ancestor.SWITCH if one["pcie-switch"] == other["pcie-switch"] else Ancestor.HOST_BRIDGE
