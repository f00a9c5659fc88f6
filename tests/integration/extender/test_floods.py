"""A client without a certificate that connects 500 times a second to the port: how long others wait for a bind. Real seconds."""

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trustme

from tests.cluster.api import Pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.extender.extender_process import ExtenderProcess, GpuNode, make_pod
from tests.integration.extender.flood import KINDS, Kind, flooded

# One has the address of the client that floods; the other one has another.
SHARED, OTHER = "127.0.0.2", "127.0.0.3"
# Connects before the flood alone.
_BEFORE: Final = "127.0.0.4"
PER_SECOND: Final = 500
BINDS: Final = 3
# As kube-scheduler: the chart's httpTimeout, and its pauses after a pod that was not bound.
_ATTEMPT_SECONDS: Final = 5.0
_PAUSES: Final = (1, 2, 4, 8, 10, 10, 10, 10)
_LINES: Final = 200


class Scheduler:
    """kube-scheduler's part: a bind has a connection of its own, from an address of loopback."""

    def __init__(self, folder: Path) -> None:
        """Makes certificates as the chart has them, in files."""
        authority = trustme.CA(key_type=trustme.KeyType.RSA)
        authority.cert_pem.write_to_path(str(folder / "ca.crt"))
        self.flags: tuple[str, ...] = ("--client-ca", str(folder / "ca.crt"), "--client-names", "scheduler")
        for name in ("server", "scheduler"):
            issued = authority.issue_cert(name, common_name=name, key_type=trustme.KeyType.RSA)
            issued.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))
        server = str(folder / "server.pem")
        self.flags += ("--tls-certificate", server, "--tls-key", server)
        self._context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._context.check_hostname = False
        self._context.load_cert_chain(folder / "scheduler.pem")

    def seconds_to_bind(self, address: str, source: str, request: Any) -> float:
        began = time.monotonic()
        for pause in _PAUSES:
            try:
                assert self.answer(address, source, request) == (200, {"Error": ""})
            except (OSError, http.client.HTTPException):
                time.sleep(pause)
            else:
                break
        return time.monotonic() - began

    def answer(self, address: str, source: str, request: Any) -> tuple[int, Any]:
        host, port = address.split(":")
        connection = http.client.HTTPSConnection(
            host, int(port), timeout=_ATTEMPT_SECONDS, context=self._context, source_address=(source, 0)
        )
        try:
            connection.request("POST", "/bind", json.dumps(request))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Scheduler:
    return Scheduler(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def extender(installed: ControlPlane, tmp_path: Path, scheduler: Scheduler) -> Iterator[ExtenderProcess]:
    """With TLS; no client has shown it a certificate yet."""
    with ExtenderProcess(installed, tmp_path, *scheduler.flags).active() as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_delays_a_bind_by_seconds_at_most(
    installed: ControlPlane, extender: ExtenderProcess, scheduler: Scheduler, namespace: str, kind: Kind
) -> None:
    with GpuNode(installed) as node:
        node.settle_parts(64)

        def request(name: str) -> Any:
            meta = make_pod(installed, namespace, name, 1).metadata
            return {"PodName": name, "PodNamespace": namespace, "PodUID": meta.uid, "Node": node.name}

        def seconds(source: str, number: int) -> float:
            bind = request(f"from-{source.replace('.', '-')}-{number}")
            passed = scheduler.seconds_to_bind(extender.verbs, source, bind)
            found: Any = installed.client.get(Pod, bind["PodName"], namespace=namespace)
            assert found.spec.nodeName == node.name
            return passed

        first = request("before")
        wait_until(lambda: scheduler.answer(extender.verbs, _BEFORE, first) == (200, {"Error": ""}), "the GPU is known")
        host, port = extender.verbs.split(":")
        with flooded((host, int(port)), SHARED, kind, PER_SECOND):
            shared = [seconds(SHARED, number) for number in range(BINDS)]
            other = [seconds(OTHER, number) for number in range(BINDS)]
        print(f"seconds to bind beside a flood ({kind}): same address {shared}, another {other}")
    assert max(other) <= 2
    assert max(shared) <= 30
    if not kind.endswith("closing"):
        assert extender.metric('nodedevice_extender_rejected_connections_total{reason="crowded"}') > 0
        assert any(line["address"] == SHARED for line in extender.lines("connection rejected"))
    assert len(extender.lines()) < _LINES
