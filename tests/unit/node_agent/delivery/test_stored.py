"""The stored delivery of a node: selected, written, and read at the next start; and the command that changes it."""

import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.cli.run import main
from nodedevice_agent.delivery.selection import Evidence, choose
from nodedevice_agent.delivery.stored import with_selected_delivery
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.lib import filesystem
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.settings import AgentSettings

GPU = "example.com/gpu"
HELD = Allocation("uid", "main", GPU, {-1: ("d0",)}, b"")


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path, with a state directory and a kubelet's in it."""
    found = tmp_path_factory.mktemp("r")
    (found / "s").mkdir()
    (found / "k/device-plugins").mkdir(parents=True)
    return found


@pytest.fixture
def nri(node: Path) -> Iterator[Path]:
    path = node / "nri.sock"
    with closing(socket.socket(socket.AF_UNIX)) as bound:
        bound.bind(str(path))
        yield path


def select(node: Path, delivery: Any = "auto", state: str = "s", **plugins: Any) -> str:
    """plugins: the settings of built-in plugins."""
    settings = AgentSettings(
        delivery=delivery,
        state_dir=str(node / state),
        kubelet_dir=str(node / "k"),
        nri_socket=str(node / "nri.sock"),
        plugins=msgspec.convert(plugins, PluginSettings),
    )
    return with_selected_delivery(settings).delivery


def stored(node: Path) -> str:
    path = node / "s/delivery"
    return path.read_text() if path.exists() else ""


def kubelet_knows(node: Path, *names: str, allocations: tuple[Allocation, ...] = ()) -> None:
    text = encode(Checkpoint(allocations, dict.fromkeys(names, ())))
    (node / "k/device-plugins/kubelet_internal_checkpoint").write_text(text)


def agent_knows(node: Path, *allocations: Allocation) -> None:
    (node / "s/checkpoint.json").write_text(encode(Checkpoint(allocations, {GPU: ()})))


def command(node: Path, *args: str) -> Result:
    given = ["--state-dir", str(node / "s"), "--kubelet-dir", str(node / "k"), "--nri-socket", str(node / "nri.sock")]
    return CliRunner().invoke(main, ["delivery", *args, *given])


def move(node: Path, to: str, *flags: str) -> Result:
    return command(node, "move", "--to", to, *flags)


def test_the_choice_is_stored_whatever_exists_later(node: Path, nri: Path) -> None:
    assert select(node) == "nri"
    nri.unlink()
    assert (select(node), stored(node)) == ("nri", "nri\n")


def test_without_a_socket_the_kubelet_is_selected(node: Path) -> None:
    (node / "nri.sock").touch()
    assert (select(node), stored(node)) == ("kubelet", "kubelet\n")


def test_the_reason_names_a_bounded_number_of_resources() -> None:
    reason = choose(Evidence("", True, [f"example.com/r{index}" for index in range(9)]))[1]
    assert reason == "the kubelet's checkpoint has example.com/r0, example.com/r1, example.com/r2, …"


GROUP = {"paths": [{"path": "/dev/x"}]}
SIMULATED: dict[str, Any] = {"simulated": [{"resourceName": GPU}]}


@pytest.mark.parametrize(
    ("plugins", "name", "selected"),
    [
        pytest.param(SIMULATED, GPU, "kubelet", id="simulated"),
        pytest.param({"nvml": {}}, "nvidia.com/gpu", "kubelet", id="nvml"),
        pytest.param({"nvml": {"modelResourceNames": {"*T4*": "a.com/t4"}}}, "a.com/t4", "kubelet", id="of a model"),
        pytest.param({"generic": [{"resourceName": GPU, "groups": [GROUP]}]}, GPU, "kubelet", id="generic"),
        pytest.param(SIMULATED, "example.com/other", "nri", id="another name"),
    ],
)
def test_a_name_of_a_plugin_in_its_checkpoint_selects_the_kubelet(
    node: Path, nri: Path, plugins: dict[str, Any], name: str, selected: str
) -> None:
    kubelet_knows(node, name)
    assert (select(node, **plugins), stored(node)) == (selected, f"{selected}\n")


@pytest.mark.parametrize(("names", "held"), [((GPU,), ()), ((), (HELD,))], ids=["registered", "held"])
def test_so_does_a_name_of_the_agents_own_checkpoint(node: Path, nri: Path, names: Any, held: Any) -> None:
    kubelet_knows(node, *names, allocations=held)
    agent_knows(node)
    assert select(node) == "kubelet"


