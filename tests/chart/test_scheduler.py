"""What the chart renders for the extender, beside a scheduler of its own and alone: configuration, certificates, notes."""

import base64
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from nodedevice_common.tls import ServerCertificate
from nodedevice_operator.extender import settings as extender_settings
from nodedevice_operator.extender.server import certificate_names
from nodedevice_operator.extender.settings import ExtenderSettings

from hack import yaml_text
from tests.chart.rendering import named, notes, pod_of, refusal, render
from tests.chart.values import DIGEST, VALUE_SETS
from tests.cluster.chart import SYSTEM_NAMESPACE

pytestmark = pytest.mark.cluster

Values = dict[str, Any]

SECOND, ALONE = VALUE_SETS["a second scheduler"], VALUE_SETS["an extender for the cluster's scheduler"]
OTHERWISE = VALUE_SETS["a second scheduler, otherwise"]
OWN_CERTIFICATE = VALUE_SETS["an extender with a certificate of one's own"]
VERBS = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "bindVerb": "bind", "preemptVerb": "preempt"}


def scheduler(**more: Any) -> Values:
    return {"scheduler": {"enabled": True, "managedResources": ["aliyun.com/gpu-mem"], **more}}


def containers(values: Values, name: str, *flags: str) -> dict[str, Values]:
    pod = pod_of(named("Deployment", name, values, *flags))
    return {each["name"]: each for each in pod["containers"]}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (scheduler(service=True), "scheduler.enabled and scheduler.service are both true: the first installs a second"),
        (scheduler(managedResources=[]), "scheduler.managedResources is empty: name the resources with parts"),
        (
            scheduler(managedResources=["kubernetes.io/gpu"]),
            "scheduler.managedResources: kubernetes.io/gpu: names in kubernetes.io are reserved",
        ),
        (scheduler(schedulerName="default-scheduler"), "scheduler.schedulerName is default-scheduler, which is the"),
        (
            scheduler(env=[{"name": "NODEDEVICE_LOG_LEVEL", "value": "debug"}]),
            "NODEDEVICE_LOG_LEVEL is a setting of the program: set scheduler.extender.config.logLevel instead",
        ),
        (
            scheduler(extender={"httpPort": 8888}),
            "scheduler.extender.httpPort is 8888, where the extender answers kube-scheduler: choose another, such as 8081",
        ),
        (
            scheduler(extender={"httpPort": 10259}),
            "scheduler.extender.httpPort is 10259, the port of kube-scheduler in the same pod: choose another",
        ),
        (
            scheduler(extender={"resources": {"limits": {"memory": "64Mi"}}}),
            "scheduler.extender.resources.limits.memory is 64Mi, less than scheduler.extender.resources.requests.memory",
        ),
    ],
)
def test_refuses(values: Values, sentence: str) -> None:
    assert sentence in refusal(values)


@pytest.mark.parametrize(
    ("version", "tag"),
    [
        ("v1.34.4-gke.1036000", "v1.34.4"),
        ("v1.34.4+k3s1", "v1.34.4"),
        ("v1.38.0-rc.1", "v1.38.0-rc.1"),
    ],
)
def test_the_second_scheduler_is_of_the_clusters_version(version: str, tag: str) -> None:
    both = containers(scheduler(), "nodedevice-scheduler", "--kube-version", version)
    assert both["kube-scheduler"]["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_its_image_can_be_another() -> None:
    both = containers(OTHERWISE, "nodedevice-scheduler")
    assert both["kube-scheduler"]["image"] == f"registry.example.com/kube-scheduler@{DIGEST}"
    assert both["extender"]["args"] == ["extender"]
    assert both["extender"]["image"] == containers(OTHERWISE, "nodedevice-operator")["operator"]["image"]
    tagged = containers(scheduler(image={"tag": "v9.9.9"}), "nodedevice-scheduler")
    assert tagged["kube-scheduler"]["image"] == "registry.k8s.io/kube-scheduler:v9.9.9"


def configuration(values: Values) -> Values:
    made: Values = yaml_text.load(named("ConfigMap", "nodedevice-scheduler", values)["data"]["scheduler.yaml"])
    return made


def test_the_second_schedulers_configuration() -> None:
    # it watches no NodeDevices, and its release's own default is 5 minutes
    program = containers(SECOND, "nodedevice-scheduler")["kube-scheduler"]
    assert "--pod-max-in-unschedulable-pods-duration=10s" in program["args"]
    made = configuration(SECOND)
    [extender] = made.pop("extenders")
    assert made == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"qps": 500, "burst": 1000},
        "leaderElection": {
            "leaderElect": True,
            "resourceLock": "leases",
            "resourceName": "nodedevice-scheduler",
            "resourceNamespace": SYSTEM_NAMESPACE,
        },
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": "nodedevice-scheduler"}],
    }
    assert extender == {
        "urlPrefix": "http://127.0.0.1:8888",
        **VERBS,
        "weight": 10,
        "httpTimeout": "5s",
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [
            {"name": name, "ignoredByScheduler": False} for name in ("aliyun.com/gpu-mem", "example.com/gpu")
        ],
    }


