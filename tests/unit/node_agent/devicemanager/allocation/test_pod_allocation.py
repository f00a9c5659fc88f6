"""Which devices a pod's containers get: order, reuse, preferred devices, and all or nothing.

Rows follow the kubelet's own table, where it has one; the intended difference is that a pod stays pending.
"""

import pytest
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreferred
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.resources.devices import Device

from tests.unit.node_agent.devicemanager.pods import GPU, NIC, app, container, init, pod, sidecar
from tests.unit.node_agent.devicemanager.scenario import (
    WITH_PREFERENCES,
    Scenario,
    calls,
    device_ids,
    ids,
    is_saved,
    preferred_calls,
    published,
)


@pytest.mark.kubelet("behaviour 31", "behaviour 32")
@pytest.mark.parametrize(
    ("containers", "held"),
    [
        pytest.param([app("a"), app("b", 2)], {"a": "0", "b": "12"}, id="two apps"),
        pytest.param([init("i"), init("j", 2)], {"i": "0", "j": "01"}, id="init reuses init's"),
        pytest.param([init("i"), app("a", 2)], {"i": "0", "a": "01"}, id="app takes one more"),
        pytest.param([init("i"), app("a"), app("b")], {"i": "0", "a": "0", "b": "1"}, id="no apps share what init had"),
        pytest.param([init("i", 2), sidecar("s"), app("a")], {"i": "01", "s": "0", "a": "1"}, id="they divide it"),
        pytest.param(
            [init("i"), sidecar("s"), sidecar("t"), app("a"), app("b")],
            {"i": "0", "s": "0", "t": "1", "a": "2", "b": "3"},
            id="sidecars and apps pairwise disjoint",
        ),
        pytest.param([sidecar("s"), init("i"), app("a")], {"s": "0", "i": "1", "a": "1"}, id="init after a sidecar"),
        pytest.param([init("i", 4), app("a", 4)], {"i": "0123", "a": "0123"}, id="all, twice"),
    ],
)
def test_init_sidecar_and_app_containers(containers: list[Container], held: dict[str, str]) -> None:
    scenario = Scenario.with_plugin(4).run(pod("p", *containers))
    assert scenario.held() == {f"p/{name}": ids(digits) for name, digits in held.items()}
    assert scenario.reasons() == {}


@pytest.mark.kubelet("behaviour 35")
def test_surplus_of_an_init_container_stays_with_the_pod_until_it_ends() -> None:
    scenario = Scenario.with_plugin(4).run(pod("p", init("i", 4), app("a")), pod("q", gpu=1))
    assert scenario.reasons() == {"q": "NotEnoughDevices"}
    scenario.answer_all(scenario.gone("p"))
    assert scenario.held() == {"q/main": ("d0",)}


@pytest.mark.kubelet("behaviour 29")
def test_resources_are_allocated_in_the_kubelets_order() -> None:
    scenario = Scenario.with_plugin(4, nics=["n0", "n1"])
    effects = scenario.see(pod("p", init("i"), app("a", nic=1)))
    asked = []
    while found := calls(effects):
        (call,) = found
        asked.append((call.resource_name, call.device_ids))
        effects = scenario.answer(call)
    assert asked == [(GPU, ("d0",)), (GPU, ("d0",)), (NIC, ("n0",))]


def test_an_init_containers_device_that_became_unhealthy_is_not_reused() -> None:
    scenario = Scenario.with_plugin(3)
    (call,) = calls(scenario.see(pod("p", init("i", 2), app("a"))))
    (second,) = calls(scenario.answer(call))
    assert second.device_ids == ("d0",)
    scenario.lists([Device("d0", healthy=False), "d1", "d2"])
    scenario.answer_all(scenario.answer(second))
    # devices were chosen again for the whole pod
    assert scenario.held() == {"p/i": ("d1", "d2"), "p/a": ("d1",)}


