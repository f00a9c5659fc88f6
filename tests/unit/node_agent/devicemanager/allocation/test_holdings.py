"""What a plugin that keeps something for containers gets: never less than what may run."""

from msgspec.structs import replace
from nodedevice_agent.devicemanager.holdings import Holding, SyncedHoldings, holdings
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions

from tests.fakes.settled import attributing
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, app, calls, held_by, init, pod


def held(scenario: Scenario) -> list[str] | None:
    found = holdings(scenario.manager, GPU)
    return None if found is None else [f"{holding.pod_uid}/{holding.container}" for holding in found]


def test_a_call_in_flight_counts_and_so_does_what_it_has_got_before() -> None:
    scenario = Scenario.with_plugin(4)
    (first,) = calls(scenario.see(pod("p", init("first"), app("main", 2))))
    assert holdings(scenario.manager, GPU) == (Holding("p", "first", ("d0",), b""),)
    (second,) = calls(scenario.answer(first))
    done, main = Holding("p", "first", ("d0",), b"ok"), Holding("p", "main", ("d0", "d1"), b"")
    assert holdings(scenario.manager, GPU) == (done, main)
    scenario.answer(second)
    assert holdings(scenario.manager, GPU) == (done, replace(main, response=b"ok"))


def test_a_failed_transaction_ends_its_holdings() -> None:
    scenario = Scenario.with_plugin(1, nics=["n0"])
    (call,) = calls(scenario.see(pod("p", gpu=1, nic=1)))
    (nic,) = calls(scenario.answer(call))
    scenario.fail(nic)
    assert held(scenario) == []


def test_a_pod_that_has_ended_holds_until_its_containers_have_ended() -> None:
    scenario = RuntimeScenario.with_plugin(1).run(pod("p", gpu=1))
    scenario.sync()
    made = scenario.create("p")
    scenario.gone("p")
    assert held(scenario) == ["p/main"]
    scenario.end(made, "p")
    assert held(scenario) == []


def test_after_a_restart_once_the_pods_are_known() -> None:
    scenario = Scenario.with_plugin(2).run(pod("p", gpu=1), pod("q", gpu=1)).restarted()
    assert held(scenario) is None
    scenario.happens("pod_events.synced", [pod("p", gpu=1)])
    assert held(scenario) == ["p/main"]


def test_nothing_is_listed_after_the_checkpoint_was_lost_while_it_may_be_incomplete() -> None:
    scenario = Scenario.with_plugin(1, is_recovering=True)
    assert held(scenario) is None
    scenario.happens("pod_events.synced", [pod("other", gpu=1)])
    scenario.happens("recovered", Checkpoint(registered={GPU: ()}, possible_holders={GPU: ("other",)}))
    assert held(scenario) is None


def test_a_recovered_static_pod_may_have_another_uid() -> None:
    """What was recovered from the API names its mirror pod; the runtime, and what a plugin keeps, its configuration."""
    scenario = RuntimeScenario(is_recovering=True)
    scenario.happens("pod_events.synced", [pod("mirror", gpu=1, config_hash="hash")])
    scenario.happens("recovered", Checkpoint((held_by("mirror", "d0"),), {GPU: ()}))
    scenario.plugin(1)
    assert held(scenario) is None


def test_not_of_a_node_whose_kubelet_allocates() -> None:
    """It may have been another runtime's node, whose containers still run."""
    mirror = attributing(1000.0)
    mirror.connected(GPU, 1, PluginOptions(holdings_required=True), 1000.0)
    assert holdings(mirror, GPU) is None


class TestWhenItIsSent:
    ONE, OTHER = Holding("p", "main", ("d0",), b"ok"), Holding("q", "main", ("d1",), b"ok")

    def synced(self, *sent: Holding) -> SyncedHoldings:
        """These over connection 1."""
        synced = SyncedHoldings()
        assert synced.is_due(1, sent)
        synced.synced(1, sent)
        return synced

    def test_once_for_a_connection(self) -> None:
        synced = self.synced()
        assert not synced.is_due(1, [])
        assert synced.is_due(2, [])

    def test_when_one_has_ended_and_not_when_one_has_begun(self) -> None:
        synced = self.synced(self.ONE)
        assert not synced.is_due(1, [self.ONE, self.OTHER])
        assert synced.is_due(1, [self.OTHER])

    def test_when_one_ended_that_began_after_the_last_one(self) -> None:
        synced = self.synced(self.ONE)
        with synced.allocating(self.OTHER.key):
            assert not synced.is_due(1, [self.ONE, self.OTHER])
        assert synced.is_due(1, [self.ONE])
        synced.synced(1, [self.ONE])
        assert not synced.is_due(1, [self.ONE])

    def test_once_more_when_a_call_returns_whose_pod_has_ended(self) -> None:
        """The plugin may have done it after the Sync that was sent meanwhile."""
        synced = self.synced()
        with synced.allocating(self.ONE.key):
            # also over a connection that is new
            assert not synced.is_due(1, [])
            assert synced.is_due(2, [])
            synced.synced(2, [])
            assert not synced.is_due(2, [])
        assert synced.is_due(2, [])
        synced.synced(2, [])
        assert not synced.is_due(2, [])

    def test_not_before_the_last_of_two_calls_has_returned(self) -> None:
        synced = self.synced()
        with synced.allocating(self.ONE.key):
            with synced.allocating(self.ONE.key):
                pass
            assert not synced.is_due(1, [])
        assert synced.is_due(1, [])
