"""What the extender refuses to start with, and says why; and an extender with its settings, before it begins to work."""

import socket
from pathlib import Path
from typing import Any

import pytest
from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.extender.pods_api import PodsApi
from nodedevice_operator.extender.process import Extender
from nodedevice_operator.extender.settings import load
from nodedevice_operator.extender.wire import BindRequest

from tests.fakes.parts import one_of
from tests.unit.operator.kube.api_server import Server, kubeconfig


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"address": "8888"}, "address: '8888' is not host:port"),
        ({"address": ":8888"}, "any client there can bind pods"),
        ({"tls_certificate": "a", "tls_key": "b"}, "tlsKey and clientCa belong together"),
        ({"client_names": ["a"]}, "clientNames: needs clientCa"),
        ({"namespace": "../x"}, "namespace: '../x' is not a namespace"),
        ({"follow_lease": "a/b/c"}, "'a/b/c' is not NAMESPACE/NAME"),
        ({"follow_lease": "a/b", "leader_elect": False}, "followLease: means nothing without leaderElect"),
        ({"leader_lease_seconds": 3}, "Expected `int` >= 4; a bind has the last quarter of it to arrive"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_name(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(OperatorSettingsError, match=problem.replace("(", r"\(")):
        load(None, given)


def test_a_file_has_the_same_names_and_a_typo_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text("followLease: kube-system/kube-scheduler\npolicy: spread\n")
    made = load(file, {})
    assert (made.followed, made.policy) == (("kube-system", "kube-scheduler"), "spread")
    assert (made.tls, made.endpoint) == (None, ("127.0.0.1", 8888))
    file.write_text("leaderLeaseSeconds: 3\n")
    with pytest.raises(OperatorSettingsError, match="; a bind has the last quarter of it to arrive, and no less than"):
        load(file, {})
    file.write_text("polcy: spread\n")
    with pytest.raises(OperatorSettingsError, match="polcy"):
        load(file, {})


def test_with_certificates_every_address_may_be_used() -> None:
    files = {"tls_certificate": "a", "tls_key": "b", "client_ca": "c"}
    made = load(None, {"address": ":8888", **files, "client_names": ["system:kube-scheduler"]})
    assert made.tls is not None
    assert made.tls.names == {"system:kube-scheduler"}


async def test_a_bind_has_the_last_quarter_of_the_lease_to_arrive_and_a_port_in_use_ends_it(
    server: Server, tmp_path: Path
) -> None:
    server.answers = [(201, {})]
    own = {"kubeconfig": kubeconfig(tmp_path, server.url), "http_address": "127.0.0.1:0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        extender = Extender(load(None, {**own, "leader_elect": False, "leader_lease_seconds": 40, "address": address}))
        await one_of(extender, PodsApi).bind(BindRequest("pod", "default", "uid", "node"), {})
        [(method, path, *_)] = server.asked
        assert (method, path) == ("POST", "/api/v1/namespaces/default/pods/pod/binding?timeout=10s")
        with pytest.raises(OperatorSettingsError, match=address):
            await extender.run()
