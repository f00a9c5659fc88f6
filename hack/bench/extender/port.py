"""A client of the extender's port: one persistent connection, as kube-scheduler has."""

import http.client
import time
from typing import Any

import msgspec


class Port:
    """address: HOST:PORT of the verbs."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=60)

    def call(self, verb: str, body: Any) -> tuple[float, Any]:
        """Seconds until the whole response has arrived, and the response. Raises RuntimeError for an error status."""
        content = msgspec.json.encode(body)
        began = time.perf_counter()
        self._connection.request("POST", f"/{verb}", content, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        data = answer.read()
        passed = time.perf_counter() - began
        if answer.status != 200:
            raise RuntimeError(f"{verb}: HTTP {answer.status}: {data[:300]!r}")
        return passed, msgspec.json.decode(data)

    def close(self) -> None:
        self._connection.close()
