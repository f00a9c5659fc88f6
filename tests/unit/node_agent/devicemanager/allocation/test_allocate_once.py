"""With `allocateRetry: never` a plugin gets Allocate at most once for a container, whatever fails, restarts or is lost."""

from collections.abc import Callable
from typing import Any

import pytest
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.effects import SaveCheckpoint
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.static_pods import StaticPod

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, app, calls, held_by, pod, published, status

NEVER = {GPU: "never"}
TRAIN = pod("train", gpu=1)


def scenario(devices: int = 2, **options: Any) -> Scenario:
    """NICs are retried as ever."""
    return Scenario.with_plugin(devices, ["n0"], allocate_retry=NEVER, **options)


def restarted(before: Scenario, **options: Any) -> Scenario:
    """A new process with the checkpoint file of the one before, and its plugins."""
    more = {"allocate_retry": NEVER, **options}
    return Scenario.with_plugin(2, ["n0"], checkpoint=decode(encode(before.manager.checkpoint())), **more)


def refusals(scenario: Scenario) -> dict[str, str]:
    """Messages of the pods that wait for good, by UID."""
    waiting = (found for name in scenario.manager.resources for found in scenario.manager.pending(name))
    return {found.pod_uid: found.message for found in waiting if found.is_final}


def everything_changes(scenario: Scenario) -> list[Any]:
    """Whatever makes a pod be retried."""
    effects = scenario.passes(400)
    effects += scenario.lists(3) + scenario.disconnect() + scenario.plugin(4, endpoint=7)
    return effects + scenario.happens("pod_events.synced", list(scenario.manager.pods.values())) + scenario.passes(400)


def test_a_call_is_on_disk_before_it_is_sent() -> None:
    [call] = calls(effects := scenario().see(TRAIN))
    assert call.recorded_for == "train"
    assert effects.index(SaveCheckpoint(durable=True, pod_uid="train")) < effects.index(call)


def test_a_failed_call_is_final() -> None:
    node = scenario()
    [call] = calls(node.see(TRAIN))
    assert published(node.fail(call, "no pod is pending")) == {GPU}
    [waiting] = status(node, {}, "2026-01-05T00:00:00Z")["waiting"]
    assert (waiting["reason"], waiting["final"]) == ("AllocateFailed", True)
    assert waiting["message"].startswith("delete the pod: ")
    assert waiting["message"].endswith("; no pod is pending")
    assert calls(everything_changes(node)) == []
    assert node.snapshot().available == 4


def test_a_successful_call_leaves_no_record() -> None:
    node = scenario().run(TRAIN)
    assert node.manager.checkpoint().allocate_calls == ()
    assert calls(everything_changes(node)) == []


@pytest.mark.parametrize("ends", ["it is deleted", "it is gone from the list"])
def test_a_pod_that_is_over_leaves_no_record(ends: str) -> None:
    node = scenario()
    failed(node)
    after = restarted(node) if ends == "it is gone from the list" else node
    effects = after.gone("train") if after is node else after.happens("pod_events.synced", [])
    assert after.manager.checkpoint().allocate_calls == ()
    assert SaveCheckpoint(durable=False) in effects
    assert len(calls(after.see(pod("train", gpu=1)))) == 1


def test_devices_that_change_during_the_call_end_the_attempt() -> None:
    node = scenario()
    [call] = calls(node.see(TRAIN))
    node.lists([Device("d0", healthy=False), "d1"])
    assert calls(node.answer(call)) == []
    assert "changed during the call" in refusals(node)["train"]
    assert calls(everything_changes(node)) == []


def test_a_failure_of_another_resource_ends_the_pod_that_was_called_for() -> None:
    node = scenario()
    [gpu] = calls(node.see(pod("train", app("a"), app("b", gpu=0, nic=1))))
    [nic] = calls(node.answer(gpu))
    assert nic.resource_name == NIC
    node.fail(nic, "no link")
    assert refusals(node)["train"].endswith("; no link")
    assert calls(everything_changes(node)) == []
    assert node.snapshot(NIC).available == 1


OWN, FOREIGN = PluginOptions(scope=f"{BUILT_IN}example"), PluginOptions()


@pytest.mark.parametrize(
    ("policy", "plugin", "is_once"),
    [
        ({"*": "never"}, FOREIGN, True),
        ({"*": "never", GPU: "always"}, FOREIGN, False),
        ({NIC: "never"}, FOREIGN, False),
        ({}, FOREIGN, False),
        ({"*": "never"}, OWN, False),
        (NEVER, OWN, False),
    ],
)
def test_which_plugins(policy: dict[str, str], plugin: PluginOptions, is_once: bool) -> None:
    node = Scenario.with_plugin(1, options=plugin, allocate_retry=policy)
    [call] = calls(effects := node.see(TRAIN))
    assert call.recorded_for == ("train" if is_once else "")
    # a call that may be repeated waits for no disk
    assert (SaveCheckpoint(durable=True, pod_uid="train") in effects) is is_once
    node.fail(call)
    assert (refusals(node) != {}) is is_once
    assert len(calls(node.passes(60))) == (0 if is_once else 1)


