"""Cordons outlive the object that they were set on, and no longer than that they are honoured once more in the next one."""

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.effects import Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import NO_CORDONS, Cordon, Cordons, noted
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.kube.observed import cordons_of, observed_status

from tests.fakes.settled import attributing
from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, calls, is_saved, parts, pod, published, status

NOON = "2026-01-01T12:00:00Z"
FAN = {"d0": Cordon("fan", "alice", NOON)}
NOTHING = Cordon()
OTHER = {"d1": NOTHING}
SET = Cordons("u1", FAN)
KEPT = Cordons("", {}, FAN)


@pytest.mark.parametrize(
    ("before", "uid", "in_spec", "after"),
    [
        pytest.param(NO_CORDONS, "u1", FAN, SET, id="set"),
        pytest.param(SET, "u1", {}, Cordons("u1"), id="removed by an administrator"),
        pytest.param(SET, "u1", {"d0": NOTHING}, Cordons("u1", {"d0": NOTHING}), id="noted otherwise"),
        pytest.param(SET, "", {}, KEPT, id="the object is deleted"),
        pytest.param(SET, "u2", {}, Cordons("u2", {}, FAN), id="another object in its place"),
        pytest.param(SET, "u2", {"d0": NOTHING}, Cordons("u2", {"d0": NOTHING}), id="another that has it already"),
        pytest.param(KEPT, "", {}, KEPT, id="there is still none"),
        pytest.param(KEPT, "u2", {}, Cordons("u2", {}, FAN), id="a new object"),
        pytest.param(KEPT, "u2", OTHER, Cordons("u2", OTHER, FAN), id="a new one with another cordon"),
        pytest.param(Cordons("u2", {}, FAN), "u2", {}, Cordons("u2", {}, FAN), id="not set again yet"),
        pytest.param(Cordons("u2", {}, FAN), "u2", FAN, Cordons("u2", FAN), id="set again"),
        pytest.param(Cordons("u2", OTHER, FAN), "u3", {}, Cordons("u3", {}, FAN | OTHER), id="and deleted again"),
    ],
)
def test_after_the_object_was_seen(before: Cordons, uid: str, in_spec: dict[str, Cordon], after: Cordons) -> None:
    assert before.seen(uid, in_spec) == after


def test_the_word_for_all_is_honoured_where_it_is_remembered() -> None:
    assert Cordons("u", {}, {"all": NOTHING}).device_ids == {"all", "*"}


LONGEST_TIME = "2026-01-01T12:00:00.123456789+01:00"


@pytest.mark.parametrize(
    ("by", "at", "cordon"),
    [
        pytest.param("alice", NOON, Cordon("fan", "alice", NOON), id="both"),
        pytest.param(None, None, Cordon("fan"), id="neither"),
        pytest.param("x" * 128, LONGEST_TIME, Cordon("fan", "x" * 128, LONGEST_TIME), id="the longest"),
        pytest.param("x" * 129, f"{NOON[:-1]}.{'1' * 20}Z", Cordon("fan"), id="too long"),
        pytest.param("a\nb", f"{NOON}\n", Cordon("fan"), id="a line break"),
        pytest.param("\x7f", "2026-01-01", Cordon("fan"), id="a control character, and a day"),
        pytest.param(7, 7, Cordon("fan"), id="numbers"),
        pytest.param(["alice"], [NOON], Cordon("fan"), id="lists"),
        pytest.param("é ☃", "2026-01-01t12:00:00z", Cordon("fan", "é ☃", "2026-01-01t12:00:00z"), id="unusual"),
        pytest.param("", "yesterday", Cordon("fan"), id="a word"),
        pytest.param("", "2026-01-01T12:00:00", Cordon("fan"), id="no time zone"),
        pytest.param("", "2026-02-30T12:00:00Z", Cordon("fan"), id="no such day"),
        pytest.param("", "2026-01-01T24:01:00Z", Cordon("fan"), id="no such hour"),
        pytest.param("", "٢٠٢٦-01-01T12:00:00Z", Cordon("fan"), id="digits of another script"),
    ],
)
def test_a_note_that_the_api_would_refuse_is_dropped(by: object, at: object, cordon: Cordon) -> None:
    assert noted("fan", by, at) == cordon
    assert noted("r" * 1025, by, at) == replace(cordon, reason="r" * 1024)


