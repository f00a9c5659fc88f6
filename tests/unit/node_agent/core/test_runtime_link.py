"""The condition Injectable: what it says when, and that a short absence does not change it."""

from nodedevice_agent.core.runtime_link import RuntimeLink, with_runners

from tests.unit.node_agent.core.runtime_scenario import RuntimeScenario, container
from tests.unit.node_agent.core.scenario import device_ids, pod


def test_nothing_is_said_before_it_is_known() -> None:
    link = RuntimeLink(0.0, 10.0)
    assert link.said is None
    assert not link.disconnected("there is no socket: enable NRI", 1.0)
    assert link.said is None
    assert link.next_deadline() == 10.0
    assert not link.tick(9.9)
    assert link.tick(10.0)
    assert link.said == ("False", "NoRuntimeSocket", "there is no socket: enable NRI")
    assert link.next_deadline() is None


def test_connected_names_the_runtime() -> None:
    link = RuntimeLink(0.0, 10.0)
    assert link.connected("containerd", "v2.4.2")
    assert link.is_connected
    assert link.said is not None
    assert link.said[:2] == ("True", "RuntimeConnected")
    assert "containerd v2.4.2" in link.said[2]
    assert link.next_deadline() is None


def test_a_restart_of_the_runtime_changes_nothing() -> None:
    link = RuntimeLink(0.0, 10.0)
    link.connected("containerd", "v2.4.2")
    before = link.said
    assert not link.disconnected("the connection ended", 100.0)
    assert not link.is_connected
    assert not link.disconnected("nobody listens", 103.0)
    assert link.next_deadline() == 110.0, "the grace begins with the first word of it"
    assert not link.connected("containerd", "v2.4.2")
    assert link.said == before
    assert not link.tick(110.0)


def test_a_longer_absence_is_said_with_its_latest_reason() -> None:
    link = RuntimeLink(0.0, 10.0)
    link.connected("containerd", "v2.4.2")
    link.disconnected("the connection ended", 100.0)
    link.disconnected("nobody listens on the socket", 103.0)
    assert link.tick(110.0)
    assert link.said is not None
    assert link.said[:2] == ("False", "RuntimeDisconnected")
    assert "nobody listens" in link.said[2]
    assert link.disconnected("it is too long", 120.0)
    assert "it is too long" in link.said[2]
    assert link.connected("containerd", "v2.4.3")
    assert link.said[0] == "True"


def test_who_runs_without_is_named() -> None:
    scenario = RuntimeScenario()
    scenario.plugin(device_ids(4))
    scenario.sync(*((uid, container(uid)) for uid in ("a", "b", "c", "d")))
    link = RuntimeLink(0.0, 10.0)
    link.connected("containerd", "v2.4.2")
    assert link.said is not None
    assert with_runners(link.said, scenario.snapshot_with_runtime()) == link.said
    scenario.run(*(pod(uid, gpu=1) for uid in ("a", "b", "c", "d")))
    status, reason, message = with_runners(link.said, scenario.snapshot_with_runtime())
    assert (status, reason) == ("True", "RunsWithoutDevices")
    assert "4 containers" in message
    assert "default/a, default/b, default/c, …" in message


def test_where_the_runtime_is_away_that_is_what_is_said() -> None:
    scenario = RuntimeScenario()
    scenario.plugin(device_ids(1))
    scenario.sync(("p", container("p")))
    scenario.run(pod("p", gpu=1))
    away = ("False", "RuntimeDisconnected", "away")
    assert with_runners(away, scenario.snapshot_with_runtime()) == away
