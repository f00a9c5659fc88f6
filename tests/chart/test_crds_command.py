"""The kinds brought up to date before an upgrade, with the rights of that hook alone."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from nodedevice_api.names import RELEASE_ANNOTATION
from nodedevice_operator import __version__
from nodedevice_operator.cli.crds import NAMES

from hack import yaml_text
from tests.chart.values import Command
from tests.cluster.accounts import client_with_token
from tests.cluster.api import ApiError, NodeDevice
from tests.cluster.chart import CHART, SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

_, ND, PD = NAMES
APPLY = ("apply", "--server-side", "--force-conflicts")


def of_chart(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml_text.load((CHART / "crds" / f"{name.partition('.')[0]}.yaml").read_text())
    return found


def stored(cluster: ControlPlane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", "crd", name, "-o", "json", "--show-managed-fields"))
    return found


def put(cluster: ControlPlane, name: str, release: str | None, manager: str = "helm") -> None:
    """Have the definition as a chart of that release left it: a little different from ours."""
    body = of_chart(name)
    body["metadata"]["annotations"] = {RELEASE_ANNOTATION: release} if release else {}
    body["spec"]["versions"][0]["additionalPrinterColumns"][0]["description"] = f"of {release}"
    cluster.kubectl(*APPLY, f"--field-manager={manager}", "-f", "-", stdin=yaml_text.dump(body))


def first_column(crd: dict[str, Any]) -> str:
    return str(crd["spec"]["versions"][0]["additionalPrinterColumns"][0]["description"])


@pytest.fixture(autouse=True)
def _as_they_were(installed: ControlPlane) -> Iterator[None]:
    yield
    installed.kubectl(*APPLY, "--field-manager=helm", "-f", str(CHART / "crds"))


@pytest.mark.parametrize("there", ["0.0.9", "0.1.0-rc.1", None, "what?"])
def test_an_older_release_is_replaced(installed: ControlPlane, as_hook: Command, there: str | None) -> None:
    put(installed, ND, there)
    status, output = as_hook("crds", "apply")
    assert status == 0, output
    assert f"{ND}: changed from release {there or 'unknown'} to {__version__}" in output.splitlines()
    assert first_column(stored(installed, ND)) == first_column(of_chart(ND))
    assert stored(installed, ND)["metadata"]["annotations"][RELEASE_ANNOTATION] == __version__


def test_a_newer_release_stays(installed: ControlPlane, as_hook: Command) -> None:
    put(installed, PD, "99.0.0")
    put(installed, ND, "0.0.1")
    status, output = as_hook("crds", "apply")
    assert status == 1
    assert f"{PD} is of release 99.0.0, newer than this program's {__version__}" in output
    assert "crds.allowDowngrade" in output
    # nor is the other one touched: both are of one release or neither
    assert first_column(stored(installed, ND)) == "of 0.0.1"


def test_others_fields_are_taken_over_and_helm_can_install_again(installed: ControlPlane, as_hook: Command) -> None:
    put(installed, ND, "0.0.9", manager="kubectl")
    assert as_hook("crds", "apply")[0] == 0
    # what helm does with the definitions of a chart that it installs: an apply of its own, without force
    installed.kubectl("apply", "--server-side", "--field-manager=helm", "-f", str(CHART / "crds"))


def test_its_account_may_do_nothing_else(installed: ControlPlane, as_hook: Command) -> None:
    as_hook("crds", "apply")
    with (
        client_with_token(installed, SYSTEM_NAMESPACE, "nodedevice-crds") as client,
        pytest.raises(ApiError) as refused,
    ):
        list(client.list(NodeDevice))
    assert refused.value.status.code == 403
    for verb in ("create", "patch", "delete", "get"):
        assert _may(installed, verb, "customresourcedefinitions.apiextensions.k8s.io") == "no"
    assert _may(installed, "patch", f"customresourcedefinitions.apiextensions.k8s.io/{ND}") == "yes"
    assert _may(installed, "delete", f"customresourcedefinitions.apiextensions.k8s.io/{ND}") == "no"


def _may(cluster: ControlPlane, verb: str, what: str) -> str:
    account = f"system:serviceaccount:{SYSTEM_NAMESPACE}:nodedevice-crds"
    return cluster.kubectl("auth", "can-i", verb, what, f"--as={account}", check=False).strip()
