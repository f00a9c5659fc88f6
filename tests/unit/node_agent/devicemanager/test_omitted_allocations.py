"""After the checkpoint was lost and a status that has room for a part of the allocations: who may hold the others."""

import pytest
from nodedevice_agent.devicemanager.effects import SaveCheckpoint
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.use import PODS_NOT_SYNCED
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container
from tests.unit.node_agent.devicemanager.scenario import ENDS, GPU, Scenario, calls, held_by, pod, status

SHOWN = held_by("shown", "d0", response=None)
KNOWN = Checkpoint((SHOWN,), {GPU: ()}, possible_holders={GPU: tuple(PODS_NOT_SYNCED)})
PODS = [pod("shown", gpu=1), pod("omitted", gpu=2), pod("other"), pod("big", nic=1)]


def recovered(*pods: Pod) -> Scenario:
    scenario = Scenario.with_plugin(4, is_recovering=True)
    scenario.happens("recovered", KNOWN)
    scenario.answer_all(scenario.happens("pod_events.synced", list(pods or PODS)))
    return scenario


def test_nothing_is_given_out_while_a_pod_may_hold_any() -> None:
    scenario = recovered()
    assert calls(scenario.see(pod("new", gpu=1))) == []
    assert scenario.held() == {"shown/main": ("d0",)}
    assert scenario.reasons() == {"omitted": "AllocationsOmitted", "new": "AllocationsOmitted"}
    # what the scheduler counts for it stays, and nothing more
    assert (scenario.snapshot().available, scenario.snapshot().allocated) == (2, 1)
    # one more lost checkpoint is no way out
    assert status(scenario, {}, "2026-01-02T03:04:05Z")["allocationsOmitted"] == 1


def test_a_resource_known_by_those_who_may_hold_it_alone_is_shown_as_stopped() -> None:
    scenario = Scenario(Checkpoint(possible_holders={GPU: ("other",)}))
    assert status(scenario, {}, "2026-01-02T03:04:05Z")["endpoint"]["state"] == "Stopped"
    assert scenario.registered()["reason"] == "EndpointStopped"


@pytest.mark.parametrize("how", ENDS)
def test_all_is_given_out_when_such_pods_are_gone(how: str) -> None:
    scenario = recovered()
    scenario.see(pod("new", gpu=2))
    effects = scenario.ends(pod("omitted", gpu=2), how, pod("shown", gpu=1), pod("new", gpu=2))
    assert SaveCheckpoint(durable=False) in effects
    scenario.answer_all(effects)
    assert scenario.held() == {"shown/main": ("d0",), "new/main": ("d1", "d2")}
    assert status(scenario, {}, "2026-01-02T03:04:05Z")["allocationsOmitted"] == 0


def test_where_no_such_pod_is_left_nothing_is_held_back() -> None:
    assert len(calls(recovered(pod("shown", gpu=1), pod("other")).see(pod("new", gpu=1)))) == 1


def test_a_pod_with_a_part_of_its_devices_may_hold_the_others() -> None:
    """Its container does not start with fewer devices than it requests, and no plugin is called for these."""
    scenario = RuntimeScenario.with_plugin(4, is_recovering=True)
    effects = scenario.happens("recovered", KNOWN) + scenario.see(pod("early", gpu=1))
    # the pods are not known yet
    assert scenario.snapshot().available == 0
    effects += scenario.happens("pod_events.synced", [pod("shown", gpu=2)]) + scenario.see(pod("new", gpu=1))
    assert calls([*effects, *scenario.sync(), *scenario.rebooted().plugin(4)]) == []
    assert "omitted allocations" in scenario.refusal("shown").message
    scenario.answer_all(scenario.gone("shown"))
    assert scenario.held() == {"new/main": ("d0",)}


def test_a_restart_holds_it_back_as_well() -> None:
    scenario = recovered().restarted()
    scenario.plugin(4)
    scenario.happens("pod_events.synced", PODS)
    assert calls(scenario.see(pod("new", gpu=1))) == []
    scenario.answer_all(scenario.gone("omitted"))
    assert "new/main" in scenario.held()


RUNNING = container("omitted", pid=1, annotations={CONTAINER_DEVICES_ANNOTATION: f"{GPU}=0123456789ab"})


class TestWithRuntime:
    def recovered(self) -> RuntimeScenario:
        """The container of one of the pods runs, with devices that nobody knows of."""
        scenario = RuntimeScenario.with_plugin(4, is_recovering=True)
        scenario.happens("recovered", KNOWN)
        scenario.sync(("omitted", RUNNING))
        scenario.happens("pod_events.synced", PODS)
        return scenario

    @pytest.mark.parametrize("reconnects", [False, True])
    def test_a_process_keeps_what_it_may_hold(self, reconnects: bool) -> None:
        scenario = self.recovered()
        scenario.see(pod("new", gpu=1))
        scenario.answer_all(scenario.gone("omitted"))
        assert "new/main" not in scenario.held()
        if reconnects:
            scenario.manager.containers.lost()
            scenario.answer_all(scenario.sync(("omitted", RUNNING)))
            assert "new/main" not in scenario.held()
        scenario.answer_all(scenario.end(RUNNING, "omitted"))
        assert "new/main" in scenario.held()

    def test_a_pod_that_was_gone_before_the_runtime_was_connected(self) -> None:
        scenario = RuntimeScenario.with_plugin(4, is_recovering=True)
        scenario.happens("recovered", KNOWN)
        scenario.happens("pod_events.synced", PODS)
        scenario.see(pod("new", gpu=1))
        scenario.gone("omitted")
        assert "new/main" not in scenario.held()
        scenario.answer_all(scenario.sync())
        assert "new/main" in scenario.held()

    def test_it_is_not_reported_as_running_without_its_devices(self) -> None:
        scenario = self.recovered()
        assert [entry.not_injected for entry in scenario.snapshot_with_runtime().pending] == [False]
        assert scenario.runtime.using_released(GPU) == ()
