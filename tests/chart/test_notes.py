"""Which commands the chart proposes next: each command works as it stands, for everything installed and for what is left out."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from nodedevice_agent.cli.run import main as agent_main
from nodedevice_operator.__main__ import main as operator_main

from hack import yaml_text
from tests.chart.rendering import notes, render
from tests.chart.values import VALUE_SETS
from tests.cluster.chart import SYSTEM_NAMESPACE, installed_manifests, is_hook, wait_explained
from tests.cluster.control_plane.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

PROGRAMS = {"nodedevice-agent": agent_main, "nodedevice-operator": operator_main}
LEFT_OUT = VALUE_SETS["processes of the hosts"]


def commands(values: dict[str, Any]) -> list[list[str]]:
    """Each command in the notes, split as a shell would."""
    lines = notes(values).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("  ")]


@pytest.fixture(scope="module")
def explained(installed: ControlPlane) -> ControlPlane:
    """With the chart applied, and its kinds known to `kubectl explain`."""
    wait_explained(installed)
    return installed


@pytest.fixture
def node(installed: ControlPlane) -> Iterator[str]:
    installed.add_node("notes-node", wait_ready=False)
    yield "notes-node"
    installed.remove_node("notes-node")


def test_for_those_who_run_processes(explained: ControlPlane, node: str) -> None:
    typed = commands(LEFT_OUT)
    assert sorted({command[0] for command in typed}) == ["helm", "kubectl", *sorted(PROGRAMS)]
    assert not [command for command in typed if "rollout" in command]
    for program, *arguments in typed:
        arguments = [node if each == "NODE" else each for each in arguments]
        if program == "kubectl":
            explained.kubectl(*arguments)
        elif program in PROGRAMS:
            # with --help the programs still refuse an option that they do not have, and do not start
            asked = CliRunner().invoke(PROGRAMS[program], [*arguments, "--help"])
            assert asked.exit_code == 0, asked.output


def test_for_everybody_else(explained: ControlPlane) -> None:
    typed = commands({})
    kept = {(each["kind"], each["metadata"]["name"]) for each in render()}
    assert {("DaemonSet", "nodedevice-agent"), ("Deployment", "nodedevice-operator")} <= kept
    rollouts = [command for command in typed if "rollout" in command]
    assert [command[-1] for command in rollouts] == ["daemonset/nodedevice-agent", "deployment/nodedevice-operator"]
    assert ["helm", "test", "nodedevice", "--namespace", SYSTEM_NAMESPACE, "--logs"] in typed
    for command in typed:
        if command[0] == "kubectl" and "rollout" not in command:
            explained.kubectl(*command[1:])


def test_the_pretended_devices_are_values_that_work() -> None:
    [upgrade] = [command for command in commands({}) if command[:2] == ["helm", "upgrade"]]
    given = upgrade[upgrade.index("--set") + 1]
    [agent] = render({}, "--set", given, "--show-only", "templates/agent-config.yaml")
    settings = yaml_text.load(agent["data"]["agent.yaml"])
    assert settings["plugins"]["simulated"] == [{"resourceName": "example.com/gpu", "count": 4}]
    assert not [each for each in installed_manifests() if each["kind"] == "ConfigMap"]


def test_with_plugins_the_notes_name_no_simulated_ones() -> None:
    typed = commands(VALUE_SETS["built-in plugins"])
    assert not [command for command in typed if command[:2] == ["helm", "upgrade"]]


@pytest.mark.parametrize(
    ("registry", "said"), [("", "no registry is set"), ("registry.example.com/team", "get them from registry")]
)
def test_images_and_what_to_set_without_them(registry: str, said: str) -> None:
    text = " ".join(notes({"image": {"registry": registry}}).split())
    assert said in text
    prefix = f"{registry}/" if registry else ""
    for program in PROGRAMS:
        assert f"- {prefix}{program}:" in text
    assert "set image.registry" in text


def test_a_slow_machine_leaves_out_the_job_and_nothing_that_the_check_needs() -> None:
    [command] = [each for each in commands({}) if "--filter" in each]
    left_out = command[command.index("--filter") + 1].removeprefix("!name=")
    hooks = [each for each in render() if is_hook(each) and each["metadata"]["name"] == left_out]
    assert [each["kind"] for each in hooks] == ["Job"]


def test_a_runtime_class_that_may_be_missing() -> None:
    pool = {"name": "gpus", "nodeSelector": {"gpu": "a"}, "runtimeClassName": "nvidia"}
    described = [each for each in commands({"agents": {"pools": [pool]}}) if "describe" in each]
    assert [command[-1] for command in described] == ["daemonset/nodedevice-agent-gpus"]
    assert not [each for each in commands({}) if "describe" in each]
