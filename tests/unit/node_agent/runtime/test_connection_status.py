"""The condition Injectable: what it says when, and that a short absence does not change it."""

from nodedevice_agent.devicemanager.running_containers import ContainerInstance
from nodedevice_agent.devicemanager.runtime import Validator
from nodedevice_agent.runtime.connection_status import RuntimeLink, with_runners

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container
from tests.unit.node_agent.devicemanager.scenario import device_ids, pod


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


def test_who_not_injected_is_named() -> None:
    scenario = RuntimeScenario()
    scenario.plugin(device_ids(4))
    scenario.sync(*((uid, container(uid)) for uid in ("a", "b", "c", "d")))
    link = RuntimeLink(0.0, 10.0)
    link.connected("containerd", "v2.4.2")
    assert link.said is not None
    assert with_runners(link.said, scenario.snapshot_with_runtime()) == link.said
    scenario.run(*(pod(uid, gpu=1) for uid in ("a", "b", "c", "d")))
    status, reason, message = with_runners(link.said, scenario.snapshot_with_runtime())
    assert (status, reason) == ("True", "DevicesNotInjected")
    assert "4 containers" in message
    assert "default/a, default/b, default/c, …" in message


def test_who_runs_on_with_devices_of_others_is_named_first() -> None:
    scenario = RuntimeScenario()
    scenario.plugin(device_ids(1))
    scenario.sync(*((uid, container(uid)) for uid in ("a", "b", "c", "d")))
    scenario.run(pod("a", gpu=1))
    now = scenario.snapshot_with_runtime()
    four = [ContainerInstance(f"id-{uid}", "s", uid, "main") for uid in ("a", "b", "c", "d")]
    here = ("True", "RuntimeConnected", "connected")
    assert with_runners(here, now)[1] == "DevicesNotInjected"
    status, reason, message = with_runners(here, now, four)
    assert (status, reason) == ("True", "DevicesInUseAfterRelease")
    assert message.endswith(": main of pod UID a (id-a), main of pod UID b (id-b), main of pod UID c (id-c), …")
    away = ("False", "RuntimeDisconnected", "away")
    assert with_runners(away, now, four) == away


def test_where_the_runtime_is_away_that_is_what_is_said() -> None:
    scenario = RuntimeScenario()
    scenario.plugin(device_ids(1))
    scenario.sync(("p", container("p")))
    scenario.run(pod("p", gpu=1))
    away = ("False", "RuntimeDisconnected", "away")
    assert with_runners(away, scenario.snapshot_with_runtime()) == away


def test_whether_the_runtime_has_a_validator_shows_with_a_container() -> None:
    link = RuntimeLink(0.0, 10.0)
    link.connected("containerd", "v2.4.2", Validator.NOT_SEEN)
    assert said(link) == ("True", "RuntimeConnected", "will show when a container is created")
    assert link.validator_seen(Validator.ON)
    assert said(link) == ("True", "RuntimeConnected", "is on")
    assert not link.validator_seen(Validator.ON), "nothing new is not written"


def test_one_that_is_off_is_said_with_the_remedy() -> None:
    link = RuntimeLink(0.0, 10.0)
    link.connected("containerd", "v2.4.2", Validator.NOT_SEEN)
    assert link.validator_seen(Validator.OFF)
    assert said(link) == ("True", "NoDefaultValidator", "switch it on as docs/install.md shows")


def test_a_restart_that_switches_it_off_is_noticed() -> None:
    link = RuntimeLink(0.0, 10.0)
    link.connected("containerd", "v2.4.2", Validator.NOT_SEEN)
    link.validator_seen(Validator.ON)
    link.disconnected("the connection ended", 100.0)
    assert not link.validator_seen(Validator.OFF), "what a runtime says that is away says nothing"
    assert not link.connected("containerd", "v2.4.2", Validator.NOT_SEEN), "and a restart as such changes nothing"
    assert link.validator_seen(Validator.OFF)
    assert said(link)[:2] == ("True", "NoDefaultValidator")
    assert link.validator_seen(Validator.ON)
    assert said(link)[:2] == ("True", "RuntimeConnected")


def test_a_release_without_one_is_said_at_once_until_another_comes() -> None:
    link = RuntimeLink(0.0, 10.0)
    assert link.connected("containerd", "v2.1.4", Validator.MISSING)
    assert said(link) == ("True", "NoDefaultValidator", "update it to containerd 2.2, CRI-O 1.34 or newer")
    link.disconnected("the connection ended", 100.0)
    assert link.connected("containerd", "v2.2.0", Validator.NOT_SEEN)
    assert said(link)[:2] == ("True", "RuntimeConnected")
    link.validator_seen(Validator.ON)
    assert link.connected("containerd", "v2.1.4", Validator.MISSING)
    assert said(link)[:2] == ("True", "NoDefaultValidator")


def said(link: RuntimeLink) -> tuple[str, str, str]:
    """With the end of the message alone, if that is all there is to it."""
    assert link.said is not None
    status, reason, message = link.said
    ends = [
        "will show when a container is created",
        "is on",
        "switch it on as docs/install.md shows",
        "update it to containerd 2.2, CRI-O 1.34 or newer",
    ]
    return status, reason, next(end for end in ends if message.endswith(end))
