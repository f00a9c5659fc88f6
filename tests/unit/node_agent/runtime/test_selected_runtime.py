"""The runtime that a node keeps: chosen, written down, read again; and the command that changes it."""

import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from nodedevice_agent.__main__ import main
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.state import Checkpoint
from nodedevice_agent.errors import SettingsError
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.runtime import selected_runtime as kept_runtime
from nodedevice_agent.runtime.settle import with_runtime_settled
from nodedevice_agent.settings import Settings

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


def settle(node: Path, runtime: str = "auto", ours: tuple[str, ...] = ()) -> str:
    return kept_runtime.settle(runtime, node / "s", node / "k", node / "nri.sock", ours)


def kept(node: Path) -> str:
    path = node / "s/runtime"
    return path.read_text() if path.exists() else ""


def kubelet_knows(node: Path, *names: str, allocations: tuple[Allocation, ...] = ()) -> None:
    text = encode(Checkpoint(allocations, dict.fromkeys(names, ())))
    (node / "k/device-plugins/kubelet_internal_checkpoint").write_text(text)


def test_the_choice_is_kept_whatever_is_there_later(node: Path, nri: Path) -> None:
    assert settle(node) == "nri"
    nri.unlink()
    assert (settle(node), kept(node)) == ("nri", "nri\n")


def test_without_a_socket_it_is_the_kubelet(node: Path) -> None:
    (node / "nri.sock").touch()
    assert (settle(node), kept(node)) == ("kubelet", "kubelet\n")


@pytest.mark.parametrize("known_by", ["plugins of the settings", "the agent's checkpoint"])
@pytest.mark.parametrize("entry", ["registered", "held"])
def test_a_name_that_the_kubelet_knew_is_the_kubelets(node: Path, nri: Path, known_by: str, entry: str) -> None:
    if entry == "registered":
        kubelet_knows(node, GPU)
    else:
        kubelet_knows(node, allocations=(HELD,))
    if known_by == "the agent's checkpoint":
        checkpoint_file.write(node / "s/checkpoint.json", encode(Checkpoint(registered={GPU: ()})))
        assert settle(node) == "kubelet"
    else:
        assert settle(node, ours=(GPU,)) == "kubelet"


@pytest.mark.parametrize(
    ("plugins", "name"),
    [
        pytest.param({"nvml": {}}, "nvidia.com/gpu", id="nvml"),
        pytest.param({"nvml": {"modelResourceNames": {"*T4*": "example.com/t4"}}}, "example.com/t4", id="of a model"),
        pytest.param({"simulated": [{"resourceName": GPU}]}, GPU, id="simulated"),
        pytest.param(
            {"generic": [{"resourceName": GPU, "groups": [{"paths": [{"path": "/dev/x"}]}]}]}, GPU, id="generic"
        ),
    ],
)
def test_names_of_every_built_in_plugin_count(node: Path, nri: Path, plugins: dict[str, object], name: str) -> None:
    kubelet_knows(node, name)
    settings = Settings(
        runtime="auto",
        state_dir=str(node / "s"),
        kubelet_dir=str(node / "k"),
        nri_socket=str(nri),
        plugins=msgspec.convert(plugins, PluginSettings),
    )
    assert with_runtime_settled(settings).runtime == "kubelet"
    assert kept(node) == "kubelet\n"


@pytest.mark.parametrize("broken", ["s/checkpoint.json", "k/device-plugins/kubelet_internal_checkpoint"])
def test_a_checkpoint_that_cannot_be_read_says_nothing(node: Path, nri: Path, broken: str) -> None:
    (node / broken).write_bytes(b"\xff\xfe")
    assert settle(node, ours=(GPU,)) == "nri"


def test_a_runtime_that_is_set_is_used_and_kept(node: Path, nri: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert settle(node, "kubelet") == "kubelet"
    assert settle(node) == "kubelet"
    with caplog.at_level(logging.WARNING):
        assert settle(node, "nri") == "nri"
    assert [record.message for record in caplog.records] == ["another runtime than before"]
    assert kept(node) == "nri\n"


def test_none_is_not_kept(node: Path) -> None:
    assert (settle(node, "none"), kept(node)) == ("none", "")


@pytest.mark.parametrize("content", [b"", b"docker\n", b"\xff", b"x" * 10_000])
def test_a_word_that_is_no_runtime_is_refused_with_the_remedy(node: Path, content: bytes) -> None:
    (node / "s/runtime").write_bytes(content)
    with pytest.raises(SettingsError, match="nodedevice-agent runtime move") as caught:
        settle(node)
    assert len(str(caught.value)) < 600


def test_a_directory_in_its_place_is_to_be_removed(node: Path) -> None:
    (node / "s/runtime").mkdir()
    for said in (command(node, "show"), command(node, "move", "--to", "nri")):
        assert said.exit_code == 1
        assert f"{node / 's/runtime'} is a directory" in said.output
        assert "remove it" in said.output
    with pytest.raises(SettingsError, match="remove it"):
        settle(node)
    (node / "s/runtime").rmdir()
    assert command(node, "move", "--to", "nri").exit_code == 0


def test_a_state_directory_that_cannot_be_written_is_told(node: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written"):
        kept_runtime.settle("auto", node / "none", node / "k", node / "nri.sock", ())


def command(node: Path, *args: str) -> Result:
    given = ["--state-dir", str(node / "s"), "--kubelet-dir", str(node / "k"), "--nri-socket", str(node / "nri.sock")]
    return CliRunner().invoke(main, ["runtime", *args, *given])


def test_show(node: Path) -> None:
    assert "kubelet: not kept yet; would be chosen because" in command(node, "show").output
    settle(node)
    assert command(node, "show").output == f"kubelet: kept in {node / 's/runtime'}\n"


def test_move(node: Path) -> None:
    settle(node)
    assert command(node, "move", "--to", "nri").exit_code == 0
    assert (settle(node), kept(node)) == ("nri", "nri\n")


def test_move_from_a_kubelet_that_still_knows_the_name(node: Path) -> None:
    settle(node)
    checkpoint_file.write(node / "s/checkpoint.json", encode(Checkpoint(registered={GPU: ()})))
    kubelet_knows(node, GPU)
    assert f"the kubelet still knows {GPU}" in command(node, "move", "--to", "nri").output
    assert f"the kubelet's checkpoint knows: {GPU}" in command(node, "show").output


def test_move_asks_for_a_drained_node(node: Path) -> None:
    settle(node)
    checkpoint_file.write(node / "s/checkpoint.json", encode(Checkpoint((HELD,), {GPU: ()})))
    refused = command(node, "move", "--to", "nri")
    assert (refused.exit_code, kept(node)) == (1, "kubelet\n")
    assert "1 containers of this node hold devices" in refused.output
    assert command(node, "move", "--to", "nri", "--even-if-held").exit_code == 0
    assert kept(node) == "nri\n"


def test_move_does_not_guess_where_the_checkpoint_cannot_be_read(node: Path) -> None:
    (node / "s/checkpoint.json").write_text("{")
    refused = command(node, "move", "--to", "nri")
    assert (refused.exit_code, kept(node)) == (1, "")
    assert "cannot be read" in refused.output


def test_move_mends_a_word_that_is_no_runtime(node: Path) -> None:
    (node / "s/runtime").write_text("docker")
    assert command(node, "show").exit_code == 1
    assert command(node, "move", "--to", "kubelet").exit_code == 0
    assert kept(node) == "kubelet\n"
