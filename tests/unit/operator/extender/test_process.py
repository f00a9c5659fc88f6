"""An extender with its settings, before it begins to work."""

import socket
from pathlib import Path
from typing import Any

import pytest
from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.extender import settings
from nodedevice_operator.extender.pods_api import PodsApi
from nodedevice_operator.extender.process import Extender
from nodedevice_operator.extender.wire import BindRequest

from tests.fakes.parts import one_of
from tests.unit.operator.kube.api_server import Server, kubeconfig


async def test_a_bind_has_the_last_quarter_of_the_lease_to_arrive_and_a_port_in_use_ends_it(tmp_path: Path) -> None:
    server = Server()
    server.answers = [(201, {})]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given: dict[str, Any] = {
            "kubeconfig": kubeconfig(tmp_path, server.url),
            "http_address": "127.0.0.1:0",
            "leader_elect": False,
            "leader_lease_seconds": 40,
        }
        extender = Extender(settings.load(None, {**given, "address": address}))
        await one_of(extender, PodsApi).bind(BindRequest("pod", "default", "uid", "node"), {})
        [(method, path, *_)] = server.asked
        assert (method, path) == ("POST", "/api/v1/namespaces/default/pods/pod/binding?timeout=10s")
        with pytest.raises(OperatorSettingsError, match=address):
            await extender.run()
    server.close()
