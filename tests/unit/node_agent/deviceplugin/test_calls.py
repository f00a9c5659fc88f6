"""The device manager's calls to plugins: what it learns of them, where their plugin is gone, or where they wait for the disk."""

from collections.abc import Coroutine
from typing import Any, cast

import pytest
from nodedevice_agent.devicemanager.effects import CallPreStart
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.deviceplugin.calls import PluginCalls
from nodedevice_agent.deviceplugin.connection import PluginConnection

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, calls, pod

NO_CONNECTION = "of the device plugin of example.com/gpu failed: it is no longer connected"
PRE_START = PluginOptions(pre_start_required=True)


def callers(scenario: Scenario, connection: object = None) -> PluginCalls:
    """Of a scenario's calls to its plugin, which is endpoint 1."""

    def settle() -> None:
        scenario.manager.settle(scenario.now)

    async def saved(pod_uid: str) -> None:
        """Every record is on disk."""

    connections = {} if connection is None else {1: cast(PluginConnection, connection)}
    return PluginCalls(scenario.manager, connections, {}, settle, lambda: scenario.now, saved)


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
    await CALLS[call](scenario, callers(scenario))
    (pending,) = scenario.manager.pending(GPU)
    assert pending.message == f"{call} {NO_CONNECTION}"


@pytest.mark.parametrize("call", CALLS)
async def test_a_bug_in_a_call_fails_that_call(call: str, caplog: pytest.LogCaptureFixture) -> None:
    scenario = Scenario.with_plugin(2, options=PRE_START)
    await CALLS[call](scenario, callers(scenario, connection="no connection"))
    (pending,) = scenario.manager.pending(GPU)
    assert pending.message.startswith(f"{call} of the device plugin of {GPU} failed: a bug in this agent (Attribute")
    (found,) = (vars(record) for record in caplog.records if "which is a bug" in record.message)
    assert found["resource_name"] == GPU
