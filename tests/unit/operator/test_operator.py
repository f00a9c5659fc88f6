"""The operator put together: settings reach their features, changes their nodes, and its life from start to end."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nodedevice_common.tasks import problems
from nodedevice_kube.api_errors import NotLeading, Unreachable
from nodedevice_operator import settings
from nodedevice_operator.capacity.reconciler import CapacityReconciler
from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.informers.staleness import Watchdog
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.leases.agent_monitor import AgentMonitor, AgentsApi
from nodedevice_operator.leases.elector import Election
from nodedevice_operator.objects.nodedevice import DeviceRecord
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
from tests.fakes.parts import one_of, parts_of
from tests.unit.operator.kube.api_server import kubeconfig

Make = Callable[..., Operator]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes one of a cluster that is not there."""
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    return lambda **given: Operator(settings.load(None, {"kubeconfig": file, "http_address": "127.0.0.1:0", **given}))


@pytest.fixture
def operator(make: Make) -> Operator:
    """One that leads."""
    return make(leader_elect=False)


@asynccontextmanager
async def running(operator: Operator) -> AsyncIterator[None]:
    """Until SIGTERM at the end of the block."""
    task = asyncio.create_task(operator.run())
    await asyncio.sleep(0)
    yield
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(60):
        await task


def test_settings_reach_their_features(make: Make) -> None:
    made = make(
        agent_grace_seconds=77.0,
        agent_poll_seconds=7.0,
        watchdog_seconds=9.0,
        leader_lease_seconds=41,
        namespace="ours",
        leases_namespace="agents",
        held_device_policy={"*": "evict"},
        eviction_delay_seconds=43.0,
        evictions_per_minute=5.0,
        required_plugin_names=["example.com/*"],
    )
    agents, evictions, election = (one_of(made, kind) for kind in (AgentMonitor, EvictionController, Election))
    assert (agents.grace_seconds, agents.interval_seconds) == (77.0, 7.0)
    assert one_of(made, AgentsApi).leases_namespace == "agents"
    assert one_of(made, Watchdog).interval_seconds == 9.0
    assert election.timing.lease_seconds == 41
    assert "/namespaces/ours/" in election.leases.path
    assert (evictions.policies, evictions.delay_seconds, evictions.per_minute) == ({"*": "evict"}, 43.0, 5.0)
    assert tuple(one_of(made, RequiredPluginsController).patterns) == ("example.com/*",)


def test_without_a_namespace_its_lease_is_in_the_kubeconfigs(make: Make) -> None:
    assert "/namespaces/there/" in one_of(make(), Election).leases.path


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
def test_a_switch_is_that_of_its_feature(make: Make, setting: str, kind: type, attribute: str, is_on: bool) -> None:
    others = dict.fromkeys(("node_taint", "node_labels", "required_plugins", "mark_waiting_pods"), not is_on)
    assert getattr(one_of(make(**{**others, setting: is_on}), kind), attribute) is is_on


@pytest.mark.parametrize("is_on", [True, False])
async def test_slices_of_drivers_are_counted_unless_that_is_off(make: Make, is_on: bool) -> None:
    async with running(make(leader_elect=False, observe_dra=is_on)):
        assert ("shared-slices" in {task.get_name() for task in asyncio.all_tasks()}) is is_on


async def test_without_the_lead_only_the_election_writes(make: Make) -> None:
    made = make()
    errors: list[type[Exception]] = []
    for client in [part for part in parts_of(made) if isinstance(part, Client)]:
        with pytest.raises((NotLeading, Unreachable)) as refused:
            await client.request("PATCH", "nodes", "/api/v1/nodes/node-a", body={})
        errors.append(refused.type)
        await client.close()
    assert sorted(error.__name__ for error in errors) == ["NotLeading", "Unreachable"]


def test_metrics_are_those_of_its_parts_and_its_lead(operator: Operator) -> None:
    registry = one_of(operator, Metrics).registry
    one_of(operator, Cache).node_devices.put(node_device(total=3))
    assert registry.get_sample_value("nodedevice_operator_leader") == 1
    assert registry.get_sample_value("nodedevice_operator_devices", {"resource_name": GPU, "state": "total"}) == 3
    names = {family.name.removeprefix("nodedevice_operator_") for family in registry.collect()}
    assert {"configs", "shared_slices", "task_failures"} <= names


def test_changes_of_an_object_that_only_a_list_shows_are_events(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[str] = []
    monkeypatch.setattr(EventRecorder, "post", lambda _, event: reasons.append(event.reason))
    for version, (uid, reason) in enumerate([("a", ""), ("a", "Xid"), ("a", "Xid"), ("b", "")], 1):
        device = DeviceRecord("Unhealthy" if reason else "Healthy", reason, False, ())
        record = node_device(uid=uid, resource_version=version, devices={"gpu-0": device})
        one_of(operator, Cache).node_devices.replace([record], version)
    assert reasons == ["DeviceUnhealthy"]


@pytest.mark.parametrize("another_wrote", [True, False])
def test_a_new_lead_forgets_what_another_may_have_changed(
    make: Make, monkeypatch: pytest.MonkeyPatch, another_wrote: bool
) -> None:
    done: dict[str, tuple[object, ...]] = {}
    for kind, method in (
        (EventRecorder, "take_over"),
        (CapacityReconciler, "forget_changes"),
        (RequiredPluginsController, "wake"),
        (NodeReconciler, "take_over"),
    ):
        name = f"{kind.__name__}.{method}"
        monkeypatch.setattr(kind, method, lambda _, *given, name=name: done.update({name: given}))
    one_of(make(), Election).on_lead(another_wrote, 7.0)
    assert done == {
        "EventRecorder.take_over": (7.0,),
        **({"CapacityReconciler.forget_changes": ()} if another_wrote else {}),
        "RequiredPluginsController.wake": (),
        "NodeReconciler.take_over": (another_wrote, 7.0),
    }


async def test_certificates_that_cannot_be_read_name_the_setting(make: Make, tmp_path: Path) -> None:
    chain: dict[str, Any] = {"tls_certificate": str(tmp_path / "none"), "tls_key": str(tmp_path / "none")}
    error = r"^metricsAuthentication: tlsCertificate .*none and tlsKey .*none cannot be"
    with pytest.raises(OperatorSettingsError, match=error):
        await make(**chain).run()


async def test_failed_nodes_are_retried_after_an_outage(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever thread has noticed it: kopf's requests report there, too."""
    retried, is_retried = list[int](), asyncio.Event()

    def retry_now(_: object) -> None:
        retried.append(threading.get_ident())
        is_retried.set()

    monkeypatch.setattr(WorkQueue, "retry_now", retry_now)
    async with running(operator):
        await asyncio.to_thread(one_of(operator, ApiHealth).on_recovery)
        async with asyncio.timeout(60):
            await is_retried.wait()
    assert retried == [threading.get_ident()]


async def test_a_callback_that_fails_is_named_and_ends_nothing(operator: Operator) -> None:
    async with running(operator):
        context = {"message": "Exception in callback watch()", "exception": OSError("Too many open files")}
        asyncio.get_running_loop().call_exception_handler(context)
        assert "callback watch fails and is tried again: Too many open files" in problems()
