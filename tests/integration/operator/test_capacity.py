"""The operator on a real API server: what it writes into Nodes, and when it keeps its hands off."""

import pytest
from nodedevice_api import names

from tests.cluster.api import NodeDevice, PatchType
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator_process import GPU, NIC, OperatorProcess, PlayedNode, PlayNode, operator_writes

DRIFT = 'nodedevice_operator_drift_repairs_total{cause="%s"}'


@pytest.fixture
def node(played: PlayNode) -> PlayedNode:
    """A Node whose agent has made its NodeDevice and not yet published anything."""
    made = played()
    made.make()
    return made


@pytest.fixture
def advertised(node: PlayedNode) -> PlayedNode:
    """A Node that shows 4 GPUs, its NodeDevice with all conditions."""
    return node.settle()


@pytest.mark.kubelet("scenario 78", "scenario 98", "weak spot 19")
def test_each_change_of_the_numbers_reaches_the_node(advertised: PlayedNode) -> None:
    for broken in (1, 3, 4, 2, 0):
        advertised.advertise(4 - broken, broken=broken)
    assert advertised.owners() == {names.OPERATOR_FIELD_MANAGER}
    ready = advertised.wait_condition("Ready", "True", names.Reason.READY)
    assert ready["observedGeneration"] == 1


@pytest.mark.parametrize(
    ("wrote", "cause", "left"),
    [
        pytest.param("0", "zeroed", "kubelet set it to 0", id="zeroed"),
        pytest.param("9", "changed", "kubelet set it to 9", id="changed"),
        pytest.param(None, "removed", "an unknown writer removed it", id="removed"),
    ],
)
def test_drift_is_repaired(
    operator: OperatorProcess, advertised: PlayedNode, wrote: str | None, cause: str, left: str
) -> None:
    before = operator.metric(DRIFT % cause)
    advertised.kubelet_writes(capacity={GPU: wrote}, allocatable={GPU: wrote})
    advertised.wait_shown(4)
    assert advertised.wait_events("CapacityRepaired") == [f"{GPU}: {left}, restored to 4"]
    assert operator.metric(DRIFT % cause) == before + 1
    assert advertised.owners() == {names.OPERATOR_FIELD_MANAGER}


def test_a_name_that_was_there_first_is_never_forced(installed: ControlPlane, node: PlayedNode) -> None:
    node.kubelet_writes(capacity={GPU: "4"}, allocatable={GPU: "4"})
    node.make(NIC)
    node.publish(healthy=4)
    node.advertise(2, NIC)
    node.wait_condition("Conflict", "True", names.Reason.FOREIGN_OWNER)
    node.wait_events("CapacityConflict")
    assert node.shown() == ("4", "4")
    assert node.owners() == {"kubelet"}
    node.kubelet_writes(capacity={GPU: None}, allocatable={GPU: None})
    node.wait_shown(4)
    node.wait_condition("Conflict", "False")
    assert len(node.wait_events("CapacityConflictEnded")) == 1
    forced = [e for e in operator_writes(installed) if node.name in e["requestURI"] and "force=true" in e["requestURI"]]
    assert not [event for event in forced if "/nodes/" in event["requestURI"]]


@pytest.mark.kubelet("behaviour 24", "behaviour 25", "scenario 79", "scenario 80", "weak spot 18")
def test_a_gone_resource_leaves_the_node_and_what_is_held_stays(node: PlayedNode) -> None:
    held = {"podUID": "uid-a", "container": "main", "deviceIDs": ["gpu-0"]}
    node.advertise(4)
    node.publish(healthy=4, state="Gone", allocations=[held])
    node.wait_shown(1)
    node.publish(healthy=4, state="Gone")
    node.wait_shown(None)
    node.wait_condition("Advertised", "False", names.Reason.ENDPOINT_GONE)
    node.advertise(4)
    node.verify_nothing_repaired(4)


def test_edited_conditions_are_restored(advertised: PlayedNode) -> None:
    conditions = [{**c, "reason": "ByHand"} for c in advertised.conditions().values()]
    patch = {"status": {"conditions": conditions}}
    merge = PatchType.MERGE
    advertised.client.patch(NodeDevice.Status, advertised.nd_name(), patch, patch_type=merge, field_manager="admin")

    def are_right() -> bool:
        now = advertised.conditions()
        return all(now[kind]["reason"] != "ByHand" for kind in names.OPERATOR_CONDITIONS)

    wait_until(are_right, "the operator's conditions are right again")
    (message,) = advertised.wait_events("StatusEdited", about=advertised.nd_name())
    assert message.startswith(f"{GPU} on {advertised.name}: admin changed the status")


class TestNothingToDo:
    """Who has nothing to say writes nothing."""

    def test_idle(self, installed: ControlPlane, advertised: PlayedNode, played: PlayNode) -> None:
        written = len(operator_writes(installed, advertised.name))
        # what an agent and a kubelet do all day
        advertised.renew_lease()
        advertised.publish(healthy=4)
        advertised.kubelet_writes(nodeInfo={"bootID": "another"})
        # the operator does something new, and so everything before it
        played().settle()
        assert len(operator_writes(installed, advertised.name)) == written

    def test_restart(
        self, installed: ControlPlane, operator: OperatorProcess, advertised: PlayedNode, played: PlayNode
    ) -> None:
        """Neither Nodes and objects nor Events: of what is as it was, a device out of service among it, nothing is reported."""
        cordon = {"spec": {"cordonedDevices": [{"id": "gpu-3", "reason": "fan"}]}}
        advertised.client.patch(NodeDevice, advertised.nd_name(), cordon, patch_type=PatchType.MERGE)
        advertised.wait_events("DevicesCordoned", about=advertised.nd_name())
        assert operator.stop() == 0
        written = len(operator_writes(installed))
        operator.start()
        reconciles = "nodedevice_operator_reconcile_duration_seconds_count"
        nodes = len(list(installed.client.list(type(advertised.node))))
        wait_until(lambda: operator.metric(reconciles) >= nodes, "every node was reconciled")
        other = played().settle().name
        new = operator_writes(installed)[written:]
        # of an Event only the object that it makes has the name
        of_others = [e for e in new if other not in e["requestURI"] + e["objectRef"].get("name", "")]
        assert of_others == []
