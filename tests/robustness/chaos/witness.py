"""Sees every Node that the API shows, apart from all else, and notes what must never be: our capacity below what is in use.

What others wrote is not ours to answer for: only numbers that the operator owns are judged.
"""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from nodedevice_api import names

from tests.cluster.api import NO_ANSWER, ApiError, Node, open_client

_PAUSE_SECONDS = 0.2


class Witness:
    """in_use: devices that pods hold, by node, all the time. Watches from the entering of a block to its end."""

    def __init__(self, kubeconfig: Path, resource: str, in_use: Mapping[str, int]) -> None:
        self.seen = 0
        self.violations: list[str] = []
        self._client = open_client(kubeconfig)
        self._resource = resource
        self._in_use = in_use
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="witness", daemon=True)

    def _watch(self) -> None:
        """Watch, and begin again where an outage ended it, until the end."""
        version: str | None = None
        while not self._ended.is_set():
            try:
                if version is None:
                    listed = self._client.list(Node)
                    for node in listed:
                        self._judge(node)
                    # the list's own: from a Node's, what others were before they were listed would be reported again
                    version = listed.resourceVersion
                for _, node in self._client.watch(Node, resource_version=version, timeout_seconds=30):
                    version = self._judge(node)
                    if self._ended.is_set():
                        return
            except ApiError:
                version = None
            except (*NO_ANSWER, RuntimeError):
                pass
            self._ended.wait(_PAUSE_SECONDS)

    def _judge(self, node: Any) -> str:
        self.seen += 1
        name = str(node.metadata.name)
        in_use = self._in_use.get(name, 0)
        for where in ("capacity", "allocatable"):
            shown = (getattr(node.status, where) or {}).get(self._resource)
            if in_use == 0:
                continue
            if shown is None:
                self._note(f"{where} of {name} is gone while {in_use} are in use")
            elif _is_ours(node, where, self._resource) and int(shown) < in_use:
                self._note(f"{where} of {name} is {shown} while {in_use} are in use")
        return str(node.metadata.resourceVersion)

    def _note(self, line: str) -> None:
        self.violations.append(f"{time.strftime('%H:%M:%S')} {line}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._client.close()


def _is_ours(node: Any, where: str, resource: str) -> bool:
    """Whether the operator is the one that owns this number now."""
    for entry in node.metadata.managedFields or []:
        if (entry.manager, entry.operation, entry.subresource) != (names.OPERATOR_FIELD_MANAGER, "Apply", "status"):
            continue
        return f"f:{resource}" in (entry.fieldsV1 or {}).get("f:status", {}).get(f"f:{where}", {})
    return False
