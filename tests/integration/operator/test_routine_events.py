"""Events of ordinary operation on a real API server: a change is reported once, and a start without changes reports nothing."""

from collections import Counter
from collections.abc import Sequence

from nodedevice_api import names

from tests.cluster.api import Event, NodeDevice, PatchType
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator_process import GPU, OperatorProcess, PlayedNode, PlayNode

_NODES = 10


def cordon(node: PlayedNode, device_ids: Sequence[str]) -> None:
    patch = {"spec": {"cordonedDevices": [{"id": each, "reason": "fan"} for each in device_ids]}}
    node.client.patch(NodeDevice, node.nd_name(), patch, patch_type=PatchType.MERGE, field_manager="admin")


def test_a_start_posts_no_event(installed: ControlPlane, operator: OperatorProcess, played: PlayNode) -> None:
    nodes = [played().settle() for _ in range(_NODES)]
    for node in nodes:
        cordon(node, ["gpu-3"])
        node.wait_events("CapacityAdvertised", about=node.nd_name())
        node.wait_events("DevicesCordoned", about=node.nd_name())
    assert operator.stop() == 0
    before = _reported(installed)
    operator.start()
    # what comes up earlier may have been reported by the leader before it
    wait_until(lambda: operator.leads, "the operator leads")
    # whoever reports what comes later has reported what there was
    for node in nodes:
        node.advertise(2, broken=2)
    for node in nodes:
        node.wait_events("DeviceUnhealthy", about=node.nd_name())
        node.wait_events("CapacityChanged", about=node.nd_name())
    wanted = [f"{GPU} on {node.name}: 2 devices advertised, 4 before" for node in nodes]
    wanted += [f"2 devices (gpu-2, gpu-3) of {GPU} on {node.name} unhealthy (ReportedUnhealthy)" for node in nodes]
    assert sorted((_reported(installed) - before).elements()) == sorted(wanted)


def _reported(control_plane: ControlPlane) -> Counter[str]:
    """How often each message was reported by operators so far. A request that is sent again reports nothing again."""
    found = control_plane.client.list(Event, namespace="*")
    ours = [event for event in found if event.reportingComponent == names.OPERATOR_FIELD_MANAGER]
    counts: Counter[str] = Counter()
    for event in ours:
        counts[str(event.message)] += event.count or 0
    return counts
