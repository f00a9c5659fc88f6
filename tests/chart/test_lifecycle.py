"""Install, upgrade, uninstall and install again by helm itself, on a control plane of its own whose node only plays its pods.

So no command of a hook runs here (test_*_command.py run them); what helm makes, in which order, and what it leaves, is real.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_operator.cli.crds import NAMES

from tests.chart.rendering import listed
from tests.chart.values import HOOK_OF, Outcome
from tests.cluster.chart import CHART, SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

Helm = Callable[..., str]
Attempt = Callable[..., Outcome]


@pytest.fixture(scope="module")
def attempt(cluster: ControlPlane, helm: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """Run helm as whoever installs; its exit status, and all its output."""
    home = tmp_path_factory.mktemp("helm")

    def do(*arguments: str) -> Outcome:
        flags = ["--kubeconfig", str(cluster.admin_kubeconfig), "--namespace", SYSTEM_NAMESPACE]
        done = helm(*arguments, *flags, env={"HOME": str(home), "PATH": ""})
        return done.returncode, done.stdout + done.stderr

    return do


@pytest.fixture(scope="module")
def run(attempt: Attempt) -> Helm:
    """The same, where it has to succeed."""

    def do(*arguments: str) -> str:
        status, output = attempt(*arguments)
        assert status == 0, output
        return output

    return do


RIGHTS = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts"
REST = "daemonsets,deployments,jobs,pods,configmaps,poddisruptionbudgets,validatingadmissionpolicies"


def jobs_seen(cluster: ControlPlane) -> list[str]:
    """Jobs that were made, oldest first, from the audit log: those of hooks are gone when helm returns."""
    return [
        event["objectRef"]["name"]
        for event in cluster.audit_events()
        if event["verb"] in {"create", "patch"}
        and event["objectRef"].get("resource") == "jobs"
        and not event["objectRef"].get("subresource")
        and "helm" in event.get("userAgent", "").lower()
    ]


_CONFIG = """
apiVersion: nodedevice.io/v1alpha1
kind: NodeDeviceConfig
metadata: {name: lab}
spec: {plugins: {simulated: [{resourceName: example.com/lab, count: 1}]}}
"""


def test_from_nothing_to_nothing(cluster: ControlPlane, run: Helm) -> None:
    run("install", "nodedevice", str(CHART), "--create-namespace", "--wait", "--timeout", "90s")
    rights = listed(cluster, RIGHTS)
    assert jobs_seen(cluster) == []
    assert {"DaemonSet/nodedevice-agent", "Deployment/nodedevice-operator"} <= listed(cluster, REST)
    assert not {each for each in rights if each.partition("/")[2] in HOOK_OF.values()}

    pods = listed(cluster, "pods")
    run("upgrade", "nodedevice", str(CHART), "--wait", "--timeout", "90s")
    assert jobs_seen(cluster) == ["nodedevice-crds"]
    assert listed(cluster, RIGHTS) == rights
    assert listed(cluster, "pods") == pods  # nothing changed, so nothing was replaced

    cluster.apply(_CONFIG)
    run("uninstall", "nodedevice", "--wait", "--timeout", "90s")
    assert jobs_seen(cluster) == ["nodedevice-crds", "nodedevice-cleanup"]
    assert listed(cluster, RIGHTS) == set()
    assert listed(cluster, REST) == set()
    assert listed(cluster, "crds") == {f"CustomResourceDefinition/{name}" for name in NAMES}
    assert names.AGENTS_NAMESPACE not in cluster.kubectl("get", "namespaces", "-o", "name")

    # an administrator's word stays, and the next installation has it
    run("install", "nodedevice", str(CHART), "--wait", "--timeout", "90s")
    assert cluster.kubectl("get", "nodedeviceconfigs", "-o", "name").split() == ["nodedeviceconfig.nodedevice.io/lab"]
    cluster.kubectl("delete", "nodedeviceconfig", "lab", "--timeout=60s")


@pytest.fixture
def installed_here(cluster: ControlPlane, attempt: Attempt, run: Helm) -> Iterator[None]:
    """The chart, whatever tests before have left; and nothing of it afterwards."""
    attempt("uninstall", "nodedevice", "--no-hooks", "--wait")
    run("install", "nodedevice", str(CHART), "--create-namespace")
    yield
    attempt("uninstall", "nodedevice", "--no-hooks", "--wait")


@pytest.fixture
def held(cluster: ControlPlane, installed_here: None) -> Iterator[Callable[[], None]]:
    """The agents' namespace cannot end before this is called: as if it took its time."""
    name = ("configmap", "held", "-n", names.AGENTS_NAMESPACE)
    cluster.kubectl("create", *name)
    cluster.kubectl("patch", *name, "--type=merge", "-p", '{"metadata": {"finalizers": ["example.com/test"]}}')

    def let_go() -> None:
        cluster.kubectl("patch", *name, "--type=merge", "-p", '{"metadata": {"finalizers": null}}', check=False)

    yield let_go
    let_go()


