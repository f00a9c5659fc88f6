"""The commands of README, CONTRIBUTING and pages for beginners are typed here, on the whole product, or have tests of their own.

What any page has its reader apply, the API server accepts.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.local.stack import GPU, NODE_A, Stack
from tests.cluster.shell import shell_environment
from tests.e2e.pages import ROOT, applied_by, commands_of, done, typed

pytestmark = pytest.mark.cluster

_PAGES: Final = ("README.md", "docs/install.md", "docs/k3s-usb-stick.md", "docs/troubleshooting.md", "CONTRIBUTING.md")
_ALL_PAGES: Final = (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "charts/nodedevice/README.md")
_APPLIED: Final = [
    pytest.param(command, id=f"{page.name} {number}")
    for page in sorted(_ALL_PAGES)
    for number, command in enumerate(applied_by(page.read_text("utf-8")))
]
COMMANDS: Final = list(dict.fromkeys(c for page in _PAGES for c in commands_of((ROOT / page).read_text("utf-8"))))
# How those begin that are not typed here, and why.
_NOT_HERE: Final = (
    # the targets of make are tests, or have tests in this folder; that each exists is tested below
    *("make ", "KUBERNETES=", "CLUSTER=current make ", "E2E_ROUNDS=", "MUTANTS=", "REAL_NODE=", ".venv/bin/pytest "),
    "GOLDEN=",
    "HYPOTHESIS_PROFILE=",
    # tests/e2e/chart installs the chart, and follows the README from nothing to a pod with a device
    *("helm ", "kubectl apply ", "kubectl wait ", "kubectl exec "),
    # and tests/e2e/chart/release what a release has in dist/
    *("kubectl create", "kubectl delete "),
    # tests/e2e/machine types the page on one USB stick, but for k3s itself
    *("curl ", "export KUBECONFIG=", "stat ", "kubectl get pod reader ", "kubectl logs "),
    # the chart's workloads are not here; tests/e2e/chart restarts them
    *("kubectl rollout ", "nodedevice-operator cleanup", "kubectl nodedevice check", "kubectl nodedevice discover "),
    # kind and containerd belong to other machines than this one
    *("kind ", "containerd "),
    # tests/e2e/machine and tests/e2e/real_node type what the page has about agents outside of pods
    *("python3 -m venv ", "/opt/nodedevice/", "umask ", "kubectl config ", "systemd-tmpfiles ", "systemctl "),
    # of OpenShift
    "oc ",
    # tests/cluster/local runs it with a file
    "nodedevice-agent run --config agent.yaml",
    # no pod waits here; tests/integration/why asks about a hundred
    "kubectl nodedevice why pod ",
    # serves a page until Ctrl-C; tests/browser opens it
    "kubectl nodedevice open",
    # named without the words that they need
    *("kubectl describe pod", "kubectl explain "),
)
_NAMED: Final = (
    "kubectl explain",
    "kubectl scale",
    "kubectl drain",
    "kubectl describe",
    "kubectl describe nodedevice",
    "kubectl nodedevice why",
)


def _is_typed(command: str) -> bool:
    return command not in _NAMED and (not command.startswith(_NOT_HERE) or command.startswith("kubectl explain node"))


def test_make_has_the_targets_of_the_pages() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        found for command in COMMANDS for found in re.findall(r"^(?:[A-Z_]+=\S+ )*make ([a-z0-9-]*[a-z0-9])", command)
    }
    assert {"demo", "test", "up", "setup", "everything"} <= named
    assert named <= targets


@pytest.mark.parametrize("command", [command for command in COMMANDS if _is_typed(command)])
def test_it_works_as_it_stands(command: str, stack: Stack) -> None:
    meant = {"NODE": NODE_A, "NAME": f"{NODE_A}.{GPU.replace('/', '.')}"}
    for placeholder, value in meant.items():
        command = re.sub(rf"\b{placeholder}\b", value, command)
    done(command, _environment(stack))


@pytest.mark.parametrize("command", _APPLIED)
def test_what_a_page_applies_is_accepted(command: str, stack: Stack) -> None:
    """As a server's dry run: with the schema, its rules and the policies."""
    dry_run = typed(command.replace("kubectl apply", "kubectl apply --dry-run=server", 1), _environment(stack))
    assert dry_run.returncode == 0, dry_run.stderr
    assert "Warning" not in dry_run.stderr


def test_pages_apply_something() -> None:
    assert len(_APPLIED) > 2


def test_images_get_the_names_that_the_chart_asks_for(stack: Stack, tmp_path: Path) -> None:
    """The target's own words, to a `docker` that only records them; what it would build, tests/cluster builds."""
    [command] = [command for command in COMMANDS if command.startswith("make images TAG=")]
    builder = tmp_path / "docker"
    builder.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n')
    builder.chmod(0o755)
    done(command, _environment(stack, [tmp_path]))
    built = (tmp_path / "calls").read_text().splitlines()
    chart = (ROOT / "charts/nodedevice/Chart.yaml").read_text("utf-8")
    [version] = re.findall(r"^appVersion: (\S+)$", chart, re.MULTILINE)
    for program, folder in (("nodedevice-operator", "operator"), ("nodedevice-agent", "node-agent")):
        assert f"build --quiet -f {folder}/Dockerfile -t {program}:{version} ." in built


def _environment(stack: Stack, first: Sequence[Path] = ()) -> dict[str, str]:
    found = shell_environment(stack.control_plane.admin_kubeconfig, stack.control_plane.folder, first)
    # as `make up` prints it
    return found | {"NODE_A": str(stack.agents[NODE_A].folder)}
