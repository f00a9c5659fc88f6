"""How the parts of the operator are connected."""

import inspect
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
from nodedevice_operator import settings
from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.informers.staleness import Watchdog
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.client import CONCURRENT_REQUESTS, Client
from nodedevice_operator.kube.lists import KINDS
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.agent_monitor import AgentMonitor, AgentsApi
from nodedevice_operator.leases.elector import LEASE_REQUESTS, Election
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.recorder import EventRecorder
from nodedevice_operator.operator import Operator
from nodedevice_operator.reconcile.node import NodeReconciler
from nodedevice_operator.remediation.eviction_controller import EvictionController
from nodedevice_operator.remediation.node_taint_and_label_controller import NodeLabelController
from nodedevice_operator.requiredplugins.annotate_pods import PodAnnotator
from nodedevice_operator.requiredplugins.controller import RequiredPluginsController
from nodedevice_operator.workqueue import WorkQueue

from tests.fakes.operator.operator_model import GPU, node_device
from tests.fakes.parts import misfits, one_of, parts_of
from tests.unit.operator.kube.api_server import kubeconfig


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """Of a cluster that is not there."""
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    return Operator(settings.load(None, {"kubeconfig": file, "http_address": "127.0.0.1:0", "leader_elect": False}))


@pytest.mark.parametrize("leader_elect", [True, False])
def test_each_part_begins_as_it_is_declared(leader_elect: bool, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    assert misfits(Operator(settings.load(None, {"kubeconfig": file, "leader_elect": leader_elect}))) == []


async def test_each_task_has_its_own_name(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    made = Operator(settings.load(None, {"kubeconfig": file}))
    tasks = made._tasks()
    for name, work in tasks.items():
        named = inspect.getcoroutinelocals(work)
        if isinstance(named["run"], partial):
            of_nodes = name.startswith("reconcile-")
            assert named["run"].args == ((made._nodes.reconcile,) if of_nodes else (named["about"]["kind"],))
        kind = named.get("about", {}).get("kind")
        assert name in {named["task"], f"watch-{kind}"} or name.removeprefix("reconcile-").isdigit(), name
        work.close()
    assert {"beat", "election", "watchdog", "events", "leases", "policy", "configs", "watch-configs"} <= tasks.keys()
    assert {"evictions", "node-labels", "gone-nodedevices", "watch-refusals"} <= tasks.keys()
    assert {f"watch-{kind.name}" for kind in KINDS} < tasks.keys()
    assert {name for name in tasks if name.startswith("reconcile")} == {
        f"reconcile-{number}" for number in range(CONCURRENT_REQUESTS)
    }


def test_settings_reach_those_who_work_by_them(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "agent_grace_seconds": 77.0,
        "agent_poll_seconds": 7.0,
        "watchdog_seconds": 9.0,
        "leader_lease_seconds": 41,
        "namespace": "ours",
        "leases_namespace": "agents",
        "held_device_policy": {"*": "evict"},
        "eviction_delay_seconds": 43.0,
        "evictions_per_minute": 5.0,
        "required_plugin_names": ["example.com/*"],
    }
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    made = Operator(settings.load(None, {"kubeconfig": file, **given}))
    agents, evictions = one_of(made, AgentMonitor), one_of(made, EvictionController)
    assert (agents.grace_seconds, agents.interval_seconds) == (77.0, 7.0)
    assert one_of(made, AgentsApi).leases_namespace == "agents"
    assert one_of(made, Watchdog).interval_seconds == 9.0
    election = one_of(made, Election)
    assert election.timing.lease_seconds == 41
    assert election.leases._namespace == "ours"
    assert election.on_lead == made._lead
    assert evictions.policies == {"*": "evict"}
    assert (evictions.delay_seconds, evictions.per_minute) == (43.0, 5.0)
    assert tuple(one_of(made, RequiredPluginsController).patterns) == ("example.com/*",)


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize(
    ("setting", "kind", "attribute"),
    [
        ("node_taint", NodeLabelController, "taint"),
        ("node_labels", NodeLabelController, "labels"),
        ("required_plugins", RequiredPluginsController, "is_on"),
        ("mark_waiting_pods", PodAnnotator, "is_on"),
    ],
)
def test_a_switch_is_that_of_its_feature(setting: str, kind: type, attribute: str, is_on: bool, tmp_path: Path) -> None:
    others = dict.fromkeys(("node_taint", "node_labels", "required_plugins", "mark_waiting_pods"), not is_on)
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    made = Operator(settings.load(None, {"kubeconfig": file, **others, setting: is_on}))
    assert getattr(one_of(made, kind), attribute) is is_on


def test_without_a_namespace_its_lease_is_in_the_kubeconfigs(tmp_path: Path) -> None:
    made = Operator(settings.load(None, {"kubeconfig": kubeconfig(tmp_path, "http://127.0.0.1:1")}))
    assert one_of(made, Election).leases._namespace == "there"
    assert not made._fence.is_open


def test_each_client_has_its_own_connections_and_writes_behind_one_fence(tmp_path: Path) -> None:
    made = Operator(settings.load(None, {"kubeconfig": kubeconfig(tmp_path, "http://127.0.0.1:1")}))
    made._protection()
    found = [part for part in parts_of(made) if isinstance(part, Client)]
    assert {id(client) for client in found} == {id(client) for client in made._clients}
    # of the election, which decides on the fence, and of reviews
    assert [client._fence for client in made._clients] == [made._fence, None, None]
    assert [client._places._value for client in made._clients[1:]] == [LEASE_REQUESTS, 2]


def test_features_get_each_change_of_a_nodedevice(operator: Operator) -> None:
    features = (operator._agents, operator._capacity, operator._required_plugins, operator._recorder)
    handlers = operator._cache.node_devices._handlers
    assert {handler.__self__ for handler in handlers if isinstance(handler, MethodType)} == {operator, *features}


def test_each_change_reconciles_its_node(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert operator._cache.on_list == operator._nodes.changed
    changed: list[str] = []
    monkeypatch.setattr(type(operator._nodes), "changed", lambda _, node: changed.append(node))
    for store in (operator._cache.nodes, operator._cache.node_devices, operator._cache.pod_devices):
        store._notify("node-a", None, None)
    assert changed == ["node-a"] * 3


def test_a_new_lead_forgets_what_another_may_have_changed(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, tuple[object, ...]]] = []
    for part, method in (
        (operator._recorder, "take_over"),
        (operator._capacity, "forget_changes"),
        (operator._required_plugins, "wake"),
        (operator._nodes, "take_over"),
    ):
        name = f"{type(part).__name__}.{method}"
        monkeypatch.setattr(type(part), method, lambda _, *given, name=name: done.append((name, given)))
    operator._lead(False, 7.0)
    first = [("EventRecorder.take_over", (7.0,)), ("RequiredPluginsController.wake", ())]
    assert done == [*first, ("NodeReconciler.take_over", (False, 7.0))]
    del done[:]
    operator._lead(True, 8.0)
    assert done == [
        ("EventRecorder.take_over", (8.0,)),
        ("CapacityReconciler.forget_changes", ()),
        ("RequiredPluginsController.wake", ()),
        ("NodeReconciler.take_over", (True, 8.0)),
    ]


async def test_certificates_that_cannot_be_read_name_the_setting(tmp_path: Path) -> None:
    chain = {"tls_certificate": str(tmp_path / "none"), "tls_key": str(tmp_path / "none")}
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    with pytest.raises(
        OperatorSettingsError, match=r"^metricsAuthentication: tlsCertificate .*none and tlsKey .*none cannot be"
    ):
        Operator(settings.load(None, {"kubeconfig": file, **chain}))._protection()


@pytest.mark.parametrize("kind", [Cache, WriteFence, EventRecorder, WorkQueue, Metrics, AgentMonitor])
def test_of_what_they_share_there_is_one(operator: Operator, kind: type) -> None:
    """Two caches, or two fences, would each know half."""
    assert one_of(operator, kind)


def test_metrics_are_those_of_its_cache_and_its_lead(operator: Operator) -> None:
    value = operator._metrics.registry.get_sample_value
    operator._cache.node_devices.put(node_device(total=3))
    # without an election it leads
    assert value("nodedevice_operator_leader") == 1
    assert value("nodedevice_operator_devices", {"resource_name": GPU, "state": "total"}) == 3


def test_what_one_part_finds_another_gets(operator: Operator) -> None:
    assert operator._agents.on_poll == operator._configs.leases_are
    assert operator._informers["refusals"]._cache.on_list == operator._configs.refusals_changed
    assert one_of(operator, NodeReconciler).on_done == operator._gone.reconciled


def test_a_node_of_many_objects_rests_and_nothing_is_done_without_the_lead(operator: Operator) -> None:
    for number in range(3):
        operator._cache.node_devices.put(node_device(f"example.com/r{number}"))
    assert operator._queue._weight("node-a") == 3
    assert operator._queue._fence is operator._fence


def test_what_each_part_counts_is_scraped(operator: Operator) -> None:
    found = {family.name.removeprefix("nodedevice_operator_") for family in operator._metrics.registry.collect()}
    assert {"configs", "shared_slices", "devices", "task_failures"} <= found


@pytest.mark.parametrize("is_on", [True, False])
async def test_slices_of_drivers_are_counted_unless_that_is_off(is_on: bool, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    tasks = Operator(settings.load(None, {"kubeconfig": file, "observe_dra": is_on}))._tasks()
    for work in tasks.values():
        work.close()
    assert ("shared-slices" in tasks) is is_on
