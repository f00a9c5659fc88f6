"""What of its host an agent's pod has: the directories that its settings need, nothing twice, and none that it cannot have."""

from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.lib.cdi_files import DIRECTORIES
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.settings import AgentSettings

from hack.cluster.errors import CommandError
from tests.chart.rendering import agent_pod, refusal, render
from tests.chart.values import VALUE_SETS

pytestmark = pytest.mark.cluster


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
            {"/dev", "/var/run/cdi", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "by the kubelet",
            {"/var/lib/nodedevice", "/data/kubelet/device-plugins"},
            {"/dev", "/var/run/cdi", "/data/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "by NRI",
            {"/var/lib/nodedevice"},
            {"/dev", "/var/run/cdi", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources", "/run/other"},
        ),
        (
            "the runtime's configuration",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/var/run/cdi", "/etc/containerd", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "nothing injected",
            {"/var/lib/nodedevice"},
            {
                "/dev",
                "/var/run/cdi",
                "/var/lib/kubelet/device-plugins",
                "/var/lib/kubelet/pod-resources",
                "/var/run/nri",
            },
        ),
        (
            "nothing of DRA",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "no CDI",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        ("nothing observed", {"/var/lib/nodedevice"}, {"/dev", "/var/run/nri"}),
        (
            "USB devices",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/var/run/cdi", "/run/udev", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "udev for configurations of nodes",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/var/run/cdi", "/run/udev", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "GPUs by CDI alone",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/etc/cdi", "/var/run/cdi", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
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
            {"/dev", "/var/run/cdi", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "paths for configurations",
            {"/var/lib/nodedevice", "/var/lib/kubelet/device-plugins"},
            {"/dev", "/var/run/cdi", "/opt/devices", "/var/lib/kubelet/pod-resources", "/var/run/nri"},
        ),
        (
            "directories of one's own",
            {"/data/nodedevice", "/data/plugins", "/run/monitors", "/var/lib/kubelet/device-plugins"},
            {
                "/dev",
                "/var/run/cdi",
                "/var/lib/kubelet/plugins_registry",
                "/var/lib/kubelet/pod-resources",
                "/var/run/nri",
            },
        ),
    ],
)
def test_an_agent_has_of_its_host_what_its_settings_need(name: str, written: set[str], read: set[str]) -> None:
    found = mounts(VALUE_SETS[name])
    assert all(inside == outside for inside, (outside, _) in found.items())
    assert {path for path, (_, may_write) in found.items() if may_write} == written
    assert {path for path, (_, may_write) in found.items() if not may_write} == read


@pytest.mark.parametrize("delivery", ["auto", "nri", "kubelet", "none"])
def test_delivery_by_its_former_name(delivery: str) -> None:
    former, today = (mounts({"agents": {"config": {name: delivery}}}) for name in ("runtime", "delivery"))
    assert former == today


def test_paths_that_nobody_set_are_the_agents_own_defaults() -> None:
    defaults = AgentSettings()
    found = mounts()
    assert defaults.state_dir in found
    assert defaults.plugin_dir.startswith(f"{defaults.state_dir}/")
    assert f"{defaults.kubelet_dir}/device-plugins" in found
    assert str(Path(defaults.nri_socket).parent) in found
    unset, default = (mounts({"agents": {"config": {"delivery": value}}}) for value in (None, defaults.delivery))
    assert unset == default
    # of the nvml plugin, what is mounted for its defaults
    unset, default = (
        mounts({"agents": {"config": {"plugins": {"nvml": each, "hostRoot": PluginSettings().host_root}}}})
        for each in ({}, {"handOver": NvmlSettings().hand_over})
    )
    assert unset == default
    assert set(DIRECTORIES) <= unset.keys()


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
    assert sentence in refusal({"agents": {"config": {"delivery": "auto", **config}}})


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
