"""What `make up` prints: typed as it stands, in one shell, from anywhere."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.how_to_use import TYPED
from tests.cluster.processes.loopback import fetch
from tests.e2e.pages import local_cluster, typed_in_one_shell


@contextmanager
def _up() -> Iterator[list[str]]:
    """What it printed."""
    try:
        up = local_cluster("up")
        assert up.returncode == 0, up.stdout + up.stderr
        yield up.stdout.splitlines()
    finally:
        local_cluster("down")


def test_each_line_works_in_its_order(own_temp: Path, control_plane: ControlPlane) -> None:
    with _up() as printed:
        exports = [line for line in printed if line.startswith("export ")]
        commands = [line.removeprefix(TYPED) for line in printed if line.startswith(TYPED)]
        outputs = typed_in_one_shell([*exports, *commands], Path("/"))
        [held] = [output for line, output in outputs.items() if line.endswith("get poddevices")]
        assert re.search(r"^try +node-[ab] +example.com/gpu=1 +gpu-\d +Healthy ", held, re.MULTILINE)
        [event] = [output for line, output in outputs.items() if "get events --field" in line]
        assert re.search(r"DevicesCordoned .*gpu-3", event)
        [first] = [output for line, output in outputs.items() if "get nodedevices" in line]
        assert re.search(r"^node-a\.example\.com\.gpu .* True +0 +Ready +True ", first, re.MULTILINE)
        assert "Nothing needs attention." in outputs["kubectl nodedevice"]
        [cordoned, broken] = [output for line, output in outputs.items() if "nodedevice devices" in line]
        assert re.search(r"^node-a +example\.com/gpu +gpu-3 +cordoned by \S+: fan ", cordoned, re.MULTILINE)
        assert re.search(r"^node-a +example\.com/gpu +gpu-2 +unhealthy", broken, re.MULTILINE)
        sockets = [
            word for line in printed if "plugins of your own" in line for word in line.split() if word.startswith("/")
        ]
        assert [Path(socket).is_socket() for socket in sockets] == [True, True]
        _read_metrics(printed)
        _ask_again(printed)


def _ask_again(printed: list[str]) -> None:
    """It prints the same, and refuses who asks for another cluster."""
    for variables in ({}, {"MACHINE": "0"}):
        assert local_cluster("up", {**os.environ, **variables}).stdout.splitlines() == printed
    for another in ({"MACHINE": "1"}, {"CLUSTER": "current"}):
        refused = local_cluster("up", {**os.environ, **another})
        assert refused.returncode == 1
        assert "another local cluster is up, that of `make up`: end it first" in refused.stderr


def _read_metrics(printed: list[str]) -> None:
    """Each address serves the metrics of its program."""
    found = [re.fullmatch(r"# metrics of the (.+): (http://\S+/metrics)", line) for line in printed]
    served = {each[1]: fetch(each[2])[1] for each in found if each}
    assert list(served) == ["agent of node-a", "agent of node-b", "operator"]
    for name, text in served.items():
        assert f"nodedevice_{name.partition(' ')[0]}_" in text, name