@pytest.mark.parametrize("is_gone", [True, False], ids=["the namespace has gone", "it still ends"])
def test_an_install_into_a_namespace_that_ends_can_be_taken_back(
    cluster: ControlPlane, attempt: Attempt, run: Helm, held: Callable[[], None], is_gone: bool
) -> None:
    """Where no cleanup ran, or none that could end it, helm uninstall does not wait for the namespace."""
    run("uninstall", "nodedevice")
    status, output = attempt("install", "nodedevice", str(CHART))
    assert (status, "because it is being terminated" in output) == (1, True), output
    assert attempt("install", "nodedevice", str(CHART))[0] == 1  # helm keeps the name of what failed
    gone = ("wait", "--for=delete", f"namespace/{names.AGENTS_NAMESPACE}", "--timeout=60s")
    if is_gone:
        held()
        cluster.kubectl(*gone)
    run("uninstall", "nodedevice")
    if not is_gone:
        held()
        cluster.kubectl(*gone)
    run("install", "nodedevice", str(CHART), "--wait", "--timeout", "90s")


def test_an_uninstall_needs_no_namespace_of_the_agents(cluster: ControlPlane, run: Helm, installed_here: None) -> None:
    cluster.kubectl("delete", "namespace", names.AGENTS_NAMESPACE)
    run("uninstall", "nodedevice")
    assert listed(cluster, RIGHTS) == set()
    run("install", "nodedevice", str(CHART), "--wait", "--timeout", "90s")


def test_marks_switched_off_go_before_the_right(cluster: ControlPlane, run: Helm, installed_here: None) -> None:
    def marking() -> tuple[bool, bool]:
        """Whether the operator may patch Nodes, and whether it is configured to taint them."""
        rules = json.loads(cluster.kubectl("get", "clusterrole", "nodedevice-operator", "-o", "json"))["rules"]
        may = any("nodes" in rule["resources"] and "patch" in rule["verbs"] for rule in rules)
        path = r"jsonpath={.data.operator\.yaml}"
        settings = cluster.kubectl("get", "configmap", "nodedevice-operator", "-n", SYSTEM_NAMESPACE, "-o", path)
        return may, json.loads(settings)["nodeTaint"]

    found = [marking()]
    for value in ("on", "off", "off"):
        run("upgrade", "nodedevice", str(CHART), "--set-string", f"nodeTaint={value}")
        found.append(marking())
    assert found == [(False, False), (True, True), (True, False), (False, False)]


def of_the_extender(cluster: ControlPlane) -> dict[str, dict[str, str]]:
    """The data of its Secrets, by name."""
    items = json.loads(cluster.kubectl("get", "secrets", "-n", SYSTEM_NAMESPACE, "-o", "json"))["items"]
    found = {each["metadata"]["name"]: each["data"] for each in items}
    return {name: data for name, data in found.items() if name.startswith("nodedevice-extender")}


def test_the_extenders_certificates_stay_at_an_upgrade(cluster: ControlPlane, run: Helm, installed_here: None) -> None:
    def upgrade(more: str = "") -> str:
        values = f"scheduler.service=true,scheduler.managedResources={{example.com/gpu}}{more}"
        return run("upgrade", "nodedevice", str(CHART), "--set", values)

    upgrade()
    made = of_the_extender(cluster)
    assert made.keys() == {"nodedevice-extender", "nodedevice-extender-client"}
    printed = upgrade(",scheduler.policy=spread")
    assert of_the_extender(cluster) == made
    service = ("get", "service", "nodedevice-extender", "-n", SYSTEM_NAMESPACE, "-o", "jsonpath={.spec.clusterIP}")
    assert f"urlPrefix: https://{cluster.kubectl(*service)}\n" in printed
    # one of the two alone would fit to nothing
    cluster.kubectl("delete", "secret", "nodedevice-extender-client", "-n", SYSTEM_NAMESPACE)
    upgrade()
    renewed = of_the_extender(cluster)
    assert renewed.keys() == made.keys()
    assert all(renewed[name] != made[name] for name in made)
    run("upgrade", "nodedevice", str(CHART), "--reset-values")
    assert of_the_extender(cluster) == {}


@pytest.mark.parametrize("mode", ["enabled", "service"])
def test_nothing_is_left_of_a_scheduler(cluster: ControlPlane, attempt: Attempt, run: Helm, mode: str) -> None:
    attempt("uninstall", "nodedevice", "--no-hooks", "--wait")
    values = ("--set", f"scheduler.{mode}=true,scheduler.managedResources={{example.com/gpu}}")
    run("install", "nodedevice", str(CHART), "--create-namespace", "--wait", "--timeout", "90s", *values)
    component = {"enabled": "scheduler", "service": "extender"}[mode]
    assert f"Deployment/nodedevice-{component}" in listed(cluster, REST)
    run("uninstall", "nodedevice", "--wait", "--timeout", "90s")
    assert listed(cluster, RIGHTS) == set()
    assert listed(cluster, f"{REST},services") == set()
    assert of_the_extender(cluster) == {}