@pytest.mark.parametrize(
    ("cordons", "by"),
    [
        pytest.param(NO_CORDONS, "", id="none"),
        pytest.param(Cordons("u", {"d0": Cordon("fan")}), "", id="not noted"),
        pytest.param(Cordons("u", {"d0": Cordon(by="alice"), "*": Cordon(by="bob")}), "alice", id="its own first"),
        pytest.param(Cordons("u", {}, {"d0": Cordon(by="alice")}), "alice", id="remembered"),
        pytest.param(Cordons("u", {"all": Cordon(by="bob"), "GPU": Cordon(by="alice")}), "alice", id="its parent's"),
        pytest.param(Cordons("u", {"d0": NOTHING}, {"all": Cordon(by="bob")}), "bob", id="the word for all"),
        pytest.param(Cordons("u", {"d1": Cordon(by="bob")}), "", id="another's"),
    ],
)
def test_who_cordoned_a_device(cordons: Cordons, by: str) -> None:
    assert cordons.by("d0", "GPU") == by


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
    assert scenario.snapshot().remembered_cordons == (("d0", NOTHING),)
    assert status(scenario, {}, "now")["rememberedCordons"] == [{"id": "d0"}]


def test_the_notes_are_shown_and_what_is_shown_is_read() -> None:
    scenario = Scenario.with_plugin(2)
    scenario.happens("table.cordoned", GPU, "u1", {**FAN, "*": NOTHING})
    scenario.happens("table.cordoned", GPU, "u2", {})
    shown = status(scenario, {}, "now")["rememberedCordons"]
    assert shown == [{"id": "*"}, {"id": "d0", "reason": "fan", "by": "alice", "at": NOON}]
    assert cordons_of(observed_status({"rememberedCordons": shown}).remembered_cordons) == {**FAN, "*": NOTHING}


def test_who_cordoned_it_is_shown_of_each_device() -> None:
    scenario = Scenario.with_plugin(3)
    scenario.happens("table.cordoned", GPU, "u1", {**FAN, "d1": NOTHING})
    shown = [(d.get("cordonedSince"), d.get("cordonedBy")) for d in status(scenario, {}, "now")["devices"]]
    assert shown == [("now", "alice"), ("now", None), (None, None)]
    scenario.happens("table.cordoned", GPU, "u2", {"*": Cordon(by="bob")})
    assert [d["cordonedBy"] for d in status(scenario, {}, "now")["devices"]] == ["alice", "bob", "bob"]


def test_is_free_once_it_was_set_again_and_removed() -> None:
    scenario = cordoned()
    scenario.cordon(GPU, [], "u2")
    assert published(scenario.cordon(GPU, ["d0"], "u2")) == {GPU}
    assert scenario.snapshot().remembered_cordons == ()
    assert is_saved(scenario.cordon(GPU, [], "u2"), durable=False)
    assert scenario.snapshot().available == 2
    assert scenario.manager.checkpoint().cordons == {}


@pytest.mark.parametrize("is_served", [True, False])
def test_survives_a_restart_and_is_not_removed_by_a_new_object(is_served: bool) -> None:
    before = cordoned() if is_served else Scenario(Checkpoint(cordons={GPU: SET}))
    after = before.restarted(waits_for_cordons=True)
    after.plugin(["d0", "d1"])
    assert after.snapshot().cordoned == 1
    after.cordon(GPU, [], "u2")
    assert (after.snapshot().cordoned, after.snapshot().available) == (1, 1)


@pytest.mark.parametrize("in_spec", [{}, OTHER])
@pytest.mark.parametrize("is_seen_first", [True, False])
def test_is_recovered_with_a_lost_checkpoint(is_seen_first: bool, in_spec: dict[str, Cordon]) -> None:
    scenario = Scenario.with_plugin(3, is_recovering=True, waits_for_cordons=True)
    if is_seen_first:
        scenario.happens("table.cordoned", GPU, "u1", in_spec)
    scenario.happens("recovered", Checkpoint((), {GPU: ()}, cordons={GPU: Cordons("u1", {}, FAN)}))
    scenario.happens("table.cordoned", GPU, "u1", in_spec)
    assert scenario.snapshot().available == 2 - len(in_spec)
    mirror = attributing(0.0, is_recovering=True)
    mirror.recovered(Checkpoint((), {GPU: ()}, cordons={GPU: SET}), 0.0)
    assert mirror.cordons == {GPU: SET}


