"""Prints the output of `make up`: lines for a shell. Lines with a # are for people; lines indented after them are
commands.

`tests/e2e/test_up.py` types them.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.cluster.local.stack import GPU, NODE_A

ROOT: Final = Path(__file__).parents[3]
TYPED: Final = "#   "
_CORDONED: Final = "--field-selector reason=DevicesCordoned"


def lines(
    folder: Path,
    kubeconfig: Path,
    kubectl: Path,
    agents: Mapping[str, Path],
    addresses: Mapping[str, str],
    notes: Sequence[str],
) -> list[str]:
    """folder: of what is up. agents: the folder of each by its node; one of them is NODE_A.

    addresses: host and port of each program's HTTP server, by its name. notes: what else there is to know of its Nodes.
    """
    programs = Path(sys.executable).parent
    plugins = ", ".join(f"{_quoted(node / 'plugins/kubelet.sock')} ({name})" for name, node in agents.items())
    return [
        f"export KUBECONFIG={_quoted(kubeconfig)}",
        f"export PATH={_quoted(kubectl.parent)}:{_quoted(programs)}:$PATH   # kubectl of this cluster, and our programs",
        f"export NODE_A={_quoted(agents[NODE_A])}   # where the agent of {NODE_A} keeps its files",
        "# the cluster on one screen, and what the nodes have:",
        f"{TYPED}kubectl nodedevice",
        f"{TYPED}kubectl get nodedevices -o wide",
        "# two lines make a pod with a device, and one shows which pod has which:",
        *a_pod(ROOT / "tests/cluster/local/pod.yaml"),
        "# take a device out of service, wait for the Event about it, and give it back:",
        f'{TYPED}kubectl nodedevice cordon {NODE_A} --device gpu-3 --reason "fan"',
        f"{TYPED}kubectl wait --for=create event {_CORDONED} --timeout=60s",
        f"{TYPED}kubectl get events {_CORDONED}",
        f"{TYPED}kubectl nodedevice devices --node {NODE_A}",
        f"{TYPED}kubectl nodedevice uncordon {NODE_A} --device gpu-3",
        "# break a device, and let it recover:",
        f'{TYPED}nodedevice-agent simulate break --state-dir "$NODE_A" {GPU} gpu-2',
        f"{TYPED}kubectl nodedevice devices --resource {GPU}",
        f'{TYPED}nodedevice-agent simulate recover --state-dir "$NODE_A" {GPU} gpu-2',
        "# what has happened:",
        f"{TYPED}kubectl get events -A",
        *(f"# {note}" for note in notes),
        *(f"# metrics of the {name}: http://{address}/metrics" for name, address in addresses.items()),
        f"# device plugins of your own register at {plugins}",
        "# every device on a page, live: kubectl nodedevice open",
        f"# logs: {_quoted(folder / 'run')}/*/log    end it: make down",
    ]


def a_pod(manifest: Path) -> Sequence[str]:
    """Two lines, and one that shows the result. manifest: of the pod `try`."""
    return (
        f"{TYPED}kubectl apply -f {_quoted(manifest)}",
        f"{TYPED}kubectl wait --for=create poddevice/try --timeout=60s",
        f"{TYPED}kubectl get poddevices",
    )


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
