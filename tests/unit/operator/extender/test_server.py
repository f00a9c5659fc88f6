"""The extender's port with requests that are none, and with clients that are not allowed: clear answers, and the next is served."""

import asyncio
import io
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.extender.connections import MOST
from nodedevice_operator.extender.http_protocol import MOST_REQUEST_BYTES
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.server import NotActive, Server, Tls, Verb
from nodedevice_operator.extender.wire import BindRequest, decode

from tests.fakes.operator.collaborators import running
from tests.fakes.polling import until
from tests.unit.common.test_http_server import has_ipv6

# of requests of a known verb, by status
OUTCOMES = {200: "ok", 400: "bad", 413: "bad", 503: "standby", 500: "failed"}


def request(**more: Any) -> bytes:
    return json.dumps({"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n", **more}).encode()


BIND, NO_REQUEST = request(), "is not what kube-scheduler sends"


async def echo(body: bytes) -> tuple[bytes, str]:
    """Answers with the node of a bind request; `standby` and `broken` are no nodes."""
    node = decode(body, BindRequest).node
    if node == "standby":
        raise NotActive("another one answers")
    if node == "broken":
        raise KeyError("secret")
    return json.dumps({"node": node}).encode(), "ok"


@asynccontextmanager
async def served(
    tls: Tls | None = None, metrics: ExtenderMetrics | None = None, bind: Verb = echo
) -> AsyncIterator[str]:
    """Its address, HOST:PORT."""
    made = Server(("127.0.0.1", 0), tls, {"bind": bind}, metrics or ExtenderMetrics())
    host, port = await made.start()
    try:
        async with running(made.work()):
            yield f"{host}:{port}"
    finally:
        # also for a test that fails: sockets that are left open would fail another one, whenever they are collected
        await made.close()


async def asked(
    url: str, body: bytes, method: str = "POST", context: ssl.SSLContext | None = None
) -> tuple[int, str, str]:
    """Status, text and content type."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, data=io.BytesIO(body), ssl=context or True) as got,
    ):
        return got.status, (await got.text()).strip(), got.content_type


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        pytest.param("POST", "bind", BIND, 200, '{"node": "n"}', id="whole"),
        pytest.param("POST", "bind", BIND[:-9], 400, NO_REQUEST, id="cut off"),
        pytest.param("POST", "bind", b"[" * 100_000, 400, NO_REQUEST, id="deep"),
        pytest.param("POST", "bind", b'{"PodName": "\xff"}', 400, NO_REQUEST, id="no UTF-8"),
        pytest.param("POST", "bind", request(Node=7), 400, "Expected `str`, got `int`", id="type"),
        pytest.param("POST", "bind", b'{"PodName": "p"}', 400, "missing required field `PodNamespace`", id="missing"),
        pytest.param("POST", "bind", b" " * (MOST_REQUEST_BYTES + 1), 413, "set nodeCacheCapable: true", id="too long"),
        pytest.param("POST", "score", b"{}", 404, "known are /bind", id="unknown verb"),
        pytest.param("GET", "bind", b"", 405, "takes a POST", id="GET"),
        pytest.param("GET", "", b"", 200, "kube-scheduler sends POST /bind", id="help"),
        pytest.param("POST", "bind", request(Node="standby"), 503, "another one answers", id="standby"),
        pytest.param("POST", "bind", request(Node="broken"), 500, "which is a bug", id="a bug"),
    ],
)
async def test_each_request_gets_a_clear_answer(method: str, path: str, body: bytes, status: int, text: str) -> None:
    metrics = ExtenderMetrics()
    async with served(metrics=metrics) as address:
        got, answer, kind = await asked(f"http://{address}/{path}", body, method)
        assert (got, kind == "application/json") == (status, (status, path) == (200, "bind"))
        assert text in answer
        assert "secret" not in answer
        if status in OUTCOMES and path:
            labels = {"verb": "bind", "outcome": OUTCOMES[status]}
            assert metrics.registry.get_sample_value("nodedevice_extender_requests_total", labels) == 1
            assert metrics.registry.get_sample_value("nodedevice_extender_request_seconds_count", {"verb": "bind"}) == 1
        assert (await asked(f"http://{address}/bind", BIND))[0] == 200


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")
async def test_an_address_of_ipv6_is_shown_as_it_is_used() -> None:
    made = Server(("::1", 0), None, {"bind": echo}, ExtenderMetrics())
    host, port = await made.start()
    assert (host, port > 0) == ("::1", True)
    await made.close()


async def test_a_long_request_in_chunks_ends_where_it_is_too_long() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(MOST_REQUEST_BYTES // 2**20 + 1):
            yield b" " * 2**20

    async with (
        served() as address,
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}/bind", data=chunks()) as got,
    ):
        assert got.status == 413


class Authority:
    """A certificate authority and what it has signed, as files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.ca = trustme.CA()
        self.file = str(folder / f"{name}-ca.pem")
        self.ca.cert_pem.write_to_path(self.file)

    def issue(self, folder: Path, name: str, common_name: str = "") -> tuple[str, str]:
        """Certificate and key of that name, in files."""
        issued = self.ca.issue_cert(name, common_name=common_name or name)
        certificate, key = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
        issued.private_key_pem.write_to_path(key)
        issued.cert_chain_pems[0].write_to_path(certificate)
        return certificate, key

    def client(self, certificate: tuple[str, str] | None) -> ssl.SSLContext:
        """TLS of a client that trusts this authority."""
        context = ssl.create_default_context(cafile=self.file)
        context.check_hostname = False
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context


