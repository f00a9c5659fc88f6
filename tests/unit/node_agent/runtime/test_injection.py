"""What a container gets when it is created, and why it is refused."""

from collections.abc import Sequence
from typing import Any

import pytest
from nodedevice_agent.devicemanager.container_edits import DeviceFile
from nodedevice_agent.devicemanager.pods import Container, ContainerSettings, Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.runtime import Sandbox
from nodedevice_agent.runtime.injection import Grant, Refusal, requires_plugin
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, sandbox
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, calls, container, held_by, pod

KEY = "required-plugins.noderesource.dev"


def with_plugin(count: int = 2, nics: Sequence[str] = (), **options: Any) -> RuntimeScenario:
    return RuntimeScenario.with_plugin(count, nics, PluginOptions(**options))


def static_refusal(uid: str, config_hash: str) -> Refusal:
    annotations = {KEY: "[ nodedevice ]", "kubernetes.io/config.hash": config_hash}
    answer = with_plugin().injection.decide(Sandbox("s", "p", "default", uid, annotations), "main")
    assert isinstance(answer, Refusal)
    return answer


class TestGrant:
    def test_the_plugins_edits_and_a_mark(self) -> None:
        answer = with_plugin().run(pod("p", gpu=1)).ask("p")
        assert isinstance(answer, Grant)
        assert answer.edits.envs == {"ANSWER": "ok"}
        assert answer.edits.devices == (DeviceFile("/dev/ok", "/dev/null", "rw"),)
        assert answer.edits.annotations[CONTAINER_DEVICES_ANNOTATION].startswith(f"{GPU}=")
        assert [a.device_ids for a in answer.version.allocations] == [("d0",)]

    def test_all_resources_of_a_container_as_one(self) -> None:
        answer = with_plugin(nics=["n0"]).run(pod("p", gpu=1, nic=1)).ask("p")
        assert isinstance(answer, Grant)
        assert [a.resource_name for a in answer.version.allocations] == [GPU, NIC]
        marks = [mark.partition("=") for mark in answer.edits.annotations[CONTAINER_DEVICES_ANNOTATION].split(",")]
        assert [name for name, _, fingerprint in marks if fingerprint] == [GPU, NIC]

    def test_each_container_its_own(self) -> None:
        scenario = with_plugin().run(pod("p", container("one", gpu=1), container("two", gpu=1), container("none")))
        found = [scenario.ask("p", name) for name in ("one", "two")]
        held = [a.device_ids for g in found if isinstance(g, Grant) for a in g.version.allocations]
        assert held == [("d0",), ("d1",)]
        assert scenario.ask("p", "none", held=True) is None

    def test_after_a_restart_without_the_api(self) -> None:
        after = with_plugin().run(pod("p", container("one", gpu=1), container("none"))).rebooted()
        assert isinstance(after.ask("p", "one", held=True), Grant)
        assert after.ask("p", "none", held=True) is None


