"""A cluster and a machine of small scripts: kubectl and Helm answer from files, everybody else only writes down what was typed.

Nothing of this machine is asked: PATH has the scripts and what these need, and the cache folder is the test's.
"""

import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from hack.install import images
from hack.install.__main__ import main
from hack.install.images import Wanted
from hack.release import oci

Json = dict[str, Any]
_RECORDS = """#!/bin/sh
echo "{name} $*" >> {folder}/calls
{body}
"""
_KUBECTL = """
[ "${{1#--cache-dir}}" != "$1" ] && shift
case "$*" in
  "config view"*) cat {folder}/kubeconfig ;;
  "get --raw=/version"*) [ -e {folder}/refusal ] && {{ cat {folder}/refusal >&2; exit 1; }}; cat {folder}/version ;;
  "auth can-i "*) [ ! -e {folder}/no-rights ] ;;
  "get nodes "*) cat {folder}/nodes ;;
  "get nodedevices "*) cat {folder}/nodedevices ;;
  "get pods "*) cat {folder}/pods ;;
  "get crds "*) cat {folder}/crds ;;
  "get secrets "*) cat {folder}/secrets ;;
  "get clusterrolebindings "*) cat {folder}/bindings ;;
  "get daemonsets,deployments "*) cat {folder}/workloads ;;
  "diff "*) exit "$(cat {folder}/differs 2>/dev/null || echo 0)" ;;
  "api-resources "*) echo configmaps; echo events; echo secrets ;;
esac
"""
HELM = """
case "$*" in
  "version "*) cat {folder}/helm-version ;;
  "list "*) cat {folder}/releases ;;
  "status "*) [ -e {folder}/release ] && cat {folder}/release ;;
  "upgrade "*--dry-run*)
    [ -e {folder}/bad-values ] && {{ echo "Error: values don't meet the specifications of the schema(s)" >&2; exit 1; }}
    cat {folder}/planned ;;
  "upgrade "*) for word in "$@"; do last="$word"; case "$word" in *.json) cp "$word" {folder}/ ;; esac; done ;;
esac
"""
_CTR = """
case "$*" in
  *" images ls") echo "REF TYPE DIGEST SIZE"; cat {folder}/on-node 2>/dev/null || true ;;
esac
"""
_KUBECONFIG = {
    "current-context": "lab",
    "clusters": [{"name": "lab", "cluster": {"server": "https://127.0.0.1:6443"}}],
    "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    "users": [{"name": "lab", "user": {}}],
}
OWNER = {"meta.helm.sh/release-name": "nodedevice", "meta.helm.sh/release-namespace": "nodedevice-system"}


Answers = Mapping[str, Any]


def release(namespace: str = "nodedevice-system", name: str = "nodedevice", status: str = "deployed") -> Json:
    """As `helm list` has it."""
    return {"namespace": namespace, "name": name, "status": status, "chart": "nodedevice-0.1.0"}


# another release, in another namespace
OWNED_BY_ANOTHER: Answers = {"releases": [release("b", "theirs")]}


@dataclass(frozen=True)
class Done:
    """output: what was printed. error: the line that it ended with; empty where all went well."""

    output: str
    error: str