async def bind(address: str, context: ssl.SSLContext) -> tuple[int, str]:
    status, text, _ = await asked(f"https://{address}/bind", BIND, context=context)
    return status, text


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


def tls(folder: Path, authority: Authority, *names: str) -> Tls:
    return Tls(*authority.issue(folder, "server"), authority.file, frozenset(names))


async def test_only_clients_of_that_authority_are_answered(tmp_path: Path, authority: Authority) -> None:
    other = Authority(tmp_path, "other")
    async with served(tls(tmp_path, authority)) as address:
        assert await bind(address, authority.client(authority.issue(tmp_path, "scheduler"))) == (200, '{"node": "n"}')
        for refused in (None, other.issue(tmp_path, "stranger")):
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await bind(address, authority.client(refused))
        with pytest.raises(aiohttp.ClientError):
            await asked(f"http://{address}/bind", b"{}")


async def test_only_clients_of_that_name_are_answered(tmp_path: Path, authority: Authority) -> None:
    async with served(tls(tmp_path, authority, "system:kube-scheduler", "by-san")) as address:
        by_common_name = authority.issue(tmp_path, "a", common_name="system:kube-scheduler")
        for allowed in (by_common_name, authority.issue(tmp_path, "by-san", common_name="other")):
            assert (await bind(address, authority.client(allowed)))[0] == 200
        status, text = await bind(address, authority.client(authority.issue(tmp_path, "stranger")))
        assert (status, "clientNames" in text) == (403, True)


async def test_renewed_certificates_are_taken_and_no_connection_is_lost(tmp_path: Path, authority: Authority) -> None:
    client, serials = authority.client(authority.issue(tmp_path, "scheduler")), set[str]()
    async with served(tls(tmp_path, authority)) as address:
        host, port = address.split(":")
        for _ in range(5):
            # the new certificate is found, and then these are accepted, in one turn
            waiting = [socket.create_connection((host, int(port))) for _ in range(5)]
            authority.issue(tmp_path, "server")
            for each in waiting:
                _, writer = await asyncio.open_connection(sock=each, ssl=client, server_hostname="server")
                serials.add(writer.get_extra_info("peercert")["serialNumber"])
                writer.close()
    assert len(serials) > 1


