"""A container whose devices have to be prepared first: what it waits for, and what it gets."""

from nodedevice_agent.devicemanager.effects import CallPreStart
from nodedevice_agent.devicemanager.pods import Container
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.runtime.injection import Grant, Refusal

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, container, init, pod

PREPARED = PluginOptions(pre_start_required=True)


def prepared(*containers: Container) -> RuntimeScenario:
    """A pod p with these containers, whose device has been prepared; the runtime has listed no container."""
    scenario = RuntimeScenario.with_plugin(1, options=PREPARED)
    scenario.sync()
    scenario.run(pod("p", *containers))
    scenario.prepare(scenario.effects)
    return scenario


class TestPreStart:
    def test_must_be_answered_first(self) -> None:
        scenario = RuntimeScenario.with_plugin(2, options=PREPARED).run(pod("p", gpu=1))
        refusal = scenario.refusal("p")
        assert refusal.is_temporary
        assert "PreStartContainer" in refusal.message
        scenario.prepare(scenario.effects)
        assert isinstance(scenario.ask("p"), Grant)

    def test_the_refusal_has_the_plugins_error(self) -> None:
        scenario = RuntimeScenario.with_plugin(2, options=PREPARED).run(pod("p", gpu=1))
        scenario.prepare(scenario.effects, "cannot reset")
        message = f"{GPU} is not prepared for container main (PreStartContainer): cannot reset"
        assert scenario.refusal("p") == Refusal(message)

    def test_is_called_again_when_an_instance_has_ended(self) -> None:
        scenario = prepared(container(gpu=1))
        again = scenario.end(scenario.create("p"), "p")
        assert isinstance(scenario.ask("p"), Refusal)
        (call,) = scenario.prepare(again)
        assert (call.container, call.device_ids) == ("main", ("d0",))
        assert isinstance(scenario.ask("p"), Grant)

    def test_never_while_a_container_uses_the_device(self) -> None:
        """An init container's device is its app container's as well."""
        scenario = prepared(init("prep"), container("main", gpu=1))
        first = scenario.create("p", "prep")
        called = scenario.prepare(scenario.end(first, "p"))
        assert [call.container for call in called] == ["prep", "main"]
        main = scenario.create("p", "main")
        assert scenario.prepare(scenario.end(first, "p")) == []
        after = scenario.rebooted()
        assert after.prepare(after.sync(("p", main)) + after.plugin(1, options=PREPARED)) == []

    def test_is_called_again_after_an_end_that_the_runtime_does_not_report(self) -> None:
        """Not before the kubelet creates the next instance: until then the device may be in use."""
        scenario = prepared(container(gpu=1))
        scenario.create("p")
        assert scenario.prepare(scenario.sync()) == []
        scenario.runtime.creating("p", "main")
        effects = scenario.settled()
        assert scenario.refusal("p", "main").is_temporary
        (call,) = scenario.prepare(effects)
        assert call.container == "main"
        assert isinstance(scenario.ask("p", "main"), Grant)

    def test_a_call_for_another_that_shares_the_device_is_waited_for(self) -> None:
        both = pod("p", init("prep"), container("main", gpu=1))
        scenario = RuntimeScenario.with_plugin(1, options=PREPARED).run(both)
        (first,) = (effect for effect in scenario.effects if isinstance(effect, CallPreStart))
        (second,) = scenario.happens("pre_started", first.ticket)[-1:]
        assert isinstance(second, CallPreStart)
        assert scenario.refusal("p", "prep").is_temporary
        scenario.happens("pre_start_failed", second.ticket, "cannot reset")
        assert isinstance(scenario.ask("p", "prep"), Grant), "its own has been answered"
        assert "cannot reset" in scenario.refusal("p", "main").message

    def test_after_a_restart_the_plugin_is_awaited(self) -> None:
        after = prepared(container(gpu=1)).rebooted()
        after.sync()
        assert isinstance(after.ask("p"), Refusal)
        (call,) = after.prepare(after.plugin(2, options=PREPARED))
        assert call.container == "main"
        assert isinstance(after.ask("p"), Grant)

    def test_after_a_restart_without_its_plugin_it_is_granted_after_a_timeout(self) -> None:
        after = RuntimeScenario.with_plugin(2).run(pod("p", gpu=1)).rebooted()
        after.sync()
        assert isinstance(after.ask("p"), Refusal)
        after.passes(10.0)
        assert isinstance(after.ask("p"), Grant)
