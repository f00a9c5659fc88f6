"""The status of NodeDeviceConfigs on a real API server: what agents report on their Leases, and nothing else is written."""

import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_api.names import ConfigCondition, ConfigReason

from tests.cluster.api import Lease, NodeDeviceConfig, Object
from tests.cluster.chart import CHART, installed_manifests, wait_established
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import node_device_config
from tests.integration.operator_process import OperatorProcess

_PATIENCE_SECONDS = 60.0
GPU = "example.com/gpu"
# several times as long as its watches and polls take
_WITHOUT_SECONDS = 12.0
_MOST_LINES = 20
_ROLE = ("ClusterRole", "nodedevice-operator")


class Fleet:
    """Agents that report, each by a Lease, and configurations."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.control_plane, self.client = control_plane, control_plane.client
        self.prefix = f"c{uuid.uuid4().hex[:6]}"
        self._leases: set[str] = set()
        self._configs: set[str] = set()

    def configure(self, name: str, count: int = 1) -> None:
        plugins = {"simulated": [{"resourceName": GPU, "count": count}]}
        self._configs.add(self.name(name))
        self.client.apply(node_device_config(self.name(name), plugins), field_manager="admin", force=True)

    def name(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def remove(self, name: str) -> None:
        self._configs.discard(self.name(name))
        self.client.delete(NodeDeviceConfig, self.name(name))

    def forget_configs(self) -> None:
        """They went with their kind."""
        self._configs.clear()

    def report(self, node: str, text: str | None = None, **outcomes: Any) -> None:
        """By the configuration's name."""
        text = json.dumps({self.name(name): outcome for name, outcome in outcomes.items()}) if text is None else text
        metadata = Object(
            name=self.name(node), namespace=names.AGENTS_NAMESPACE, annotations={names.CONFIGS_ANNOTATION: text}
        )
        now = datetime.now(UTC)
        spec = Object(holderIdentity="agent", leaseDurationSeconds=3600, acquireTime=now, renewTime=now)
        self._leases.add(self.name(node))
        self.client.apply(Lease(metadata=metadata, spec=spec), field_manager="agent", force=True)

    def status(self, name: str) -> dict[str, Any]:
        found: Any = self.client.get(NodeDeviceConfig, self.name(name))
        return dict(found.to_dict().get("status") or {})

    def condition(self, name: str, kind: str) -> tuple[str, str, str]:
        found = {each["type"]: each for each in self.status(name).get("conditions", ())}.get(kind, {})
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    def until(self, name: str, kind: str, status: str, reason: str) -> str:
        """Until the condition is so; its message."""
        wait_until(lambda: self.condition(name, kind)[:2] == (status, reason), f"{kind} is {reason}", _PATIENCE_SECONDS)
        return self.condition(name, kind)[2]

    def events(self, name: str) -> list[str]:
        text = self.control_plane.kubectl(
            "get", "events", "-n", "default", f"--field-selector=involvedObject.name={self.name(name)}", "-o", "json"
        )
        return [event["reason"] for event in json.loads(text)["items"]]

    def close(self) -> None:
        for name in self._configs:
            self.client.delete(NodeDeviceConfig, name)
        for name in self._leases:
            self.client.delete(Lease, name, namespace=names.AGENTS_NAMESPACE)