class TestPreferred:
    """GetPreferredAllocation: a preference, not an order."""

    @pytest.mark.kubelet("behaviour 45")
    @pytest.mark.parametrize(
        ("preferred", "chosen"),
        [
            pytest.param(["d3", "d2"], ("d2", "d3"), id="followed"),
            pytest.param([], ("d0", "d1"), id="none: the call failed or returned nothing"),
            pytest.param(["d3"], ("d0", "d3"), id="too few: the rest is chosen here"),
            pytest.param(["d3", "d2", "d1"], ("d2", "d3"), id="too many: the first are taken"),
            pytest.param(["x", "d3"], ("d0", "d3"), id="unknown ones are passed over"),
            pytest.param(["d3", "d3"], ("d0", "d3"), id="twice the same counts once"),
            pytest.param(["taken", "d1"], ("d0", "d1"), id="one that another pod holds"),
            pytest.param(["sick", "d1"], ("d0", "d1"), id="one that is not healthy"),
        ],
    )
    def test_valid_devices_are_taken_first(self, preferred: list[str], chosen: tuple[str, ...]) -> None:
        scenario = Scenario.with_plugin(["taken"]).run(pod("other", gpu=1))
        scenario.lists(["taken", *device_ids(4), Device("sick", healthy=False)])
        scenario.connect(endpoint=2, options=WITH_PREFERENCES)
        (query,) = preferred_calls(scenario.see(pod("p", gpu=2)))
        (call,) = calls(scenario.prefer(query, *preferred))
        assert call.device_ids == chosen

    @pytest.mark.kubelet("behaviour 44")
    def test_the_call_has_free_devices_required_devices_and_the_whole_size(self) -> None:
        scenario = Scenario.with_plugin(4, options=WITH_PREFERENCES)
        (query,) = preferred_calls(scenario.see(pod("p", init("i"), app("a", 3))))
        assert (query.available, query.must_include, query.size) == (("d0", "d1", "d2", "d3"), (), 1)
        (call,) = calls(scenario.prefer(query, "d2"))
        (query,) = preferred_calls(scenario.answer(call))
        assert (query.available, query.must_include, query.size) == (("d0", "d1", "d2", "d3"), ("d2",), 3)
        (call,) = calls(scenario.prefer(query, "d2", "d3", "d1"))
        assert call.device_ids == ("d1", "d2", "d3")

    def test_no_call_where_nothing_is_to_be_chosen(self) -> None:
        scenario = Scenario.with_plugin(2, options=WITH_PREFERENCES)
        (query,) = preferred_calls(scenario.see(pod("p", init("i"), app("a"))))
        (call,) = calls(scenario.prefer(query))
        # the app container reuses exactly the init container's devices
        assert preferred_calls(effects := scenario.answer(call)) == []
        assert calls(effects)[0].device_ids == ("d0",)

    @pytest.mark.kubelet("scenario 26", "weak spot 1")
    def test_a_device_taken_during_the_call_is_not_allocated_twice(self) -> None:
        scenario = Scenario.with_plugin(2, options=WITH_PREFERENCES)
        (first,) = preferred_calls(scenario.see(pod("p", gpu=1)))
        (second,) = preferred_calls(scenario.see(pod("q", gpu=1)))
        (for_p,) = calls(scenario.prefer(first, "d1"))
        (for_q,) = calls(scenario.prefer(second, "d1"))
        assert (for_p.device_ids, for_q.device_ids) == (("d1",), ("d0",))


