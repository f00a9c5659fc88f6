"""Devices that come three ways at once, and pods that start and end at random: what is shown is what kubelet and claims say.

`make dra` has two hundred starts and ends; `DRA_CHANGES`, and `DRA_SEED` of a run that failed.
"""

import itertools
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from nodedevice_api import names

from tests.cluster.build.binaries import find
from tests.e2e.real_node.dra.driver import DraDriver
from tests.e2e.real_node.dra.holdings import Held
from tests.e2e.real_node.dra.lab import Lab, claiming
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod
from tests.examples import seed
from tests.fakes.dra import ADMIN_LABEL, claim, template
from tests.fakes.third_party import sample_plugin

Json = dict[str, Any]
CHANGES = int(os.environ.get("DRA_CHANGES", "30"))
SEED = seed("DRA_SEED")
DRIVER, WIDGET = "dra.example.com", "dra.example.com/widget"
SAMPLE, OURS = sample_plugin.RESOURCE, "e2e.example.com/rw"
# what the pods that run may hold together; one device is for the claim that pods share
ROOM = {SAMPLE: len(sample_plugin.DEVICES), OURS: 3, DRIVER: 7, "pods": 12}
# a pod's claims by its own name for them
OWN, SHARED = {"own": "one"}, {"all": "shared"}
_FORCED = 0.2


@dataclass(frozen=True)
class Kind:
    """A kind of pod. holds: of what has a bound, how many. shares: has the claim that others have, too. ends: by itself, soon."""

    body: Callable[[str], Json]
    holds: Mapping[str, int] = field(default_factory=dict)
    shares: bool = False
    ends: bool = False

    @property
    def takes(self) -> Counter[str]:
        return Counter({**self.holds, "pods": 1})


def _limits(name: str, limits: Mapping[str, int], **more: Any) -> Json:
    return pod(name, [container("main", limits, **more)])


def _ends_by_itself(name: str) -> Json:
    body = claiming(name, None, OWN, stay=False)
    body["spec"]["restartPolicy"] = "Never"
    return body


def _with_init(name: str) -> Json:
    return pod(name, [container("main", {WIDGET: 1})], init=[container("init", {WIDGET: 1}, stay=False)])


KINDS: Mapping[str, Kind] = {
    "plain": Kind(lambda name: _limits(name, {})),
    "kubelets": Kind(lambda name: _limits(name, {SAMPLE: 1}), {SAMPLE: 1}),
    "ours": Kind(lambda name: _limits(name, {OURS: 1}), {OURS: 1}),
    "template": Kind(lambda name: claiming(name, None, OWN), {DRIVER: 1}),
    "two-devices": Kind(lambda name: claiming(name, None, {"own": "two"}), {DRIVER: 2}),
    "two-containers": Kind(lambda name: claiming(name, None, {"own": "two"}, also=["second"]), {DRIVER: 2}),
    "shared": Kind(lambda name: claiming(name, SHARED), shares=True),
    "both-claims": Kind(lambda name: claiming(name, SHARED, OWN), {DRIVER: 1}, shares=True),
    "admin": Kind(lambda name: claiming(name, None, {"own": "admin"})),
    "extended": Kind(lambda name: _limits(name, {WIDGET: 1}), {DRIVER: 1}),
    "extended-two": Kind(lambda name: _limits(name, {WIDGET: 2}), {DRIVER: 2}),
    "extended-init": Kind(_with_init, {DRIVER: 1}),
    "ends": Kind(_ends_by_itself, {DRIVER: 1}, ends=True),
    "mixed": Kind(
        lambda name: claiming(name, None, OWN, limits={SAMPLE: 1, OURS: 1, WIDGET: 1}),
        {SAMPLE: 1, OURS: 1, DRIVER: 2},
    ),
}