@pytest.fixture(scope="module")
def operator(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    made = OperatorProcess(installed, tmp_path_factory.mktemp("operator"), "--agent-poll-seconds", "1")
    with made.running():
        yield made


@pytest.fixture
def fleet(installed: ControlPlane, operator: OperatorProcess) -> Iterator[Fleet]:
    found = Fleet(installed)
    yield found
    found.close()


ACCEPTED, CONFLICT = ConfigCondition.ACCEPTED, ConfigCondition.CONFLICT


def test_the_status_counts_what_agents_report(fleet: Fleet) -> None:
    fleet.configure("a")
    fleet.until("a", ACCEPTED, "Unknown", ConfigReason.NO_NODES)
    fleet.report("n1", a={"generation": 1})
    fleet.report("n2", a={"generation": 0})
    fleet.until("a", ACCEPTED, "Unknown", ConfigReason.PENDING)
    fleet.report("n2", a={"generation": 1})
    assert fleet.until("a", ACCEPTED, "True", ConfigReason.TAKEN) == "taken by 2 nodes"
    status = fleet.status("a")
    assert (status["nodes"], status["observedGeneration"]) == ({"selected": 2, "accepted": 2, "refused": 0}, 1)
    fleet.configure("a", 2)
    fleet.until("a", ACCEPTED, "Unknown", ConfigReason.PENDING)
    wait_until(lambda: ConfigReason.TAKEN in fleet.events("a"), "there is an Event")


def test_nothing_but_the_status_is_written_and_only_when_it_changes(fleet: Fleet, operator: OperatorProcess) -> None:
    fleet.configure("a")
    fleet.report("n1", a={"generation": 1})
    fleet.until("a", ACCEPTED, "True", ConfigReason.TAKEN)
    before: Any = fleet.client.get(NodeDeviceConfig, fleet.name("a"))
    assert not before.metadata.finalizers
    assert not before.metadata.annotations
    operator.stop()
    operator.start()
    fleet.report("n2", a={"generation": 1})
    wait_until(lambda: fleet.status("a")["nodes"]["accepted"] == 2, "the next operator writes", _PATIENCE_SECONDS)
    after: Any = fleet.client.get(NodeDeviceConfig, fleet.name("a"))
    writers = {(entry.manager, entry.subresource) for entry in after.metadata.managedFields}
    assert writers == {("admin", None), (names.OPERATOR_FIELD_MANAGER, "status")}
    assert fleet.events("a").count(ConfigReason.TAKEN) == 1


@contextlib.contextmanager
def _without_kind(fleet: Fleet) -> Iterator[None]:
    crd, definition = f"{names.NODE_DEVICE_CONFIGS}.{names.GROUP}", CHART / f"crds/{names.NODE_DEVICE_CONFIGS}.yaml"
    try:
        fleet.control_plane.kubectl("delete", "crd", crd, "--wait=true")
        yield
    finally:
        fleet.forget_configs()
        fleet.control_plane.kubectl("apply", "--server-side", "-f", str(definition))
        wait_established(fleet.control_plane, crd)


def test_the_kind_may_go_and_come_while_the_operator_runs(fleet: Fleet, operator: OperatorProcess) -> None:
    """As after an upgrade that has not brought it yet: everything else goes on, and it is not said again and again."""
    lines = len(operator.lines())
    with _without_kind(fleet):
        fleet.report("n1", a={"generation": 1})
        time.sleep(_WITHOUT_SECONDS)
        operator.verify_running()
        said = operator.lines()[lines:]
        assert len(said) < _MOST_LINES, said
    fleet.configure("b")
    fleet.report("n1", b={"generation": 1})
    fleet.until("b", ACCEPTED, "True", ConfigReason.TAKEN)


def test_without_the_right_to_watch_them_all_else_goes_on(fleet: Fleet, operator: OperatorProcess) -> None:
    """As with the roles of an older release: said, not again and again, and over with the right."""
    [role] = [each for each in installed_manifests() if (each["kind"], each["metadata"]["name"]) == _ROLE]
    rules = role["rules"]
    [own] = [rule for rule in rules if names.NODE_DEVICE_CONFIGS in rule["resources"]]
    others = [rule for rule in rules if rule is not own]

    def allow(wanted: list[dict[str, Any]]) -> None:
        # as the chart's own field manager: whoever else wrote a rule would conflict with the chart from then on
        fleet.control_plane.apply(json.dumps({**role, "rules": wanted}))

    operator.stop()
    try:
        allow([*others, {**own, "verbs": ["list"]}])
        # not ready, as without any other right of its role; what it does goes on
        operator.launch()
        fleet.configure("d")
        wait_until(lambda: bool(operator.lines("leading")), "it leads", _PATIENCE_SECONDS)
        forbidden = names.NODE_DEVICE_CONFIGS
        wait_until(lambda: forbidden in json.dumps(operator.lines()), "what is missing is said", _PATIENCE_SECONDS)
        time.sleep(_WITHOUT_SECONDS)
        operator.verify_running()
        assert operator.get("/healthz")[0] == 200
        said = operator.lines()
        assert len(said) < _MOST_LINES, said
    finally:
        allow(rules)
    fleet.report("n1", d={"generation": 1})
    fleet.until("d", ACCEPTED, "True", ConfigReason.TAKEN)
    operator.verify_no_traceback()
