"""A plugin that is connected again right after a restart and then makes its socket anew: nothing is published in between."""

import pytest
from nodedevice_agent.devicemanager.effects import Publish
from nodedevice_agent.devicemanager.manager import SETTLE_SECONDS
from nodedevice_agent.devicemanager.snapshot import is_settling
from nodedevice_agent.devicemanager.state import Checkpoint

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario


def restarted() -> Scenario:
    scenario = Scenario(Checkpoint(registered={GPU: ("a", "b")}))
    scenario.plugin(["a", "b"])
    assert not is_settling(scenario.manager, GPU)
    return scenario


@pytest.mark.kubelet("weak spot 19")
def test_its_end_is_awaited_as_its_coming_was() -> None:
    scenario = restarted()
    scenario.passes(1.0)
    scenario.disconnect()
    assert is_settling(scenario.manager, GPU)
    scenario.plugin(["a", "b"], endpoint=2)
    assert not is_settling(scenario.manager, GPU)
    assert scenario.snapshot().available == 2


def test_not_for_longer_than_the_restart_itself_is_awaited() -> None:
    scenario = restarted()
    scenario.passes(SETTLE_SECONDS - 1.0)
    scenario.disconnect()
    assert Publish(GPU) in scenario.passes(1.0)
    assert not is_settling(scenario.manager, GPU)
    assert scenario.snapshot().healthy == 0


def test_one_of_two_connections_leaves_nothing_to_await() -> None:
    scenario = restarted()
    scenario.plugin(["a", "b"], endpoint=2)
    scenario.disconnect()
    assert not is_settling(scenario.manager, GPU)


def test_afterwards_an_end_is_told_at_once() -> None:
    scenario = restarted()
    scenario.passes(SETTLE_SECONDS)
    assert Publish(GPU) in scenario.disconnect()
    assert not is_settling(scenario.manager, GPU)


def test_after_the_checkpoint_was_lost_it_is_awaited_too() -> None:
    scenario = Scenario(is_recovering=True)
    scenario.plugin(["a", "b"])
    scenario.happens("recovered", Checkpoint(registered={GPU: ()}))
    assert not is_settling(scenario.manager, GPU)
    scenario.disconnect()
    assert is_settling(scenario.manager, GPU)
    scenario.plugin(["a", "b"], endpoint=2)
    assert not is_settling(scenario.manager, GPU)


def test_a_resource_that_was_not_known_before_is_told_at_once() -> None:
    scenario = Scenario(Checkpoint())
    scenario.plugin(["a"])
    scenario.disconnect()
    assert not is_settling(scenario.manager, GPU)
