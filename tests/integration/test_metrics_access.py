"""Metrics by token, over TLS, of both programs: real accounts and a real API server that reviews their tokens."""

import os
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.chart import SYSTEM_NAMESPACE, install_chart
from tests.cluster.control_plane.certificates import Authority, Certificate
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.product_process import ProductProcess

pytestmark = pytest.mark.cluster

NAMESPACE = "metrics-access"
ACCOUNTS = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: prometheus, namespace: {NAMESPACE}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: stranger, namespace: {NAMESPACE}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: prometheus-reads-nodedevice}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nodedevice-metrics-reader}}
subjects: [{{kind: ServiceAccount, name: prometheus, namespace: {NAMESPACE}}}]
"""


@pytest.fixture(scope="module")
def tokens(installed: ControlPlane) -> Iterator[dict[str, str]]:
    """By account; "" and nonsense besides."""
    install_chart(installed, {"metrics": {"authentication": "token"}})
    installed.apply(ACCOUNTS)
    made = {
        name: installed.kubectl("create", "token", name, "-n", NAMESPACE).strip() for name in ("prometheus", "stranger")
    }
    yield {**made, "none": "", "nonsense": "nonsense"}
    installed.kubectl("delete", "--wait=false", "-f", "-", stdin=ACCOUNTS)
    install_chart(installed)


class Served:
    """A program with HTTPS; files: of its certificate, which a test may replace."""

    def __init__(self, process: ProductProcess, files: Certificate) -> None:
        self.process, self.files = process, files

    def get(self, path: str, authority: Authority, token: str = "") -> tuple[int, str]:
        """Status and text; the certificate must be of that authority."""
        request = urllib.request.Request(f"https://{self.process.found_address()}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        trusting = ssl.create_default_context(cafile=str(authority.file))
        try:
            with urllib.request.urlopen(request, timeout=60, context=trusting) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "ca")


@pytest.fixture(params=["nodedevice-agent", "nodedevice-operator"])
def served(
    request: pytest.FixtureRequest,
    installed: ControlPlane,
    tokens: dict[str, str],
    authority: Authority,
    tmp_path: Path,
) -> Iterator[Served]:
    program = request.param
    files = authority.server(f"{program}-{tmp_path.name}")
    kubeconfig = installed.service_account_kubeconfig(SYSTEM_NAMESPACE, program, tmp_path / "kubeconfig")
    flags = {
        "--kubeconfig": str(kubeconfig),
        "--http-address": "127.0.0.1:0",
        "--metrics-authentication": "token",
        "--tls-certificate": str(files.certificate),
        "--tls-key": str(files.key),
    }
    if program == "nodedevice-agent":
        flags |= {f"--{name}-dir": str(tmp_path / name) for name in ("plugin", "state")}
        flags["--node-name"] = "metrics-access"
    process = ProductProcess(program, tmp_path, "program", flags)
    process.start()
    wait_until(lambda: process.found_address() != "", f"{program} serves")
    yield Served(process, files)
    process.kill()


def test_who_reads_metrics(served: Served, authority: Authority, tokens: dict[str, str]) -> None:
    # the API server's authorizer sees new bindings a moment later
    wait_until(lambda: served.get("/metrics", authority, tokens["prometheus"])[0] != 403, "the binding is known", 90)
    found = {name: served.get("/metrics", authority, token) for name, token in tokens.items()}
    statuses = {name: status for name, (status, _) in found.items()}
    assert statuses == {"prometheus": 200, "stranger": 403, "none": 401, "nonsense": 401}
    assert "# TYPE nodedevice_" in found["prometheus"][1]
    assert "grant it get on the nonResourceURL /metrics" in found["stranger"][1]
    assert served.get("/healthz", authority) == (200, "ok\n")


def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(
    served: Served, authority: Authority, tmp_path: Path
) -> None:
    renewing = Authority(tmp_path / "renewing")
    renewed = renewing.server("renewed")
    for new, old in ((renewed.certificate, served.files.certificate), (renewed.key, served.files.key)):
        shutil.copy(new, f"{old}.new")
        os.replace(f"{old}.new", old)
    assert served.get("/healthz", renewing)[0] == 200
    served.files.certificate.write_text("no certificate")
    assert served.get("/healthz", renewing)[0] == 200
    event = "the new TLS certificate cannot be used; serving with the one before"
    assert [line["certificate"] for line in served.process.lines(event)] == [str(served.files.certificate)]
