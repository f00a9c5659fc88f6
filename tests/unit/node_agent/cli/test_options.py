"""Commands beside a running agent use that agent's configuration."""

import socket
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.cli.run import main
from nodedevice_agent.devicemanager.allocation.allocations import Checkpoint
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
        assert in_the_agents_pod(node, "runtime", "show").output.startswith("nri: not stored yet")
        known = encode(Checkpoint(registered={GPU: ()}))
        (node / "k/device-plugins/kubelet_internal_checkpoint").write_text(known)
        shown = in_the_agents_pod(node, "runtime", "show").output
    assert shown.startswith(f"kubelet: not stored yet; would be selected because the kubelet's checkpoint has {GPU}")


def test_move_writes_where_the_agent_reads(node: Path) -> None:
    assert in_the_agents_pod(node, "runtime", "move", "--to", "nri").exit_code == 0
    assert (node / "s/runtime").read_text() == "nri\n"
    assert in_the_agents_pod(node, "runtime", "show").output == f"nri: stored in {node / 's/runtime'}\n"


def test_simulate_breaks_the_agents_own_device(node: Path) -> None:
    simulated_dir(node / "s").mkdir()
    write_listing(node / "s", Listing(GPU, ["gpu-0"]))
    assert in_the_agents_pod(node, "simulate", "break", GPU, "gpu-0").exit_code == 0
    assert simulated(node / "s", GPU) == {"gpu-0": "unhealthy"}


def test_flag_over_environment_over_configuration(node: Path) -> None:
    for name in ("flag", "env"):
        (node / name).mkdir()
        (node / name / "runtime").write_text("nri\n")
    variables = {"NODEDEVICE_STATE_DIR": f"{node}/env"}
    assert in_the_agents_pod(node, "runtime", "show", **variables).output == f"nri: stored in {node}/env/runtime\n"
    by_flag = in_the_agents_pod(node, "runtime", "show", "--state-dir", f"{node}/flag", **variables)
    assert by_flag.output == f"nri: stored in {node}/flag/runtime\n"


@pytest.mark.parametrize(
    "args", [("runtime", "show"), ("runtime", "move", "--to", "nri"), ("simulate", "show", GPU)], ids=" ".join
)
def test_a_configuration_that_cannot_be_read_is_one_line(tmp_path: Path, args: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(main, [*args, "--config", str(tmp_path / "none.yaml")])
    assert (refused.exit_code, refused.output.count("\n")) == (1, 1)
    assert f"config file {tmp_path / 'none.yaml'}: cannot be read (No such file" in refused.output
