"""A real Prometheus that scrapes real agents, a real operator and a real extender: every panel shows something, every alert fires.

What is shown of devices is compared with the truth; that alerts resolve is tests/monitoring/test_rules, and the dashboards of
kube-state-metrics are tests/monitoring/test_status_dashboards.
"""

import asyncio
from pathlib import Path

import pytest
from nodedevice_api import names

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.agent_process import GPU
from tests.monitoring import expressions, scene
from tests.monitoring.prometheus import Prometheus, run

# of all that has to come about in one go: scraped, evaluated, shown
_PATIENCE_SECONDS = 60.0
# a Lease that was renewed just before its agent ended runs out only then
_SILENT_SECONDS = names.AGENT_LEASE_SECONDS + _PATIENCE_SECONDS
_ASK_EVERY_SECONDS = 0.25
# their expressions are about weeks; tests/monitoring/test_rules has them
_OF_WEEKS = {"NodeDeviceCordonForgotten"}


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
