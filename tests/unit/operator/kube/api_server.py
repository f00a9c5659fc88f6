"""Servers on loopback that answer requests as set, a kubeconfig for them, and a client."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.played_api.messages import Answer, Request
from tests.fakes.played_api.serving import listen


class Server:
    """Answers as the test sets it, and records the requests."""

    date = address = ""
    connections = 0

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        _, self.close = listen(self)
        self.url = self.address

    def answer(self, request: Request) -> Answer:
        self.asked.append((request.method, request.target, dict(request.headers), request.body))
        status, content = self.answers.pop(0)
        return Answer(status, content if isinstance(content, bytes) else json.dumps(content).encode())


def page(*items: Any, more: str = "", version: str = "9") -> tuple[int, dict[str, Any]]:
    """An answer: a page of a list, after which `more` goes on."""
    return 200, {"metadata": {"resourceVersion": version, "continue": more}, "items": list(items)}


def kubeconfig_text(cluster: dict[str, Any], user: dict[str, Any], **others: Any) -> str:
    """A kubeconfig of one context; `others` takes the place of its parts."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:1", **cluster}}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "there"}}],
    }
    return yaml.safe_dump(content | others)


def kubeconfig(folder: Path, url: str, **user: Any) -> str:
    """A kubeconfig for that server; its path."""
    file = folder / "kubeconfig"
    file.write_text(kubeconfig_text({"server": url}, user))
    return str(file)


@asynccontextmanager
async def client_of(
    folder: Path, url: str, user: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A client of that server; options: as a Client takes them."""
    login = credentials.load(kubeconfig(folder, url, **(user or {})))
    made = Client(login, **{"health": ApiHealth(url), "writes": Metrics().writes, **options})
    yield made
    await made.close()
