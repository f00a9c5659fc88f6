"""Commands beside a running agent use that agent's configuration."""

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.cli.options import takes_all_settings
from nodedevice_agent.cli.run import main
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.plugins.simulated.control import Listing, simulated_dir, write_listing
from nodedevice_agent.plugins.simulated.control import show as simulated

GPU = "example.com/gpu"


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path with the directories of an agent's configuration, none at its default place."""
    found = tmp_path_factory.mktemp("c")
    (found / "s").mkdir()
    (found / "k/device-plugins").mkdir(parents=True)
    (found / "agent.yaml").write_text(
        f"{{stateDir: {found}/s, kubeletDir: {found}/k, nriSocket: {found}/nri.sock, "
        f"plugins: {{simulated: [{{resourceName: {GPU}}}]}}}}"
    )
    return found


def in_the_agents_pod(node: Path, *args: str, **environment: str) -> Result:
    """Run the command with the agent's configuration named in the environment, and no other settings unless given."""
    return CliRunner().invoke(main, [*args], env={"NODEDEVICE_CONFIG": str(node / "agent.yaml"), **environment})


def test_show_uses_the_sockets_and_names_of_the_configuration(node: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as bound:
        bound.bind(str(node / "nri.sock"))
        assert in_the_agents_pod(node, "delivery", "show").output.startswith("nri: not stored yet")
        known = encode(Checkpoint(registered={GPU: ()}))
        (node / "k/device-plugins/kubelet_internal_checkpoint").write_text(known)
        shown = in_the_agents_pod(node, "delivery", "show").output
    assert shown.startswith(f"kubelet: not stored yet; would be selected because the kubelet's checkpoint has {GPU}")


def test_move_writes_where_the_agent_reads(node: Path) -> None:
    assert in_the_agents_pod(node, "delivery", "move", "--to", "nri").exit_code == 0
    assert (node / "s/delivery").read_text() == "nri\n"
    assert in_the_agents_pod(node, "delivery", "show").output == f"nri: stored in {node / 's/delivery'}\n"


def test_simulate_breaks_the_agents_own_device(node: Path) -> None:
    simulated_dir(node / "s").mkdir()
    write_listing(node / "s", Listing(GPU, ["gpu-0"]))
    assert in_the_agents_pod(node, "simulate", "break", GPU, "gpu-0").exit_code == 0
    assert simulated(node / "s", GPU) == {"gpu-0": "unhealthy"}


def test_flag_over_environment_over_configuration(node: Path) -> None:
    for name in ("flag", "env"):
        (node / name).mkdir()
        (node / name / "delivery").write_text("nri\n")
    variables = {"NODEDEVICE_STATE_DIR": f"{node}/env"}
    assert in_the_agents_pod(node, "delivery", "show", **variables).output == f"nri: stored in {node}/env/delivery\n"
    by_flag = in_the_agents_pod(node, "delivery", "show", "--state-dir", f"{node}/flag", **variables)
    assert by_flag.output == f"nri: stored in {node}/flag/delivery\n"


@pytest.mark.parametrize(
    "args", [("delivery", "show"), ("delivery", "move", "--to", "nri"), ("simulate", "show", GPU)], ids=" ".join
)
def test_a_configuration_that_cannot_be_read_is_one_line(tmp_path: Path, args: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(main, [*args, "--config", str(tmp_path / "none.yaml")])
    assert (refused.exit_code, refused.output.count("\n")) == (1, 1)
    assert f"config file {tmp_path / 'none.yaml'}: cannot be read (No such file" in refused.output


def flags(*args: str, **environment: str) -> dict[str, Any]:
    """What a command that takes all settings is called with, without those that are not given."""
    given: dict[str, Any] = {}

    @click.command()
    @takes_all_settings
    def command(**found: Any) -> None:
        given.update({name: value for name, value in found.items() if value is not None})

    done = CliRunner().invoke(command, [*args], env={"NODEDEVICE_CONFIG": "", **environment}, catch_exceptions=False)
    return given if done.exit_code == 0 and not done.output else {"output": done.output}


RETRY, HOST_PATHS = "--allocate-retry", "--allowed-host-paths"


@pytest.mark.parametrize(
    ("args", "given"),
    [
        pytest.param([], {}, id="none"),
        pytest.param(["--config", "/a.yaml"], {"config": Path("/a.yaml")}, id="the file"),
        pytest.param(["--flapping-changes", "0"], {"flapping_changes": 0}, id="a number"),
        pytest.param(["--flapping-window-seconds", "1.5"], {"flapping_window_seconds": 1.5}, id="seconds"),
        pytest.param(["--no-observe"], {"observe": False}, id="a switch that is on by default"),
        pytest.param(["--advertise-without-injection"], {"advertise_without_injection": True}, id="a switch"),
        pytest.param([RETRY, "a/b=x", RETRY, "*=x=y"], {"allocate_retry": {"a/b": "x", "*": "x=y"}}, id="pairs"),
        pytest.param([HOST_PATHS, "/a", HOST_PATHS, "/b"], {"allowed_host_paths": ["/a", "/b"]}, id="a list"),
    ],
)
def test_a_flag_sets_its_setting_and_no_other(args: list[str], given: dict[str, Any]) -> None:
    assert flags(*args) == given


def test_each_setting_that_has_a_flag_has_a_variable() -> None:
    variables = {"NODE_NAME": "n1", "OBSERVE": "false", "FLAPPING_CHANGES": "3", "ALLOCATE_RETRY": "a.b/c=never *=x"}
    given = flags(**{f"NODEDEVICE_{name}": value for name, value in variables.items()})
    retry = {"a.b/c": "never", "*": "x"}
    assert given == {"node_name": "n1", "observe": False, "flapping_changes": 3, "allocate_retry": retry}


NRI, KUBELET = {"NODEDEVICE_DELIVERY": "nri"}, {"NODEDEVICE_RUNTIME": "kubelet"}
DIFFERENT = (
    "--runtime is the former name of --delivery: the two must not differ, and are kubelet and nri; "
    "omit --runtime (NODEDEVICE_RUNTIME)"
)


@pytest.mark.parametrize(
    ("args", "environment", "delivery"),
    [
        pytest.param(["--runtime", "kubelet"], {}, "kubelet", id="flag"),
        pytest.param([], KUBELET, "kubelet", id="variable"),
        pytest.param(["--runtime", "nri", "--delivery", "nri"], {}, "nri", id="both flags"),
        pytest.param(["--runtime", "kubelet"], NRI, "kubelet", id="flag over the present variable"),
        pytest.param(["--delivery", "nri"], KUBELET, "nri", id="flag over the former variable"),
    ],
)
def test_the_former_name_of_the_delivery(args: list[str], environment: dict[str, str], delivery: str) -> None:
    assert flags(*args, **environment) == {"delivery": delivery}


@pytest.mark.parametrize(
    ("args", "environment"), [(["--delivery", "nri", "--runtime", "kubelet"], {}), ([], {**NRI, **KUBELET})]
)
def test_two_different_deliveries_are_refused(args: list[str], environment: dict[str, str]) -> None:
    refused = CliRunner().invoke(main, ["run", *args], env={"NODEDEVICE_CONFIG": "", **environment})
    assert refused.exit_code == 2
    assert DIFFERENT in refused.output
    assert "is not one of" in flags("--runtime", "docker")["output"]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--log-level", "loud"], "'loud' is not one of"),
        (["--flapping-changes", "-1"], "-1 is not in the range"),
        (["--flapping-window-seconds", "0"], "0.0 is not in the range"),
        (["--allocate-retry", "never"], "'never' is not RESOURCE=VALUE, such as vendor.com/gpu=never"),
        (["--no-advertise-without-injection"], "No such option"),
    ],
)
def test_what_no_setting_can_be_is_refused(args: list[str], problem: str) -> None:
    assert problem in flags(*args)["output"]
