"""Controllers that make pods, and the search for the controller of a name. `controller_of` never fails. Pure.

Pod names of a StatefulSet end in the ordinal. Other pod names end in five random characters, after at most 58 of the controller's
name. Source: Kubernetes, apiserver/pkg/storage/names, and controller/deployment, controller/cronjob.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nodedevice_kube.fields import is_set, map_of, number_of, text_of, value_at

from kubectl_nodedevice.cluster import NO_CONDITION, Condition, Json, Meta, Object
from kubectl_nodedevice.records import record_of

# The first of two with the requested name is meant.
KINDS: Final = (
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "CronJob",
    "Job",
    "ReplicaSet",
    "ReplicationController",
)
# make other controllers, and no pods
_MAKERS: Final = frozenset({"Deployment", "CronJob"})
_LONGEST_BASE: Final = 58
_DRAWN: Final = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}")
_HASH: Final = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{6,10}")
_WORD: Final = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{1,10}")
_PERCENT: Final = re.compile(r"([0-9]{1,3})%")
_REVISION: Final = "deployment.kubernetes.io/revision"


@dataclass(frozen=True, slots=True)
class Controller:
    """wanted: pods in its spec. made: pods in its status. first: the ordinal of a StatefulSet's first pod.

    is_ordered: a StatefulSet that makes a pod when the one before is Ready. is_surging: a rolling update ends an old pod only when
    the new one is Ready. template: metadata and spec of its pods. revision: of a Deployment's ReplicaSet, or 0.
    """

    kind: str
    meta: Meta
    wanted: int = 1
    made: int = 0
    first: int = 0
    is_suspended: bool = False
    is_paused: bool = False
    is_ordered: bool = False
    is_surging: bool = False
    revision: int = 0
    schedule: str = ""
    template: Json = field(default_factory=dict)
    selector: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, Condition] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The form of `Meta.owner`."""
        return f"{self.kind}/{self.meta.name}"

    @property
    def label(self) -> str:
        return f"{self.kind} {self.meta.name}"

    @property
    def argument(self) -> str:
        """Words of a command, such as deployment/web."""
        return f"{self.kind.lower()}/{self.meta.name}"

    @property
    def makes_pods(self) -> bool:
        return self.kind not in _MAKERS

    def condition(self, kind: str) -> Condition:
        """Return the condition of that type if it is True; else an empty one."""
        found = self.conditions.get(kind, NO_CONDITION)
        return found if found.status == "True" else NO_CONDITION


def controller_of(kind: str, obj: Json) -> Controller:
    found, spec = record_of(Object, obj), map_of(obj, "spec")
    template = map_of(spec, "jobTemplate", "spec", "template") if kind == "CronJob" else map_of(spec, "template")
    status = map_of(obj, "status")
    return Controller(
        kind,
        found.meta,
        _wanted(kind, spec, status),
        number_of(status, {"DaemonSet": "currentNumberScheduled", "Job": "active"}.get(kind, "replicas")),
        number_of(spec, "ordinals", "start"),
        is_set(spec, "suspend"),
        is_set(spec, "paused"),
        kind == "StatefulSet" and text_of(spec, "podManagementPolicy") != "Parallel",
        _is_surging(kind, spec),
        _revision(obj),
        text_of(spec, "schedule"),
        template,
        _selector(spec),
        found.conditions,
    )


def _wanted(kind: str, spec: Json, status: Json) -> int:
    if kind == "DaemonSet":
        return number_of(status, "desiredNumberScheduled")
    found = value_at(spec, "parallelism" if kind == "Job" else "replicas")
    return found if isinstance(found, int) else 1


def _selector(spec: Json) -> Mapping[str, str]:
    """Return the labels of a selector; {} if it also has expressions."""
    labels = map_of(spec, "selector", "matchLabels")
    return {} if value_at(spec, "selector", "matchExpressions") else {key: str(value) for key, value in labels.items()}


