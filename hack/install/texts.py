"""Texts of `make install` and `make uninstall` for people, besides their steps. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hack.install.facts import Json, Node, linux

_POD: Final = """\
kubectl apply -f - <<'EOF'
apiVersion: v1
kind: Pod
metadata: {{name: try-device}}
spec:
  containers:
    - name: main
      image: busybox:1
      command: [sleep, "3600"]
      resources: {{limits: {{{resource}: 1}}}}
EOF
kubectl wait --for=condition=Ready pod/try-device --timeout=120s
kubectl get poddevices                  # the pod's device
kubectl delete pod try-device --now"""
_NO_DEVICE: Final = """\
No device is free. Name some in a file of values (docs/install.md#the-agents-configuration), and install with it:

make install VALUES=values.yaml"""


def nodes(found: Sequence[Node]) -> str:
    """In a few words: number, architecture and runtime."""
    ours = linux(found)
    shown = [f"{node.name} ({node.architecture}, {node.runtime.replace('://', ' ')})" for node in ours[:3]]
    return ", ".join(shown) + (f" and {len(ours) - 3} more" if len(ours) > 3 else "")


def next_steps(table: str, devices: Sequence[Json], arguments: str) -> str:
    """The next commands. table: of NodeDevices, as kubectl prints it. devices: the same. arguments: of make, for its
    release.
    """
    resource = free_resource(devices)
    pod = f"A pod with a device:\n\n{_POD.format(resource=resource)}" if resource else _NO_DEVICE
    shown = f"kubectl get nodedevices\n{table}\n" if table else ""
    return f"{shown}{pod}\n\nmake uninstall{arguments}    # to uninstall; with ALL=1 also the CRDs and the images"


def free_resource(devices: Iterable[Json]) -> str:
    """A resource with a free device on a node; empty without any."""
    for device in sorted(devices, key=lambda each: str(each["metadata"]["name"])):
        status: Mapping[str, Any] = device.get("status") or {}
        if int(status.get("available") or 0) > 0:
            return str((device.get("spec") or {}).get("resourceName", ""))
    return ""


def cordons(devices: Iterable[Json]) -> list[str]:
    """NodeDevices with their cordoned devices; an uninstall keeps these."""
    found = []
    for device in devices:
        cordoned = (device.get("spec") or {}).get("cordonedDevices") or []
        if cordoned:
            shown = ", ".join(f"{each.get('id')} ({each.get('reason') or 'no reason'})" for each in cordoned)
            found.append(f"NodeDevice {device['metadata']['name']}, cordoned: {shown}")
    return found