def test_every_value_of_the_configuration_can_be_another() -> None:
    made = configuration(OTHERWISE)
    assert made["clientConnection"] == {"qps": 50, "burst": 100}
    assert made["profiles"] == [{"schedulerName": "of-ours"}]
    [extender] = made["extenders"]
    assert (extender["weight"], extender["httpTimeout"]) == (3, "1500ms")


@pytest.fixture
def read(tmp_path: Path) -> Callable[[Values], ExtenderSettings]:
    """What the extender reads of the file that the chart makes of these values."""

    def load(values: Values) -> ExtenderSettings:
        name = "nodedevice-scheduler" if values["scheduler"].get("enabled") else "nodedevice-extender"
        file = tmp_path / "extender.yaml"
        file.write_text(named("ConfigMap", name, values)["data"]["extender.yaml"])
        return extender_settings.load(file, {})

    return load


Read = Callable[[Values], ExtenderSettings]


def test_settings_beside_a_scheduler(read: Read) -> None:
    settings = read(SECOND)
    assert settings.address == "127.0.0.1:8888"
    assert settings.tls is None
    assert settings.followed == (SYSTEM_NAMESPACE, configuration(SECOND)["leaderElection"]["resourceName"])
    assert (settings.policy, settings.http_address, settings.namespace) == ("binpack", ":8081", SYSTEM_NAMESPACE)
    assert settings.instance == "nodedevice"
    assert (settings.metrics_authentication, settings.metrics_tls_key) == ("token", "/etc/nodedevice-tls/tls.key")
    other = read(OTHERWISE)
    assert (other.policy, other.http_address, other.metrics_tls_certificate) == ("spread", ":10002", "")


def test_settings_of_the_extender_alone(read: Read) -> None:
    settings = read(ALONE)
    assert settings.address == ":8888"
    assert settings.followed is None
    assert settings.client_names == ("nodedevice-extender-client",)
    mounts = containers(ALONE, "nodedevice-extender")["extender"]["volumeMounts"]
    [folder] = [each["mountPath"] for each in mounts if each["name"] == "extender-tls"]
    files = (settings.client_ca, settings.tls_certificate, settings.tls_key)
    assert files == tuple(f"{folder}/{name}" for name in ("ca.crt", "tls.crt", "tls.key"))
    own = read(OWN_CERTIFICATE)
    assert own.client_names == ("scheduler.example.com",)
    assert own.metrics_tls_certificate == "/etc/nodedevice-tls/tls.crt"


def test_what_the_user_sets_stands_beside_what_the_chart_decides(read: Read) -> None:
    settings = read(scheduler(extender={"config": {"logFormat": "json", "leaderLeaseSeconds": 20}}))
    assert (settings.log_format, settings.leader_lease_seconds) == ("json", 20)
    assert settings.address == "127.0.0.1:8888"


@pytest.mark.parametrize(
    ("value", "replaces"),
    [({"weight": 3}, True), ({"policy": "spread"}, True), ({"tls": {"clientNames": ["a"]}}, False)],
)
def test_a_change_of_what_it_reads_replaces_the_pods(value: Values, replaces: bool) -> None:
    before, after = (
        named("Deployment", "nodedevice-scheduler", scheduler(**more))["spec"]["template"] for more in ({}, value)
    )
    assert (before != after) is replaces