@pytest.mark.parametrize("waits", [True, False])
def test_cordons_that_may_have_changed_are_waited_for(waits: bool) -> None:
    scenario = Scenario.with_plugin(2, waits_for_cordons=waits)
    scenario.cordon(GPU, ["d0"])
    scenario.manager.table.cordons_outdated(GPU)
    scenario.manager.table.cordons_outdated("example.com/unknown")
    asked = calls(scenario.see(pod("p", gpu=1)))
    if waits:
        assert (asked, scenario.reasons()) == ([], {"p": "CordonsNotSynced"})
        # the same ones again
        asked = calls(scenario.cordon(GPU, ["d0"]))
    assert [call.device_ids for call in asked] == [("d1",)]


@pytest.mark.parametrize(
    ("cordons", "unknown"), [(["d0"], ()), (["d7", "d8", "d9", "x"], ("d7", "d8", "d9")), (["*", "all"], ()), ([], ())]
)
def test_cordons_of_no_device(cordons: list[str], unknown: tuple[str, ...]) -> None:
    scenario = Scenario.with_plugin(2)
    scenario.cordon(GPU, cordons)
    assert scenario.snapshot().unknown_cordons == unknown


def test_another_id_of_a_device_is_known() -> None:
    scenario = Scenario.with_plugin([Device("port", aliases=("serial",))])
    scenario.cordon(GPU, ["port", "serial", "x"])
    assert (scenario.snapshot().cordoned, scenario.snapshot().unknown_cordons) == (1, ("x",))


def test_a_cordoned_device_goes_by_the_id_that_is_cordoned() -> None:
    scenario = Scenario()
    scenario.connect()
    scenario.cordon(GPU, ["serial"])
    scenario.lists([Device("port", aliases=("serial",))])
    assert [*scenario.manager.resources[GPU].devices] == ["serial"]


def test_a_cordon_of_another_id_is_one_of_a_held_device() -> None:
    others = [Device("z", aliases=("other",))]
    scenario = Scenario.with_plugin([Device("port", aliases=("serial",)), *others]).run(pod("p", gpu=1))
    assert scenario.held() == {"p/main": ("port",)}
    scenario.cordon(GPU, ["serial"])
    seen = scenario.snapshot()
    assert ([view.id for view in seen.devices if view.cordoned], seen.cordoned, seen.available) == (["port"], 1, 1)
    # also when it is not listed any more
    scenario.lists(others)
    scenario.cordon(GPU, ["port"])
    assert [view.id for view in scenario.snapshot().devices if view.cordoned] == ["port"]


def test_who_cordoned_no_device_is_named() -> None:
    scenario = Scenario.with_plugin(2)
    scenario.happens("table.cordoned", GPU, "u1", {"d7": Cordon(by="alice"), "d8": NOTHING})
    assert scenario.registered()["message"] == (
        "spec.cordonedDevices has IDs that the device plugin does not list: d7 (by alice), d8; correct or remove them"
    )


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

    def test_held_parts_that_were_not_listed_since_the_restart(self) -> None:
        scenario = Scenario.with_plugin(parts(a=2, b=1)).run(pod("p", gpu=2)).restarted()
        scenario.plugin(parts(b=1))
        scenario.cordon(GPU, ["a"])
        now = scenario.snapshot()
        assert (now.total, now.cordoned, now.unknown_cordons) == (3, 2, ())

    def test_instances_of_a_physical_device(self) -> None:
        scenario = Scenario.with_plugin([Device("MIG-1", parent="GPU-a"), Device("MIG-2", parent="GPU-b")])
        scenario.cordon(GPU, ["GPU-a"])
        now = scenario.snapshot()
        assert (now.cordoned, now.available, now.unknown_cordons) == (1, 1, ())
        assert [device.id for device in now.devices if device.cordoned] == ["MIG-1"]
        scenario.happens("table.cordoned", GPU, "u1", {"GPU-a": Cordon(by="alice")})
        assert [d.get("cordonedBy") for d in status(scenario, {}, "now")["devices"]] == ["alice", None]
