"""The device manager's calls to plugins: what it learns of them, where their plugin is gone, or where they wait for the disk."""

from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from nodedevice_agent.devicemanager.effects import CallPreStart, Effect
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.deviceplugin.calls import PluginCalls
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.errors import PluginFailed

from tests.fakes.plugin import FakePlugin
from tests.unit.node_agent.devicemanager.scenario import (
    GPU,
    WITH_PREFERENCES,
    Scenario,
    calls,
    pod,
    preferred_calls,
)
from tests.unit.node_agent.deviceplugin.one_plugin import connection as connection
from tests.unit.node_agent.deviceplugin.one_plugin import plugin as plugin

NO_CONNECTION = "of the device plugin of example.com/gpu failed: it is no longer connected"
PRE_START = PluginOptions(pre_start_required=True)


class Callers:
    """Of a scenario's calls to its plugin, which is endpoint 1; and what has followed from them."""

    def __init__(self, scenario: Scenario, connection: object = None) -> None:
        self.scenario = scenario
        self.effects: list[Effect] = []
        self.saved: list[str] = []
        # called during the wait for the disk
        self.meanwhile: Callable[[], object] = list
        connections = {} if connection is None else {1: cast(PluginConnection, connection)}
        self.calls = PluginCalls(scenario.manager, connections, {}, self._settle, lambda: scenario.now, self._saved)

    def _settle(self) -> None:
        self.effects += self.scenario.manager.settle(self.scenario.now)

    async def _saved(self, pod_uid: str) -> None:
        self.saved.append(pod_uid)
        self.meanwhile()


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


async def test_advice_for_as_many_as_are_asked_for_is_followed_and_no_problem(
    plugin: FakePlugin, connection: PluginConnection, caplog: pytest.LogCaptureFixture
) -> None:
    scenario = Scenario.with_plugin(4, options=WITH_PREFERENCES)
    (query,) = preferred_calls(scenario.see(pod("p", gpu=2)))
    callers = Callers(scenario, connection)
    await callers.calls.preferred(query)
    assert [call.device_ids for call in calls(callers.effects)] == [("d2", "d3")]
    assert caplog.records == []


async def test_of_too_many_that_are_advised_the_first_are_taken(
    plugin: FakePlugin, connection: PluginConnection
) -> None:
    scenario = Scenario.with_plugin(4, options=WITH_PREFERENCES)
    (query,) = preferred_calls(scenario.see(pod("p", gpu=2)))
    plugin.knobs.preferred_answer = ["unknown", "d3", "d2"]
    callers = Callers(scenario, connection)
    await callers.calls.preferred(query)
    # one of the first two is none
    assert [call.device_ids for call in calls(callers.effects)] == [("d0", "d3")]


NEVER = {GPU: "never"}


async def test_a_call_that_is_made_once_waits_until_its_record_is_on_disk(
    plugin: FakePlugin, connection: PluginConnection
) -> None:
    scenario = Scenario.with_plugin(2, allocate_retry=NEVER)
    callers, before = Callers(scenario, connection), []
    callers.meanwhile = lambda: before.extend(plugin.calls_of("Allocate"))
    await allocating(scenario, callers.calls)
    assert (callers.saved, before, len(plugin.calls_of("Allocate"))) == (["p"], [], 1)
    assert scenario.held() == {"p/main": ("d0",)}


async def test_it_is_not_made_for_a_pod_that_has_ended_by_then(
    plugin: FakePlugin, connection: PluginConnection
) -> None:
    """The plugin would take it for the next pod's."""
    scenario = Scenario.with_plugin(2, allocate_retry=NEVER)
    callers = Callers(scenario, connection)
    callers.meanwhile = lambda: scenario.gone("p")
    await allocating(scenario, callers.calls)
    assert (plugin.calls_of("Allocate"), callers.effects, scenario.held()) == ([], [], {})


async def test_any_other_call_waits_for_no_disk(plugin: FakePlugin, connection: PluginConnection) -> None:
    scenario = Scenario.with_plugin(2)
    callers = Callers(scenario, connection)
    await allocating(scenario, callers.calls)
    assert (callers.saved, scenario.held()) == ([], {"p/main": ("d0",)})


async def test_the_connection_in_use_is_the_newest_one_or_none(connection: PluginConnection) -> None:
    scenario = Scenario.with_plugin(2)
    assert Callers(scenario, connection).calls.newest(GPU, "Sync") is connection
    for callers, name in ((Callers(scenario), GPU), (Callers(scenario, connection), "example.com/none")):
        with pytest.raises(PluginFailed, match=rf"^Sync of the device plugin of {name} failed: it is no") as none:
            callers.calls.newest(name, "Sync")
        assert (none.value.call, none.value.resource_name) == ("Sync", name)
