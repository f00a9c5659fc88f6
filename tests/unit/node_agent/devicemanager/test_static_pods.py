"""Static pods: a mirror pod counts as theirs by what the runtime shows, and by nothing that a tenant can write."""

from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import structs
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.runtime import Sandbox
from nodedevice_agent.devicemanager.static_pods import StaticPod, StaticPods
from nodedevice_agent.runtime.injection import Grant

from tests.examples import examples
from tests.unit.node_agent.devicemanager.pods import HASH, mirror_pod, pod
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.runtime_scenario import container as running
from tests.unit.node_agent.devicemanager.scenario import ENDS, Scenario, held_by, is_saved, status
from tests.unit.node_agent.kube.crd_rules import problems

HASHES = [f"{number:032x}" for number in range(8)]


def sandbox(config_hash: str = HASH, name: str = "static") -> Sandbox:
    return Sandbox(f"sandbox-{config_hash}-1", name, "default", config_hash)


def connected(devices: int = 8) -> RuntimeScenario:
    scenario = RuntimeScenario.synced()
    scenario.plugin(devices)
    return scenario


def show(scenario: RuntimeScenario, shown: Sandbox | None = None) -> None:
    """The runtime is about to create a container of the static pod."""
    scenario.runtime.sandbox_shown(shown or sandbox(), scenario.now)
    scenario.answer_all(scenario.settled())


def with_static_pod(devices: int = 8) -> RuntimeScenario:
    """It runs with its device."""
    scenario = connected(devices).run(mirror_pod("mirror"))
    show(scenario)
    scenario.create(HASH)
    return scenario


def shown_uids(scenario: Scenario) -> list[str]:
    seen = status(scenario, {}, "2026-01-02T03:04:05Z")
    assert problems(seen) == []
    return [entry["podUID"] for entry in seen["allocations"]]


class TestAttacks:
    """By one who may create pods with spec.nodeName, and patch their annotations."""

    def test_ever_new_hashes_are_one_pod_where_no_runtime_shows_anything(self) -> None:
        scenario = Scenario.with_plugin(8).run(*(mirror_pod("evil", config_hash) for config_hash in HASHES))
        assert scenario.held() == {"evil/main": ("d0",)}
        assert shown_uids(scenario) == ["evil"]
        scenario.gone("evil")
        assert scenario.held() == {}

    @pytest.mark.parametrize("how", ENDS)
    def test_the_end_of_another_object_ends_no_static_pod(self, how: str) -> None:
        evil = mirror_pod("evil", name="evil")
        scenario = with_static_pod(1).run(evil)
        scenario.answer_all(scenario.ends(evil, how, mirror_pod("mirror")))
        scenario.run(pod("later", gpu=1))
        assert scenario.held() == {f"{HASH}/main": ("d0",)}
        assert scenario.snapshot().releasing == 0
        # its container may be created again
        assert isinstance(scenario.injection.decide(sandbox(), "main"), Grant)

    def test_an_ordinary_pod_stays_one(self) -> None:
        scenario = connected().run(pod("evil", gpu=1))
        show(scenario)
        scenario.run(mirror_pod("evil"))
        assert scenario.held() == {"evil/main": ("d0",)}
        scenario.gone("evil")
        assert scenario.held() == {}

    def test_the_first_hash_of_a_mirror_pod_stays(self) -> None:
        scenario = with_static_pod().run(mirror_pod("mirror", HASHES[1]))
        assert scenario.held() == {f"{HASH}/main": ("d0",)}
        scenario.gone("mirror")
        assert scenario.snapshot().releasing == 1


class TestStaticPod:
    @pytest.mark.parametrize("is_shown_first", [False, True])
    def test_it_gets_its_device_in_any_order(self, is_shown_first: bool) -> None:
        scenario = connected()
        if is_shown_first:
            show(scenario)
        scenario.run(mirror_pod("mirror"))
        if not is_shown_first:
            assert scenario.held() == {}
            show(scenario)
        assert scenario.held() == {f"{HASH}/main": ("d0",)}
        assert shown_uids(scenario) == ["mirror"]
        assert isinstance(scenario.injection.decide(sandbox(), "main"), Grant)

    def test_it_ends_with_its_mirror_pod_and_its_containers(self) -> None:
        scenario = with_static_pod(1)
        scenario.gone("mirror")
        assert scenario.snapshot().releasing == 1
        scenario.end(running(HASH), HASH)
        assert scenario.held() == {}

    def test_a_mirror_pod_that_is_made_again_is_the_same_pod(self) -> None:
        scenario = with_static_pod(1)
        scenario.gone("mirror")
        scenario.run(mirror_pod("mirror-2"))
        assert scenario.snapshot().releasing == 0
        assert shown_uids(scenario) == ["mirror-2"]
        scenario.gone("mirror")
        assert scenario.snapshot().releasing == 0

    def test_a_change_while_it_is_not_proven_counts(self) -> None:
        scenario = connected().run(mirror_pod("mirror"), mirror_pod("mirror", is_terminating=True))
        show(scenario)
        assert scenario.held() == {}

    def test_after_a_reboot_its_device_waits_for_it(self) -> None:
        scenario = with_static_pod(1).rebooted()
        scenario.plugin(1)
        scenario.sync()
        scenario.happens("pod_events.synced", [mirror_pod("mirror"), pod("other", gpu=1)])
        assert scenario.held() == {f"{HASH}/main": ("d0",)}
        assert shown_uids(scenario) == ["mirror"]

    def test_a_checkpoint_without_its_name_is_completed(self) -> None:
        scenario = RuntimeScenario(structs.replace(with_static_pod(1).manager.checkpoint(), static_pods=()))
        scenario.happens("pod_events.synced", [mirror_pod("mirror")])
        effects = scenario.happens("pod_events.static_pods_listed", [StaticPod(HASH, "default", "static")])
        assert is_saved(effects, durable=False)
        assert scenario.snapshot().releasing == 0
        assert scenario.manager.checkpoint().static_pods == (StaticPod(HASH, "default", "static"),)

    def test_what_was_recovered_for_its_mirror_pod_is_saved_as_its_own(self) -> None:
        scenario = RuntimeScenario(Checkpoint((held_by("mirror", "d0"),)))
        scenario.happens("pod_events.static_pods_listed", [StaticPod(HASH, "default", "static")])
        effects = scenario.happens("pod_events.synced", [mirror_pod("mirror"), pod("other")])
        assert (is_saved(effects, durable=False), is_saved(effects, durable=True)) == (True, False)
        assert scenario.held() == {f"{HASH}/main": ("d0",)}


