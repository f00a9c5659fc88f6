"""Settings: flag over environment over file over default, and every mistake reported in one line that names it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from click.testing import CliRunner, Result
from nodedevice_agent.cli import run as run_command
from nodedevice_agent.cli.run import main
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy, TopologyScope
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.settings import AgentSettings, Delivery, load, read_topology
from nodedevice_common import logs

PATIENCE_SECONDS = 60


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def started_with(monkeypatch: pytest.MonkeyPatch) -> list[AgentSettings]:
    """The settings that the program would run with; it does not run."""
    seen: list[AgentSettings] = []

    async def note(settings: AgentSettings) -> None:
        seen.append(settings)

    monkeypatch.setattr(run_command, "_until_stopped", note)
    monkeypatch.setattr(logs, "set_up_logs", lambda *_: None)
    return seen


def run(*args: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["run", *args], env=environment)


@pytest.mark.parametrize(
    ("flag", "environment", "file", "expected"),
    [
        pytest.param("", "", "", "127.0.0.1:9808", id="default"),
        pytest.param("", "", "file:1", "file:1", id="file over default"),
        pytest.param("", "env:1", "file:1", "env:1", id="environment over file"),
        pytest.param("flag:1", "env:1", "file:1", "flag:1", id="flag over all"),
        pytest.param("flag:1", "", "file:1", "flag:1", id="flag over file"),
    ],
)
def test_precedence(
    tmp_path: Path, started_with: list[AgentSettings], flag: str, environment: str, file: str, expected: str
) -> None:
    args = ["--http-address", flag] if flag else []
    if file:
        args += ["--config", str(written(tmp_path, f"nodeName: n1\nhttpAddress: {file}\n"))]
    env = {"NODEDEVICE_HTTP_ADDRESS": environment} if environment else {}
    result = run("--node-name", "n1", *args, **env)
    assert (result.exit_code, result.output) == (0, "")
    assert [settings.http_address for settings in started_with] == [expected]


@pytest.mark.parametrize(
    ("text", "flags", "delivery"),
    [
        ("delivery: auto\nruntime: nri\n", [], "nri"),
        ("delivery: nri\nruntime: nri\n", [], "nri"),
        ("delivery: nri\n", ["--runtime", "kubelet"], "kubelet"),
        ("runtime: nri\n", ["--delivery", "auto"], "auto"),
        ("delivery: nri\nruntime: kubelet\n", [], ""),
    ],
)
def test_the_delivery_by_its_former_name(
    tmp_path: Path, started_with: list[AgentSettings], text: str, flags: list[str], delivery: str
) -> None:
    result = run("--node-name", "n1", "--config", str(written(tmp_path, text)), *flags)
    assert [settings.delivery for settings in started_with] == ([delivery] if delivery else [])
    if not delivery:
        assert result.exit_code == 2
        assert "runtime: is the former name of delivery, which is nri; remove runtime" in result.output


JSON = '{"nodeName": "n1", "flappingWindowSeconds": 1e-5, "stateDir": "/=", "plugins": {"hostRoot": "/\\u2028"}}'


def test_a_file_of_json_is_read_as_json(tmp_path: Path) -> None:
    """Of which YAML would read a number as a word."""
    settings = load(written(tmp_path, JSON), {})
    assert (settings.flapping_window_seconds, settings.state_dir) == (1e-5, "/=")
    assert settings.plugins.host_root == "/\u2028"


def test_every_setting_but_the_plugins_has_a_flag_whose_help_has_the_default() -> None:
    flags = {option.name: option for option in main.commands["run"].params}
    for field in msgspec.structs.fields(AgentSettings):
        if field.name in ("plugins", "runtime"):
            continue
        assert field.name in flags
        help_text = getattr(flags[field.name], "help", "")
        assert "[default:" in help_text or "[required]" in help_text, field.name
        assert f"NODEDEVICE_{field.name.upper()}" in getattr(flags[field.name], "envvar", ())


@pytest.mark.parametrize("name", ["n", "node-1", "ip-10-0-0-1.ec2.internal", "1", "a" * 253])
def test_names_that_a_node_may_have(name: str) -> None:
    assert load(None, {"node_name": name}).node_name == name


@pytest.mark.parametrize("name", ["", "Node", "node_1", "-n", "n-", "n..m", "a/b", "a" * 254, "n\n", "ñ"])
def test_names_that_no_node_has(name: str) -> None:
    with pytest.raises(AgentSettingsError, match="--node-name"):
        load(None, {"node_name": name})


GROUP = "plugins: {generic: [{resourceName: a.b/c, groups: [{paths: [{path: /dev/x}]"
FAR_DOWN, HAND_OVER = "plugins.generic[0].groups[0].path", "{handOver: [cdi, volume]}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("user: n1\n", ["user: unknown key", "known: advertise", "nodeName"], id="an odd key"),
        pytest.param("nodeNam: n1\n", ["nodeNam: unknown key; did you mean nodeName?"], id="a typo"),
        pytest.param(f"{GROUP}, path: []}}]}}]}}\n", [f"{FAR_DOWN}: unknown key; did you mean paths?"], id="far down"),
        pytest.param(
            f"{GROUP}, env: {{A: x, B: 1}}}}]}}]}}\n",
            ["groups[0].env.B: 1 is not text: put it in quotes"],
            id="a number among words",
        ),
        pytest.param(f"plugins: {{nvml: {HAND_OVER}}}\n", ["volume", "cdi, deviceNodes, env"], id="a choice in a list"),
        pytest.param("nodeName: 7\n", ["nodeName: 7 is not text"], id="wrong type"),
        pytest.param("delivery: docker\n", ['delivery: "docker" is not one of', *get_args(Delivery)], id="a choice"),
        pytest.param(f"delivery: {'x' * 9999}\n", ["xxx… is not one of auto, kubelet"], id="an endless choice"),
        pytest.param("- nodeName: n1\n", ["must be a mapping of settings"], id="a list at the top"),
        pytest.param("nodeName: [\n", ["is not YAML"], id="no YAML"),
        pytest.param("nodeName: a\nnodeName: b\n", ["the key nodeName twice", "line 2"], id="a key twice"),
        pytest.param("a: &x [*x]\n", [], id="a list in itself"),
        pytest.param("!!python/object/apply:os.system [true]\n", ["is not YAML"], id="code"),
        pytest.param("[" * 3000, ["is not YAML"], id="nested without end"),
    ],
)
def test_an_invalid_file_is_one_line_that_names_the_key(tmp_path: Path, text: str, message: list[str]) -> None:
    file = written(tmp_path, text)
    result = run("--config", str(file), "--node-name", "n1")
    assert result.exit_code == 2
    assert result.output.startswith(f"nodedevice-agent: config file {file}")
    assert result.output.count("\n") == 1
    assert all(part in result.output for part in message)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda path: None, "No such file", id="not there"),
        pytest.param(lambda path: path.mkdir(), "directory", id="a folder"),
        pytest.param(lambda path: path.write_bytes(b"\xff\xfe\x00"), "is not YAML", id="no text"),
    ],
)
def test_an_unreadable_file_is_an_error(tmp_path: Path, make: Any, message: str) -> None:
    make(tmp_path / "agent.yaml")
    result = run("--config", str(tmp_path / "agent.yaml"))
    assert (result.exit_code, message in result.output, result.output.count("\n")) == (2, True, 1)


def test_allocate_retry_by_resource(tmp_path: Path) -> None:
    file = written(tmp_path, "nodeName: n1\nallocateRetry: {vendor.com/gpu: never, '*': always}\n")
    assert load(file, {}).allocate_retry == {"vendor.com/gpu": "never", "*": "always"}
    by_flags = {"a.b/c": "never", "*": "always"}
    assert load(file, {"allocate_retry": by_flags}).allocate_retry == by_flags


@pytest.mark.parametrize(
    ("given", "message"), [("gpu=never", "allocateRetry: 'gpu'"), ("a.b/c=once", "choose one of always, never")]
)
def test_an_invalid_allocate_retry_is_an_error(given: str, message: str) -> None:
    result = run("--node-name", "n1", "--allocate-retry", given)
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_an_empty_file_sets_nothing(tmp_path: Path, started_with: list[AgentSettings]) -> None:
    assert run("--config", str(written(tmp_path, "")), "--node-name", "n1").exit_code == 0
    assert started_with == [AgentSettings(node_name="n1")]


def test_devices_without_injection_are_advertised_only_on_request(
    tmp_path: Path, started_with: list[AgentSettings]
) -> None:
    file = written(tmp_path, "nodeName: n1\ndelivery: none\nadvertiseWithoutInjection: true\n")
    assert run("--config", str(file)).exit_code == 0, "a flag that is not given takes nothing back"
    assert run("--node-name", "n1", "--delivery", "none", "--advertise-without-injection").exit_code == 0
    assert run("--node-name", "n1", "--delivery", "none").exit_code == 0
    assert [settings.advertise_without_injection for settings in started_with] == [True, True, False]
    assert AgentSettings().delivery == "auto"


@pytest.mark.parametrize("args", [[], ["--delivery", "nri"]], ids=["auto", "nri"])
def test_a_delivery_that_injects_needs_no_such_request(args: list[str]) -> None:
    result = run("--node-name", "n1", "--advertise-without-injection", *args)
    assert result.exit_code == 2
    assert "--advertise-without-injection is for --delivery none" in result.output


def test_the_node_name_is_asked_for() -> None:
    result, remedy = run(), "set it to the name of the Node this agent runs on"
    assert (result.exit_code, result.output) == (2, f"nodedevice-agent: --node-name is missing: {remedy}\n")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param({"--http-address": "here"}, "--http-address 'here': must be HOST:PORT", id="http address"),
        pytest.param({"--plugin-dir": ""}, "--plugin-dir is empty", id="plugin directory without a name"),
        pytest.param({"--state-dir": "./s"}, "such as {tmp}/s", id="relative state directory"),
        pytest.param({"--state-dir": "{tmp}/file/below"}, "--state-dir", id="state directory below a file"),
        pytest.param({"--plugin-dir": "{tmp}/" + "x" * 120}, "is too long", id="plugin directory too long"),
        pytest.param({"--plugin-dir": "{tmp}/file"}, "cannot be used", id="plugin directory is a file"),
        pytest.param({"--kubeconfig": "{tmp}/nothing"}, "kubeconfig", id="no kubeconfig"),
        pytest.param({"--kubeconfig": "{tmp}/no-user"}, "kubeconfig", id="kubeconfig without a user"),
    ],
)
def test_the_program_ends_with_one_line_if_it_cannot_run(tmp_path: Path, wrong: dict[str, str], message: str) -> None:
    (tmp_path / "file").touch()
    cluster = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
    rest = "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    user = "users: [{name: u, user: {token: t}}]\n"
    (tmp_path / "no-user").write_text(cluster + rest)
    (tmp_path / "good").write_text(cluster + user + rest)
    flags = {"--node-name": "n1", "--kubeconfig": "{tmp}/good", "--http-address": "127.0.0.1:0"}
    flags |= {"--plugin-dir": "{tmp}/p", "--state-dir": "{tmp}/s"} | wrong
    command = [str(Path(sys.executable).with_name("nodedevice-agent")), "run"]
    for flag, value in flags.items():
        command += [flag, value.format(tmp=tmp_path)]
    path = {"PATH": os.environ["PATH"]}
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=path, cwd=tmp_path
    )
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("nodedevice-agent: ")
    assert message.replace("{tmp}", str(tmp_path)) in last


@pytest.mark.parametrize(
    ("setting", "kernel", "nodes"),
    [
        pytest.param("", "0-1,4\n", (0, 1, 4), id="as the kernel writes it"),
        pytest.param("3, 0-1", "0\n", (0, 1, 3), id="settings come first"),
        pytest.param("", None, (0,), id="a kernel without NUMA"),
    ],
)
def test_numa_nodes(setting: str, kernel: str | None, nodes: tuple[int, ...], tmp_path: Path) -> None:
    online = tmp_path / "online"
    if kernel is not None:
        online.write_text(kernel)
    expected = Topology(TopologyPolicy.RESTRICTED, TopologyScope.POD, nodes)
    assert read_topology("restricted", "pod", setting, online) == expected


def test_a_file_that_cannot_be_read_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(AgentSettingsError, match="--numa-nodes"):
        read_topology("none", "container", "", tmp_path)


@pytest.mark.parametrize("text", ["x", "1-0", "0,,1", "-1", "0-99999", "1024", "0;1"])
def test_an_invalid_list_of_nodes_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(AgentSettingsError, match="must be a list such as 0 or 0-1,4"):
        read_topology("none", "container", text, tmp_path / "online")


def test_a_policy_takes_eight_nodes_and_no_more(tmp_path: Path) -> None:
    assert len(read_topology("restricted", "container", "0-7", tmp_path).numa_nodes) == 8
    assert len(read_topology("none", "container", "0-35", tmp_path).numa_nodes) == 36
    with pytest.raises(AgentSettingsError, match=r"at most 8 NUMA nodes .* has 9; set --topology-policy none"):
        read_topology("restricted", "container", "0-8", tmp_path)