def secrets(values: Values) -> dict[str, dict[str, bytes]]:
    return {
        each["metadata"]["name"]: {key: base64.b64decode(value) for key, value in each["data"].items()}
        for each in render(values)
        if each["kind"] == "Secret"
    }


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Path]:
    """The folder of each Secret that is made, with its files."""
    folders = {}
    for name, files in secrets(ALONE).items():
        folders[name] = tmp_path / name
        folders[name].mkdir()
        for file, content in files.items():
            (folders[name] / file).write_bytes(content)
    assert folders.keys() == {"nodedevice-extender", "nodedevice-extender-client"}
    return folders


@pytest.mark.parametrize(("shown", "is_let_in"), [("nodedevice-extender-client", True), ("nodedevice-extender", False)])
def test_certificates_that_are_made_trust_each_other(shown: str, is_let_in: bool, made: dict[str, Path]) -> None:
    """A handshake in memory with the extender's own TLS; its own certificate is no client's."""
    served = made["nodedevice-extender"]
    certificate = ServerCertificate(str(served / "tls.crt"), str(served / "tls.key"), str(served / "ca.crt"))
    server_side = certificate.context()
    client_side = ssl.create_default_context(cafile=str(made[shown] / "ca.crt"))
    client_side.load_cert_chain(made[shown] / "tls.crt", made[shown] / "tls.key")
    one_way, other_way = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(one_way, other_way, server_side=True)
    host = f"nodedevice-extender.{SYSTEM_NAMESPACE}.svc"
    client = client_side.wrap_bio(other_way, one_way, server_hostname=host)
    for side in 3 * (client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    names = certificate_names(server.getpeercert() or {})
    assert bool(names & {"nodedevice-extender-client"}) is is_let_in


def test_the_authoritys_key_is_nowhere(tmp_path: Path) -> None:
    """Who reads a Secret cannot make certificates of other names."""
    for files in secrets(ALONE).values():
        assert files.keys() == {"ca.crt", "tls.crt", "tls.key"}
        file = tmp_path / "both.pem"
        file.write_bytes(files["ca.crt"] + files["tls.key"])
        with pytest.raises(ssl.SSLError):
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)


def test_with_a_certificate_of_ones_own_none_is_made() -> None:
    assert secrets(OWN_CERTIFICATE) == {}
    pod = pod_of(named("Deployment", "nodedevice-extender", OWN_CERTIFICATE))
    assert {"name": "extender-tls", "secret": {"secretName": "of-ours", "defaultMode": 0o444}} in pod["volumes"]


def test_only_one_extender_is_ever_ready_and_a_new_one_does_not_wait_for_that() -> None:
    """Standbys are not ready behind the Service: a budget or a rollout that waits for them would never end."""
    spec = named("Deployment", "nodedevice-extender", ALONE)["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": "100%", "maxSurge": 0}
    budgets = {each["metadata"]["name"] for each in render(ALONE) if each["kind"] == "PodDisruptionBudget"}
    assert budgets == {"nodedevice-operator"}
    budget, deployment = (named(kind, "nodedevice-scheduler", SECOND) for kind in ("PodDisruptionBudget", "Deployment"))
    assert budget["spec"]["selector"] == deployment["spec"]["selector"]


def test_monitors_find_the_extender() -> None:
    for values, component in ((SECOND, "scheduler"), (ALONE, "extender")):
        values = {**values, "monitoring": {"monitors": {"enabled": True}}}
        monitor, deployment = (
            named(kind, f"nodedevice-{component}", values)["spec"] for kind in ("PodMonitor", "Deployment")
        )
        assert monitor["selector"] == deployment["selector"]
        [endpoint] = monitor["podMetricsEndpoints"]
        assert endpoint["port"] in {port["name"] for port in deployment["template"]["spec"]["containers"][0]["ports"]}


