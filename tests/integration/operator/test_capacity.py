"""The operator on a real API server: what it writes into Nodes, and when it keeps its hands off."""

from typing import Any

import pytest
from nodedevice_api import names

from tests.cluster.agent_objects import now_text
from tests.cluster.api import Node, NodeDevice, PatchType
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


def test_a_fight_is_given_up(advertised: PlayedNode) -> None:
    for _ in range(2):
        advertised.kubelet_writes(capacity={GPU: "0"}, allocatable={GPU: "0"})
        advertised.wait_shown(4)
    advertised.kubelet_writes(capacity={GPU: "0"}, allocatable={GPU: "0"})
    advertised.wait_condition("Conflict", "True", names.Reason.CHANGED_REPEATEDLY)
    advertised.wait_condition("Ready", "False", names.Reason.CHANGED_REPEATEDLY)
    assert len(advertised.wait_events("CapacityConflict")) == 1
    assert advertised.shown() == ("0", "0")
    advertised.kubelet_writes(capacity={GPU: None}, allocatable={GPU: None})
    advertised.wait_shown(4)
    advertised.wait_events("CapacityConflictEnded")


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


def test_a_deleted_nodedevice_takes_its_capacity_along_and_brings_it_back(advertised: PlayedNode) -> None:
    advertised.client.delete(NodeDevice, advertised.nd_name())
    advertised.wait_shown(None)
    advertised.make()
    advertised.advertise(4)
    advertised.wait_condition("Ready", "True")


def test_a_nodedevice_recreated_by_its_agent_changes_no_node(installed: ControlPlane, advertised: PlayedNode) -> None:
    def written() -> list[str]:
        return [e["requestURI"] for e in operator_writes(installed, f"/nodes/{advertised.name}/status")]

    before = written()
    advertised.client.delete(NodeDevice, advertised.nd_name())
    advertised.make()
    advertised.publish(healthy=4)
    # its conditions are new: the operator has reconciled both objects
    advertised.wait_condition("Ready", "True")
    assert (advertised.shown(), written()) == (("4", "4"), before)


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


def test_a_nodedevice_that_this_node_object_does_not_own_is_ignored(node: PlayedNode) -> None:
    # one owned by a Node of another uid is taken away by the garbage collector sooner or later
    node.make(NIC, is_owned=False)
    node.publish(NIC, healthy=4)
    node.advertise(2)
    assert node.shown(NIC) == (None, None)
    node.make(NIC)
    node.wait_shown(4, NIC)


def test_a_node_recreated_while_no_operator_ran_is_new(
    operator: OperatorProcess, installed: ControlPlane, advertised: PlayedNode
) -> None:
    stored = advertised.conditions()["Advertised"]["lastTransitionTime"]
    assert operator.stop() == 0
    installed.remove_node(advertised.name)
    # the API's times are whole seconds
    wait_until(lambda: now_text()[:19] > stored[:19], "the next second")
    again = PlayedNode(installed, advertised.name)
    # the agent takes its object over, with the conditions stored in it
    again.make()
    # published again, as the garbage collector may have been faster than the agent
    again.publish(healthy=4)
    again.kubelet_writes(capacity={GPU: "4"}, allocatable={GPU: "4"})
    operator.start()
    again.wait_condition("Conflict", "True", names.Reason.FOREIGN_OWNER)
    again.wait_events("CapacityConflict")
    assert again.events("CapacityRepaired") == []
    assert (again.shown(), again.owners()) == (("4", "4"), {"kubelet"})


def test_ownership_reset_by_hand_is_taken_back_silently(operator: OperatorProcess, advertised: PlayedNode) -> None:
    before = operator.metric(DRIFT % "changed")
    patch: dict[str, Any] = {"metadata": {"managedFields": [{}]}}
    advertised.client.patch(Node, advertised.name, patch, patch_type=PatchType.MERGE)
    wait_until(lambda: advertised.node.metadata.managedFields, "somebody owns something again")
    # the API server names a "before-first-apply" for what nobody owned
    assert names.OPERATOR_FIELD_MANAGER in advertised.owners()
    assert advertised.shown() == ("4", "4")
    advertised.advertise(3, broken=1)
    assert operator.metric(DRIFT % "changed") == before
    advertised.verify_nothing_repaired(3)


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
        self,
        installed: ControlPlane,
        operator: OperatorProcess,
        advertised: PlayedNode,
        played: PlayNode,
    ) -> None:
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

    def test_drift_while_it_was_away(self, operator: OperatorProcess, advertised: PlayedNode) -> None:
        operator.stop()
        advertised.kubelet_writes(capacity={GPU: "0"}, allocatable={GPU: "0"})
        operator.start()
        advertised.wait_shown(4)
        advertised.wait_events("CapacityRepaired")


def test_a_node_moves_from_one_runtime_to_the_other_and_back(node: PlayedNode) -> None:
    """The capacity of a node whose kubelet allocates is the kubelet's own."""
    node.renew_lease()
    node.publish(healthy=4, delivery=names.DELIVERY_KUBELET)
    node.wait_condition(names.Condition.ADVERTISED, "False", names.Reason.BY_KUBELET)
    node.kubelet_writes(capacity={GPU: "4"}, allocatable={GPU: "4"})
    node.wait_condition(names.Condition.ADVERTISED, "True", names.Reason.BY_KUBELET)
    node.wait_condition(names.Condition.READY, "True")
    assert node.owners() == {"kubelet"}
    # the agent moves; the kubelet forgets, and leaves a 0
    node.publish(healthy=4, delivery=names.DELIVERY_NRI)
    node.wait_condition(names.Condition.CONFLICT, "True", names.Reason.FOREIGN_OWNER)
    node.kubelet_writes(capacity={GPU: "0"}, allocatable={GPU: "0"})
    # as in docs/delivery.md; the kubelet takes its allocatable back at its next sync
    remove = f'[{{"op": "remove", "path": "/status/capacity/{GPU.replace("/", "~1")}"}}]'
    node.control_plane.kubectl("patch", "node", node.name, "--subresource=status", "--type=json", "-p", remove)
    node.kubelet_writes(allocatable={GPU: None})
    node.wait_shown(4)
    node.wait_condition(names.Condition.CONFLICT, "False")
    # and back: the operator lets go, and says nothing of what the kubelet does then
    node.publish(healthy=4, delivery=names.DELIVERY_KUBELET)
    node.wait_shown(None)
    node.kubelet_writes(capacity={GPU: "3"}, allocatable={GPU: "2"})
    node.wait_condition(names.Condition.ADVERTISED, "True", names.Reason.BY_KUBELET)
    assert node.shown() == ("3", "2")
    # Events are posted in their order
    node.publish(healthy=3, broken=1, delivery=names.DELIVERY_KUBELET)
    node.wait_events("DeviceUnhealthy", about=node.nd_name())
    assert node.events("CapacityRepaired") == []


def test_a_number_that_nobody_can_mean_hurts_no_node(operator: OperatorProcess, played: PlayNode) -> None:
    """The API takes it, with an exponent beyond the one that Python's decimals have by themselves."""
    nodes = [played().settle(), played().settle()]
    nodes[0].kubelet_writes("evil", capacity={"evil.example/x": "1e3000000"})
    # a fresh start reads it in a list
    for manager in ("first", "second"):
        for node in nodes:
            node.kubelet_writes(manager, capacity={GPU: "1"}, allocatable={GPU: "1"})
        for node in nodes:
            node.wait_shown(4)
        assert "Traceback" not in operator.log.read_text()
        assert operator.stop() == 0
        operator.start()
