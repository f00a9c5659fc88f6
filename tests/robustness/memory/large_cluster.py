"""An API server of a large cluster, for what reads lists: 20,000 pods and 20,000 NodeDevices, 200 of each as large as can be.

python -m tests.robustness.memory.large_cluster      prints its address, and serves until it is killed
"""

import threading
from collections.abc import Callable, Iterable
from typing import Final

from tests.fakes.played_api.kinds import LEASES, NODE_DEVICES, NODES, PODS
from tests.fakes.played_api.messages import Object
from tests.fakes.played_api.server import PlayedApi
from tests.fakes.played_api.serving import serving
from tests.fakes.played_api.store import Made
from tests.unit.cli import objects
from tests.unit.cli.objects import GPU

NODE_COUNT: Final = 10_000
POD_COUNT: Final = 20_000
_RESOURCES: Final = (GPU, "example.com/nic")
# one in so many is large: 200 pods, and 200 NodeDevices
_EACH: Final = 100
# of 330 letters beside its other fields, 3,000 devices have the 1.5 MB that an API server stores
_DEVICES, _LARGE_DEVICES = 8, 3_000


def node_device(number: int) -> Object:
    """Large ones have devices with long messages, as an agent's token may write them."""
    is_large = number % _EACH == number // _EACH % 2
    more = {"message": "x" * 330} if is_large else {}
    ids = [f"{number:06}-{at:04}-4fe0-9301-9867b12a3899" for at in range(_LARGE_DEVICES if is_large else _DEVICES)]
    devices = [objects.device(each, numaNodes=[0], **more) for each in ids]
    held = [objects.allocation(f"runs-{number}-{at}", (ids[at],)) for at in range(2)]
    return objects.node_device(f"node-{number // 2:05}", _RESOURCES[number % 2], devices, allocations=held)


def pod(number: int) -> Object:
    """Large ones have what their tenants may fill: annotations, affinity, tolerations and environments."""
    made = objects.pod(f"pod-{number:05}", node="", phase="Pending")
    if number % _EACH == 0:
        made["metadata"]["annotations"] = {"filler": "x" * 250_000}
        spec = made["spec"]
        spec["containers"][0]["env"] = [{"name": f"V{at}", "value": "<" + "x" * 1000} for at in range(600)]
        spec["affinity"] = {"nodeAffinity": {"filler": [{"key": "a", "values": ["v"] * 10}] * 5000}}
        spec["tolerations"] = [
            {"key": f"key-{at:06}", "operator": "Exists", "effect": "NoSchedule"} for at in range(5000)
        ]
    return made


def _made(make: Callable[[int], Object], numbers: Iterable[int]) -> list[Made]:
    """Made when they are sent, so that they take no memory."""

    def of(number: int) -> Made:
        metadata = make(number)["metadata"]
        return Made(metadata.get("namespace", ""), metadata["name"], lambda: make(number))

    return [of(number) for number in numbers]


def large_cluster() -> PlayedApi:
    """Kinds that are not in it are not served."""
    leases = (objects.lease(f"node-{n:05}", "nodedevice-agents", objects.THEN) for n in range(NODE_COUNT))
    nodes = (objects.node(f"node-{n:05}") for n in range(NODE_COUNT))
    lists = {NODES: nodes, LEASES: leases, PODS: _made(pod, range(POD_COUNT))}
    return PlayedApi(
        {kind: list(each) for kind, each in lists.items()} | {NODE_DEVICES: _made(node_device, range(2 * NODE_COUNT))}
    )


if __name__ == "__main__":
    with serving(large_cluster()) as server:
        print(server.address, flush=True)
        threading.Event().wait()