async def test_a_certificate_that_is_none_is_an_error_at_the_start(tmp_path: Path, authority: Authority) -> None:
    files = tls(tmp_path, authority)
    Path(files.client_ca).write_text("nothing")
    made = Server(("127.0.0.1", 0), files, {}, ExtenderMetrics())
    with pytest.raises(OperatorSettingsError, match=r"tlsCertificate: .* cannot be used"):
        await made.start()


class TestBounds:
    """Any pod may connect to the port: what has not shown a certificate gives way, and kube-scheduler is answered."""

    async def test_connections_without_a_certificate_are_few_and_keep_nobody_out(
        self, tmp_path: Path, authority: Authority
    ) -> None:
        client = authority.client(authority.issue(tmp_path, "scheduler"))
        async with served(tls(tmp_path, authority)) as address, AsyncExitStack() as stack:
            host, port = address.split(":")
            silent = [stack.enter_context(socket.socket()) for _ in range(3 * MOST)]
            for each in silent:
                each.setblocking(False)
                await asyncio.get_running_loop().sock_connect(each, (host, int(port)))
            for _ in range(3):
                assert (await bind(address, client))[0] == 200
            # each that gave way is closed, and the client sees it
            assert sum([await ended(each) for each in silent]) >= 2 * MOST

    async def test_of_those_that_are_connected_idle_ones_give_way(self) -> None:
        """As over loopback, where none has to show who it is."""
        async with served() as address:
            host, port = address.split(":")
            idle = [await asyncio.open_connection(host, int(port)) for _ in range(MOST)]
            for _, writer in idle:
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            for reader, _ in idle:
                assert b"200" in await reader.readline()
            assert (await asked(f"http://{address}/bind", BIND))[0] == 200
            assert await idle[0][0].read() is not None, "the oldest was closed"
            for _, writer in idle:
                writer.close()

    async def test_a_client_waits_while_each_connection_has_a_request(self) -> None:
        begun, let = list[bytes](), asyncio.Event()

        async def slow(body: bytes) -> tuple[bytes, str]:
            begun.append(body)
            await let.wait()
            return b"{}", "ok"

        async with served(bind=slow) as address:
            asks = [asyncio.create_task(asked(f"http://{address}/bind", b"{}")) for _ in range(MOST + 20)]
            await until(lambda: len(begun) == MOST)
            let.set()
            assert {status for status, _, _ in await asyncio.gather(*asks)} == {200}

    @pytest.mark.parametrize(
        "sent", [b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", b"no HTTP\r\n\r\n"]
    )
    async def test_a_client_that_goes_or_sends_no_request_leaves_no_traceback(
        self, sent: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = Server(("127.0.0.1", 0), None, {"bind": echo}, ExtenderMetrics())
        host, port = await made.start()
        async with running(made.work()):
            _, writer = await asyncio.open_connection(host, port)
            writer.write(sent)
            await until(lambda: len(made.open_connections()) == 1)
            writer.write_eof()
            writer.transport.abort()
            await until(lambda: made.open_connections() == [])
        await made.close()
        assert [record for record in caplog.records if record.exc_info] == []

    async def test_a_client_of_tls_1_2_gets_no_handshake(self, tmp_path: Path, authority: Authority) -> None:
        """There the server signs before the client has answered anything, and a client may ask for a new handshake at any time."""
        client = authority.client(authority.issue(tmp_path, "scheduler"))
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        metrics = ExtenderMetrics()
        async with served(tls(tmp_path, authority), metrics) as address:
            with pytest.raises(aiohttp.ClientError):
                await bind(address, client)
        reason = {"reason": "handshake"}
        assert metrics.registry.get_sample_value("nodedevice_extender_rejected_connections_total", reason) == 1


async def ended(connection: socket.socket) -> bool:
    """Whether the other side has closed it."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
