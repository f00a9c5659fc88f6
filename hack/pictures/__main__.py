"""`make pictures`: runs the product, and photographs the page of `kubectl nodedevice open`, light and dark. A minute."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import click
from nodedevice_agent.plugins.simulated import control

from hack import yaml_text
from tests.cluster.cluster import a_pod
from tests.cluster.errors import ClusterError
from tests.cluster.local.stack import GPU, NODE_A, NODE_B, Stack
from tests.cluster.processes.processes import running
from tests.cluster.shell import shell_environment
from tests.cluster.waiting import wait_until

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs/pictures"
_SOON_SECONDS: Final = 30.0
_GPU_A: Final = f"{NODE_A}.example.com.gpu"
_PLUGINS: Final = {
    node: {"simulated": [{"resourceName": GPU, "count": 8}, {"resourceName": "example.com/nic", "count": 2}]}
    for node in (NODE_A, NODE_B)
}
_SIZE: Final[Any] = {"width": 1000, "height": 560}


def main() -> int:
    chromium = shutil.which("chromium")
    if chromium is None:
        click.echo("no pictures: Chromium is not on this machine; `apt-get install chromium` installs it", err=True)
        return 1
    # sockets need a short path, wherever this project lies
    folder = Path(tempfile.mkdtemp(prefix="nodedevice-pictures-"))
    try:
        with Stack.start(folder, progress=click.echo, plugins=_PLUGINS) as stack:
            _play(stack)
            _photograph(stack, chromium)
    except (ClusterError, TimeoutError) as exc:
        click.echo(f"no pictures: {exc}", err=True)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _play(stack: Stack) -> None:
    """Some pods, a device that is unhealthy, one that is cordoned, and a pod that waits."""

    def until(what: str, *arguments: str) -> None:
        wait_until(lambda: stack.control_plane.kubectl(*arguments) != "", what, _SOON_SECONDS)

    def apply(pod: str, count: int) -> None:
        stack.control_plane.apply(yaml_text.dump_all([a_pod(pod, "default", {GPU: count})]))

    for pod, count in (("train", 4), ("infer", 1), ("notebook", 2)):
        apply(pod, count)
        until(f"{pod} holds devices", "get", "poddevice", pod, "--ignore-not-found", "-o", "name")
    path = "jsonpath={.status.devices[*].id} {.status.allocations[*].deviceIDs[*]}"
    ids = stack.control_plane.kubectl("get", "nodedevice", _GPU_A, "-o", path).split()
    free = next(each for each in ids if ids.count(each) == 1)
    control.set_health(stack.agents[NODE_A].folder, GPU, free, healthy=False)
    until("it is reported", "get", "events", "--field-selector=reason=DeviceUnhealthy", "-o", "name")
    cordon = [sys.executable, "-m", "kubectl_nodedevice", "cordon", NODE_B, "--device", "gpu-7", "--reason", "fan"]
    environment = shell_environment(stack.control_plane.admin_kubeconfig, stack.control_plane.folder)
    subprocess.run(cordon, env=environment, check=True, stdout=subprocess.DEVNULL)
    apply("late", 8)
    failed = "--field-selector=reason=FailedScheduling,involvedObject.name=late"
    until("the pod cannot be scheduled", "get", "events", failed, "-o", "name")


def _photograph(stack: Stack, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    environment = shell_environment(stack.control_plane.admin_kubeconfig, stack.control_plane.folder)
    command = [sys.executable, "-u", "-m", "kubectl_nodedevice", "open", "--no-browser"]
    with (
        running(command, env=environment, stdout=subprocess.PIPE, text=True) as opened,
        sync_playwright() as playwright,
    ):
        assert opened.stdout is not None
        address = next(found[0] for line in opened.stdout if (found := re.search(r"http://\S+", line)))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_context(viewport=_SIZE, color_scheme=scheme).new_page()
            page.goto(address)
            page.get_by_text("is pending").first.wait_for()
            page.screenshot(path=FOLDER / f"page-{scheme}.png")
            click.echo(f"photographed: page-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
