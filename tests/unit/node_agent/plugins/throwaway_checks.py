"""What an agent does with one more plugin; run by test_throwaway.py with a copy of the agent that has it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from click.testing import CliRunner
from nodedevice_agent.cli.run import main
from nodedevice_agent.configs.effective import Config, effective
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.lib import config_rules
from nodedevice_agent.plugins.run import PluginRunner
from nodedevice_agent.plugins.settings import KINDS, PluginSettings
from nodedevice_agent.runtime.hooked_containers import HookedContainers
from nodedevice_agent.runtime.injection import Grant, Injection
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint

from charts import generate_config_rules, generate_config_schema, generate_schema
from docs import generate_settings
from tests.fakes.background import background
from tests.fakes.device_manager import Manager
from tests.fakes.kubelet_reader import reader_of
from tests.fakes.polling import until
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container, sandbox
from tests.unit.node_agent.devicemanager.scenario import GPU, calls, pod

NUMBER = "example.com/number"
IN_FILE: dict[str, Any] = {"throwaway": [{"resourceName": NUMBER, "count": 2}]}


def plugins(**more: Any) -> PluginSettings:
    return msgspec.convert(IN_FILE | more, PluginSettings)


@pytest.fixture(autouse=True, scope="module")
def _generated() -> None:
    """As `make generate` writes them into the copy."""
    for file, text in generate_config_rules.files().items():
        if file.name == "config_rules.json" and "nodedevice_agent" in file.parts:
            Path(config_rules.__file__).with_name(file.name).write_text(text, encoding="utf-8")


def test_it_is_in_every_schema_and_page() -> None:
    assert KINDS["throwaway"].__name__ == "ThrowawaySettings"
    crd = generate_config_schema.for_api(generate_config_schema.plugins())["properties"]["throwaway"]
    assert crd["description"] == "Numbers, to be thrown away."
    assert crd["items"]["properties"]["count"] == {
        **{"description": "How many devices there are. Default: 1.", "type": "integer", "minimum": 1, "maximum": 8}
    }
    assert crd["items"]["properties"]["resourceName"]["maxLength"] == 309
    values = generate_schema.strict()["$defs"]
    assert values["AgentPluginSettings"]["properties"]["throwaway"]["items"] == {
        "$ref": "#/$defs/AgentThrowawaySettings"
    }
    assert "### `plugins.throwaway[]`\n\nOne resource of numbers." in generate_settings.page()


def test_its_mistakes_are_named_in_the_file_and_in_configurations() -> None:
    two = {"throwaway": [{"resourceName": "number", "count": 9}], "simulated": [{"resourceName": "number"}]}
    found = config_rules.settings_problems({"plugins": two})
    assert sorted(problem.partition(": ")[0] for problem in found) == [
        "plugins.simulated[0].resourceName",
        "plugins.throwaway[0]",
        "plugins.throwaway[0].count",
        "plugins.throwaway[0].resourceName",
    ]
    assert len(config_rules.plugins_problems(two, ["plugins"])) == 4


def test_configurations_have_it_in_layers() -> None:
    text = msgspec.Raw(msgspec.json.encode(IN_FILE))
    refused = msgspec.Raw(msgspec.json.encode({"throwaway": [{"resourceName": "example.com/other", "count": 0}]}))
    configs = [Config("a", 1, plugins=text), Config("b", 1, plugins=text), Config("c", 1, plugins=refused)]
    found = effective(PluginSettings(), configs, {}, ())
    assert found.plugins == plugins()
    assert found.outcomes["b"].lost == ((NUMBER, "a"),)
    assert found.names("example.com/other", "")


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Manager]:
    made = Manager(tmp_path / "plugins")
    (tmp_path / "plugins").mkdir()
    await made.start()
    yield made
    await made.stop()


async def test_it_serves_devices_and_takes_settings_while_it_runs(manager: Manager, tmp_path: Path) -> None:
    runner = PluginRunner(tmp_path / "plugins", tmp_path)
    runner.apply(plugins())
    async with background(runner.run()):
        await manager.until_listed(NUMBER, ["number-0", "number-1"])
        runner.apply(plugins(throwaway=[{"resourceName": NUMBER, "count": 5}]))
        await until(lambda: len(manager.lists[NUMBER][-1]) == 5)
        assert [device.health for device in manager.lists[NUMBER][-1]] == ["Healthy"] * 4 + ["Unhealthy"]
        assert len(manager.registrations) == 1, "it runs on"


def test_its_hook_decides_on_containers(tmp_path: Path) -> None:
    scenario = RuntimeScenario()
    scenario.sync()
    found = msgspec.convert({"throwaway": [{"resourceName": GPU}]}, PluginSettings)
    scenario.plugin(["number-0"], options=PluginOptions(scope=f"built-in {GPU}"))
    hooked = HookedContainers(scenario.manager, KubeletCheckpoint(reader_of(tmp_path)), "ours", lambda: None)
    injection = Injection(scenario.manager, hooked.hooks)
    hooked.configured(found)
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    scenario.happens("allocated", call.ticket, AllocateResponse(b"x", ContainerEdits({"NUMBERS": "number-0"})))
    grant = injection.decide(sandbox("p"), "main", ["NUMBERS=all"])
    assert isinstance(grant, Grant)
    assert grant.edits.envs == {"NUMBERS": "number-0"}
    assert [creation.names for creation in grant.overruled] == [("NUMBERS",)]
    assert hooked.reads("NUMBERS=all")
    other = container("q", env=("NUMBERS=all",))
    assert cast(ContainerEdits, hooked.edits(sandbox("q"), other, None)).envs == {"NUMBERS": "none"}
    assert hooked.edits(sandbox("p"), container("p", env=("NUMBERS=all",)), grant.edits) == grant.edits
    with pytest.raises(InjectionRefused, match="NUMBERS twice"):
        hooked.edits(sandbox("q"), container("q", env=("NUMBERS=1", "NUMBERS=2")), None)
    assert (hooked.note(GPU), hooked.note("example.com/other")) == ("numbers are counted", "")


def test_the_command_line_knows_it(tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["throwaway", "show", "--state-dir", str(tmp_path), "7"])
    assert (shown.exit_code, shown.output) == (0, f"{tmp_path}: 7\n")
    assert "throwaway" in CliRunner().invoke(main, ["--help"]).output
    settings = tmp_path / "agent.yaml"
    settings.write_text(json.dumps({"stateDir": str(tmp_path), "plugins": {"hostRoot": str(tmp_path), **IN_FILE}}))
    lines = CliRunner().invoke(main, ["discover", "--config", str(settings)]).output.splitlines()
    at = lines.index("  Number 1 number 1")
    offered = f"    offered already, as {NUMBER}"
    assert lines[at + 1 : at + 4] == [offered, "  Number 2 number 2", "    settings below: throwaway"]
    at = lines.index("throwaway:")
    assert lines[at + 1 : at + 4] == ["  # Number 2 number 2", f"  - resourceName: {NUMBER}", "    count: 2"]
