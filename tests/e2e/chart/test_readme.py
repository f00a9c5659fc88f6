"""From nothing to a pod with a device by the README: its blocks for a cluster of one's own, typed as they stand there."""

import os
import re
from pathlib import Path

import pytest

from tests.cluster.build.binaries import find
from tests.cluster.build.cache import cache_folder
from tests.cluster.build.images import TEST_IMAGE
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.node import containerd
from tests.cluster.shell import shell_environment
from tests.e2e.chart.cluster import AGENT, ChartCluster
from tests.e2e.pages import ROOT, commands_of, done

# up to the next heading
_SECTION = (ROOT / "README.md").read_text().partition("\n## On your own cluster\n")[2].partition("\n## ")[0]
_DEVICE = Path("/dev/fuse")
# of the pod in the README, which a node without a registry does not get
_IMAGE = "busybox:1"


@pytest.fixture
def environment(cluster: ChartCluster, tmp_path: Path) -> dict[str, str]:
    programs = [program.parent for program in find(["helm", "ctr"]).values()]
    return shell_environment(cluster.control_plane.admin_kubeconfig, tmp_path, programs) | {
        "XDG_CACHE_HOME": str(cache_folder().parent),
        # of a node that is a machine of its own within this one
        "CONTAINERD": str(cluster.node.outside(containerd.SOCKET)),
    }


# the README is typed as it stands, and its device is one that nearly every Linux has; another one would be another text
@pytest.mark.skipif(not _DEVICE.exists(), reason=f"the README's device is missing here: make {_DEVICE} (modprobe fuse)")
def test_from_nothing_to_a_pod_with_a_device(cluster: ChartCluster, environment: dict[str, str]) -> None:
    commands = commands_of(_SECTION, in_sentences=False)
    assert commands[0] == "make install"
    outputs = {command: done(command.replace(_IMAGE, TEST_IMAGE), environment, 300) for command in commands}
    [table] = [answer for command, answer in outputs.items() if command.startswith("helm test ")]
    assert re.search(r"^ *ok +operator .* leads *$", table, re.MULTILINE), table
    [listed] = [answer for command, answer in outputs.items() if "exec" in command]
    status = os.stat(_DEVICE)
    assert re.match(rf"c\S+ .* {os.major(status.st_rdev)}, +{os.minor(status.st_rdev)} .*{_DEVICE}$", listed.strip())
    # a moment after the pod was started, as the operator writes it
    holder = r"poddevice\S+/fuse .*example.com/fuse=1"
    cluster.wait(lambda: bool(re.search(holder, done(commands[-1], environment))), "it shows the device's holder")


def test_two_commands_of_other_pages(cluster: ChartCluster, environment: dict[str, str]) -> None:
    """What runtime an agent came to, asked in its pod, and a DaemonSet that is restarted."""
    cluster.release.install(cluster.values())
    [ask] = _commands("docs/install.md", "kubectl exec", "delivery show")
    [pod] = cluster.names_of("pods", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/component=agent")
    assert done(ask.replace("POD", pod), environment).startswith("nri: stored in ")
    [again] = _commands("docs/troubleshooting.md", "kubectl rollout restart ")
    assert done(again, environment) == f"daemonset.apps/{AGENT} restarted\n"


def _commands(page: str, *parts: str) -> list[str]:
    return [text for text in commands_of((ROOT / page).read_text()) if all(part in text for part in parts)]
