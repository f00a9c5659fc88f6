"""What the chart renders, for value sets as people have them: linted, taken by a real API server, and as little as it needs."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.plugins.nvml.cdi_specs import DIRECTORIES
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.settings import AgentSettings

from hack import yaml_text
from hack.cluster.chart import CHART, HOOK, SYSTEM_NAMESPACE, is_hook, manifests_of
from hack.cluster.control_plane.control_plane import ControlPlane
from hack.cluster.errors import CommandError
from tests.chart.rendering import ask_helm, hook_manifests, manifests, refusal, render
from tests.chart.values import DIGEST, HOOK_OF, VALUE_SETS

pytestmark = pytest.mark.cluster

WORK = {"DaemonSet", "Deployment", "Job", "Pod"}
# Pods that may do what the Pod Security level `restricted` forbids
PRIVILEGED = {"nodedevice-agent", "nodedevice-agent-gpus", "nodedevice-agent-lab"}


def named(kind: str, name: str, values: dict[str, Any] | None = None) -> dict[str, Any]:
    [found] = [each for each in render(values) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = manifest["spec"] if manifest["kind"] == "Pod" else manifest["spec"]["template"]["spec"]
    return spec


def agent_pod(values: dict[str, Any] | None = None) -> dict[str, Any]:
    return pod_of(named("DaemonSet", "nodedevice-agent", values))


@pytest.mark.parametrize("name", VALUE_SETS)
def test_lint(name: str) -> None:
    done = ask_helm(("lint", "--strict", str(CHART)), VALUE_SETS[name])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def with_accounts(installed: ControlPlane) -> Iterator[ControlPlane]:
    """With the hooks' accounts too, which a pod needs to be taken even on trial."""
    accounts = yaml_text.dump_all([each for hook in HOOK_OF.values() for each in hook_manifests(hook)])
    installed.apply(accounts)
    installed.add_namespace("leases-of-agents")
    yield installed
    installed.remove_namespace("leases-of-agents")
    installed.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=accounts)


@pytest.fixture(scope="module")
def taken() -> set[str]:
    """Manifests that the API server has taken. It judges each by itself, and most are in many sets of values."""
    return set()


@pytest.mark.parametrize("name", VALUE_SETS)
def test_a_real_api_server_takes_every_manifest(name: str, with_accounts: ControlPlane, taken: set[str]) -> None:
    """Strictly: a field that the API does not know is an error, not a warning."""
    rest = {json.dumps(each) for each in manifests(name)} - taken
    if not rest:
        return
    arguments = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"]
    printed = with_accounts.kubectl(*arguments, stdin="\n".join(rest))
    assert len(printed.splitlines()) == len(rest)
    taken |= rest


@pytest.mark.parametrize("name", VALUE_SETS)
def test_every_pod_but_the_agents_is_restricted(name: str) -> None:
    for each in manifests(name):
        if each["kind"] not in WORK:
            continue
        pod = pod_of(each)
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            security = container["securityContext"]
            if security.get("privileged"):
                privileged = {("GPUs by privilege", "nodedevice-agent"), ("pools of nodes", "nodedevice-agent-lab")}
                assert (name, each["metadata"]["name"]) in privileged
                continue
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
            is_root = each["metadata"]["name"] in PRIVILEGED
            assert security["runAsNonRoot"] is not is_root
            assert (security["runAsUser"] == 0) is is_root
        if each["metadata"]["name"] not in PRIVILEGED:
            assert not any("hostPath" in volume for volume in pod.get("volumes", ()))


def test_restricted_is_what_the_api_server_calls_restricted(with_accounts: ControlPlane) -> None:
    """In a namespace that enforces that level, warnings would name each pod that is not."""
    with_accounts.apply(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
            }
        )
    )
    try:
        # the token of an account that is there; all else as rendered
        with_accounts.kubectl("create", "serviceaccount", "default", "-n", "strict", check=False)
        pods = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": each["metadata"]["name"], "namespace": "strict"},
                "spec": {key: value for key, value in pod_of(each).items() if key != "serviceAccountName"},
            }
            for each in manifests()
            if each["kind"] in WORK and each["metadata"]["name"] not in PRIVILEGED
        ]
        printed = with_accounts.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml_text.dump_all(pods))
        assert printed.count(" created ") == len(pods) > 0
    finally:
        with_accounts.remove_namespace("strict")


