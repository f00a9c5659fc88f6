"""Cordons outlive the object that they were set on, and no longer than that they are honoured once more in the next one."""

import pytest
from nodedevice_agent.devicemanager.allocation.allocations import Checkpoint
from nodedevice_agent.devicemanager.effects import Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.resources.cordons import NO_CORDONS, Cordons
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.kube.observed import cordons_of
from nodedevice_agent.kubelet.mirror import Mirror

from tests.unit.node_agent.devicemanager.scenario import (
    GPU,
    NIC,
    Scenario,
    calls,
    is_saved,
    parts,
    pod,
    published,
    status,
)

FAN = {"d0": "fan"}
SET = Cordons("u1", FAN)
KEPT = Cordons("", {}, FAN)


@pytest.mark.parametrize(
    ("before", "uid", "in_spec", "after"),
    [
        pytest.param(NO_CORDONS, "u1", FAN, SET, id="set"),
        pytest.param(SET, "u1", {}, Cordons("u1"), id="removed by an administrator"),
        pytest.param(SET, "", {}, KEPT, id="the object is deleted"),
        pytest.param(SET, "u2", {}, Cordons("u2", {}, FAN), id="another object in its place"),
        pytest.param(SET, "u2", {"d0": "x"}, Cordons("u2", {"d0": "x"}), id="another that has it already"),
        pytest.param(KEPT, "", {}, KEPT, id="there is still none"),
        pytest.param(KEPT, "u2", {}, Cordons("u2", {}, FAN), id="a new object"),
        pytest.param(KEPT, "u2", {"d1": ""}, Cordons("u2", {"d1": ""}, FAN), id="a new one with another cordon"),
        pytest.param(Cordons("u2", {}, FAN), "u2", {}, Cordons("u2", {}, FAN), id="not set again yet"),
        pytest.param(Cordons("u2", {}, FAN), "u2", FAN, Cordons("u2", FAN), id="set again"),
        pytest.param(
            Cordons("u2", {"d1": ""}, FAN), "u3", {}, Cordons("u3", {}, {**FAN, "d1": ""}), id="and deleted again"
        ),
    ],
)
def test_after_the_object_was_seen(before: Cordons, uid: str, in_spec: dict[str, str], after: Cordons) -> None:
    assert before.seen(uid, in_spec) == after


def test_the_word_for_all_is_honoured_where_it_is_remembered() -> None:
    assert Cordons("u", {}, {"all": ""}).device_ids == {"all", "*"}


def cordoned() -> Scenario:
    scenario = Scenario.with_plugin(2)
    scenario.cordon(GPU, ["d0"], "u1")
    return scenario


def test_a_device_stays_out_of_service_without_its_object() -> None:
    scenario = cordoned()
    assert scenario.cordon(GPU, [], "") == [SaveCheckpoint(durable=False), Publish(GPU)]
    assert (scenario.snapshot().cordoned, scenario.snapshot().available) == (1, 1)
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    assert call.device_ids == ("d1",)
    assert scenario.snapshot().remembered_cordons == (("d0", ""),)
    assert status(scenario, {}, "now")["rememberedCordons"] == [{"id": "d0"}]


def test_the_reason_is_shown_and_what_is_shown_is_read() -> None:
    scenario = Scenario.with_plugin(2)
    scenario.happens("cordoned", GPU, "u1", {**FAN, "*": ""})
    scenario.happens("cordoned", GPU, "u2", {})
    shown = status(scenario, {}, "now")["rememberedCordons"]
    assert shown == [{"id": "*"}, {"id": "d0", "reason": "fan"}]
    assert cordons_of(shown) == {**FAN, "*": ""}


def test_is_free_once_it_was_set_again_and_removed() -> None:
    scenario = cordoned()
    scenario.cordon(GPU, [], "u2")
    assert published(scenario.cordon(GPU, ["d0"], "u2")) == {GPU}
    assert scenario.snapshot().remembered_cordons == ()
    assert is_saved(scenario.cordon(GPU, [], "u2"), durable=False)
    assert scenario.snapshot().available == 2
    assert scenario.manager.checkpoint().cordons == {}


def test_survives_a_restart_and_is_not_removed_by_a_new_object() -> None:
    after = Scenario(cordoned().manager.checkpoint(), waits_for_cordons=True)
    after.plugin(["d0", "d1"])
    assert after.snapshot().cordoned == 1
    after.cordon(GPU, [], "u2")
    assert (after.snapshot().cordoned, after.snapshot().available) == (1, 1)


def test_survives_while_no_plugin_serves_the_resource() -> None:
    before = Scenario(Checkpoint(cordons={GPU: SET}))
    after = Scenario(before.manager.checkpoint())
    after.plugin(["d0", "d1"])
    assert after.snapshot().cordoned == 1


def test_a_cordon_removed_while_the_agent_was_away_is_not_kept() -> None:
    after = Scenario(cordoned().manager.checkpoint(), waits_for_cordons=True)
    after.plugin(["d0", "d1"])
    after.cordon(GPU, [], "u1")
    assert (after.snapshot().cordoned, after.snapshot().available) == (0, 2)


