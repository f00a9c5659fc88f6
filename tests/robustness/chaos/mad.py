"""Parties gone mad: each does what it may, as fast as it can and in the worst way that it can, until the block ends.

Refusals by the API server are answers, and no failures. Who they are: docs/security.md.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self

from nodedevice_api import names
from nodedevice_api.names import node_device_name

from tests.cluster import agent_objects
from tests.cluster.api import NO_ANSWER, ApiError, Client, NodeDevice, NodeDeviceConfig, Pod
from tests.cluster.cluster import Cluster, a_pod
from tests.integration.crds.custom_resources import apply_status
from tests.integration.operator.test_memory import many_broken_devices, many_short_ids, many_words

NAMESPACE: Final = "tenant"
_CONTAINERS: Final = 200
_PODS: Final = 40
_ANNOTATION: Final = "x" * 200_000
# of a node's token: names, written again and again
_NAMES: Final = 1000
_TOKEN_WORKERS: Final = 8
# one in so many is as large as may be
_BIG: Final = 50
_FOREIGN: Final = (ApiError, *NO_ANSWER)


class Mad:
    """step: called again and again, with a number that grows, by so many workers side by side. done, refused: how often it went
    through, and did not.
    """

    def __init__(self, who: str, step: Callable[[int], None], workers: int = 1) -> None:
        self.who = who
        self.done = self.refused = 0
        self.problem = ""
        self._step = step
        self._ended = threading.Event()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, name=f"mad {who}") for _ in range(workers)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def __str__(self) -> str:
        return f"{self.done:6d} times {self.who}, {self.refused} refused{f': {self.problem}' if self.problem else ''}"

    def _work(self) -> None:
        while not self._ended.is_set():
            problem = self._try(next(self._numbers))
            with self._lock:
                self.done += not problem
                self.refused += bool(problem)
                self.problem = problem or self.problem

    def _try(self, number: int) -> str:
        try:
            self._step(number)
        except _FOREIGN as exc:
            return str(exc)[:200] or type(exc).__name__
        return ""


def _invented(number: int) -> str:
    return f"mad.example.com/r{number:04}"


def token(client: Client, node: str, uid: str, other: str) -> Mad:
    """Of one node's agent, over several connections: NodeDevices that are as large as may be, of invented names; lists of all that
    it may read; and what it may not, such as a status of another node, or to delete its own. uid: the Node's.
    """

    def write(number: int) -> None:
        if number < _NAMES:
            body = agent_objects.node_device(node, _invented(number), uid)
            client.apply(NodeDevice.from_dict(body), field_manager=names.AGENT_FIELD_MANAGER, force=True)
        # as large as may be, in one of two ways
        large = (many_short_ids, many_broken_devices)[number // _BIG % 2]
        status = large() if number % _BIG == 0 else many_words(number)
        apply_status(client, node_device_name(node, _invented(number % _NAMES)), status)

    def read(number: int) -> None:
        for _ in client.list(NodeDevice):
            pass
        for _ in client.list(Pod, namespace="*"):
            pass

    def end(number: int) -> None:
        # one that was written
        client.delete(NodeDevice, node_device_name(node, _invented(number // 8 * 8 % _NAMES)))

    def intrude(number: int) -> None:
        apply_status(client, node_device_name(other, "chaos.example.com/gpu"), {"total": 0, "conditions": []})

    verbs = (write, write, write, write, write, read, end, intrude)
    return Mad("a token writes and reads", lambda number: verbs[number % len(verbs)](number), _TOKEN_WORKERS)


def tenant(cluster: Cluster, node: str, resource: str) -> Mad:
    """Pods on a node that ask for more than it has, in very many containers, with as much text as a pod may have."""
    cluster.add_namespace(NAMESPACE)
    made: deque[str] = deque()

    def step(number: int) -> None:
        pod = a_pod(f"mad-{number}", NAMESPACE, {resource: 1}, node)
        [container] = pod["spec"]["containers"]
        pod["spec"]["containers"] = [{**container, "name": f"c{index}"} for index in range(_CONTAINERS)]
        pod["metadata"]["annotations"] = {"mad": _ANNOTATION, names.SM_PERCENT_ANNOTATION: "100" * 50}
        body: Any = Pod.from_dict(pod)
        cluster.client.create(body, namespace=NAMESPACE)
        made.append(pod["metadata"]["name"])
        if len(made) > _PODS:
            cluster.client.delete(Pod, made.popleft(), namespace=NAMESPACE, grace_period=0)

    return Mad("a tenant makes a pod", step)


def configuration(client: Client) -> Mad:
    """For every node: patterns that match everything, and such as take long to match, another one each time.

    They have eight wildcards, the most that a configuration may have.
    """

    def step(number: int) -> None:
        patterns = ["/dev/*", "/dev/*/*", "/dev/*/*/*", f"/dev/{'*a' * 8}{number}", f"/dev/{'[!a]*' * 4}{number}"]
        groups: list[dict[str, Any]] = [
            {"paths": [{"path": pattern}], "count": 1 + number % 7} for pattern in patterns for _ in range(8)
        ]
        plugins = {"generic": [{"resourceName": f"mad.example.com/files{number % 3}", "groups": groups}]}
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_DEVICE_CONFIG,
            "metadata": {"name": "mad"},
            "spec": {"priority": number % 100, "plugins": plugins},
        }
        client.apply(NodeDeviceConfig.from_dict(body), field_manager="admin", force=True)

    return Mad("a configuration changes", step)
