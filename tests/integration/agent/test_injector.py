"""Devices through NRI, in process: a device plugin and a runtime on real sockets, and everything between them."""

import logging

import pytest
from nodedevice_agent.devicemanager.pods import Container, ContainerSettings, Pod
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.hosted_manager import HostedManager
from tests.fakes.nri_runtime import PluginConnection
from tests.integration.agent.injecting_agent import POD, RESOURCE, made, sandbox, with_pod


async def test_a_container_gets_the_edits_of_its_plugin(manager: HostedManager, connection: PluginConnection) -> None:
    await with_pod(manager)
    adjusted = await connection.create_container(sandbox(), made())
    assert [(e.key, e.value) for e in adjusted.env] == [("IDS", "a")]
    assert [(d.path, d.major, d.minor) for d in adjusted.linux.devices] == [("/dev/fake", 1, 3)]
    assert set(adjusted.annotations) == {"nodedevice.io/devices"}
    assert await connection.validate(sandbox(), made()) == ""
    assert await connection.create_container(sandbox(), made("log")) == api_pb2.ContainerAdjustment()
    assert await connection.validate(sandbox(), made("log")) == ""
    assert "without its devices" in await connection.validate(sandbox(), made(number=2))


async def test_pod_settings_win_and_are_logged_once(
    manager: HostedManager, connection: PluginConnection, caplog: pytest.LogCaptureFixture
) -> None:
    own = ContainerSettings(frozenset({"IDS"}), is_privileged=True)
    pod = Pod(POD.uid, POD.namespace, POD.name, (Container("main", limits={RESOURCE: 1}, settings=own),))
    created = made()
    created.env.append("IDS=the pod's")
    caplog.set_level(logging.INFO, logger="nodedevice_agent")
    await with_pod(manager, pod)
    for _ in range(2):
        adjusted = await connection.create_container(sandbox(), created)
        assert list(adjusted.env) == []
        assert [d.path for d in adjusted.linux.devices] == ["/dev/fake"]
        assert all(rule.allow for rule in adjusted.linux.resources.devices)
    (logged,) = [r for r in caplog.records if r.message.startswith("pod settings replace edits")]
    assert logged.__dict__["omitted"] == ["env IDS"]