class TestShortage:
    def test_a_pod_is_pending_until_a_device_is_free(self) -> None:
        scenario = Scenario.with_plugin(1).run(pod("p", gpu=1))
        assert published(scenario.see(pod("q", gpu=1))) == {GPU}
        (pending,) = scenario.manager.pending(GPU)
        assert (pending.pod_uid, pending.container, pending.reason) == ("q", "main", "NotEnoughDevices")
        assert pending.message == "1 of example.com/gpu needed, but fewer are available"
        scenario.answer_all(scenario.gone("p"))
        assert scenario.held() == {"q/main": ("d0",)}
        assert scenario.manager.pending(GPU) == []

    def test_no_call_for_a_pod_that_cannot_be_served_completely(self) -> None:
        scenario = Scenario.with_plugin(2)
        scenario.plugin([], NIC, 2)
        assert calls(scenario.see(pod("p", gpu=1, nic=1))) == []
        assert (scenario.reasons(), scenario.reasons(NIC)) == ({}, {"p": "NotEnoughDevices"})
        scenario.run(pod("q", gpu=2))
        assert scenario.held() == {"q/main": ("d0", "d1")}

    @pytest.mark.parametrize(
        "late",
        [
            pytest.param(pod("p", init("i", 3), app("a")), id="init asks for more than there is"),
            pytest.param(pod("p", sidecar("s"), app("a", 2)), id="sidecar and app together"),
            pytest.param(pod("p", init("i", 2), app("a", 2), app("b")), id="apps together"),
        ],
    )
    def test_the_sum_over_containers_decides(self, late: Pod) -> None:
        scenario = Scenario.with_plugin(2)
        assert calls(scenario.see(late)) == []
        assert scenario.reasons() == {"p": "NotEnoughDevices"}
        scenario.answer_all(scenario.lists(3))
        assert scenario.reasons() == {}

    def test_first_come_first_served(self) -> None:
        scenario = Scenario.with_plugin(1).run(pod("z", gpu=1)).run(pod("y", gpu=1), pod("x", gpu=1))
        scenario.answer_all(scenario.gone("z"))
        assert scenario.held() == {"y/main": ("d0",)}

    @pytest.mark.kubelet("weak spot 26")
    def test_two_pods_that_request_the_same_pair_of_plugins_with_preferences_never_block_each_other(self) -> None:
        scenario = Scenario.with_plugin(["d0"], options=WITH_PREFERENCES)
        scenario.plugin(["n0"], NIC, 2, options=WITH_PREFERENCES)
        scenario.see(pod("p", app("a"), container("b", nic=1)), pod("q", app("a", nic=1)))
        # both calls are made before either pod has reservations; responses arrive in reverse order
        todo = list(scenario.effects)
        for _ in range(20):
            match todo.pop() if todo else None:
                case CallPreferred() as query:
                    todo += scenario.prefer(query)
                case CallAllocate() as call:
                    todo += scenario.answer(call)
        assert len({key.partition("/")[0] for key in (*scenario.held(), *scenario.held(NIC))}) == 1
        assert len(scenario.reasons() | scenario.reasons(NIC)) == 1


class TestPartlyAllocated:
    @pytest.mark.kubelet("behaviour 37")
    @pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)], ids=["larger", "smaller"])
    def test_a_changed_request_is_rejected_and_reported(self, before: int, after: int) -> None:
        scenario = Scenario.with_plugin(4).run(pod("p", gpu=before))
        held = scenario.held()
        assert calls(scenario.see(pod("p", gpu=after))) == []
        (pending,) = scenario.manager.pending(GPU)
        assert pending.reason == "ChangedRequest"
        assert pending.message == f"container main changed its request from {before} to {after}"
        assert scenario.held() == held

    def test_what_its_own_failure_has_freed_is_no_reason_to_begin_again(self) -> None:
        """Otherwise Allocate would be called for the first container, without end."""
        scenario = Scenario.with_plugin(4).run(pod("p", app("b")))
        (call,) = calls(scenario.see(pod("p", app("a"), app("b", 2))))
        assert calls(scenario.answer(call)) == []
        assert (scenario.held(), scenario.reasons()) == ({"p/b": ("d0",)}, {"p": "ChangedRequest"})

    @pytest.mark.kubelet("behaviour 34")
    def test_only_containers_without_devices_are_allocated(self) -> None:
        again = Scenario.with_plugin(3).run(pod("p", init("i", 2))).restarted()
        again.plugin(3)
        assert not is_saved(again.see(pod("p", init("i", 2))), durable=True)
        again.run(pod("p", init("i", 2), app("a"), app("b", 2)))
        assert again.held() == {"p/i": ("d0", "d1"), "p/a": ("d0",), "p/b": ("d1", "d2")}


def test_a_resource_that_registers_while_a_pod_gets_devices_of_another_one_is_allocated_too() -> None:
    scenario = Scenario.with_plugin(2)
    (call,) = calls(scenario.see(pod("p", gpu=1, nic=1)))
    assert calls(scenario.plugin(["n0"], NIC, endpoint=2)) == []
    (second,) = calls(scenario.answer(call))
    assert second.resource_name == NIC
    scenario.answer(second)
    assert (scenario.held(), scenario.held(NIC)) == ({"p/main": ("d0",)}, {"p/main": ("n0",)})