@pytest.mark.parametrize(
    ("chosen", "component", "open_to_all"), [(SECOND, "scheduler", []), (ALONE, "extender", [8888])]
)
def test_network_policies(chosen: Values, component: str, open_to_all: list[int]) -> None:
    """Only the extender alone has a port for everybody, who has to show a certificate there."""
    peers: list[Values] = [{"namespaceSelector": {}}]
    policies = {"networkPolicies": {"enabled": True, "from": peers}}
    for values in (chosen, {**chosen, **policies}):
        rules = named("NetworkPolicy", f"nodedevice-{component}", values)["spec"].get("ingress", [])
        assert [port["port"] for rule in rules if "from" not in rule for port in rule["ports"]] == open_to_all
        assert {port["port"] for rule in rules if "from" in rule for port in rule["ports"]} <= {8081, 10259}
        assert all(rule["from"] == peers for rule in rules if "from" in rule)


def alone(*cidrs: str, policies: bool = True) -> Values:
    """The extender for the cluster's scheduler, which has these addresses."""
    chosen = {**ALONE["scheduler"], "extender": {"from": [*cidrs]}}
    return {"scheduler": chosen, "networkPolicies": {"enabled": policies}}


@pytest.mark.parametrize("cidr", ["10.0.0.5/32", "::/0", "2001:db8:0:1:2:3:4:5/128"])
def test_the_extenders_port_can_be_for_some_addresses_alone(cidr: str) -> None:
    [rule] = named("NetworkPolicy", "nodedevice-extender", alone(cidr, "10.9.0.0/16"))["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [8888]
    assert rule["from"] == [{"ipBlock": {"cidr": each}} for each in (cidr, "10.9.0.0/16")]


@pytest.mark.parametrize(
    "cidr",
    [
        *("10.0.0.5", "10.0.0.256/24", "10.0.0.0/33", "", "10.0.0.0/8\n", "node-1/32"),
        *("fd00::/129", "fd00::", "1::2::3/64"),
    ],
)
def test_what_is_no_range_of_addresses_is_refused(cidr: str) -> None:
    assert "is not a CIDR: write an address and the length of its prefix" in refusal(alone(cidr))


def test_addresses_without_a_policy_that_enforces_them_are_refused() -> None:
    refused = refusal(alone("10.0.0.5/32", policies=False))
    assert "scheduler.extender.from restricts nothing without a NetworkPolicy" in refused


def printed_configuration(text: str) -> Values:
    made: Values = yaml_text.load(text.partition("# KubeSchedulerConfiguration\n")[2].partition("# end of")[0])
    return made


def test_the_notes_have_the_whole_configuration_of_the_clusters_scheduler() -> None:
    text = notes(ALONE)
    made = printed_configuration(text)
    [extender] = made["extenders"]
    files = "/etc/kubernetes/nodedevice-extender"
    assert extender["tlsConfig"] == {
        "serverName": f"nodedevice-extender.{SYSTEM_NAMESPACE}.svc",
        "caFile": f"{files}/ca.crt",
        "certFile": f"{files}/tls.crt",
        "keyFile": f"{files}/tls.key",
    }
    assert (extender["urlPrefix"], extender["enableHTTPS"]) == ("https://10.96.0.77", True)
    assert made["percentageOfNodesToScore"] == 100
    assert made["clientConnection"]["qps"] == 500
    [beside] = configuration(SECOND)["extenders"]
    assert {**extender, **{key: beside[key] for key in ("urlPrefix", "managedResources")}} == {
        **beside,
        "enableHTTPS": True,
        "tlsConfig": extender["tlsConfig"],
    }
    assert "kubectl get secret nodedevice-extender-client" in text


def test_the_notes_name_what_is_not_made_here() -> None:
    text = notes(OWN_CERTIFICATE)
    assert printed_configuration(text)["extenders"][0]["urlPrefix"] == "https://CLUSTER-IP"
    assert "kubectl get service nodedevice-extender" in text
    assert "nodedevice-extender-client" not in text


@pytest.mark.parametrize(
    ("policy", "of_kubernetes"), [("Never", "IfNotPresent"), ("IfNotPresent", "IfNotPresent"), ("Always", "Always")]
)
def test_images_that_are_never_pulled_are_ours(policy: str, of_kubernetes: str) -> None:
    """Where ours were brought to the nodes, Kubernetes' own scheduler still comes from its registry."""
    found = containers({**scheduler(), "image": {"pullPolicy": policy}}, "nodedevice-scheduler")
    policies = {name: each["imagePullPolicy"] for name, each in found.items()}
    assert policies == {"extender": policy, "kube-scheduler": of_kubernetes}
