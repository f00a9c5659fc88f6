"""One configuration at each entry point: helm, the agent's file, NodeDeviceConfig and `config validate` find the same mistakes."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from nodedevice_agent.configs.effective import Config, effective
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.lib.config_rules import settings_problems
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.settings import load

from tests.chart.rendering import refusal, render
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import CommandError
from tests.cluster.waiting import wait_until
from tests.config_cases import MISTAKES, RIGHT, SETTINGS, Plugins, group

pytestmark = pytest.mark.cluster

CASES = {**{name: plugins for name, (plugins, _) in MISTAKES.items()}, **RIGHT}


def in_file(plugins: Plugins, folder: Path) -> list[str]:
    file = folder / "agent.yaml"
    file.write_text(json.dumps({"plugins": plugins}), encoding="utf-8")
    try:
        load(file, {"node_name": "node-a"})
    except AgentSettingsError as error:
        return mistakes(str(error).partition(f"{file}: ")[2])
    return []


def in_object(plugins: Plugins) -> list[str]:
    config = Config("case", 1, plugins=msgspec.Raw(json.dumps(plugins).encode()), keys=("plugins",))
    refused = effective(PluginSettings(), [config], {}, ["/"]).outcomes["case"].refusal
    return mistakes(refused.replace("; spec.", "\nspec."))


def by_helm(plugins: Plugins) -> list[str]:
    return mistakes(refusal({"agents": {"config": {"plugins": plugins}}}))


def mistakes(text: str) -> list[str]:
    """Those of a message that has one on each line, without what stands before the plugins."""
    before = r"^.*execution error at \([^)]*\): |[0-9]+ mistakes:\s*|(?<=below )(spec|agents[.]config)[.]"
    lines = re.sub(before, "", text, flags=re.MULTILINE).splitlines()
    found = [line.strip().removeprefix("agents.config.").removeprefix("spec.") for line in lines]
    return [line for line in found if re.match(r"[a-z][^ :]*(\[[0-9]+\]|[.][^:]+)?: ", line)]


def manifest(plugins: Plugins) -> Any:
    kind = {"apiVersion": "nodedevice.io/v1alpha1", "kind": "NodeDeviceConfig", "metadata": {"name": "case"}}
    return {**kind, "spec": {"plugins": plugins}}


@cache
def by_command() -> dict[str, list[list[str]]]:
    """By case, what `config validate` finds in a NodeDeviceConfig, in a settings file and in values."""
    documents: list[Any] = []
    for plugins in CASES.values():
        documents += [manifest(plugins), {"plugins": plugins}, {"agents": {"config": {"plugins": plugins}}}]
    # which paths may be named is another matter
    documents.append({"agents": {"allowedHostPaths": ["/"]}})
    command = [sys.executable, "-m", "kubectl_nodedevice", "config", "validate", "-", "-o", "json"]
    done = subprocess.run(
        command, input=yaml.safe_dump_all(documents), capture_output=True, text=True, check=False, timeout=600
    )
    found = [mistakes("\n".join(item["problems"])) for item in json.loads(done.stdout)["items"]]
    return {name: found[at * 3 : at * 3 + 3] for at, name in enumerate(CASES)}


def places(found: list[str]) -> list[str]:
    return sorted(line.partition(": ")[0].removeprefix("plugins.") for line in found)


@pytest.fixture(scope="module")
def cluster(installed: ControlPlane) -> ControlPlane:
    """With the policy about unknown keys in force: the API server takes a moment to notice a new one."""
    wait_until(lambda: bool(by_api_server(installed, {"usb": {}})), "the policy is in force")
    return installed


def by_api_server(cluster: ControlPlane, plugins: Plugins) -> str:
    """What kubectl prints; empty if it is taken."""
    try:
        cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest(plugins)))
    except CommandError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", MISTAKES)
def test_every_entry_point_finds_the_same_mistakes(name: str, cluster: ControlPlane, tmp_path: Path) -> None:
    plugins, wanted = MISTAKES[name]
    found = in_file(plugins, tmp_path)
    assert places(found) == sorted(wanted)
    assert sorted(in_object(plugins)) == sorted(found)
    assert sorted(by_helm(plugins)) == sorted(found)
    for each in by_command()[name]:
        assert sorted(each) == sorted(found)
    said = by_api_server(cluster, plugins)
    if name.endswith(" late"):
        return
    for place in wanted:
        # a rule of CEL names a key, and no entry of a list
        assert "spec.plugins." + re.sub(r"\[[0-9]+\]$", "", place) in said, said


@pytest.mark.parametrize("name", SETTINGS)
def test_helm_finds_what_an_agent_finds_in_its_own_settings(name: str) -> None:
    settings, _ = SETTINGS[name]
    assert sorted(mistakes(refusal({"agents": {"config": settings}}))) == sorted(settings_problems(settings))


@pytest.mark.parametrize("name", RIGHT)
def test_every_entry_point_takes_what_is_right(name: str, cluster: ControlPlane, tmp_path: Path) -> None:
    plugins = RIGHT[name]
    assert in_file(plugins, tmp_path) == []
    assert in_object(plugins) == []
    assert render({"agents": {"config": {"plugins": plugins}}})
    assert by_command()[name] == [[], [], []]
    assert by_api_server(cluster, plugins) == ""


EMPTIED: list[tuple[Any, Any]] = [
    ({"plugins": group()}, {"plugins": {}}),
    ({"plugins": group(env={"A": "x"})}, {"plugins": group(env={})}),
    ({"plugins": {"nvml": {"mig": "single"}}}, {"plugins": {"nvml": {}}}),
]


@pytest.mark.parametrize(("before", "after"), EMPTIED)
def test_an_object_may_be_emptied_by_server_side_apply(before: Any, after: Any, installed: ControlPlane) -> None:
    """The API server makes null of one whose keys have owners of their own, and refuses it ever after."""
    whole = manifest({}) | {"metadata": {"name": "emptied"}}
    try:
        for spec in (before, after, after):
            applied = json.dumps(whole | {"spec": spec})
            installed.kubectl("apply", "--server-side", "--field-manager=flux", "-f", "-", stdin=applied)
        stored = json.loads(installed.kubectl("get", "nodedeviceconfig", "emptied", "-o", "json"))["spec"]
        assert stored == {"priority": 0, **after}
    finally:
        installed.kubectl("delete", "nodedeviceconfig", "emptied")
