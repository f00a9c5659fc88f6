"""The device manager's calls to plugins: what it learns of them, where their plugin is gone, or where they wait for the disk."""

from collections.abc import Coroutine
from typing import Any, cast

import pytest
from nodedevice_agent.devicemanager.effects import CallPreStart, Effect
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.deviceplugin.calls import PluginCalls
from nodedevice_agent.deviceplugin.connection import PluginConnection

from tests.unit.node_agent.devicemanager.scenario import GPU, WITH_PREFERENCES, Scenario, calls, pod, preferred_calls
from tests.unit.node_agent.deviceplugin.one_plugin import connection as connection
from tests.unit.node_agent.deviceplugin.one_plugin import plugin as plugin

NO_CONNECTION = "of the device plugin of example.com/gpu failed: it is no longer connected"
PRE_START = PluginOptions(pre_start_required=True)


class Callers:
    """Of a scenario's calls to its plugin, which is endpoint 1; and what has followed from them."""

    def __init__(self, scenario: Scenario, connection: object = None) -> None:
        self.scenario = scenario
        self.effects: list[Effect] = []
        connections = {} if connection is None else {1: cast(PluginConnection, connection)}
        self.calls = PluginCalls(scenario.manager, connections, {}, self._settle, lambda: scenario.now, self._saved)

    def _settle(self) -> None:
        self.effects += self.scenario.manager.settle(self.scenario.now)

    async def _saved(self, pod_uid: str) -> None:
        """Every record is on disk."""


def allocating(scenario: Scenario, made: PluginCalls) -> Coroutine[Any, Any, None]:
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    return made.allocate(call)


def pre_starting(scenario: Scenario, made: PluginCalls) -> Coroutine[Any, Any, None]:
    scenario.run(pod("p", gpu=1))
    (call,) = (effect for effect in scenario.effects if isinstance(effect, CallPreStart))
    return made.pre_start(call)


CALLS = {"Allocate": allocating, "PreStartContainer": pre_starting}


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_of_a_plugin_that_is_gone_fails(call: str) -> None:
    scenario = Scenario.with_plugin(2, options=PRE_START)
    await CALLS[call](scenario, Callers(scenario).calls)
    (pending,) = scenario.manager.pending(GPU)
    assert pending.message == f"{call} {NO_CONNECTION}"


@pytest.mark.parametrize("call", CALLS)
async def test_a_bug_in_a_call_fails_that_call(call: str, caplog: pytest.LogCaptureFixture) -> None:
    scenario = Scenario.with_plugin(2, options=PRE_START)
    await CALLS[call](scenario, Callers(scenario, connection="no connection").calls)
    (pending,) = scenario.manager.pending(GPU)
    assert pending.message.startswith(f"{call} of the device plugin of {GPU} failed: a bug in this agent (Attribute")
    (found,) = (vars(record) for record in caplog.records if "which is a bug" in record.message)
    assert found["resource_name"] == GPU


async def test_without_advice_of_a_plugin_that_is_gone_the_agent_chooses(caplog: pytest.LogCaptureFixture) -> None:
    scenario = Scenario.with_plugin(2, options=WITH_PREFERENCES)
    (query,) = preferred_calls(scenario.see(pod("p", gpu=1)))
    callers = Callers(scenario)
    await callers.calls.preferred(query)
    assert [call.device_ids for call in calls(callers.effects)] == [("d0",)]
    (found,) = (vars(record) for record in caplog.records)
    assert found["error"] == f"GetPreferredAllocation {NO_CONNECTION}"