class TestPodSettings:
    """What the pod sets itself: the plugin answers with an environment variable ANSWER and a device."""

    def asking(self, *answers: bytes, **own: Any) -> RuntimeScenario:
        """A pod that asks for one of each resource, and is answered so."""
        scenario = with_plugin(nics=["n0"])
        limits = {GPU: 1, NIC: 1} if len(answers) > 1 else {GPU: 1}
        todo = scenario.see(pod("p", Container("main", limits=limits, settings=ContainerSettings(**own))))
        for answer in answers:
            (call,) = calls(todo)
            todo = scenario.answer(call, answer)
        return scenario

    def given(self, scenario: RuntimeScenario) -> Grant:
        answer = scenario.ask("p")
        assert isinstance(answer, Grant), answer
        return answer

    @pytest.mark.parametrize(
        ("answers", "own", "omitted"),
        [
            pytest.param([b"ok"], {"envs": frozenset({"ANSWER"})}, ("env ANSWER",), id="its variable"),
            pytest.param([b"one", b"two"], {"envs": frozenset({"ANSWER"})}, ("env ANSWER",), id="conflicting plugins"),
            pytest.param([b"mount /coll/"], {"paths": frozenset({"/coll"})}, ("mount /coll/",), id="its volume"),
        ],
    )
    def test_win_over_the_plugins(self, answers: list[bytes], own: dict[str, Any], omitted: tuple[str, ...]) -> None:
        given = self.given(self.asking(*answers, **own))
        assert (given.edits.envs, given.edits.mounts, given.omitted) == ({}, (), omitted)

    @pytest.mark.parametrize(("is_privileged", "permissions"), [(False, "rw"), (True, "rwm")])
    def test_a_privileged_container_has_all_permissions(self, is_privileged: bool, permissions: str) -> None:
        (device,) = self.given(self.asking(b"ok", is_privileged=is_privileged)).edits.devices
        assert device.permissions == permissions

    @pytest.mark.parametrize(("answer", "doubtful"), [(b"ok", "variable ANSWER"), (b"mount /coll", "mount /coll")])
    def test_that_are_not_all_known_stop_a_container_that_gets_settings(self, answer: bytes, doubtful: str) -> None:
        found = self.asking(answer, is_whole=False).injection.decide(sandbox("p", False), "main")
        assert isinstance(found, Refusal)
        assert f"cannot know whether {doubtful} of the device plugin is among them" in found.message
        assert "set at most 512" in found.message


class TestAPodWhoseRequestsAreNotKnown:
    """No container of it starts without a device that it may have asked for."""

    def test_its_containers_are_refused_with_the_reason(self) -> None:
        found = with_plugin().run(Pod("p", "default", "p", (), unread="it is odd")).refusal("p")
        message = "the requests of pod default/p for devices are not known: it is odd; split it into smaller pods"
        assert (found.message, found.is_temporary) == (message, False)

    def test_it_keeps_what_it_holds(self) -> None:
        scenario = with_plugin().run(pod("p", gpu=1))
        scenario.see(Pod("p", "default", "p", (), unread="it is odd"))
        assert isinstance(scenario.ask("p"), Grant)
        assert isinstance(scenario.ask("p", "other"), Refusal)


def test_no_decision_where_nothing_here_is_asked_for() -> None:
    asking = pod("p", gpu=1)
    for held in (False, True):
        assert with_plugin().run(pod("p")).ask("p", held=held) is None
    assert with_plugin().ask("stranger") is None, "a pod that is not known, and not held"
    assert RuntimeScenario().run(asking).ask("p") is None, "not registered"
    assert RuntimeScenario(kubelets=frozenset({GPU})).run(asking).ask("p", held=True) is None, "the kubelet's"


