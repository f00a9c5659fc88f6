"""A real Prometheus that scrapes real agents, a real operator and a real extender: every panel shows something, every alert fires.

What is shown of devices is compared with the truth; that alerts resolve is tests/monitoring/test_rules, and the dashboards of
kube-state-metrics are tests/monitoring/test_status_dashboards.
"""

import asyncio
import json
from pathlib import Path

import pytest
from nodedevice_api import names

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.agent_process import GPU
from tests.monitoring import expressions, scene
from tests.monitoring import kube_state_metrics as ksm
from tests.monitoring.prometheus import Prometheus, run
from tests.monitoring.test_kube_state_metrics import CONFIG as KSM_CONFIG

# of all that has to come about in one go: scraped, evaluated, shown
_PATIENCE_SECONDS = 60.0
# a Lease that was renewed just before its agent ended runs out only then
_SILENT_SECONDS = names.AGENT_LEASE_SECONDS + _PATIENCE_SECONDS
_ASK_EVERY_SECONDS = 0.25
# their expressions are about weeks; tests/monitoring/test_rules has them
_OF_WEEKS = {"NodeDeviceCordonForgotten"}
# plugins of the scene list no parts and no attributes; tests/monitoring/test_kube_state_metrics has them
_NOT_IN_THE_SCENE = ("parts", "part_memory_bytes", "device_info", "memory_bytes")


async def test_every_panel_shows_something_and_every_alert_fires(
    installed: ControlPlane, namespace: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    async with scene.staged(installed, namespace, tmp_path_factory.mktemp("m")) as stage:
        rules = expressions.impatient(expressions.rules())
        with run(tmp_path / "prometheus", await stage.targets(), rules) as prometheus:
            # an increase is counted from the first scrape on
            scraped = "count(nodedevice_agent_info) == 3 and on() count(nodedevice_operator_info) == 1"
            scraped += " and on() count(nodedevice_extender_info) == 1"
            await asyncio.to_thread(prometheus.until, scraped, "the first scrapes")
            await scene.act(stage)
            await asyncio.to_thread(_verify_variables, prometheus)
            await asyncio.to_thread(_verify_panels, prometheus)
            await asyncio.to_thread(_verify_numbers, prometheus, stage.busy.name, namespace)
            await asyncio.to_thread(_verify_kube_state_metrics, installed, stage, namespace)
            await _verify_alerts(stage, prometheus)


def _verify_variables(prometheus: Prometheus) -> None:
    for board in expressions.of_programs().values():
        for variable in expressions.variables(board):
            if variable["type"] == "query":
                label, series = expressions.label_values(variable)
                prometheus.until(series, f"variable {variable['name']}", _PATIENCE_SECONDS)
                assert prometheus.label_values(label, series), variable["name"]


def _verify_panels(prometheus: Prometheus) -> None:
    for name, board in expressions.of_programs().items():
        for panel in expressions.panels(board):
            for target in panel["targets"]:
                what = f"{name}: {panel['title']}"
                prometheus.until(expressions.filled(target["expr"]), what, _PATIENCE_SECONDS)


def _verify_numbers(prometheus: Prometheus, node: str, namespace: str) -> None:
    """The labels are those of the holder, not of the agent that is scraped."""
    held = prometheus.query(f'nodedevice_agent_allocated_devices{{node="{node}",resource_name="{GPU}"}}')
    labels = [(one["metric"]["namespace"], one["metric"]["pod"], one["metric"]["container"]) for one in held]
    assert sorted(labels) == [(namespace, "holder", "c0"), (namespace, "second", "c0")]
    of_gpus = f'namespace="{namespace}",resource_name="{GPU}"'
    (by_namespace,) = prometheus.query(f"nodedevice_operator_allocated_devices{{{of_gpus}}}")
    # two on the busy node, two on the one with a runtime
    assert by_namespace["value"][1] == "4"
    (broken,) = prometheus.query(f'nodedevice_operator_unhealthy_devices{{node="{node}"}}')
    assert (broken["metric"]["resource_name"], broken["value"][1]) == (GPU, "1")


def _verify_kube_state_metrics(control_plane: ControlPlane, stage: scene.Scene, namespace: str) -> None:
    """Each of its paths finds something in what the real programs wrote."""
    for resource in ksm.read(KSM_CONFIG.read_text()).spec.resources:
        asked = control_plane.kubectl("get", resource.resource_plural, "--all-namespaces", "--output=json")
        made = list(ksm.samples(resource, json.loads(asked)["items"]))
        for metric in resource.metrics:
            what = metric.each.gauge or metric.each.info or metric.each.state_set
            assert what is not None
            name = f"{resource.metric_name_prefix}_{metric.name}"
            if any(word in name for word in _NOT_IN_THE_SCENE):
                continue
            mine = [one for one in made if one.name == name]
            labels = {*resource.labels_from_path, *what.labels_from_path}
            assert any(labels <= set(one.labels) for one in mine), f"{name}: none has all of {sorted(labels)}"
            each_once = {tuple(sorted(one.labels.items())) for one in mine}
            assert len(each_once) == len(mine), f"{name} has a series twice"
        if resource.group_version_kind.kind == names.NODE_DEVICE:
            busy = {"node": stage.busy.name, "resource_name": GPU}
            total = [
                o.value for o in made if o.name == "kube_nodedevice_status_total" and busy.items() <= o.labels.items()
            ]
            assert total == [4]
        else:
            assert (namespace, "holder") in {(one.labels["namespace"], one.labels["pod"]) for one in made}


async def _verify_alerts(stage: scene.Scene, prometheus: Prometheus) -> None:
    wanted = frozenset(rule["alert"] for rule in expressions.alerts()) - _OF_WEEKS
    seen: set[str] = set()

    async def until(*alerts: str, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        """These fire, or have fired; the others that fire meanwhile are noted."""
        deadline = asyncio.get_running_loop().time() + patience_seconds
        while not seen.issuperset(alerts):
            seen.update(await asyncio.to_thread(prometheus.firing))
            missing = sorted(set(alerts) - seen)
            assert asyncio.get_running_loop().time() < deadline, f"did not fire: {missing}"
            await asyncio.sleep(_ASK_EVERY_SECONDS)

    await stage.refuse_writes()
    await until("NodeDeviceOperatorCannotWrite", "NodeDeviceAgentWritesRefused", "NodeDeviceAllocateFails")
    await stage.containers.__aexit__(None, None, None)
    await until("NodeDeviceRuntimeAway")
    await until("NodeDeviceDevicesBroken")
    await stage.repair()
    await _until_silent(prometheus, "NodeDeviceDevicesBroken", "NodeDeviceOperatorCannotWrite")
    await stage.silence()
    await until("NodeDeviceAgentsSilent", "NodeDeviceAgentsSilentTogether", patience_seconds=_SILENT_SECONDS)
    await asyncio.to_thread(stage.scheduler.lose_lease)
    await asyncio.to_thread(stage.operator.stop)
    await until(*wanted)


async def _until_silent(prometheus: Prometheus, *names: str) -> None:
    """None of these fires any more."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
    while firing := (await asyncio.to_thread(prometheus.firing)) & set(names):
        assert asyncio.get_running_loop().time() < deadline, f"still fire: {sorted(firing)}"
        await asyncio.sleep(_ASK_EVERY_SECONDS)
