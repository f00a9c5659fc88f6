"""From a change that was received of to the Node that shows it: what is counted as a delay of ours, and what is not."""

import pytest
from nodedevice_kube.api_errors import Unreachable

from tests.fakes.operator.operator_model import node_device
from tests.unit.operator.capacity.test_write_budget import OneNode


@pytest.fixture
def node() -> OneNode:
    return OneNode()


async def test_from_the_first_change_on(node: OneNode) -> None:
    node.receive(available=3)
    node.now += 2
    node.receive(available=4)
    node.now += 1
    await node.reconcile()
    assert node.delays == (1, 3)


async def test_a_change_that_changes_nothing_on_the_node(node: OneNode) -> None:
    node.receive(available=3)
    await node.reconcile()
    node.now += 5
    node.receive(available=2, allocated=1)
    await node.reconcile()
    assert node.delays == (1, 0)
    # and it does not make the next one reconcile late
    node.now += 5
    node.receive(available=1)
    await node.reconcile()
    assert node.delays == (2, 0)


async def test_a_reconcile_that_nobody_asked_for_is_no_change(node: OneNode) -> None:
    node.cache.node_devices.put(node_device(available=3))
    await node.reconcile()
    assert node.cluster.writes
    assert node.delays == (0, 0)


async def test_what_fails_is_as_late_as_it_was(node: OneNode) -> None:
    node.receive(available=3)
    node.cluster.failures["apply_capacity"] = [Unreachable("patch", "nodes/status", "gone")]
    with pytest.raises(Unreachable):
        await node.reconcile()
    assert node.delays == (0, 0)
    node.now += 7
    await node.reconcile()
    assert node.delays == (1, 7)


async def test_what_changed_while_another_led_is_none_of_our_delay(node: OneNode) -> None:
    node.receive(available=3)
    node.now += 600
    node.work.forget_changes()
    await node.reconcile()
    assert node.cluster.writes
    assert node.delays == (0, 0)