class RandomPods(Lab):
    """A node on which devices come three ways, and the pods that run there, by name."""

    def __init__(self, of: NodeUnderTest, driver: DraDriver) -> None:
        super().__init__(of, driver)
        self.running: dict[str, Kind] = {}
        self._ended: set[str] = set()

    def fitting(self) -> list[str]:
        """Kinds for which there is room."""
        taken = sum((kind.takes for kind in self.running.values()), Counter[str]())
        return [name for name, kind in KINDS.items() if taken + kind.takes <= Counter(ROOM)]

    def start(self, name: str, kind: Kind) -> None:
        body = kind.body(name)
        made = self.of.create(body)
        if OURS not in str(body):
            # what is only shown asks nothing of a pod
            assert names.REQUIRED_PLUGINS_ANNOTATION not in (made.metadata.annotations or {})
        if kind.ends:
            self._ended.add(name)
            self.of.wait(name, lambda found: found.get("status", {}).get("phase") == "Succeeded", "has ended by itself")
            return
        self.of.wait_running(name)
        self.running[name] = kind

    def free_name(self, kind: str) -> str:
        """One that was another pod's before, where there is one: what was known of that pod is not of this one."""
        used = {*self.running, *self._ended}
        return next(name for number in itertools.count() if (name := f"{kind}-{number}") not in used)

    def end(self, name: str, force: bool) -> None:
        kind = self.running.pop(name)
        self.of.delete(name, force=force)
        if kind.shares and not any(each.shares for each in self.running.values()):
            # and the next ones find another claim of that name
            self.of.control_plane.kubectl("delete", "resourceclaim", *SHARED.values(), "-n", self.of.namespace)
            self.apply(self.shared_claim())

    def shared_claim(self) -> Json:
        return claim(SHARED["all"], self.of.namespace, self.driver.device_class)

    def of_ours(self) -> Iterator[Held]:
        """By the containers' own word, as the kubelet knows nothing of these."""
        for name, kind in self.running.items():
            if OURS in kind.holds:
                for device in self.of.seen(name).env["GIVEN_RW"].split(","):
                    yield Held(self.of.namespace, name, "main", OURS, device)

    def restarts(self) -> int:
        pods = (self.of.pod(name) for name in self.running)
        return sum(state["restartCount"] for found in pods for state in found["status"]["containerStatuses"])


@pytest.fixture
def lab(nri_node: NodeUnderTest) -> Iterator[RandomPods]:
    of = nri_node
    sample = of.node.process("sample-device-plugin", [str(find(["sample-device-plugin"])["sample-device-plugin"])])
    with ExitStack() as stack:
        stack.callback(sample.kill)
        sample.start()
        driver = stack.enter_context(DraDriver(of.control_plane, of.node, DRIVER, 8, WIDGET))
        of.control_plane.kubectl("label", "namespace", of.namespace, f"{ADMIN_LABEL}=true", "--overwrite")
        where, widgets = of.namespace, driver.device_class
        found = RandomPods(of, driver)
        found.apply(
            found.shared_claim(),
            template("one", where, widgets),
            template("two", where, widgets, count=2),
            template("admin", where, widgets, adminAccess=True),
        )
        of.wait_allocatable(SAMPLE, ROOM[SAMPLE])
        yield found
        found.clear()


def test_what_is_shown_is_what_kubelet_and_claims_say(lab: RandomPods, progress: Callable[[str], None]) -> None:
    dice = random.Random(SEED)
    progress(f"\nDRA_SEED={SEED}, {CHANGES} starts and ends of pods")
    processes = lab.processes()
    lab.until_equal(f"(DRA_SEED={SEED})")
    for number in range(CHANGES):
        fitting = lab.fitting()
        if lab.running and (not fitting or dice.random() < 0.45):
            name = dice.choice(sorted(lab.running))
            lab.end(name, force=dice.random() < _FORCED)
            change = f"{name} ends"
        else:
            kind = dice.choice(fitting)
            name = lab.free_name(kind)
            lab.start(name, KINDS[kind])
            change = f"{name} starts"
        lab.until_equal(f"(DRA_SEED={SEED})")
        progress(f"{number + 1}: {change}; {len(lab.running)} run")
    assert lab.restarts() == 0
    for name in list(lab.running):
        lab.end(name, force=False)
    lab.until_equal(f"(DRA_SEED={SEED})")
    assert lab.processes() == processes
