"""Finds rolling updates that block themselves: the old pod has the device, and ends only when the new pod is Ready. Pure."""

import json
from collections.abc import Iterable, Mapping

from kubectl_nodedevice.cluster import Pod
from kubectl_nodedevice.why.controllers.controller import Controller

_REVISION_LABEL = "controller-revision-hash"
# patches that make the old pod end first
_PATCHES = {
    "Deployment": {"strategy": {"type": "Recreate", "rollingUpdate": None}},
    "DaemonSet": {"updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
}
_WAYS = {"Deployment": "strategy Recreate, or maxSurge 0 with maxUnavailable 1", "DaemonSet": "maxSurge 0"}


def predecessors(pod: Pod, root: Controller, sets: Iterable[Controller], pods: Iterable[Pod]) -> frozenset[str]:
    """Return the pods, as namespace/name, that `root` ends only when the pod is Ready. sets: ReplicaSets of `root`."""
    if not root.is_surging:
        return frozenset()
    by_key = {each.key: each for each in sets if each.meta.owner == root.key}
    return frozenset(
        f"{each.meta.namespace}/{each.meta.name}"
        for each in pods
        if each.node and not each.is_over and not each.meta.deleted and _is_before(each, pod, root, by_key)
    )


def _is_before(old: Pod, new: Pod, root: Controller, sets: Mapping[str, Controller]) -> bool:
    if root.kind == "DaemonSet":
        revisions = {each.meta.labels.get(_REVISION_LABEL) for each in (old, new)}
        return old.meta.owner == new.meta.owner == root.key and len(revisions) == 2
    before, after = sets.get(old.meta.owner), sets.get(new.meta.owner)
    if before is None or after is None or before.key == after.key:
        return False
    return not (before.revision and after.revision) or before.revision < after.revision


def fields(root: Controller | None) -> Mapping[str, str]:
    if root is None:
        return {}
    patch = json.dumps({"spec": _PATCHES[root.kind]})
    return {"owner": root.argument, "controller": root.label, "way": _WAYS[root.kind], "rollout_patch": patch}
