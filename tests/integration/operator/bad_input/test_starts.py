"""A start while what answers is not the API server, or not yet: kopf asks once which kinds there are, and would give up."""

from pathlib import Path

import pytest

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy, refusal
from tests.integration.operator_process import OperatorProcess


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        pytest.param(200, b"<html>log in</html>", "text/html", id="a page"),
        pytest.param(200, b"{}", "application/json", id="nothing"),
        pytest.param(410, refusal(410, "Expired", "no"), "application/json", id="410"),
    ],
)
def test_it_is_asked_again(
    installed: ControlPlane, tmp_path: Path, status: int, body: bytes, content_type: str
) -> None:
    operator = OperatorProcess(installed, tmp_path, "--no-leader-elect", "--no-required-plugins")
    with FaultProxy(installed.admin_kubeconfig) as proxy:
        operator.reach_by(proxy.url)
        rules = [proxy.rule("GET", path, 2, status, body, {"Content-Type": content_type}) for path in ("/api", "/apis")]
        with operator.running():
            wait_until(lambda: all(rule.is_over for rule in rules), "both are asked for until they are answered")
            said = operator.lines("API server's response cannot be used; retrying")
            assert sorted(line["path"] for line in said) == ["/api", "/apis"]
            operator.verify_running()
            operator.verify_no_traceback()
