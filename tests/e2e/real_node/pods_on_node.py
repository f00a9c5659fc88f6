"""Pods on a real node: made, waited for, taken away again; and what their containers came to.

    pods.run(pod("a", [container("main", {"example.com/gpu": 1})]))     until all of its containers run
    pods.seen("a", "main")                                              what the container found

Everything waits for what the API or a container says, and gives up with the last that was said.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.api import ApiError, Pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.node.kubelet import MANIFESTS
from tests.cluster.node.real_node import RealNode
from tests.cluster.waiting import wait_until
from tests.e2e.real_node.pods import CONTAINER_ENV, HELD, REPORTS, UID_ENV, Json, Seen

# A folder of the node for what tests put there.
OURS = "/var/lib/e2e"
# A kubelet tries a container that it could not create again after ten seconds and more.
PATIENCE_SECONDS = 60.0
_NUDGE_SECONDS = 1.0


class PodsOnNode:
    """Pods are made in a namespace named as the node."""

    def __init__(self, control_plane: ControlPlane, node: RealNode) -> None:
        self.control_plane, self.node, self.namespace = control_plane, node, node.name
        self.reports = node.outside(f"{OURS}/reports")
        self.held = node.outside(f"{OURS}/held")
        for folder in (self.reports, self.held):
            folder.mkdir(parents=True)
        self._uids: dict[str, str] = {}

    def create(self, body: Json) -> Any:
        """Make a pod, for this node; the scheduler binds it. Returns it as it was stored."""
        body["spec"].setdefault("nodeSelector", {"kubernetes.io/hostname": self.node.name})
        asked: Any = Pod.from_dict(self._at_home(body))
        made: Any = self.control_plane.client.create(asked)
        self._uids[made.metadata.name] = made.metadata.uid
        return made

    def would_create(self, body: Json) -> Any:
        """The pod as it would be stored now: the API server's admission is run, and nothing is made."""
        asked: Any = Pod.from_dict(self._at_home(body))
        return self.control_plane.client.create(asked, dry_run=True)

    @contextmanager
    def static(self, body: Json) -> Iterator[str]:
        """For the length of the block a static pod: a file of the kubelet's. Yields its name in the API, once it is there.

        Its containers know it by the UID that the kubelet gave it, not by that of its mirror pod.
        """
        manifest = self.node.outside(f"{MANIFESTS}/{body['metadata']['name']}.yaml")
        manifest.parent.mkdir(exist_ok=True)
        manifest.write_text(yaml.safe_dump(self._at_home(body)))
        name = f"{body['metadata']['name']}-{self.node.name}"
        try:
            mirror = self.wait(name, bool, "is in the API")
            self._uids[name] = mirror["metadata"]["annotations"]["kubernetes.io/config.hash"]
            yield name
        finally:
            manifest.unlink()
            self.wait(name, lambda found: not found, "is gone")

    def _at_home(self, body: Json) -> Json:
        """In the node's namespace, with the folders in which containers report what they found."""
        body["metadata"]["namespace"] = self.namespace
        folders = [
            {"name": name, "hostPath": {"path": f"{OURS}/{path.strip('/')}", "type": "Directory"}}
            for name, path in (("reports", REPORTS), ("held", HELD))
        ]
        # the same body may come again
        others = [volume for volume in body["spec"].get("volumes", ()) if volume not in folders]
        body["spec"]["volumes"] = [*others, *folders]
        return body

    def run(self, body: Json) -> Json:
        """Make a pod and wait until all of its containers run. Returns it as the API shows it then."""
        self.create(body)
        return self.wait_running(body["metadata"]["name"])

    def wait_running_nudged(self, name: str) -> None:
        """As wait_running, but the kubelet is made to look at the pod again and again; by itself it takes ten seconds and more."""
        nudged = time.monotonic()

        def runs(found: Json) -> bool:
            nonlocal nudged
            if time.monotonic() > nudged + _NUDGE_SECONDS:
                nudged = time.monotonic()
                again = f"e2e.example.com/nudged={uuid.uuid4().hex}"
                self.control_plane.kubectl("annotate", "pod", name, "-n", self.namespace, "--overwrite", again)
            return _all_run(found)

        self.wait(name, runs, "all of its containers run")

    def wait_running(self, name: str) -> Json:
        return self.wait(name, _all_run, "all of its containers run")

    def wait_refused(self, name: str) -> None:
        """Wait until the runtime has refused to create a container of the pod."""
        self.wait(name, _is_refused, "was refused by the runtime")

    def wait(self, name: str, is_so: Callable[[Json], bool], what: str) -> Json:
        """Wait until a pod is as asked; one that is gone is empty. Raises TimeoutError with its last status."""
        last: list[Json] = [{}]

        def poll() -> bool:
            last[0] = self.pod(name)
            self.node.verify_alive()
            return is_so(last[0])

        try:
            wait_until(poll, f"pod {name}: {what}", PATIENCE_SECONDS)
        except TimeoutError as exc:
            exc.add_note(yaml.safe_dump({"status": last[0].get("status"), "events": self.events(name)}))
            raise
        return last[0]

    def pod(self, name: str) -> Json:
        try:
            found: Json = self.control_plane.client.get(Pod, name, namespace=self.namespace).to_dict()
        except ApiError as exc:
            if exc.status.code != 404:
                raise
            return {}
        return found

    def delete(self, *pods: str, force: bool = False) -> None:
        """Delete pods, with their own grace period, or by force: then the API forgets them before their processes end."""
        for name in pods:
            self.control_plane.client.delete(Pod, name, namespace=self.namespace, grace_period=0 if force else None)
        for name in pods:
            self.wait(name, lambda found: not found, "is gone")

    def remove_pods(self) -> None:
        """Delete what pods are there, by force. None: nothing happens."""
        listed = self.control_plane.kubectl("get", "pods", "-n", self.namespace, "-o", "name")
        self.delete(*(name.removeprefix("pod/") for name in listed.split()), force=True)

    def pid_of(self, name: str, of: str) -> int:
        """Process ID, as seen from here, of a running container; waits for its first word.

        Before that SIGTERM would be lost: the kernel drops what the first process of a PID namespace has no handler for.
        """
        self.seen(name, of)
        uid = self._uids[name]
        for environment in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                found = environment.read_bytes().split(b"\0")
                if f"{UID_ENV}={uid}".encode() in found and f"{CONTAINER_ENV}={of}".encode() in found:
                    return int(environment.parent.name)
        raise LookupError(f"no process of {name}/{of} is running")

    def events(self, name: str) -> list[str]:
        """What Events say about a pod."""
        listed = self.control_plane.kubectl("get", "events", "-n", self.namespace, "-o", "json")
        return [
            f"{event['reason']}: {event['message']}"
            for event in json.loads(listed)["items"]
            if event["involvedObject"].get("name") == name
        ]

    def wait_event(self, name: str, words: str) -> None:
        """Wait until an Event of the pod has these words."""
        self.until(lambda: any(words in event for event in self.events(name)), f"an Event of {name} says {words}")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Raises TimeoutError where it does not for a minute."""
        wait_until(holds, f"{self.node.name}: {what}", PATIENCE_SECONDS)

    # -- what containers found ----------------------------------------------------------------------------------------------

    def seen(self, name: str, of: str = "main") -> Seen:
        """What a container found when it started for the last time; waits for its first word."""
        self.wait(name, lambda _: bool(self.starts(name, of)), f"container {of} has said what it found")
        return self.starts(name, of)[-1]

    def started_at(self, name: str) -> float:
        """When the only container of a pod started, as time.time() counts; waits for it."""
        self.seen(name)
        (report,) = [path for path in self.reports.glob("*.json") if self._uids[name] in path.read_text()]
        return report.stat().st_mtime

    def wait_starts(self, name: str, count: int) -> None:
        """Wait until a pod's containers have started so often, all together."""
        self.wait(name, lambda _: len(self.starts(name)) >= count, f"has started {count} times")

    def starts(self, name: str, of: str | None = None) -> list[Seen]:
        """What a pod's containers, or one of them, found at each start so far, oldest first.

        Of the last pod of that name, also when it is gone.
        """
        files = sorted(self.reports.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        found = [Seen.from_json(path.read_text()) for path in files]
        return [
            seen for seen in found if seen.env[UID_ENV] == self._uids[name] and of in (None, seen.env[CONTAINER_ENV])
        ]


def _all_run(found: Json) -> bool:
    status = found.get("status", {})
    states = status.get("containerStatuses", [])
    return len(states) == len(found.get("spec", {}).get("containers", [])) > 0 and all(
        "running" in state.get("state", {}) for state in states
    )


def _is_refused(found: Json) -> bool:
    states = found.get("status", {}).get("containerStatuses", [])
    return any(state.get("state", {}).get("waiting", {}).get("reason") == "CreateContainerError" for state in states)
