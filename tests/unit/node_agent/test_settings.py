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
from nodedevice_agent.errors import AgentSettingsError, LeaseHeld
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


def test_everything_may_come_from_the_file_alone(tmp_path: Path, started_with: list[AgentSettings]) -> None:
    file = written(tmp_path, "nodeName: n1\npluginDir: /p\nstateDir: /s\nlogLevel: debug\ndelivery: none\n")
    assert run("--config", str(file)).exit_code == 0
    (settings,) = started_with
    assert (settings.node_name, settings.plugin_dir) == ("n1", "/p")
    assert (settings.state_dir, settings.log_level) == ("/s", "debug")


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


def test_the_file_may_be_named_by_the_environment(tmp_path: Path, started_with: list[AgentSettings]) -> None:
    file = written(tmp_path, "nodeName: from-file\n")
    assert run(NODEDEVICE_CONFIG=str(file)).exit_code == 0
    assert started_with[0].node_name == "from-file"


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "somebody: n1\n",
            ["somebody: unknown key", "known: advertise", "nodeName"],
            id="an odd key beside the known ones",
        ),
        pytest.param("nodeNam: n1\n", ["nodeNam: unknown key; did you mean nodeName?"], id="a typo"),
        pytest.param(
            f"{GROUP}, path: []}}]}}]}}\n",
            ["plugins.generic[0].groups[0].path: unknown key; did you mean paths?"],
            id="far down",
        ),
        pytest.param(
            "plugins: {nvml: {slices: yes}}\n",
            ["plugins.nvml.slices: unknown key", "handOver"],
            id="where null may be",
        ),
        pytest.param(
            f"{GROUP}, env: {{A: x, B: 1}}}}]}}]}}\n",
            ["groups[0].env.B: 1 is not text: put it in quotes"],
            id="a number among words",
        ),
        pytest.param(
            f"{GROUP}, env: {{A: x, 7: y}}}}]}}]}}\n",
            ["groups[0].env.7: is a key that is not text: put it in quotes"],
            id="a number as a key",
        ),
        pytest.param(
            "plugins: {nvml: {handOver: [cdi, volume]}}\n", ["volume", "cdi, deviceNodes, env"], id="a choice in a list"
        ),
        pytest.param("plugins: {simulatd: []}\n", ["simulatd", "plugins", "did you mean simulated?"], id="far below"),
        pytest.param("nodeName: 7\n", ["nodeName: 7 is not text"], id="wrong type"),
        pytest.param("nodeName:\n", ["nodeName"], id="no value"),
        pytest.param("delivery: docker\n", ['delivery: "docker" is not one of', *get_args(Delivery)], id="a choice"),
        pytest.param(f"delivery: {'x' * 9999}\n", ["xxx… is not one of auto, kubelet"], id="an endless choice"),
        pytest.param("logLevel: [debug]\n", ["logLevel"], id="a list for a word"),
        pytest.param("- nodeName: n1\n", ["must be a mapping of settings"], id="a list at the top"),
        pytest.param("just words\n", ["must be a mapping of settings"], id="words"),
        pytest.param("nodeName: [\n", ["is not YAML"], id="no YAML"),
        pytest.param("nodeName: a\nnodeName: b\n", ["the key nodeName twice", "line 2"], id="a key twice"),
        pytest.param("plugins: {simulated: [], simulated: []}\n", ["the key simulated twice"], id="twice below"),
        pytest.param("1: 2\n", [], id="a key that is no word"),
        pytest.param("? [a, b]\n: c\n", [], id="a key that is a list"),
        pytest.param("a: &x [*x]\n", [], id="a list in itself"),
        pytest.param("!!python/object/apply:os.system [true]\n", ["is not YAML"], id="code"),
        pytest.param("[" * 3000, ["is not YAML"], id="nested without end"),
        pytest.param("\x00", ["is not YAML"], id="zero byte"),
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