@pytest.mark.parametrize("broken", ["s/checkpoint.json", "k/device-plugins/kubelet_internal_checkpoint"])
def test_an_unreadable_checkpoint_does_not_count(node: Path, nri: Path, broken: str) -> None:
    (node / broken).write_bytes(b"\xff\xfe")
    assert select(node, **SIMULATED) == "nri"


def test_a_delivery_by_name_is_used_and_stored(node: Path, nri: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert select(node, "kubelet") == "kubelet"
    assert select(node) == "kubelet"
    with caplog.at_level(logging.WARNING):
        assert select(node, "nri") == "nri"
    assert [record.message for record in caplog.records] == ["delivery differs from the stored one"]
    assert stored(node) == "nri\n"


def test_a_choice_of_the_release_before_is_kept_under_the_new_name(node: Path, nri: Path) -> None:
    (node / "s/runtime").write_text("kubelet\n")
    assert "kubelet: stored in" in command(node, "show").output
    assert (select(node), stored(node)) == ("kubelet", "kubelet\n")


def test_an_agent_of_the_release_before_reads_and_replaces_the_choice(node: Path, nri: Path) -> None:
    """A downgrade, a move there, and an upgrade."""
    for delivery in ("kubelet", "nri"):
        assert move(node, delivery).exit_code == 0
        assert (node / "s/runtime").read_text() == f"{delivery}\n"
    # as that release does it
    filesystem.replace_durably(node / "s/runtime", "kubelet\n")
    assert (select(node), stored(node)) == ("kubelet", "kubelet\n")


@pytest.mark.parametrize("content", [b"", b"docker\n", b"\xff", b"x" * 10_000])
def test_an_invalid_delivery_is_an_error_with_a_remedy(node: Path, content: bytes) -> None:
    (node / "s/delivery").write_bytes(content)
    with pytest.raises(AgentSettingsError, match="nodedevice-agent delivery move") as caught:
        select(node)
    assert len(str(caught.value)) < 600


def test_a_directory_in_its_place_must_be_removed(node: Path) -> None:
    (node / "s/delivery").mkdir()
    for result in (command(node, "show"), move(node, "nri")):
        assert result.exit_code == 1
        assert f"{node / 's/delivery'} is a directory" in result.output
        assert "remove it" in result.output
    with pytest.raises(AgentSettingsError, match="remove it"):
        select(node)
    (node / "s/delivery").rmdir()
    assert move(node, "nri").exit_code == 0


def test_a_state_directory_that_cannot_be_written_is_an_error(node: Path) -> None:
    with pytest.raises(AgentSettingsError, match="cannot be written"):
        select(node, state="none")


def test_the_command_has_its_former_name_too(node: Path) -> None:
    given = ["--state-dir", str(node / "s"), "--kubelet-dir", str(node / "k")]
    assert CliRunner().invoke(main, ["runtime", "move", "--to", "nri", *given]).exit_code == 0
    assert stored(node) == "nri\n"
    assert " runtime " not in CliRunner().invoke(main, ["--help"]).output


def test_move_from_a_kubelet_whose_checkpoint_has_the_name(node: Path) -> None:
    select(node)
    agent_knows(node)
    kubelet_knows(node, GPU)
    assert f"the kubelet still has {GPU}" in move(node, "nri").output
    assert f"the kubelet's checkpoint contains: {GPU}" in command(node, "show").output
    assert select(node, **SIMULATED) == "nri", "what is stored counts"


def test_move_requires_a_drained_node(node: Path) -> None:
    select(node)
    agent_knows(node, HELD)
    refused = move(node, "nri")
    assert (refused.exit_code, stored(node)) == (1, "kubelet\n")
    assert "1 containers of this node hold devices" in refused.output
    assert move(node, "nri", "--even-if-held").exit_code == 0
    assert (select(node), stored(node)) == ("nri", "nri\n")


def test_move_back_to_where_the_devices_came_from_needs_no_drained_node(node: Path) -> None:
    select(node)
    agent_knows(node, replace(HELD, delivery="nri"))
    assert move(node, "nri").exit_code == 0
    assert move(node, "kubelet").exit_code == 1


def test_move_fails_with_an_unreadable_checkpoint(node: Path) -> None:
    (node / "s/checkpoint.json").write_text("{")
    refused = move(node, "nri")
    assert (refused.exit_code, stored(node)) == (1, "")
    assert "cannot be read" in refused.output


def test_move_replaces_an_invalid_delivery(node: Path) -> None:
    (node / "s/delivery").write_text("docker")
    assert command(node, "show").exit_code == 1
    assert move(node, "kubelet").exit_code == 0
    assert stored(node) == "kubelet\n"


def test_none_is_not_stored(node: Path) -> None:
    assert (select(node, "none"), stored(node)) == ("none", "")