def mounts(values: dict[str, Any] | None = None) -> dict[str, tuple[str, bool]]:
    """What of the host an agent has: path on the host by path inside, and whether it may write there."""
    pod = agent_pod(values)
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    [container] = pod["containers"]
    return {
        mount["mountPath"]: (hosts[mount["name"]], not mount.get("readOnly", False))
        for mount in container["volumeMounts"]
        if mount["name"] in hosts
    }


@pytest.mark.parametrize(
    ("name", "written", "read"),
    [
        (
            "defaults",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "by the kubelet",
            {"/var/lib/nodedevice", "/data/kubelet/device-plugins"},
            {"/dev", "/data/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "by NRI",
            {"/var/lib/nodedevice"},
            {"/dev", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources", "/run/other"},
        ),
        (
            "the runtime's configuration",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/etc/containerd", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "nothing injected",
            {"/var/lib/nodedevice"},
            {"/dev", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        ("nothing observed", {"/var/lib/nodedevice"}, {"/dev", "/var/run/nri"}),
        (
            "USB devices",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/run/udev", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "udev for configurations of nodes",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/run/udev", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "CDI for configurations of nodes",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/etc/cdi", "/var/run/cdi", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "GPUs by NVIDIA's runtime",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/etc/cdi", "/var/run/cdi", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "GPUs without a choice of the way",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "paths for configurations",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/opt/devices", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "directories of one's own",
            {"/data/nodedevice", "/data/plugins", "/run/monitors", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
    ],
)
def test_an_agent_has_of_its_host_what_its_settings_need(name: str, written: set[str], read: set[str]) -> None:
    found = mounts(VALUE_SETS[name])
    assert all(inside == outside for inside, (outside, _) in found.items())
    assert {path for path, (_, may_write) in found.items() if may_write} == written
    assert {path for path, (_, may_write) in found.items() if not may_write} == read


def test_paths_that_nobody_set_are_the_agents_own_defaults() -> None:
    defaults = AgentSettings()
    found = mounts()
    assert defaults.state_dir in found
    assert defaults.plugin_dir.startswith(f"{defaults.state_dir}/")
    assert f"{defaults.kubelet_dir}/device-plugins" in found
    assert str(Path(defaults.nri_socket).parent) in found
    unset, default = (mounts({"agents": {"config": {"runtime": value}}}) for value in (None, defaults.runtime))
    assert unset == default
    # of the nvml plugin, what is mounted for its defaults
    unset, default = (
        mounts({"agents": {"config": {"plugins": {"nvml": each, "hostRoot": PluginSettings().host_root}}}})
        for each in ({}, {"handOver": NvmlSettings().hand_over})
    )
    assert unset == default
    assert set(DIRECTORIES) <= unset.keys()


def test_images() -> None:
    values = VALUE_SETS["a registry of one's own"]
    agent = agent_pod(values)
    assert agent["containers"][0]["image"] == f"registry.example.com/team/nodedevice-agent@{DIGEST}"
    assert agent["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    for kind, name in (
        ("Deployment", "nodedevice-operator"),
        ("Job", "nodedevice-cleanup"),
        ("Pod", "nodedevice-check"),
    ):
        pod = pod_of(named(kind, name, values))
        assert pod["containers"][0]["image"] == "registry.example.com/team/nodedevice-operator:edge"
        assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    version = yaml_text.load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert agent_pod()["containers"][0]["image"] == f"nodedevice-agent:{version}"


def test_the_first_part_of_the_test_pulls_what_the_rest_needs() -> None:
    """It ends within a minute, and can do nothing in the cluster."""
    values = VALUE_SETS["a registry of one's own"]
    job = named("Job", "nodedevice-image-pull", values)
    assert job["spec"]["activeDeadlineSeconds"] <= 60
    pulls, checks = pod_of(job), pod_of(named("Pod", "nodedevice-check", values))
    agent, operator = agent_pod(values)["containers"][0], checks["containers"][0]
    assert {each["image"] for each in pulls["containers"]} == {agent["image"], operator["image"]}
    assert "serviceAccountName" not in pulls
    assert pulls["automountServiceAccountToken"] is False
    [container] = pod_of(named("Job", "nodedevice-image-pull", {"agents": {"enabled": False}}))["containers"]
    assert container["name"] == "nodedevice-operator"


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        ("DaemonSet", "nodedevice-agent", {"agents": {"config": {"logLevel": "debug"}}}),
        ("Deployment", "nodedevice-operator", {"operator": {"config": {"logLevel": "debug"}}}),
        ("Deployment", "nodedevice-operator", {"nodeTaint": "on"}),
    ],
)
def test_a_change_of_settings_replaces_the_pods(kind: str, name: str, values: dict[str, Any]) -> None:
    assert named(kind, name)["spec"]["template"] != named(kind, name, values)["spec"]["template"]
    other = {"DaemonSet": ("Deployment", "nodedevice-operator"), "Deployment": ("DaemonSet", "nodedevice-agent")}[kind]
    assert named(*other)["spec"]["template"] == named(*other, values)["spec"]["template"]


def test_what_can_never_be_changed_is_as_it_was() -> None:
    """The API server refuses another selector in an upgrade: these are what every release before this one installed."""
    found = []
    for kind, name, component in (
        ("DaemonSet", "nodedevice-agent", "agent"),
        ("Deployment", "nodedevice-operator", "operator"),
    ):
        wanted = {
            "app.kubernetes.io/name": "nodedevice",
            "app.kubernetes.io/instance": "nodedevice",
            "app.kubernetes.io/component": component,
        }
        for values in VALUE_SETS:
            for each in manifests(values):
                if (each["kind"], each["metadata"]["name"]) == (kind, name):
                    assert each["spec"]["selector"] == {"matchLabels": wanted}
                    found.append(name)
    assert len(found) == 2 * (len(VALUE_SETS) - 1)  # all but the one that leaves workloads out


def test_the_next_version_of_the_chart_alone_replaces_no_pod(helm: Callable[..., Any], tmp_path: Path) -> None:
    packaged = helm("package", str(CHART), "--version", "9.9.9", "--destination", str(tmp_path))
    assert packaged.returncode == 0, packaged.stderr
    done = helm("template", "nodedevice", str(tmp_path / "nodedevice-9.9.9.tgz"), "--namespace", SYSTEM_NAMESPACE)
    assert "helm.sh/chart: nodedevice-9.9.9" in done.stdout
    for each in manifests_of(done):
        if each["kind"] in {"DaemonSet", "Deployment"}:
            assert each["spec"]["template"] == named(each["kind"], each["metadata"]["name"])["spec"]["template"]


def test_the_cleanup_has_nothing_in_the_agents_namespace() -> None:
    """It would have to be there for an uninstall, and somebody may have deleted it; or an uninstall before, with nothing kept."""
    agents = named("Role", "nodedevice-agent")["metadata"]["namespace"]
    hook = hook_manifests("nodedevice-cleanup")
    assert {each["metadata"].get("namespace") for each in hook} == {None, SYSTEM_NAMESPACE}
    assert agents not in {None, SYSTEM_NAMESPACE}


@pytest.mark.parametrize("word", ["123", "true", "null"])
def test_a_name_that_yaml_would_convert_stays_a_name(word: str) -> None:
    """Kubernetes has nothing against such names, and refuses what is no string."""

    def rendered(name: str, namespace: str) -> list[str]:
        values = {
            "image": {"pullSecrets": [name]},
            "agents": {"leaseNamespace": name, "runtimeClassName": name, "priorityClassName": name},
            "operator": {"priorityClassName": name},
            "monitoring": {
                "monitors": {"enabled": True},
                "dashboards": {"enabled": True, "namespace": name},
                "kubeStateMetrics": {"enabled": True, "serviceAccount": {"name": name, "namespace": name}},
            },
        }
        done = ask_helm(("template", name, str(CHART), "--namespace", namespace), values)
        return sorted(json.dumps(each) for each in manifests_of(done))

    ordinary = [
        each.replace("some-name", word).replace("some-place", "456") for each in rendered("some-name", "some-place")
    ]
    assert rendered(word, "456") == sorted(ordinary)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {"stateDir": "/"},
            "agents.config.stateDir has the host's directory / mounted into the agent's container, which",
        ),
        ({"stateDir": "/dev"}, "agents.config.stateDir has the host's directory /dev mounted"),
        ({"stateDir": "/dev/x/"}, "agents.config.stateDir has the host's directory /dev/x mounted"),
        ({"stateDir": "/etc"}, "which needs its own /etc/nodedevice"),
        ({"stateDir": "/etc/nodedevice"}, "which needs its own /etc/nodedevice"),
        ({"stateDir": "/opt/nodedevice/state"}, "which needs its own /opt/nodedevice"),
        ({"pluginDir": "/usr/lib"}, "agents.config.pluginDir has the host's directory /usr/lib mounted"),
        ({"kubeletDir": "/proc"}, "agents.config.kubeletDir has the host's directory /proc/device-plugins mounted"),
        ({"pluginsRegistryDir": "/run"}, "agents.config.pluginsRegistryDir has the host's directory /run mounted"),
        ({"nriSocket": "/nri.sock"}, "agents.config.nriSocket has the host's directory / mounted"),
        ({"nriSocket": "/var/run/nri.sock"}, "agents.config.nriSocket has the host's directory /var/run mounted"),
        (
            {"runtimeConfig": "/etc/containerd.toml"},
            "agents.config.runtimeConfig has the host's directory /etc mounted",
        ),
        ({"podResourcesSocket": "/x.sock"}, "agents.config.podResourcesSocket has the host's directory / mounted"),
        ({"stateDir": "/a:b"}, 'agents.config.stateDir is "/a:b": a path that is mounted'),
        ({"pluginDir": "/a/../../b"}, 'agents.config.pluginDir is "/a/../../b": a path that is mounted'),
        ({"kubeletDir": "/a\nb"}, 'agents.config.kubeletDir is "/a\\nb": a path that is mounted'),
        (
            {"pluginDir": "/var/lib/kubelet/device-plugins"},
            "agents.config.pluginDir and agents.config.kubeletDir both have /var/lib/kubelet/device-plugins mounted from the host: "
            "give one of them another directory; the kubelet's own is no place for pluginDir",
        ),
        (
            {"stateDir": "/data/a/", "nriSocket": "/data/a/nri.sock"},
            "agents.config.stateDir and agents.config.nriSocket both have /data/a mounted from the host",
        ),
        (
            {"pluginsRegistryDir": "/data", "pluginDir": "/data/plugins"},
            "agents.config.pluginsRegistryDir is /data, which contains pluginDir /data/plugins",
        ),
    ],
)
def test_directories_that_an_agent_cannot_have(config: dict[str, str], sentence: str) -> None:
    assert sentence in refusal({"agents": {"config": {"runtime": "auto", **config}}})


def test_nothing_is_mounted_twice() -> None:
    for path, by in (("/dev/", "the agent itself"), ("/var/run/nri", "nriSocket"), ("/etc/nodedevice", "settings")):
        extra = {"extraVolumes": [{"name": "a"}], "extraVolumeMounts": [{"name": "a", "mountPath": path}]}
        with pytest.raises(
            CommandError, match=f"agents.extraVolumeMounts: something is mounted at {path} already, by .*{by}"
        ):
            render({"agents": extra})


def test_a_socket_among_the_plugins_needs_no_mount_of_its_own() -> None:
    config = {"stateDir": "/data/a", "pluginDir": "/data/b", "podResourcesSocket": "/data/b/monitors/x.sock"}
    found = mounts({"agents": {"config": config}})
    assert {path for path in found if path.startswith("/data")} == {"/data/a", "/data/b"}


@pytest.mark.parametrize(("values", "ports"), [("closed ports", []), ("ports for monitoring", [8080, 9808])])
def test_only_peers_that_are_named_reach_the_ports(values: str, ports: list[int]) -> None:
    found = [each["spec"] for each in manifests(values) if each["kind"] == "NetworkPolicy"]
    assert [each["policyTypes"] for each in found] == [["Ingress"]] * 2
    rules = [rule for each in found for rule in each.get("ingress", [])]
    assert sorted(port["port"] for rule in rules for port in rule["ports"]) == ports
    assert all(rule["from"] == VALUE_SETS[values]["networkPolicies"]["from"] for rule in rules)
    for each, kind in zip(found, ("DaemonSet", "Deployment"), strict=True):
        (workload,) = [one for one in manifests(values) if one["kind"] == kind]
        assert each["podSelector"] == workload["spec"]["selector"]


def test_a_single_operator_has_no_budget() -> None:
    kinds = {each["kind"] for each in render({"operator": {"replicas": 1}})}
    assert "PodDisruptionBudget" not in kinds


def test_hooks() -> None:
    """What runs when, and that nothing of a hook outlives it."""
    hooks = [each for each in manifests() if is_hook(each)]
    work = {each["metadata"]["name"]: each["metadata"]["annotations"] for each in hooks if each["kind"] in WORK}
    assert {name: annotations[HOOK] for name, annotations in work.items()} == {
        "nodedevice-crds": "pre-upgrade",
        "nodedevice-cleanup": "pre-delete",
        "nodedevice-image-pull": "test",
        "nodedevice-check": "test",
    }
    weights = {name: int(annotations["helm.sh/hook-weight"]) for name, annotations in work.items()}
    assert weights.pop("nodedevice-image-pull") < weights["nodedevice-check"]
    assert set(weights.values()) == {0}
    policies = {name: annotations["helm.sh/hook-delete-policy"] for name, annotations in work.items()}
    # of what failed there are Events; the pod of a check has a log
    assert policies.pop("nodedevice-image-pull") == "before-hook-creation,hook-succeeded,hook-failed"
    assert set(policies.values()) == {"before-hook-creation,hook-succeeded"}
    for annotations in (each["metadata"]["annotations"] for each in hooks if each["kind"] not in WORK):
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
        assert int(annotations["helm.sh/hook-weight"]) < 0


def test_hooks_can_be_left_out() -> None:
    names = {each["metadata"]["name"] for each in manifests("as little as may be") if is_hook(each)}
    assert names == {"nodedevice-image-pull", "nodedevice-check"}


def test_the_job_whose_name_blames_images_does_nothing_else_that_takes_long() -> None:
    """Started with our programs, it failed on a slow machine that had both images."""
    job = named("Job", "nodedevice-image-pull")
    pod = pod_of(job)
    assert [container["name"] for container in pod["containers"]] == ["nodedevice-operator", "nodedevice-agent"]
    assert {tuple(container["command"]) for container in pod["containers"]} == {("python3", "-ISc", "pass")}
    assert not [container for container in pod["containers"] if "args" in container]
    assert job["spec"]["activeDeadlineSeconds"] == 60


@pytest.mark.parametrize(
    ("values", "more"), [({}, []), ({"crds": {"keep": False, "allowDowngrade": True}}, ["--delete-crds"])]
)
def test_arguments_of_the_hooks(values: dict[str, Any], more: list[str]) -> None:
    [container] = pod_of(named("Job", "nodedevice-cleanup", values))["containers"]
    assert container["args"] == [
        "cleanup",
        "--yes",
        "--leases-namespace=nodedevice-agents",
        "--delete-leases-namespace",
        "--timeout-seconds=180",
        "--daemon-set=nodedevice-agent",
        *more,
    ]
    [container] = pod_of(named("Job", "nodedevice-crds", values))["containers"]
    assert container["args"] == ["crds", "apply", "--timeout-seconds=60", *(["--allow-downgrade"] if more else [])]