@dataclass(frozen=True)
class World:
    """folder: of the scripts' answers, and of what they were asked."""

    folder: Path

    def answer(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(content if isinstance(content, str) else json.dumps(content))

    def answers(self, answers: Answers) -> None:
        for name, content in answers.items():
            self.answer(name, content)

    def program(self, name: str, body: str = "") -> None:
        file = self.folder / "bin" / name
        file.write_text(_RECORDS.format(name=name, folder=self.folder, body=body.format(folder=self.folder)))
        file.chmod(0o755)

    def run(self, command: str, *arguments: str, **environment: str) -> Done:
        """`make install` or `make uninstall` of this world, without a terminal."""
        (self.folder / "calls").write_text("")
        output = io.StringIO()
        status: object = 0
        with (
            mock.patch.dict(os.environ, {**self.environment, **environment}, clear=True),
            mock.patch.object(sys, "argv", ["hack.install", command, *arguments]),
            mock.patch.object(sys, "stdin", io.StringIO()),
            contextlib.redirect_stdout(output),
        ):
            try:
                main()
            except SystemExit as end:
                status = end.code
        return Done(output.getvalue(), str(status or ""))

    @property
    def environment(self) -> Mapping[str, str]:
        folder = str(self.folder)
        path = f"{folder}/bin:{folder}/tools"
        return {"PATH": path, "HOME": folder, "XDG_CACHE_HOME": folder, "KUBEBUILDER_ASSETS": f"{folder}/bin"}

    def calls(self, *programs: str) -> list[str]:
        """What was typed, of these programs, or all."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if not programs or line.split()[0] in programs]

    def changes(self) -> list[str]:
        """Of what was typed, all that changes a cluster, a node or a registry."""
        verbs = ("load", "import", "tag", "push", "upgrade", "uninstall", "delete", "rm", "apply")
        return [line for line in self.calls() if set(line.split()) & set(verbs) and "--dry-run=server" not in line]

    def values(self, name: str = "images.json") -> Json:
        """A file of values that Helm was given."""
        content: Json = json.loads((self.folder / name).read_text())
        return content

    def run_by(self, nodes: Iterable[Json]) -> None:
        self.answer("nodes", {"items": list(nodes)})


def world(folder: Path) -> World:
    """A cluster of Kubernetes 1.37 with nothing on it, and a machine with kubectl and Helm alone."""
    made = World(folder)
    (folder / "bin").mkdir()
    (folder / "tools").mkdir()
    for tool in ("cat", "cp", "sleep", "touch"):
        (folder / "tools" / tool).symlink_to(str(shutil.which(tool)))
    made.program("kubectl", _KUBECTL)
    made.program("helm", HELM)
    # neither of this machine's own may be asked; as clients of containers they do what they are bid
    for builder in ("docker", "podman", "buildah"):
        made.program(builder, '[ "$1" = info ] && exit 1' + _CTR)
    accounts = [{"name": "nodedevice-agent", "namespace": "nodedevice-system"}]
    made.answers(
        {
            **{name: {"items": []} for name in ("nodes", "nodedevices", "pods", "crds", "secrets", "workloads")},
            "kubeconfig": _KUBECONFIG,
            "version": {"major": "1", "minor": "37", "gitVersion": "v1.37.2"},
            "helm-version": "v4.3.1+g1",
            "releases": [],
            "bindings": {"items": [{"subjects": accounts}]},
            "planned": {"manifest": "x: 1", "config": {}, "hooks": []},
        }
    )
    return made


def node(
    name: str = "a",
    *,
    architecture: str = "amd64",
    kubelet: str = "v1.37.2",
    provider: str = "",
    boot_id: str = "elsewhere",
    labels: Mapping[str, str] | None = None,
) -> Json:
    """A Node, of another machine's kernel unless it is given."""
    info = {
        "architecture": architecture,
        "operatingSystem": "linux",
        "containerRuntimeVersion": "containerd://2.1.4",
        "kubeletVersion": kubelet,
        "bootID": boot_id,
        "machineID": "",
    }
    metadata = {"name": name, "labels": dict(labels or {})}
    images = [{"names": ["docker.io/library/nodedevice-agent:0.1.0", "busybox:1"]}]
    return {"metadata": metadata, "spec": {"providerID": provider}, "status": {"nodeInfo": info, "images": images}}


def built(world: World) -> None:
    """Have small archives where the images of this tree are kept, as if they were built."""
    with mock.patch.dict(os.environ, world.environment):
        found = images.of_the_tree(Wanted(("amd64",), False, ""))
    for program, image in found.items():
        image.archive.parent.mkdir(parents=True, exist_ok=True)
        files = world.folder / f"files-{program}"
        files.mkdir(exist_ok=True)
        (files / "name").write_text(program)
        layer = oci.layer(files, world.folder / f"{program}.tar.gz", 0)
        oci.write(image.archive, image.name, {"amd64": [layer]}, {}, 0)


def running(world: World) -> None:
    """An install whose agent, operator and first NodeDevice are there."""
    pods, workloads = [], []
    for component, kind, image in (("agent", "DaemonSet", "a"), ("operator", "Deployment", "o")):
        labels = {"app.kubernetes.io/component": component}
        pod_spec = {"nodeName": "a", "containers": [{"image": image}]}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        pods.append({"metadata": {"labels": labels}, "spec": pod_spec, "status": ready})
        place = {"name": f"nodedevice-{component}", "namespace": "nodedevice-system"}
        metadata = {**place, "annotations": OWNER, "labels": labels}
        spec = {"template": {"spec": pod_spec}}
        workload = {"kind": kind, "metadata": metadata, "spec": spec}
        workloads.append({**workload, "status": {"desiredNumberScheduled": 1}})
    device = {"metadata": {"name": "a.fuse"}, "spec": {"nodeName": "a", "resourceName": "example.com/fuse"}}
    world.answer("pods", {"items": pods})
    world.answer("workloads", {"items": workloads})
    world.answer("nodedevices", {"items": [{**device, "status": {"available": 4}}]})


def installed(world: World) -> None:
    """A release of ours that is as an upgrade would make it."""
    running(world)
    world.answer("releases", [release()])
    world.answer("release", {"info": {"status": "deployed"}, "manifest": "x: 1", "config": {}, "hooks": []})
    world.answer("crds", {"items": [{"metadata": {"name": f"{kind}.nodedevice.io"}} for kind in ("a", "b", "c")]})