def _revision(obj: Json) -> int:
    found = text_of(obj, "metadata", "annotations", _REVISION)
    return int(found) if found.isdecimal() and len(found) < 19 else 0


def _is_surging(kind: str, spec: Json) -> bool:
    """Source: Kubernetes, deployment/util ResolveFenceposts, which rounds maxUnavailable down."""
    if kind == "DaemonSet":
        return _share(value_at(spec, "updateStrategy", "rollingUpdate", "maxSurge"), 1, 0) > 0
    if kind != "Deployment" or text_of(spec, "strategy", "type") == "Recreate":
        return False
    replicas = value_at(spec, "replicas")
    number = replicas if isinstance(replicas, int) else 1
    rolling = map_of(spec, "strategy", "rollingUpdate")
    surge = math.ceil(_share(rolling.get("maxSurge"), number, 25))
    return surge > 0 and math.floor(_share(rolling.get("maxUnavailable"), number, 25)) == 0


def _share(value: Any, number: int, default_percent: int) -> float:
    """Return a number of pods; a field has either a number or a percentage."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    return number * (int(match[1]) if match else default_percent) / 100


def family_of(name: str, known: Sequence[Controller]) -> tuple[Controller, ...]:
    """Return the controllers of the pod or controller with that name, the outermost first."""
    meant = _meant(name, known)
    if meant is None:
        return ()
    by_key = {each.key: each for each in known}
    root, seen = meant, {meant.key}
    while root.meta.owner in by_key and root.meta.owner not in seen:
        root = by_key[root.meta.owner]
        seen.add(root.key)
    found, keys = [root], {root.key}
    for _ in KINDS:
        found += (more := [each for each in known if each.meta.owner in keys and each.key not in keys])
        keys |= {each.key for each in more}
    return tuple(found)


def _meant(name: str, known: Sequence[Controller]) -> Controller | None:
    exact = [each for each in known if each.meta.name == name]
    if exact:
        return min(exact, key=lambda each: KINDS.index(each.kind) if each.kind in KINDS else len(KINDS))
    makers = [each for each in known if _may_have_made(each, name)]
    # A reader may see only Events, so that the pod's own controller is unknown.
    makers = makers or [each for each in known if _is_near(each, name)]
    return max(makers, key=lambda each: len(each.meta.name), default=None)


def _may_have_made(found: Controller, name: str) -> bool:
    """Whether the controller could give that name to a pod, or to a controller that it makes."""
    base = f"{found.meta.name}-"
    rest = name.removeprefix(base)
    if found.kind == "StatefulSet":
        return rest != name and rest.isascii() and rest.isdecimal() and len(rest) < 10
    parts = rest.split("-")
    if rest != name and found.kind == "Deployment":
        return bool(_HASH.fullmatch(parts[0])) and (len(parts) == 1 or _is_drawn(parts[1:]))
    if rest != name and found.kind == "CronJob":
        return parts[0].isdecimal() and (len(parts) == 1 or _is_drawn(parts[1:]))
    if rest != name and found.kind == "Job" and parts[0].isdecimal():
        # of an indexed Job
        parts = parts[1:]
    return _is_drawn(parts) if rest != name else _is_cut(base, name)


def _is_near(found: Controller, name: str) -> bool:
    """Whether one name is the other and a random word, as the name of a ReplicaSet."""
    short, long = sorted((found.meta.name, name), key=len)
    if found.meta.owner or found.kind in ("Deployment", "StatefulSet", "DaemonSet", "CronJob"):
        return False
    return long.startswith(f"{short}-") and bool(_WORD.fullmatch(long[len(short) + 1 :]))


def _is_drawn(parts: Sequence[str]) -> bool:
    return len(parts) == 1 and bool(_DRAWN.fullmatch(parts[0]))


def _is_cut(base: str, name: str) -> bool:
    """Whether names of its pods have only the first part of the controller's name."""
    return len(base) > _LONGEST_BASE and name[:-5] == base[:_LONGEST_BASE] and bool(_DRAWN.fullmatch(name[-5:]))
