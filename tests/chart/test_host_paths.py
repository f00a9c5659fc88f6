"""What of its host an agent's pod has: the directories that its settings need, nothing twice, and none that it cannot have."""

from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.lib.cdi_files import DIRECTORIES
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.settings import AgentSettings

from tests.chart.rendering import agent_pod, refusal, render
from tests.chart.values import VALUE_SETS
from tests.cluster.errors import CommandError

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


STATE, PLUGINS, PODS = "/var/lib/nodedevice", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources"
CDI, NRI = "/var/run/cdi", "/var/run/nri"
DEFAULT = {"/dev": "read", STATE: "written", PLUGINS: "written", PODS: "read", CDI: "read", NRI: "read"}
GONE = "not there"


@pytest.mark.parametrize(
    ("name", "otherwise"),
    [
        ("defaults", {}),
        (
            "by the kubelet",
            {
                PLUGINS: GONE,
                PODS: GONE,
                "/data/kubelet/device-plugins": "written",
                "/data/kubelet/pod-resources": "read",
            },
        ),
        ("by NRI", {PLUGINS: "read", NRI: GONE, "/run/other": "read"}),
        ("the runtime's configuration", {"/etc/containerd": "read"}),
        ("nothing injected", {PLUGINS: "read"}),
        ("nothing of DRA", {CDI: GONE}),
        ("no CDI", {CDI: GONE}),
        ("nothing observed", {PLUGINS: GONE, PODS: GONE, CDI: GONE}),
        ("USB devices", {"/run/udev": "read"}),
        ("udev for configurations of nodes", {"/run/udev": "read"}),
        ("GPUs by CDI alone", {"/etc/cdi": "read"}),
        ("CDI for configurations of nodes", {"/etc/cdi": "read"}),
        ("GPUs by NVIDIA's runtime", {"/etc/cdi": "read"}),
        ("GPUs without a choice of the way", {}),
        ("paths for configurations", {"/opt/devices": "read"}),
        (
            "directories of one's own",
            {
                STATE: GONE,
                "/data/nodedevice": "written",
                "/data/plugins": "written",
                "/run/monitors": "written",
                "/var/lib/kubelet/plugins_registry": "read",
            },
        ),
    ],
)
def test_an_agent_has_of_its_host_what_its_settings_need(name: str, otherwise: dict[str, str]) -> None:
    found = mounts(VALUE_SETS[name])
    assert all(inside == outside for inside, (outside, _) in found.items())
    ways = {path: "written" if may_write else "read" for path, (_, may_write) in found.items()}
    assert ways == {path: way for path, way in {**DEFAULT, **otherwise}.items() if way != GONE}


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
        ({"stateDir": "/dev/x/"}, "agents.config.stateDir has the host's directory /dev/x mounted"),
        ({"stateDir": "/etc/nodedevice"}, "which needs its own /etc/nodedevice"),
        ({"pluginDir": "/usr/lib"}, "agents.config.pluginDir has the host's directory /usr/lib mounted"),
        (
            {"runtimeConfig": "/etc/containerd.toml"},
            "agents.config.runtimeConfig has the host's directory /etc mounted",
        ),
        ({"stateDir": "/a:b"}, 'agents.config.stateDir is "/a:b": a path that is mounted'),
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