def test_allocate_retry_by_resource(tmp_path: Path, started_with: list[AgentSettings]) -> None:
    file = written(tmp_path, "allocateRetry: {vendor.com/gpu: never, '*': always}\n")
    assert run("--config", str(file), "--node-name", "n1").exit_code == 0
    flags = ("--allocate-retry", "a.b/c=never", "--allocate-retry", "*=always")
    assert run("--config", str(file), "--node-name", "n1", *flags).exit_code == 0
    assert run("--node-name", "n1", NODEDEVICE_ALLOCATE_RETRY="a.b/c=never *=never").exit_code == 0
    assert [settings.allocate_retry for settings in started_with] == [
        {"vendor.com/gpu": "never", "*": "always"},
        {"a.b/c": "never", "*": "always"},
        {"a.b/c": "never", "*": "never"},
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gpu=never", "allocateRetry: 'gpu'"),
        ("a.b/c=once", "choose one of always, never"),
        ("a.b/c", "is not RESOURCE=VALUE, such as vendor.com/gpu=never"),
    ],
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
    assert run("--node-name", "n1", "--delivery", "none", NODEDEVICE_ADVERTISE_WITHOUT_INJECTION="1").exit_code == 0
    assert run("--node-name", "n1", "--delivery", "none").exit_code == 0
    assert [settings.advertise_without_injection for settings in started_with] == [True, True, True, False]
    assert AgentSettings().delivery == "auto"


@pytest.mark.parametrize(
    ("file", "args", "environment", "expected"),
    [
        pytest.param("runtime: nri\n", [], {}, "nri", id="in the file"),
        pytest.param("delivery: auto\nruntime: nri\n", [], {}, "nri", id="beside the default, as in the chart"),
        pytest.param("delivery: nri\nruntime: auto\n", [], {}, "nri", id="beside the default of the release before"),
        pytest.param("delivery: nri\nruntime: nri\n", [], {}, "nri", id="twice the same"),
        pytest.param("runtime: nri\n", ["--delivery", "kubelet"], {}, "kubelet", id="a flag overrides it"),
        pytest.param("delivery: nri\n", ["--runtime", "kubelet"], {}, "kubelet", id="a flag"),
        pytest.param("delivery: nri\n", [], {"NODEDEVICE_RUNTIME": "none"}, "none", id="the environment"),
    ],
)
def test_delivery_by_its_former_name(
    file: str,
    args: list[str],
    environment: dict[str, str],
    expected: str,
    tmp_path: Path,
    started_with: list[AgentSettings],
) -> None:
    config = written(tmp_path, f"nodeName: n1\n{file}")
    assert run("--config", str(config), *args, **environment).exit_code == 0
    assert [settings.delivery for settings in started_with] == [expected]


def test_two_names_that_say_different_things_are_refused(tmp_path: Path) -> None:
    result = run("--config", str(written(tmp_path, "nodeName: n1\ndelivery: nri\nruntime: kubelet\n")))
    assert result.exit_code == 2
    assert "runtime: is the former name of delivery, which is nri; remove runtime" in result.output


@pytest.mark.parametrize("args", [[], ["--delivery", "nri"]], ids=["auto", "nri"])
def test_a_delivery_that_injects_needs_no_such_request(args: list[str]) -> None:
    result = run("--node-name", "n1", "--advertise-without-injection", *args)
    assert result.exit_code == 2
    assert "--advertise-without-injection is for --delivery none" in result.output


def test_the_node_name_is_asked_for() -> None:
    result = run()
    assert (result.exit_code, result.output) == (
        2,
        "nodedevice-agent: --node-name is missing: set it to the name of the Node this agent runs on\n",
    )


