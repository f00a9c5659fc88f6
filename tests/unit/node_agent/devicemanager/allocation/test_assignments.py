"""Parts that a scheduler has assigned: taken where they fit, and otherwise a plan of the agent's own, with a report."""

from typing import Any

import pytest
from nodedevice_agent.devicemanager.effects import AssignedParts
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_api.assigned_parts import encode
from nodedevice_api.names import Reason
from nodedevice_api.parts import PartRules, Placement

from tests.unit.node_agent.devicemanager.allocation.test_parts import taken
from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, app, init, parts, pod

# one that binpack would not choose
B: dict[str, Any] = {"main": {"b": 4}}


def assigned(uid: str, of_container: dict[str, Any], *containers: Container, gpu: int = 0, owner: str = "") -> Pod:
    return pod(uid, *containers, gpu=gpu, assigned_parts=encode(owner or uid, {GPU: of_container}))


def outcomes(scenario: Scenario) -> list[tuple[str, str]]:
    return [(e.outcome, e.problem) for e in scenario.effects if isinstance(e, AssignedParts)]


def test_the_assigned_device_is_taken() -> None:
    scenario = Scenario.with_plugin(parts(a=8, b=10)).run(assigned("p", B, gpu=4))
    assert taken(scenario) == {"p/main": {"b": 4}}
    assert outcomes(scenario) == [("used", "")]


@pytest.mark.parametrize(
    "of_container",
    [
        pytest.param({"main": {"b": 3}}, id="fewer than requested"),
        pytest.param({"main": {"b": 40}}, id="more than there are"),
        pytest.param({"main": {"b": 2, "a": 2}}, id="of two devices"),
        pytest.param({"main": {"x": 4}}, id="of an unknown device"),
        pytest.param({"main": {"full": 4}}, id="of a device without free parts"),
        pytest.param({"other": {"b": 4}}, id="of another container"),
    ],
)
def test_what_cannot_be_taken_is_planned_here(of_container: dict[str, Any]) -> None:
    scenario = Scenario.with_plugin(parts(a=8, b=10, full=4)).run(pod("before", gpu=4))
    assert taken(scenario) == {"before/main": {"full": 4}}
    scenario.run(assigned("p", of_container, gpu=4))
    assert taken(scenario)["p/main"] == {"a": 4}
    assert outcomes(scenario) == [("not_fitting", "")]


def test_a_copy_of_another_pods_is_invalid() -> None:
    scenario = Scenario.with_plugin(parts(a=8, b=10)).run(assigned("p", B, gpu=4, owner="original"))
    assert taken(scenario) == {"p/main": {"a": 4}}
    assert outcomes(scenario) == [("invalid", "it is for another pod, of UID 'original'")]


@pytest.mark.parametrize("text", ["{", "null", '{"podUID":"p","parts":{"example.com/gpu":1}}', "x" * 20_000])
def test_what_a_tenant_may_write(text: str) -> None:
    scenario = Scenario.with_plugin(parts(a=8, b=10)).run(pod("p", gpu=4, assigned_parts=text))
    assert taken(scenario) == {"p/main": {"a": 4}}
    assert [outcome for outcome, _ in outcomes(scenario)] == ["invalid"]


def test_several_containers_and_parts_that_are_used_again() -> None:
    of_containers = {"first": {"b": 6}, "one": {"b": 6}, "two": {"a": 2}}
    pods = assigned("p", of_containers, init("first", 6), app("one", 6), app("two", 2))
    scenario = Scenario.with_plugin(parts(a=8, b=6)).run(pods)
    assert taken(scenario) == {"p/first": {"b": 6}, "p/one": {"b": 6}, "p/two": {"a": 2}}
    assert outcomes(scenario) == [("used", "")]


def test_one_container_that_does_not_fit_makes_it_a_plan_for_all() -> None:
    pods = assigned("p", {"one": {"b": 6}, "two": {"b": 6}}, app("one", 6), app("two", 6))
    scenario = Scenario.with_plugin(parts(a=8, b=10)).run(pods)
    assert taken(scenario) == {"p/one": {"a": 6}, "p/two": {"b": 6}}
    assert outcomes(scenario) == [("not_fitting", "")]


def test_a_pod_that_fits_nowhere_waits_all_the_same() -> None:
    scenario = Scenario.with_plugin(parts(a=3, b=3)).run(assigned("p", B, gpu=4))
    assert [w.reason for w in scenario.manager.pending(GPU)] == [Reason.NO_DEVICE_FITS]
    assert outcomes(scenario) == []


@pytest.mark.parametrize("rules", [pytest.param(PartRules(), id="any parts"), pytest.param(None, id="no parts")])
def test_where_any_device_does_an_assignment_means_nothing(rules: PartRules | None) -> None:
    listed = parts(PartRules(Placement.ANY), a=4, b=4) if rules is not None else 8
    scenario = Scenario.with_plugin(listed).run(assigned("p", B, gpu=4))
    assert len(scenario.held()["p/main"]) == 4
    assert outcomes(scenario) == []