def test_is_recovered_with_a_lost_checkpoint() -> None:
    scenario = Scenario(is_recovering=True, waits_for_cordons=True)
    scenario.plugin(["d0", "d1"])
    scenario.happens("recovered", Checkpoint((), {GPU: ()}, cordons={GPU: Cordons("u1", {}, FAN)}))
    scenario.cordon(GPU, [], "u1")
    assert scenario.snapshot().available == 1
    mirror = Mirror(0.0, is_recovering=True)
    mirror.recovered(Checkpoint((), {GPU: ()}, cordons={GPU: SET}), 0.0)
    assert mirror.cordons == {GPU: SET}


def test_equal_cordons_of_a_new_object_are_saved_and_change_nothing_else() -> None:
    scenario = cordoned()
    assert scenario.cordon(GPU, ["d0"], "u1") == []
    assert is_saved(scenario.cordon(GPU, ["d0"], "u2"), durable=False)


def test_none_of_a_resource_that_is_not_known() -> None:
    scenario = cordoned()
    assert scenario.cordon(NIC, ["d0"], "u1") == []
    assert scenario.manager.checkpoint().cordons.keys() == {GPU}


@pytest.mark.parametrize(
    ("cordons", "unknown"),
    [(["d0"], ()), (["d7", "d8", "d9", "x"], ("d7", "d8", "d9")), (["*", "all"], ()), ([], ())],
)
def test_cordons_of_no_device(cordons: list[str], unknown: tuple[str, ...]) -> None:
    scenario = Scenario.with_plugin(2)
    scenario.cordon(GPU, cordons)
    assert scenario.snapshot().unknown_cordons == unknown


def test_a_held_device_that_is_not_listed_is_known() -> None:
    scenario = Scenario.with_plugin(2).run(pod("p", gpu=1))
    scenario.plugin(["d1"], endpoint=2)
    scenario.cordon(GPU, ["d0"])
    assert scenario.snapshot().unknown_cordons == ()


def test_what_the_checkpoint_has_already_is_not_saved_again() -> None:
    again = cordoned().restarted(waits_for_cordons=True)
    effects = again.cordon(GPU, ["d0"], "u1")
    assert published(effects) == {GPU}
    assert not is_saved(effects, durable=False)


class TestParts:
    """A cordon of a physical device is one of all its parts; that of a part is of it alone."""

    def test_a_physical_device(self) -> None:
        scenario = Scenario.with_plugin(parts(a=2, b=3)).run(pod("p", gpu=2))
        scenario.cordon(GPU, ["a"])
        now = scenario.snapshot()
        assert (now.cordoned, now.allocated, now.available, now.unknown_cordons) == (2, 2, 3, ())
        scenario.gone("p")
        assert scenario.snapshot().available == 3
        (call,) = calls(scenario.see(pod("q", gpu=1)))
        assert call.device_ids == ("b-0",)
        scenario.answer(call)
        # the last cordon is removed: the fullest comes first again
        scenario.cordon(GPU, [])
        assert scenario.run(pod("r", gpu=2)).held()["r/main"] == ("a-0", "a-1")

    def test_a_part(self) -> None:
        scenario = Scenario.with_plugin(parts(a=3))
        scenario.cordon(GPU, ["a-1", "a-7", "c"])
        now = scenario.snapshot()
        assert (now.cordoned, now.available, now.unknown_cordons) == (1, 2, ("a-7", "c"))
        assert scenario.run(pod("p", gpu=2)).held() == {"p/main": ("a-0", "a-2")}

    def test_parts_that_are_listed_later(self) -> None:
        scenario = Scenario.with_plugin(parts(a=1))
        scenario.cordon(GPU, ["b"])
        assert scenario.snapshot().unknown_cordons == ("b",)
        scenario.lists(parts(a=1, b=1))
        now = scenario.snapshot()
        assert (now.cordoned, now.available, now.unknown_cordons) == (1, 1, ())

    def test_held_parts_that_are_not_listed_any_more(self) -> None:
        scenario = Scenario.with_plugin(parts(a=2, b=1)).run(pod("p", gpu=2))
        scenario.cordon(GPU, ["a"])
        scenario.lists(parts(b=1))
        now = scenario.snapshot()
        assert (now.total, now.cordoned, now.unknown_cordons) == (3, 2, ())
        assert [device.id for device in now.devices if device.cordoned] == ["a"]

    def test_held_parts_that_were_not_listed_since_the_restart(self) -> None:
        scenario = Scenario.with_plugin(parts(a=2, b=1)).run(pod("p", gpu=2)).restarted()
        scenario.plugin(parts(b=1))
        scenario.cordon(GPU, ["a"])
        now = scenario.snapshot()
        assert (now.total, now.cordoned, now.unknown_cordons) == (3, 2, ())

    def test_a_pod_that_waits_gets_parts_when_the_cordon_is_removed(self) -> None:
        scenario = Scenario.with_plugin(parts(a=2, b=1))
        scenario.cordon(GPU, ["a"])
        assert calls(scenario.see(pod("p", gpu=2))) == []
        (call,) = calls(scenario.cordon(GPU, []))
        assert call.device_ids == ("a-0", "a-1")

    def test_instances_of_a_physical_device(self) -> None:
        scenario = Scenario.with_plugin([Device("MIG-1", parent="GPU-a"), Device("MIG-2", parent="GPU-b")])
        scenario.cordon(GPU, ["GPU-a"])
        now = scenario.snapshot()
        assert (now.cordoned, now.available, now.unknown_cordons) == (1, 1, ())
        assert [device.id for device in now.devices if device.cordoned] == ["MIG-1"]