@pytest.mark.parametrize("flag", ["--delivery", "--log-level", "--log-format", "--topology-policy", "--no-such-flag"])
def test_a_flag_that_cannot_be_is_refused_by_name(flag: str) -> None:
    result = run("--node-name", "n1", flag, "nonsense")
    assert result.exit_code == 2
    assert flag in result.output


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param({"--http-address": "here"}, "--http-address 'here': must be HOST:PORT", id="http address"),
        pytest.param({"--http-address": "here:99999"}, "--http-address 'here:99999': must be", id="port too high"),
        pytest.param({"--plugin-dir": ""}, "--plugin-dir is empty", id="plugin directory without a name"),
        pytest.param({"--state-dir": ""}, "--state-dir is empty", id="state directory without a name"),
        pytest.param(
            {"--plugin-dir": "p"}, "--plugin-dir p is a relative path: set an abs", id="relative plugin directory"
        ),
        pytest.param({"--state-dir": "./s"}, "such as {tmp}/s", id="relative state directory"),
        pytest.param({"--kubelet-dir": "k"}, "--kubelet-dir k is a relative", id="relative directory of the kubelet"),
        pytest.param({"--plugins-registry-dir": "r"}, "--plugins-registry-dir r is", id="relative plugins registry"),
        pytest.param({"--state-dir": "{tmp}/file/below"}, "--state-dir", id="state directory below a file"),
        pytest.param({"--plugin-dir": "{tmp}/" + "x" * 120}, "is too long", id="plugin directory too long"),
        pytest.param({"--plugin-dir": "{tmp}/file"}, "cannot be used", id="plugin directory is a file"),
        pytest.param({"--kubeconfig": "{tmp}/nothing"}, "kubeconfig", id="no kubeconfig"),
        pytest.param({"--kubeconfig": "{tmp}/file"}, "kubeconfig", id="empty kubeconfig"),
        pytest.param({"--kubeconfig": "{tmp}/yaml"}, "kubeconfig", id="kubeconfig is no YAML"),
        pytest.param({"--kubeconfig": "{tmp}/list"}, "kubeconfig", id="kubeconfig is something else"),
        pytest.param({"--kubeconfig": "{tmp}/no-user"}, "kubeconfig", id="kubeconfig without a user"),
        pytest.param({"--kubeconfig": "{tmp}/no-authority"}, "kubeconfig", id="kubeconfig whose authority is gone"),
    ],
)
def test_the_program_ends_with_one_line_if_it_cannot_run(tmp_path: Path, wrong: dict[str, str], message: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "yaml").write_text("{{{")
    (tmp_path / "list").write_text("clusters: [here]\nusers: there\ncontexts: 7\ncurrent-context: x\n")
    cluster = "clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'{more}}}}}]\n"
    rest = "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    user = "users: [{name: u, user: {token: t}}]\n"
    (tmp_path / "no-user").write_text(cluster.format(more="") + rest)
    (tmp_path / "good").write_text(cluster.format(more="") + user + rest)
    (tmp_path / "no-authority").write_text(cluster.format(more=", certificate-authority: gone.pem") + user + rest)
    flags = {
        "--node-name": "n1",
        "--kubeconfig": "{tmp}/good",
        "--plugin-dir": "{tmp}/p",
        "--state-dir": "{tmp}/s",
        "--http-address": "127.0.0.1:0",
    } | wrong
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


# -- the machine's NUMA nodes, from the kernel or from the settings


@pytest.mark.parametrize(
    ("text", "nodes"), [("0\n", (0,)), ("0-1\n", (0, 1)), ("0-1,4\n", (0, 1, 4)), ("3, 0-1", (0, 1, 3))]
)
def test_is_read_as_the_kernel_writes_it(tmp_path: Path, text: str, nodes: tuple[int, ...]) -> None:
    online = tmp_path / "online"
    online.write_text(text)
    assert read_topology("restricted", "pod", "", online) == Topology(
        TopologyPolicy.RESTRICTED, TopologyScope.POD, nodes
    )
    assert read_topology("restricted", "pod", text, tmp_path / "nothing here").numa_nodes == nodes


def test_a_kernel_without_numa_has_one_node(tmp_path: Path) -> None:
    assert read_topology("best-effort", "container", "", tmp_path / "online").numa_nodes == (0,)


def test_settings_come_before_the_kernel(tmp_path: Path) -> None:
    online = tmp_path / "online"
    online.write_text("0-3")
    assert read_topology("none", "container", "7", online).numa_nodes == (7,)


@pytest.mark.parametrize("text", ["x", "1-0", "0,,1", "-1", "0-99999", "1024", "0;1"])
def test_an_invalid_list_of_nodes_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(AgentSettingsError, match="must be a list such as 0 or 0-1,4"):
        read_topology("none", "container", text, tmp_path / "online")


def test_a_file_that_cannot_be_read_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(AgentSettingsError, match="--numa-nodes"):
        read_topology("none", "container", "", tmp_path)


def test_a_policy_takes_eight_nodes_and_no_more(tmp_path: Path) -> None:
    assert len(read_topology("restricted", "container", "0-7", tmp_path).numa_nodes) == 8
    assert len(read_topology("none", "container", "0-35", tmp_path).numa_nodes) == 36
    with pytest.raises(AgentSettingsError, match=r"at most 8 NUMA nodes .* has 9; set --topology-policy none"):
        read_topology("restricted", "container", "0-8", tmp_path)


def test_an_agent_that_ends_says_why_and_its_status_is_not_that_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ends(_: AgentSettings) -> None:
        raise LeaseHeld("agents/n1", "another")

    levels: list[tuple[object, ...]] = []
    monkeypatch.setattr(run_command, "_until_stopped", ends)
    monkeypatch.setattr(logs, "set_up_logs", lambda *given: levels.append(given))
    result = run("--node-name", "n1", "--log-level", "debug", "--log-format", "json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("nodedevice-agent: ")
    assert result.stderr.count("\n") == 1
    assert levels == [("debug", "json", run_command._LIBRARIES)]
