"""Pods for a real node, and what their containers report of themselves."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodedevice_api.names import REQUIRED_PLUGINS_ANNOTATION

from tests.cluster.build.images import TEST_IMAGE

Json = dict[str, Any]
# folders of the run that every test container sees
REPORTS = "/reports"
HELD = "/held"
UID_ENV, CONTAINER_ENV = "IN_POD", "IN_CONTAINER"


@dataclass(frozen=True)
class Seen:
    """What a container found when it started; see the checker's source."""

    nodes: Mapping[str, str]
    opened: Mapping[str, Mapping[str, str]]
    env: Mapping[str, str]
    mounts: Mapping[str, str]
    shared: Sequence[str]

    @classmethod
    def from_json(cls, document: str) -> "Seen":
        return cls(**json.loads(document))

    def modes(self, path: str) -> str:
        """Of r and w, in which ways a device node could be opened."""
        opened = self.opened[path]
        return "".join(letter for letter, way in (("r", "read"), ("w", "write")) if opened[way] == "ok")


def container(
    name: str, limits: Mapping[str, int] | None = None, checks: Sequence[str] = (), *, stay: bool = True, **more: Any
) -> Json:
    """A container that checks what it got, reports it, and stays. checks: further arguments of the checker."""
    arguments = ["-held", HELD, "-report", REPORTS, *checks, *(["-stay"] if stay else [])]
    return {
        "name": name,
        "image": TEST_IMAGE,
        "command": ["/bin/checker", *arguments],
        "env": [
            {"name": UID_ENV, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {"name": CONTAINER_ENV, "value": name},
        ],
        "volumeMounts": [{"name": "reports", "mountPath": REPORTS}, {"name": "held", "mountPath": HELD}],
        "resources": {"limits": {resource: str(count) for resource, count in (limits or {}).items()}},
        **more,
    }


def marked(body: Json) -> Json:
    """The same pod, marked by its author: no policy marks a static pod."""
    body["metadata"]["annotations"] = {REQUIRED_PLUGINS_ANNOTATION: "[ nodedevice ]"}
    return body


def pod(name: str, containers: Sequence[Json], init: Sequence[Json] = (), **more: Any) -> Json:
    """A pod of these containers. more: further fields of its spec."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": list(containers),
            "initContainers": list(init),
            "dnsPolicy": "Default",
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            **more,
        },
    }
