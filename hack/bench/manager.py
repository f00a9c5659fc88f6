"""The device manager alone: how many pods it can give devices to and take them back, a second.

In CPU time of this process: the manager does no I/O and waits for nothing, and other work on the machine is not its cost.
"""

import time

from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse, ContainerEdits
from nodedevice_agent.devicemanager.devices import Device, accept
from nodedevice_agent.devicemanager.effects import CallAllocate
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.resource import PluginOptions

from hack.bench.results import PER_SECOND, Result, result

RUNS = 60
_NAME = "example.com/gpu"
_RESPONSE = AllocateResponse(b"answer", ContainerEdits())


def allocate(devices: int, pods_a_run: int, goal: float) -> Result:
    """Cycles a second: a pod comes, Allocate is called and answered, the pod goes. devices: of the resource."""
    manager = DeviceManager(0.0)
    manager.connected(_NAME, 1, PluginOptions(), 0.0)
    manager.listed(_NAME, 1, accept(Device(f"gpu-{index}") for index in range(devices)), 0.0)
    measured = []
    for run in range(RUNS):
        pods = [_pod(f"{run}-{number}") for number in range(pods_a_run)]
        began = time.process_time()
        for pod in pods:
            _cycle(manager, pod)
        measured.append(pods_a_run / (time.process_time() - began))
    return result(measured, PER_SECOND, goal)


def _cycle(manager: DeviceManager, pod: Pod) -> None:
    (call,) = manager.pod_seen(pod, 1.0)
    assert isinstance(call, CallAllocate)
    manager.allocated(call.ticket, _RESPONSE, 1.0)
    manager.pod_gone(pod.uid, 1.0)


def _pod(uid: str) -> Pod:
    return Pod(uid, "default", uid, (Container("main", limits={_NAME: 1}),))
