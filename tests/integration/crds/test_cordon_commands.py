"""The commands of docs/operations.md that take a device out of service, typed as they stand there: no cordon of anybody is lost."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from nodedevice_api.names import AGENT_FIELD_MANAGER, node_device_name

from tests.cluster.api import Client, NodeDevice, PatchType
from tests.cluster.build.binaries import find
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.shell import shell_environment
from tests.integration.crds.custom_resources import Body, node_device

pytestmark = pytest.mark.cluster

_ROOT: Final = Path(__file__).parents[3]
# the object that the pages name
_NAME: Final = node_device_name("node-a", "example.com/gpu")
# zsh, the usual one of a Mac, is in few of these machines
_SHELLS: Final = ["sh", "bash", *(["zsh"] if shutil.which("zsh") else [])]
Typed = subprocess.CompletedProcess[str]
Type = Callable[..., Typed]


def _blocks(page: str, heading: str) -> list[str]:
    """The shell blocks below a heading."""
    section = (_ROOT / page).read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


# with our command, which has tests of its own; then functions, what is typed with them, and who cordoned what
_, FUNCTIONS, COMMANDS, LIST = _blocks("docs/operations.md", "Take a device out of service")


@pytest.fixture
def client(installed: ControlPlane) -> Iterator[Client]:
    installed.client.apply(node_device(_NAME), field_manager=AGENT_FIELD_MANAGER)
    yield installed.client
    installed.client.delete(NodeDevice, _NAME)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder in PATH before that of kubectl."""
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


@pytest.fixture(params=["sh"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def environment(installed: ControlPlane, programs: Path, tmp_path: Path) -> dict[str, str]:
    return shell_environment(installed.admin_kubeconfig, tmp_path, [programs])


@pytest.fixture
def enter(shell: str, environment: dict[str, str], client: Client) -> Type:
    """What became of commands after the page's functions."""

    def enter(commands: str, **more: str) -> Typed:
        return subprocess.run(
            [shell, "-c", f"{FUNCTIONS}\n{commands}"],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            env={**environment, **more},
        )

    return enter


def given(client: Client, *device_ids: str) -> None:
    body = {"spec": {"cordonedDevices": [{"id": device_id} for device_id in device_ids]}}
    client.patch(NodeDevice, _NAME, body, patch_type=PatchType.MERGE)


def cordons(client: Client) -> dict[str, Body]:
    """What is noted of each, by device ID."""
    found = client.get(NodeDevice, _NAME)["spec"].get("cordonedDevices", [])
    return {each["id"]: {name: note for name, note in each.items() if name != "id"} for each in found}


@pytest.mark.parametrize("shell", _SHELLS, indirect=True)
def test_the_commands_as_they_stand(client: Client, enter: Type) -> None:
    cordon, uncordon = COMMANDS.strip().splitlines()
    done = enter(cordon)
    assert (done.returncode, done.stderr) == (0, "")
    found = cordons(client)
    assert found.keys() == {"gpu-3"}
    assert found["gpu-3"]["reason"] == "fan"
    # the account, as the audit log has it
    account = enter("kubectl auth whoami -o 'jsonpath={.status.userInfo.username}'").stdout
    assert account
    assert found["gpu-3"]["by"] == account
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["gpu-3"]["at"])
    listed = enter(LIST)
    assert re.search(rf"^{re.escape(_NAME)} +gpu-3 +{account} +fan$", listed.stdout, re.MULTILINE), listed
    assert enter(uncordon).returncode == 0
    assert cordons(client) == {}


def _somebody_is_faster(programs: Path, times: int, patch: str) -> Path:
    """A kubectl before whose patch somebody else's comes, so many times. Returns the file that counts its patches."""
    count = programs.parent / "count"
    count.write_text("")
    kubectl = find(["kubectl"])["kubectl"]
    (programs / "kubectl").write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = patch ]; then echo >> {count}\n'
        f'  n=$(wc -l < {count}); [ "$n" -le {times} ] && {kubectl} patch nodedevice {_NAME} --type=json -p "{patch}" >&2\n'
        f'fi\nexec {kubectl} "$@"\n'
    )
    (programs / "kubectl").chmod(0o755)
    return count


THEIRS: Final = r"[{\"op\": \"add\", \"path\": \"/spec/cordonedDevices/-\", \"value\": {\"id\": \"theirs-$n\"}}]"
GOES: Final = r"[{\"op\": \"remove\", \"path\": \"/spec/cordonedDevices/0\"}]"


def test_starts_again_when_somebody_was_faster(client: Client, enter: Type, programs: Path) -> None:
    given(client, "gpu-0")
    count = _somebody_is_faster(programs, 3, THEIRS)
    assert enter(f"cordon {_NAME} gpu-1 fan").returncode == 0
    assert count.read_text().count("\n") == 4
    assert list(cordons(client)) == ["gpu-0", "theirs-1", "theirs-2", "theirs-3", "gpu-1"]


@pytest.mark.parametrize("device", [0, 3])
def test_uncordons_its_own_when_the_list_moves(client: Client, enter: Type, programs: Path, device: int) -> None:
    """Somebody removes the first: what was the last place is none any more."""
    given(client, *(f"gpu-{n}" for n in range(4)))
    count = _somebody_is_faster(programs, 1, GOES)
    done = enter(f"uncordon {_NAME} gpu-{device}")
    assert (done.returncode, count.read_text().count("\n")) == ((0, 2) if device else (1, 1))
    assert list(cordons(client)) == [f"gpu-{n}" for n in range(4) if n not in (0, device)]


def test_a_device_that_is_cordoned_already_names_who_did_it(client: Client, enter: Type) -> None:
    assert enter(f"cordon {_NAME} gpu-0 ecc\ncordon {_NAME} gpu-3 fan", BY="alice").returncode == 0
    before = cordons(client)
    done = enter(f"cordon {_NAME} gpu-3 smoke", BY="bob")
    assert done.returncode == 1
    assert done.stderr.startswith("gpu-3 is cordoned already: ")
    assert '"by":"alice"' in done.stderr
    assert '"reason":"fan"' in done.stderr
    assert cordons(client) == before


@pytest.mark.parametrize("shell", _SHELLS, indirect=True)
def test_words_with_spaces_and_quotes(client: Client, enter: Type) -> None:
    done = enter(f"""cordon {_NAME} 'GPU "0" \\1' 'the fan'"'"'s "bearing" \\o/ ☃'""", BY='Al "Bo" Ice')
    assert (done.returncode, done.stderr) == (0, "")
    [(device_id, notes)] = cordons(client).items()
    assert (device_id, notes["reason"]) == ('GPU "0" \\1', 'the fan\'s "bearing" \\o/ ☃')
    assert notes["by"] == 'Al "Bo" Ice'
    assert enter(f"""uncordon {_NAME} 'GPU "0" \\1'""").returncode == 0
    assert cordons(client) == {}
