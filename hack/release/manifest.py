"""install.yaml and uninstall.yaml: the chart with its default values as plain objects, for users with kubectl but no
Helm.

Hooks are left out, except the cleanup before an uninstall: that is uninstall.yaml.
"""

import re
import subprocess
from pathlib import Path

from hack.release.errors import ReleaseError

INSTALL = "install.yaml"
UNINSTALL = "uninstall.yaml"
_NAMESPACE = "nodedevice-system"
_CLEANUP = "templates/hook-cleanup.yaml"
# only for Helm: when it creates an object, and that the object is its own
_OF_HELM = re.compile(r"^ +(?:helm\.sh/[a-z/-]+|app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE)
_NO_ANNOTATIONS = re.compile(r"^( *)annotations:\n(?!\1 )", re.MULTILINE)
_IMAGE = re.compile(r'^ +(?:- )?image: "(.+)"$', re.MULTILINE)

_INSTALL_TEXT = """\
# {name} for kubectl alone: CRDs, an agent on every node, two operators, their accounts and the policies that limit them.
#
#   kubectl apply --filename install.yaml
#
# `kubectl create` and `kubectl apply --server-side` work as well; applied again it changes nothing. The nodes need these images:
#
{images}
{where}#
# To remove it: first a Job (uninstall.yaml of the same release) ends agents and operators, and removes their changes to Nodes.
# Pods keep running. Then all the rest is deleted: the CRDs, and with them every NodeDeviceConfig and every cordon.
#
#   kubectl apply --filename uninstall.yaml
#   kubectl wait --namespace {namespace} --for=condition=Complete job/nodedevice-cleanup --timeout=5m
#   kubectl delete --ignore-not-found --filename uninstall.yaml --filename install.yaml
#
# To keep the CRDs, NodeDeviceConfigs and cordons, have the last line end with --selector app.kubernetes.io/name=nodedevice
---
apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
  labels:
    app.kubernetes.io/name: nodedevice
    app.kubernetes.io/part-of: nodedevice
    # agents mount directories of their host, which every other level forbids
    pod-security.kubernetes.io/enforce: privileged
"""
_UNINSTALL_TEXT = """\
# Before {name} is removed: this Job ends agents and operators, and removes their changes to Nodes. install.yaml begins with the
# three commands. To follow it: kubectl logs --namespace {namespace} --follow job/nodedevice-cleanup
"""


def write(helm: str, chart: Path, folder: Path) -> None:
    """Write both into `folder`. chart: of the release, packaged. Raises ReleaseError."""
    template = [helm, "template", "nodedevice", str(chart), "--namespace", _NAMESPACE]
    installed = plain(_run([*template, "--include-crds", "--no-hooks"]))
    cleanup = plain(_run([*template, "--show-only", _CLEANUP]))
    images = sorted(set(_IMAGE.findall(installed)))
    is_local = not any("/" in image for image in images)
    fields = {
        "name": chart.stem.replace("-", " ", 1),
        "namespace": _NAMESPACE,
        "images": "\n".join(f"#   {image}" for image in images),
        "where": "#\n# They name no registry: load them onto each node (docs/releasing.md#the-images)\n"
        if is_local
        else "",
    }
    (folder / INSTALL).write_text(_INSTALL_TEXT.format(**fields) + installed)
    (folder / UNINSTALL).write_text(_UNINSTALL_TEXT.format(**fields) + cleanup)


def plain(rendered: str) -> str:
    """The rendered objects, without parts for Helm only. Pure."""
    return _NO_ANNOTATIONS.sub("", _OF_HELM.sub("", rendered))


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise ReleaseError(f"helm does not render the chart ({done.stderr.strip()})", "run `make chart`")
    return done.stdout
