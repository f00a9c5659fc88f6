"""An API server of a large cluster, for what reads lists: 20,000 pods and 20,000 NodeDevices, 200 of each as large as can be.

    python -m tests.robustness.memory.large_cluster      prints its port, and serves until it is killed

Objects are made while they are sent, so that they take no memory. Whatever else is asked for is not there.
"""

import itertools
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from tests.unit.cli import objects
from tests.unit.cli.api_server import NODES, OURS, PODS, columns_of
from tests.unit.cli.objects import GPU, Object

NODE_COUNT: Final = 10_000
POD_COUNT: Final = 20_000
_RESOURCES: Final = (GPU, "example.com/nic")
# one in so many is large: 200 pods, and 200 NodeDevices
_EACH: Final = 100
# of 330 letters beside its other fields, 3,000 devices have the 1.5 MB that an API server stores
_DEVICES, _LARGE_DEVICES = 8, 3_000
_COLUMNS: Final = [name for name, _ in columns_of("nodedevices")]


def node_device(number: int) -> Object:
    """Large ones have devices with long messages, as an agent's token may write them."""
    is_large = number % _EACH == number // _EACH % 2
    more = {"message": "x" * 330} if is_large else {}
    ids = [f"{number:06}-{at:04}-4fe0-9301-9867b12a3899" for at in range(_LARGE_DEVICES if is_large else _DEVICES)]
    devices = [objects.device(each, numaNodes=[0], **more) for each in ids]
    held = [objects.allocation(f"runs-{number}-{at}", (ids[at],)) for at in range(2)]
    return objects.node_device(f"node-{number // 2:05}", _RESOURCES[number % 2], devices, allocations=held)


def pod(number: int) -> Object:
    """Large ones have what their tenants may fill: annotations, affinity, tolerations and environments."""
    made = objects.pod(f"pod-{number:05}", node="", phase="Pending")
    if number % _EACH == 0:
        made["metadata"]["annotations"] = {"filler": "x" * 250_000}
        spec = made["spec"]
        spec["containers"][0]["env"] = [{"name": f"V{at}", "value": "<" + "x" * 1000} for at in range(600)]
        spec["affinity"] = {"nodeAffinity": {"filler": [{"key": "a", "values": ["v"] * 10}] * 5000}}
        spec["tolerations"] = [
            {"key": f"key-{at:06}", "operator": "Exists", "effect": "NoSchedule"} for at in range(5000)
        ]
    return made


def _lease(number: int) -> Object:
    return objects.lease(f"node-{number:05}", "nodedevice-agents", objects.THEN)


LISTS: Final[dict[str, tuple[int, Callable[[int], Object]]]] = {
    NODES: (NODE_COUNT, lambda number: objects.node(f"node-{number:05}")),
    PODS: (POD_COUNT, pod),
    "/api/v1/namespaces/default/pods": (POD_COUNT, pod),
    f"{OURS}/nodedevices": (2 * NODE_COUNT, node_device),
    "/apis/coordination.k8s.io/v1/namespaces/nodedevice-agents/leases": (NODE_COUNT, _lease),
}


def _row(found: Object) -> Object:
    names = {
        "Name": found["metadata"]["name"],
        "Node": found["spec"]["nodeName"],
        "Resource": found["spec"]["resourceName"],
    }
    values = {**names, "Ready": "True", "Agent": "True", "Served-By": "nodedevice"}
    return {"cells": [values.get(each, found["status"].get(each.lower())) for each in _COLUMNS]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path in LISTS:
            self._list(dict(parse_qsl(parts.query)), *LISTS[parts.path])
        elif parts.path == "/api/v1/namespaces/default/pods/pod-00001":
            self._begin(200)
            self._write([_json(pod(1))])
        else:
            self._begin(404)
            self._write(['{"kind":"Status","code":404,"details":{"name":"x"}}'])

    do_POST = do_GET

    def _list(self, query: dict[str, str], count: int, make: Callable[[int], Object]) -> None:
        begin, limit = int(query.get("continue", "0")), int(query["limit"])
        of_resource = query.get("fieldSelector", "").partition("spec.resourceName=")[2]
        numbers = [each for each in range(begin, count) if not of_resource or _RESOURCES[each % 2] == of_resource]
        token = {"continue": str(numbers[limit])} if len(numbers) > limit else {}
        is_table = "as=Table" in self.headers.get("Accept", "")
        columns = {"columnDefinitions": [{"name": each} for each in _COLUMNS]} if is_table else {}
        head = _json({"kind": "List", "metadata": {"resourceVersion": "9", **token}, **columns})
        texts = (_json(_row(make(each)) if is_table else make(each)) for each in numbers[:limit])
        separated = itertools.islice(itertools.chain.from_iterable((",", text) for text in texts), 1, None)
        self._begin(200)
        self._write(itertools.chain([f'{head[:-1]},"{"rows" if is_table else "items"}":['], separated, ["]}"]))

    def _begin(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _write(self, texts: Any) -> None:
        for text in itertools.chain(texts, [""]):
            octets = text.encode()
            try:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(octets), octets))
            except OSError:
                # the page is longer than the client wants
                self.close_connection = True
                return


def _json(value: Any) -> str:
    """As the API server writes it: compact, and with < escaped."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()
