"""Typed clients of the `kubernetes` package: our credentials, and our errors."""

from pathlib import Path

import pytest
from kubernetes.client import ApiextensionsV1Api
from nodedevice_kube.api_errors import ApiError, NotFound, Unavailable, Unreachable
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.typed import call, typed_client

from tests.conformance.connection.servers import ApiServer, Proxy
from tests.unit.operator.kube.api_server import Server, kubeconfig, kubeconfig_text


async def _read(path: str) -> object:
    client = typed_client(credentials.load(path))
    return await call("GET", "crds", ApiextensionsV1Api(client).read_custom_resource_definition, "x")


@pytest.mark.parametrize(("status", "expected"), [(404, NotFound), (429, Unavailable)])
async def test_each_status_is_an_error_of_ours(
    status: int, expected: type[ApiError], server: Server, tmp_path: Path
) -> None:
    server.answers = [(status, {"message": "why", "details": {"kind": "crds"}})]
    with pytest.raises(expected, match="why"):
        await _read(kubeconfig(tmp_path, server.url))


async def test_a_response_that_is_too_deep_is_an_error_of_ours(server: Server, tmp_path: Path) -> None:
    deep: object = {}
    for _ in range(900):
        deep = {"a": deep}
    server.answers = [(200, {"metadata": {"name": "x"}, "spec": deep})]
    with pytest.raises(ApiError):
        await _read(kubeconfig(tmp_path, server.url))


async def test_tls_certificate_groups_and_proxy(tmp_path: Path) -> None:
    made = ApiServer(tmp_path)
    proxy = Proxy(made, needs_password=True)
    user = {"client-certificate": "tls.crt", "client-key": "tls.key", "as": "eve", "as-groups": ["a", "b"]}
    cluster = {"server": made.url, "certificate-authority": "ca.crt", "proxy-url": proxy.url_with_password}
    (tmp_path / "config").write_text(kubeconfig_text(cluster, user))
    try:
        with pytest.raises(ApiError):
            await _read(str(tmp_path / "config"))
        seen = made.seen[-1]
    finally:
        proxy.close()
        made.close()
    assert (seen.certificate, seen.is_by_proxy) == ("first", True)
    assert seen.acting_as == (("impersonate-group", "a"), ("impersonate-group", "b"), ("impersonate-user", "eve"))


async def test_a_server_of_another_authority_is_not_reached(tmp_path: Path) -> None:
    made = ApiServer(tmp_path)
    try:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await _read(kubeconfig(tmp_path, made.url))
    finally:
        made.close()
