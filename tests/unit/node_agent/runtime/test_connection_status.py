"""The condition Injectable of a runtime that is connected; test_backend.py has disconnections."""

from nodedevice_agent.devicemanager.runtime import ContainerInstance, Validator
from nodedevice_agent.runtime.connection_status import ConnectionStatus, injectable
from nodedevice_agent.runtime.given_files import GivenFile

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container
from tests.unit.node_agent.devicemanager.scenario import GPU, pod

UNKNOWN, ENABLE = "unknown until a container is created", "enable it as docs/install.md shows"
UPDATE = "update it to containerd 2.2, CRI-O 1.34 or newer"
HERE = ("True", "RuntimeConnected", "connected")


def connected() -> ConnectionStatus:
    """To a runtime of which no validator has been seen."""
    status = ConnectionStatus(0.0, 10.0)
    status.connected("containerd", "v2.4.2")
    return status


def shown(status: ConnectionStatus) -> tuple[str, str, str]:
    """The condition, with only the end of the message."""
    assert status.condition is not None
    state, reason, message = status.condition
    return state, reason, next(end for end in [UNKNOWN, "is on", ENABLE, UPDATE] if message.endswith(end))


def test_pods_without_their_devices_are_named() -> None:
    scenario = RuntimeScenario.with_plugin(4)
    scenario.sync(*((uid, container(uid)) for uid in ("a", "b", "c", "d")))
    assert injectable(HERE, scenario.snapshot_with_runtime()) == HERE
    scenario.run(*(pod(uid, gpu=1) for uid in ("a", "b", "c", "d")))
    state, reason, message = injectable(HERE, scenario.snapshot_with_runtime())
    assert (state, reason) == ("True", "DevicesNotInjected")
    assert "4 containers" in message
    assert "default/a, default/b, default/c, …" in message


def test_containers_that_use_released_devices_are_named_first() -> None:
    scenario = RuntimeScenario.with_plugin(1)
    scenario.sync(*((uid, container(uid)) for uid in ("a", "b", "c", "d")))
    scenario.run(pod("a", gpu=1))
    now = scenario.snapshot_with_runtime()
    four = [ContainerInstance(f"id-{uid}", "s", uid, "main") for uid in ("a", "b", "c", "d")]
    assert injectable(HERE, now)[1] == "DevicesNotInjected"
    state, reason, message = injectable(HERE, now, four)
    assert (state, reason) == ("True", "DevicesInUseAfterRelease")
    assert message.endswith(": main of pod UID a (id-a), main of pod UID b (id-b), main of pod UID c (id-c), …")
    away = ("False", "RuntimeDisconnected", "away")
    assert injectable(away, now, four) == away


def test_files_that_are_another_devices_are_named() -> None:
    scenario = RuntimeScenario.with_plugin(1)
    scenario.sync()
    file = GivenFile(ContainerInstance("id-a", "s", "a", "main"), GPU, "/dev/ttyUSB0", ("c", 188, 0))
    state, reason, message = injectable(HERE, scenario.snapshot_with_runtime(), renumbered=[file])
    assert (state, reason) == ("True", "DevicesRenumbered")
    assert message.endswith("must be restarted: /dev/ttyUSB0 in main of pod UID a")


def test_a_validator_is_known_when_a_container_is_created_and_a_restart_that_disables_it_is_noticed() -> None:
    status = connected()
    assert shown(status) == ("True", "RuntimeConnected", UNKNOWN)
    assert status.validator_seen(Validator.ON)
    assert shown(status) == ("True", "RuntimeConnected", "is on")
    assert not status.validator_seen(Validator.ON), "an equal condition is not written"
    status.disconnected("the connection ended", 100.0)
    assert not status.validator_seen(Validator.OFF), "a disconnected runtime does not count"
    assert not status.connected("containerd", "v2.4.2"), "a restart alone changes nothing"
    assert status.validator_seen(Validator.OFF)
    assert shown(status) == ("True", "NoDefaultValidator", ENABLE)
    assert status.validator_seen(Validator.ON)
    assert shown(status)[:2] == ("True", "RuntimeConnected")


def test_a_release_without_a_validator_is_reported_until_another_connects() -> None:
    status = ConnectionStatus(0.0, 10.0)
    assert status.connected("containerd", "v2.1.4", Validator.MISSING)
    assert shown(status) == ("True", "NoDefaultValidator", UPDATE)
    status.disconnected("the connection ended", 100.0)
    assert status.connected("containerd", "v2.2.0")
    assert shown(status)[:2] == ("True", "RuntimeConnected")
    status.validator_seen(Validator.ON)
    assert status.connected("containerd", "v2.1.4", Validator.MISSING)
    assert shown(status)[:2] == ("True", "NoDefaultValidator")


def test_a_note_is_for_as_long_as_all_is_well() -> None:
    snapshot = RuntimeScenario.with_plugin(1).snapshot_with_runtime()
    well, broken = ("True", "RuntimeConnected", "all is well"), ("False", "NoRuntimeSocket", "no socket")
    assert injectable(well, snapshot) == well
    assert injectable(well, snapshot, note="but") == ("True", "RuntimeConnected", "all is well; but")
    assert injectable(broken, snapshot, note="but") == broken