def proven(static_pods: StaticPods, pods: Iterable[Pod]) -> list[str]:
    return [found.uid for found in map(static_pods.seen, pods) if found is not None]


class TestWhatIsRemembered:
    KNOWN = StaticPod(HASH, "default", "static")

    def test_a_removed_sandbox_proves_nothing_once_its_mirror_pod_is_gone(self) -> None:
        found = StaticPods([self.KNOWN])
        assert proven(found, [mirror_pod("a")]) == [HASH]
        found.removed(HASH)
        assert proven(found, [mirror_pod("a")]) == [HASH]
        assert found.gone("a") == HASH
        found.removed(HASH)
        assert proven(found, [mirror_pod("b")]) == []

    @pytest.mark.parametrize(("held", "expected"), [((), []), ((HASH,), [HASH])])
    def test_an_unlisted_one_is_forgotten_unless_it_holds_any(self, held: tuple[str, ...], expected: list[str]) -> None:
        found = StaticPods([self.KNOWN])
        assert found.listed([], held) == []
        assert proven(found, [mirror_pod("a")]) == expected

    def test_another_namespace_is_another_pod(self) -> None:
        assert proven(StaticPods([self.KNOWN]), [structs.replace(mirror_pod("a"), namespace="other")]) == []


class Tenants(RuleBasedStateMachine):
    """Two static pods, and objects that anybody makes, changes and deletes, beside their mirror pods."""

    STATIC = dict(zip(HASHES, ("static-0", "static-1"), strict=False))

    def __init__(self) -> None:
        super().__init__()
        self.scenario = connected(4)
        self.objects: dict[str, Pod] = {}
        self.names = 0
        self.shown: set[str] = set()
        # by hash
        self.mirrors: dict[str, str] = {}

    @rule(config_hash=st.sampled_from(HASHES[:3]), gpu=st.integers(0, 2))
    def tenant_creates(self, config_hash: str, gpu: int) -> None:
        self.names += 1
        uid = f"evil-{self.names}"
        self.objects[uid] = mirror_pod(uid, config_hash, name=uid, gpu=gpu)
        self.scenario.run(self.objects[uid])

    @precondition(lambda self: self.objects)
    @rule(config_hash=st.sampled_from(HASHES[:3]), data=st.data())
    def tenant_patches(self, config_hash: str, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.objects)))
        self.objects[uid] = structs.replace(self.objects[uid], config_hash=config_hash)
        self.scenario.run(self.objects[uid])

    @rule(config_hash=st.sampled_from(HASHES[:2]))
    def kubelet_mirrors(self, config_hash: str) -> None:
        if config_hash not in self.mirrors:
            self.names += 1
            uid = self.mirrors[config_hash] = f"mirror-{self.names}"
            self.objects[uid] = mirror_pod(uid, config_hash, self.STATIC[config_hash])
            self.scenario.run(self.objects[uid])

    @precondition(lambda self: self.objects)
    @rule(data=st.data())
    def deletes(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.objects)))
        del self.objects[uid]
        self.mirrors = {config_hash: of for config_hash, of in self.mirrors.items() if of != uid}
        self.scenario.answer_all(self.scenario.gone(uid))

    @rule()
    def lists(self) -> None:
        self.scenario.answer_all(self.scenario.happens("pod_events.synced", list(self.objects.values())))

    @rule(config_hash=st.sampled_from(HASHES[:2]))
    def runtime_shows(self, config_hash: str) -> None:
        self.shown.add(config_hash)
        show(self.scenario, sandbox(config_hash, self.STATIC[config_hash]))

    @invariant()
    def only_static_pods_hold_devices_and_each_is_shown_once(self) -> None:
        uids = shown_uids(self.scenario)
        assert len(uids) == len(set(uids))
        assert {a.pod_uid for a in self.scenario.manager.book} <= self.shown
        assert not any(uid.startswith("evil") for uid in uids)

    @invariant()
    def a_proven_one_whose_mirror_pod_was_never_changed_has_its_device(self) -> None:
        for config_hash, uid in self.mirrors.items():
            if config_hash in self.shown:
                assert f"{config_hash}/main" in self.scenario.held(), uid


Tenants.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=25)
TestTenants = Tenants.TestCase
