"""One connection for all requests: when it is opened, ended and tried again, and what goes over it."""

import gzip
from pathlib import Path
from typing import Final

import pytest
from kubectl_nodedevice.api import Api
from nodedevice_kube import credentials
from nodedevice_kube.api_errors import ApiError, Unreachable

from tests.unit.cli.api_server import NODES, Answer, FakeApiServer, Request
from tests.unit.cli.api_server import kubeconfig as written
from tests.unit.cli.conftest import ApiOf

_OPEN: Final = Answer()
_ANNOUNCED: Final = Answer(headers={"Connection": "close"})
_UNANNOUNCED: Final = Answer(ends=True)


def _hangs_up(_: Request) -> Answer | None:
    raise ConnectionError


@pytest.mark.parametrize(
    ("first", "requests", "connections"),
    [(None, 1, 1), (_ANNOUNCED, 2, 2), (_OPEN, 3, 2), (_UNANNOUNCED, 2, 2)],
    ids=["nothing", "an answer and a farewell", "an answer", "an answer and no more"],
)
def test_only_what_a_kept_connection_did_not_take_is_sent_again(
    api_of: ApiOf, server: FakeApiServer, first: Answer | None, requests: int, connections: int
) -> None:
    """first: what the server gives before it hangs up whatever it is asked."""
    api = api_of()
    if first:
        server.fault = lambda _: first
        api.get("nodes", NODES)
    server.fault = _hangs_up
    with pytest.raises(Unreachable):
        api.get("nodes", NODES)
    assert (len(server.requests), server.connections) == (requests, connections)


def test_after_half_an_answer_the_next_one_is_whole(api_of: ApiOf, server: FakeApiServer) -> None:
    api = api_of()
    server.fault = lambda _: Answer(200, b'{"kind": "Li', short=True)
    with pytest.raises(Unreachable, match=r" cannot be reached: the response was cut off$"):
        api.get("nodes", NODES)
    server.fault = lambda _: None
    assert api.get("nodes", NODES)["kind"] == "NodeList"
    assert server.connections == 2


@pytest.mark.parametrize("header", ["Content-Encoding", "content-encoding"])
def test_answers_may_be_packed(api_of: ApiOf, server: FakeApiServer, header: str) -> None:
    server.fault = lambda _: Answer(200, gzip.compress(b'{"kind": "Packed"}'), {header: "gzip"})
    assert api_of().get("nodes", NODES)["kind"] == "Packed"
    assert server.requests[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("path", ["/k8s/clusters/c", "/k8s/clusters/c/"])
def test_a_server_behind_a_path(api_of: ApiOf, server: FakeApiServer, path: str) -> None:
    server.fault = lambda _: Answer()
    api_of(path).get("nodes", NODES)
    assert server.requests[0].path == f"/k8s/clusters/c{NODES}"


def test_a_proxy_of_plain_http_gets_the_whole_address(server: FakeApiServer, tmp_path: Path) -> None:
    """There is no tunnel to a server without TLS."""
    cluster = {"server": "http://api.invalid:8080/x", "proxy-url": server.address.replace("://", "://u:p@")}
    api = Api(credentials.load(str(written(tmp_path, "", cluster, token="t"))))
    with pytest.raises(ApiError):
        api.get("nodes", NODES)
    api.close()
    [request] = server.requests
    # http.client takes it from a whole address
    assert (request.path, request.headers["host"]) == (f"/x{NODES}", "api.invalid:8080")
    assert request.headers["proxy-authorization"] == "Basic dTpw"