class TestRefused:
    def refused(self, scenario: RuntimeScenario, *words: str, soon: bool = False) -> None:
        refusal = scenario.refusal("p", "main", held=True)
        assert all(word in refusal.message for word in words), refusal.message
        assert refusal.is_temporary == soon

    def test_an_unknown_pod(self) -> None:
        self.refused(with_plugin(), "default/p", "API server", soon=True)

    def test_a_static_pod_whose_author_chose_its_uid(self) -> None:
        """The API never shows it, because it has another UID there: waiting does not help."""
        chosen = "11111111-2222-3333-4444-555555555555"
        refusal = static_refusal(chosen, chosen)
        assert "static pod default/p " in refusal.message
        assert "remove metadata.uid from the manifest" in refusal.message
        assert not refusal.is_temporary

    @pytest.mark.parametrize("config_hash", ["0123456789abcdef0123456789abcdef", "another"])
    def test_another_static_pod_may_still_come(self, config_hash: str) -> None:
        refusal = static_refusal("0123456789abcdef0123456789abcdef", config_hash)
        assert "API server" in refusal.message
        assert refusal.is_temporary

    def test_not_registered(self) -> None:
        self.refused(RuntimeScenario().run(pod("p", gpu=1)), GPU, "no device plugin has registered")

    @pytest.mark.kubelet("weak spot 27")
    def test_no_device_is_free(self) -> None:
        scenario = with_plugin(1).run(pod("q", gpu=1), pod("p", gpu=1))
        self.refused(scenario, "container main has no", GPU, "NotEnoughDevices")

    def test_an_allocation_in_progress(self) -> None:
        scenario = with_plugin()
        scenario.see(pod("p", gpu=1))
        self.refused(scenario, GPU, "in progress", soon=True)

    def test_the_plugin_refused(self) -> None:
        scenario = with_plugin()
        (call,) = calls(scenario.see(pod("p", gpu=1)))
        scenario.fail(call, "the fan is broken")
        self.refused(scenario, "the fan is broken", "AllocateFailed")

    def test_the_plugin_is_disconnected(self) -> None:
        scenario = with_plugin()
        scenario.disconnect()
        scenario.run(pod("p", gpu=1))
        self.refused(scenario, "EndpointStopped")

    def test_a_terminating_pod(self) -> None:
        self.refused(with_plugin().run(pod("p", gpu=1, is_terminating=True)), "is terminating")

    def test_a_pod_that_is_over(self) -> None:
        scenario = with_plugin()
        scenario.sync()
        scenario.run(pod("p", gpu=1))
        scenario.create("p")
        scenario.gone("p")
        self.refused(scenario, "is over")

    def test_while_allocations_are_being_recovered(self) -> None:
        scenario = RuntimeScenario.with_plugin(1, is_recovering=True)
        scenario.see(pod("p", gpu=1))
        self.refused(scenario, "checkpoint was lost")

    def test_a_lost_response(self) -> None:
        scenario = RuntimeScenario(Checkpoint((held_by("p", "d0", response=None),), {GPU: ()}))
        self.refused(scenario, "was lost with the checkpoint", soon=True)
        scenario.answer_all(scenario.plugin(1))
        assert isinstance(scenario.ask("p"), Grant)

    def test_a_lost_response_that_is_not_asked_for_again(self) -> None:
        lost = Checkpoint((held_by("p", "d0", response=None),), {GPU: ()})
        scenario = RuntimeScenario(lost, allocate_retry={GPU: "never"})
        assert calls(scenario.plugin(1)) == []
        self.refused(scenario, "cannot start again", "delete the pod", "was lost with the checkpoint")

    @pytest.mark.kubelet("weak spot 24")
    def test_conflicting_plugins(self) -> None:
        scenario = with_plugin(nics=["n0"])
        (call,) = calls(scenario.see(pod("p", gpu=1, nic=1)))
        (second,) = calls(scenario.answer(call, b"one"))
        scenario.answer(second, b"two")
        self.refused(scenario, GPU, NIC, "env ANSWER")

    def test_an_invalid_response(self) -> None:
        scenario = RuntimeScenario(Checkpoint((held_by("p", "d0", response=b"\xff"),), {GPU: ()}))
        scenario.plugin(["d0"])
        scenario.see(pod("p", gpu=1))
        self.refused(scenario, "is invalid", "AllocResp cannot be decoded (1 bytes)")


@pytest.mark.parametrize(
    ("annotations", "is_held"),
    [
        pytest.param({}, False, id="none"),
        pytest.param({KEY: "[ nodedevice ]"}, True, id="list"),
        pytest.param({KEY: "- other\n- nodedevice"}, True, id="block list"),
        pytest.param({KEY: '["other", "nodedevice"]'}, True, id="quoted"),
        pytest.param({KEY: "[ other ]"}, False, id="another's"),
        pytest.param({KEY: "[ nodedevice-gpu ]"}, False, id="a longer name"),
        pytest.param({f"{KEY}/container.main": "[ nodedevice ]"}, True, id="container"),
        pytest.param({f"{KEY}/container.other": "[ nodedevice ]"}, False, id="another container"),
        pytest.param({KEY: "[ nodedevice ]", f"{KEY}/container.main": "[]"}, False, id="nearest counts"),
        pytest.param({f"{KEY}/pod": "[ nodedevice ]"}, True, id="pod"),
    ],
)
def test_requires_plugin(annotations: dict[str, str], is_held: bool) -> None:
    assert requires_plugin(Sandbox("s", "p", "default", "uid", annotations), "main") == is_held
