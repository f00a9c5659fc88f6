"""What a node's kubelet allocates it counts itself: nothing is written there, and nothing taken over.

Either the agent is its device plugin, or the plugin registered with the kubelet, and the agent only observes it.
"""

from typing import Any

import pytest
from nodedevice_api.names import DELIVERY_KUBELET, SERVED_BY_KUBELET, SERVED_BY_NODEDEVICE, Condition, Reason

from tests.fakes.operator.operator_model import GPU, NIC, OperatorModel, node_device, settle


@pytest.fixture(params=[SERVED_BY_NODEDEVICE, SERVED_BY_KUBELET], ids=["delivery kubelet", "observed"])
def kubelets(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"delivery": DELIVERY_KUBELET, "served_by": request.param}


def test_nothing_is_written_and_what_the_kubelet_counts_is_reported(kubelets: dict[str, Any]) -> None:
    model = OperatorModel()
    reason = Reason.SERVED_BY_KUBELET if kubelets["served_by"] == SERVED_BY_KUBELET else Reason.BY_KUBELET
    settle(model, [node_device(**kubelets, available=2)])
    advertised, ready = model.condition(Condition.ADVERTISED), model.condition(Condition.READY)
    assert (advertised.status, advertised.reason, ready.reason) == ("False", reason, reason)
    model.node.update("kubelet", GPU, 2)
    model.reconcile()
    advertised, ready = model.condition(Condition.ADVERTISED), model.condition(Condition.READY)
    assert (advertised.status, advertised.reason, ready.status) == ("True", reason, "True")
    assert model.condition(Condition.CONFLICT).status == "False"
    assert (model.applies, model.reported(), model.repairs) == ([], [], [])


@pytest.mark.parametrize("fields", [{"allocated": 1}, {"endpoint": "Gone"}, {"available": 9}])
def test_the_kubelets_number_is_never_changed(kubelets: dict[str, Any], fields: dict[str, Any]) -> None:
    model = OperatorModel()
    model.node.update("kubelet", GPU, 4)
    settle(model, [node_device(**kubelets, **fields), node_device(NIC, available=1)])
    assert (model.node.seen(GPU).capacity, model.node.seen(NIC).capacity) == (4, 1)
    assert all(GPU not in apply.numbers for apply in model.applies)


def test_what_was_advertised_is_left_to_the_kubelet_when_its_runtime_changes(kubelets: dict[str, Any]) -> None:
    model = OperatorModel()
    settle(model, [node_device(delivery="nri", available=2)])
    settle(model, [node_device(**kubelets, available=2)])
    assert not model.node.seen(GPU).is_present
    model.node.update("kubelet", GPU, 2)
    model.reconcile()
    assert (model.condition(Condition.ADVERTISED).status, model.reported()) == ("True", [])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_the_kubelet_counted_does_not_become_ours_by_a_change_of_runtime(
    kubelets: dict[str, Any], is_restarted: bool
) -> None:
    model = OperatorModel()
    settle(model, [node_device(delivery="nri", available=2)])
    # the kubelet is quicker than the operator: the value it overwrites is not given back by us
    model.node.update("kubelet", GPU, 3)
    settle(model, [node_device(**kubelets, available=2)])
    if is_restarted:
        model.restart()
    settle(model, [node_device(delivery="nri", available=2)])
    assert model.node.seen(GPU).capacity == 3
    assert model.condition(Condition.CONFLICT).reason == Reason.FOREIGN_OWNER
    # the admin takes it off the Node, and it is ours
    model.node.update("kubectl", GPU, None)
    model.reconcile()
    assert model.node.seen(GPU).capacity == 2


def test_a_conflict_ends_where_the_kubelet_takes_over(kubelets: dict[str, Any]) -> None:
    model = OperatorModel()
    model.node.update("kubelet", GPU, 4)
    settle(model, [node_device(delivery="nri", available=2)])
    assert model.condition(Condition.CONFLICT).status == "True"
    settle(model, [node_device(**kubelets, available=4)])
    assert model.condition(Condition.CONFLICT).status == "False"
    assert model.condition(Condition.READY).status == "True"