@pytest.mark.parametrize("policy", [{"*": "never"}, NEVER])
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_built_in_plugin_is_called_again_after_a_restart(policy: dict[str, str], is_lost: bool) -> None:
    """Also where the checkpoint was lost, or has a call from when another plugin served the name."""
    before = Scenario.with_plugin(1, allocate_retry=policy)
    in_flight(before)
    kept = None if is_lost else decode(encode(before.manager.checkpoint()))
    node = Scenario(kept, is_recovering=is_lost, allocate_retry=policy)
    node.happens("recovered", Checkpoint(registered={GPU: ()}))
    node.happens("pod_events.synced", [TRAIN])
    assert len(calls(node.plugin(1, options=OWN))) == 1
    assert refusals(node) == {}


def in_flight(node: Scenario) -> None:
    node.see(TRAIN)


def failed(node: Scenario, pod: Pod = TRAIN) -> None:
    [call] = calls(node.see(pod))
    node.fail(call)


@pytest.mark.parametrize("made", [in_flight, failed])
def test_a_call_counts_as_made_after_a_restart(made: Callable[[Scenario], None]) -> None:
    node = scenario()
    made(node)
    after = restarted(node)
    assert calls(after.happens("pod_events.synced", [TRAIN])) == []
    assert "the agent's restart" in refusals(after)["train"]
    assert calls(everything_changes(after)) == []
    assert calls(restarted(after).happens("pod_events.synced", [TRAIN])) == []


def test_it_counts_although_a_built_in_plugin_served_the_resource_at_the_restart() -> None:
    node = scenario()
    failed(node)
    node.plugin(0, endpoint=7, options=OWN)
    after = restarted(node)
    assert calls(after.happens("pod_events.synced", [TRAIN])) == []
    assert set(refusals(after)) == {"train"}


def test_a_call_that_was_not_made_before_the_restart_is_made() -> None:
    node = scenario(0)
    node.see(TRAIN)
    assert len(calls(restarted(node).happens("pod_events.synced", [TRAIN]))) == 1


def test_a_setting_that_was_changed_meanwhile_counts() -> None:
    node = scenario()
    failed(node)
    assert len(calls(restarted(node, allocate_retry={}).happens("pod_events.synced", [TRAIN]))) == 1


def recovering(**options: Any) -> Scenario:
    return Scenario.with_plugin(3, is_recovering=True, allocate_retry=NEVER, **options)


def test_of_pods_that_are_bound_already_it_is_not_known_whether_the_call_was_made() -> None:
    node = recovering()
    assert calls(node.happens("recovered", Checkpoint(registered={GPU: ()}))) == []
    effects = node.happens("pod_events.synced", [TRAIN, pod("other", nic=1)])
    assert calls(effects) == []
    # the next start knows that this list was complete
    assert SaveCheckpoint(durable=False) in effects
    assert "the checkpoint was lost" in refusals(node)["train"]
    assert calls(everything_changes(node)) == []
    # a pod that is bound later is none of them
    assert len(calls(node.see(pod("later", gpu=1)))) == 1


def test_also_where_the_pods_are_listed_before_the_recovery() -> None:
    node = recovering()
    node.happens("pod_events.synced", [TRAIN])
    assert calls(node.happens("recovered", Checkpoint())) == []
    assert set(refusals(node)) == {"train"}


def test_also_where_the_agent_restarts_before_it_has_listed_the_pods() -> None:
    node = recovering()
    node.happens("recovered", Checkpoint(registered={GPU: ()}))
    after = restarted(node)
    assert calls(after.happens("pod_events.synced", [TRAIN])) == []
    assert "train" in refusals(after)
    again = restarted(after)
    again.happens("pod_events.synced", [TRAIN])
    assert "the agent's restart" in refusals(again)["train"]


MIRROR = pod("mirror", gpu=1, config_hash="0" * 32)
STATIC = StaticPod("0" * 32, "default", "mirror")


def test_a_static_pod_after_a_restart() -> None:
    node = scenario(waits_for_runtime=True)
    node.happens("pod_events.static_pods_listed", [STATIC])
    failed(node, MIRROR)
    after = restarted(node, waits_for_runtime=True)
    assert calls(after.happens("pod_events.synced", [MIRROR])) == []
    assert set(refusals(after)) == {STATIC.uid}


def test_a_static_pod_that_the_runtime_shows_after_the_checkpoint_was_lost() -> None:
    node = recovering(waits_for_runtime=True)
    node.happens("recovered", Checkpoint())
    for _ in range(2):
        node.happens("pod_events.synced", [MIRROR])
    assert calls(node.happens("pod_events.static_pods_listed", [STATIC])) == []
    assert set(refusals(node)) == {STATIC.uid}


def test_a_lost_response_is_not_asked_for_again() -> None:
    node = recovering(waits_for_runtime=True)
    assert calls(node.happens("recovered", Checkpoint((held_by("train", "d0", response=None),)))) == []
    assert calls(node.happens("pod_events.synced", [TRAIN])) == []
    assert calls(everything_changes(node)) == []
    # its container may still run
    assert refusals(node) == {}
    for shown in ({GPU}, set()):
        node.manager.allocate_once.creation_refused("train", "main")
        assert published(node.manager.settle(node.now)) == shown
    assert "lost with the checkpoint" in refusals(node)["train"]
    assert node.held() == {"train/main": ("d0",)}
    node.gone("train")
    assert refusals(node) == {}
