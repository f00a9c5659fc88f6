"""Credentials that end while a program runs: each program takes the new ones without a restart."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubectl_nodedevice.api import Api
from kubectl_nodedevice.errors import LoginProblem
from nodedevice_agent.kube.client import KubeClient
from nodedevice_common.api_connections import Connections
from nodedevice_common.api_exchange import Request
from nodedevice_common.api_transport import Transport
from nodedevice_kube.api_errors import ApiError
from nodedevice_kube.credentials import load
from nodedevice_operator.errors import OperatorError

from tests.conformance.connection.servers import ApiServer, Proxy, operator_client

# Of each program, which retries by itself in use.
_ATTEMPTS: Final = 3
_Ask = Callable[[], Awaitable[object]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    made = ApiServer(tmp_path)
    yield made
    made.close()


class Programs:
    """One client of each program, for one kubeconfig."""

    def __init__(self, kubeconfig: str) -> None:
        self._operator = operator_client(kubeconfig)
        self._agent = KubeClient.connect(Path(kubeconfig))
        self._command = Api(load(kubeconfig))
        self.ways: dict[str, _Ask] = {
            "operator": lambda: self._operator.request("GET", "nodes", "/api/v1/nodes/edge"),
            "agent": lambda: self._agent.node_uid("edge"),
            "command": lambda: asyncio.to_thread(self._command.get, "nodes", "/api/v1/nodes/edge"),
        }

    async def close(self) -> None:
        await self._operator.close()
        await self._agent.close()
        self._command.close()


async def _works(ask: _Ask) -> bool:
    for _ in range(_ATTEMPTS):
        try:
            await ask()
        except (OperatorError, ApiError, LoginProblem):
            continue
        return True
    return False


def _kubeconfig(server: ApiServer, user: dict[str, Any], **cluster: Any) -> str:
    entry = {"server": server.url, "certificate-authority": "ca.crt", **cluster}
    whole = {
        "clusters": [{"name": "c", "cluster": entry}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = server.folder / "config"
    file.write_text(yaml.safe_dump(whole))
    return str(file)


async def _renewed(server: ApiServer, kubeconfig: str, refuse: str, renew: Callable[[], object]) -> None:
    programs = Programs(kubeconfig)
    try:
        for who, ask in programs.ways.items():
            assert await _works(ask), who
        server.refused.add(refuse)
        renew()
        for who, ask in programs.ways.items():
            assert await _works(ask), who
    finally:
        await programs.close()


async def test_a_token_of_a_login_program_is_revoked(server: ApiServer) -> None:
    token = server.folder / "token"
    token.write_text("t-1")
    program = server.folder / "login"
    status = '{\\"token\\": \\"$(cat token)\\"}'
    program.write_text(
        f'#!/bin/sh\ncd {server.folder}\necho "{{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", '
        f'\\"kind\\": \\"ExecCredential\\", \\"status\\": {status}}}"\n'
    )
    program.chmod(0o755)
    entry = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "interactiveMode": "Never"}
    await _renewed(server, _kubeconfig(server, {"exec": entry}), "Bearer t-1", lambda: token.write_text("t-2"))


async def test_a_client_certificate_is_replaced(server: ApiServer) -> None:
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    await _renewed(server, _kubeconfig(server, user), "first", lambda: server.issue("second"))


async def test_requests_of_one_moment_share_a_new_certificate(server: ApiServer) -> None:
    core = load(_kubeconfig(server, {"client-certificate": "tls.crt", "client-key": "tls.key"}))
    transport = Transport(core, Connections(server.url, None, "a-program"), seconds=10)
    request = Request("GET", "/api/v1/nodes/edge")
    await transport.call("reading", "node edge", request)
    server.issue("second")
    core._checked_at = float("-inf")
    await asyncio.gather(*(transport.call("reading", "node edge", request) for _ in range(5)))
    await transport.close()
    assert {seen.certificate for seen in server.seen[1:]} == {"second"}


async def test_a_token_file_is_replaced(server: ApiServer) -> None:
    token = server.folder / "token"
    token.write_text("t-1\n")
    await _renewed(server, _kubeconfig(server, {"tokenFile": "token"}), "Bearer t-1", lambda: token.write_text("t-2\n"))


async def test_a_token_in_the_kubeconfig_is_replaced(server: ApiServer) -> None:
    kubeconfig = _kubeconfig(server, {"token": "t-1"})
    await _renewed(server, kubeconfig, "Bearer t-1", lambda: _kubeconfig(server, {"token": "t-2"}))


async def test_all_of_it_through_a_proxy_with_a_password(server: ApiServer) -> None:
    proxy = Proxy(server, needs_password=True)
    try:
        user = {"client-certificate": "tls.crt", "client-key": "tls.key", "as": "eve"}
        kubeconfig = _kubeconfig(server, user, **{"proxy-url": proxy.url_with_password})
        await _renewed(server, kubeconfig, "first", lambda: server.issue("second"))
        assert all(seen.is_by_proxy and seen.acting_as == (("impersonate-user", "eve"),) for seen in server.seen)
        assert os.environ.get("HTTPS_PROXY") is None
    finally:
        proxy.close()


async def test_while_a_new_certificate_cannot_be_used_the_former_one_is(server: ApiServer) -> None:
    """Others replace certificate and key one after the other; a file may be seen half written."""
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    core = load(_kubeconfig(server, user))
    former = core.current
    (server.folder / "tls.crt").write_text("half")
    core._checked_at = float("-inf")
    assert core.refresh() is former
    server.issue("second")
    core._checked_at = float("-inf")
    assert core.refresh().tls is not former.tls
