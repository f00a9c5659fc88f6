"""Which plugins are the agent's own: those whose sockets it made in this process, whatever anybody sends or puts in a path."""

from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec import convert
from nodedevice_agent.deviceplugin.codec import device_list
from nodedevice_agent.deviceplugin.connection import PluginConnection as Connection
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltIn, BuiltInSockets
from nodedevice_agent.lib.deviceplugin_server.server import list_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice, socket_name
from nodedevice_agent.lib.filesystem import file_identity
from nodedevice_agent.plugins.settings import PluginSettings

from tests.fakes.hosted_manager import HostedManager
from tests.fakes.plugin import FakePlugin
from tests.fakes.sockets import listening
from tests.unit.node_agent.deviceplugin.conftest import Start
from tests.unit.node_agent.deviceplugin.one_plugin import RESOURCE
from tests.unit.node_agent.deviceplugin.one_plugin import plugin as plugin

SERIAL = "example.com/serial"


def test_a_socket_is_recognized_as_long_as_it_is_served(tmp_path: Path) -> None:
    built_in, path = BuiltInSockets(), tmp_path / "own.sock"
    with listening(path):
        identity = file_identity(path)
        assert identity is not None
        with built_in.made(identity, SERIAL, "built-in x"):
            assert built_in.find(path, SERIAL) == BuiltIn(SERIAL, "built-in x")
            assert built_in.find(path, "example.com/other") is None
            assert built_in.find(tmp_path / "none.sock", SERIAL) is None
            path.rename(tmp_path / "moved.sock")
            with listening(path):
                assert built_in.find(path, SERIAL) is None
            assert built_in.find(tmp_path / "moved.sock", SERIAL) is not None
        assert built_in.find(tmp_path / "moved.sock", SERIAL) is None


def test_what_somebody_elses_plugin_says_of_itself_is_not_read() -> None:
    files = tuple((f"/dev/{name}", "c1:3") for name in "abcdefgh")
    claims = PluginDevice("a", identity=("c1:3",), files=files[::-1], is_shared=True, aliases=("b",))
    octets = list_to_wire([claims]).SerializeToString()
    foreign = device_list(octets).devices["a"]
    assert (foreign.identity, foreign.files, foreign.is_shared, foreign.aliases) == ((), (), False, ())
    own = device_list(octets, is_built_in=True).devices["a"]
    assert (own.identity, own.files, own.is_shared, own.aliases) == (("c1:3",), files, True, ("b",))


@pytest.fixture
async def with_own(manager: HostedManager) -> HostedManager:
    """It serves a plugin of its own."""
    manager.configure(convert({"simulated": [{"resourceName": SERIAL, "count": 2}]}, PluginSettings))
    await manager.until(lambda: manager.available(SERIAL) == 2)
    return manager


async def test_the_agents_own_plugins(with_own: HostedManager, join: Start) -> None:
    await join("org.test/x")
    own, foreign = (with_own.manager.resources[name].presence for name in (SERIAL, "org.test/x"))
    assert (own.scope, own.is_built_in) == (f"built-in {SERIAL}", True)
    assert (foreign.scope, foreign.is_built_in) == ("domain org.test", False)


async def test_a_plugin_that_takes_over_the_path_of_an_own_one(with_own: HostedManager, join: Start) -> None:
    """It is nobody but itself, though it registers the same name with the same path."""
    await join(SERIAL, "d0", "d1", "d2", socket_name=socket_name(SERIAL))
    assert not with_own.manager.resources[SERIAL].presence.is_built_in


class Found(BuiltInSockets):
    """Finds these at a path, one after the other."""

    def __init__(self, *found: BuiltIn | None) -> None:
        super().__init__()
        self._found = [*found]

    def find(self, socket: Path, resource_name: str) -> BuiltIn | None:
        return self._found.pop(0)


OWN = BuiltIn(RESOURCE, "built-in x")


@pytest.mark.parametrize(
    ("built_in", "scope"),
    [
        pytest.param(Found(OWN, OWN), "built-in x", id="its own"),
        pytest.param(Found(None), "", id="somebody else's"),
        pytest.param(None, "", id="a process without any"),
    ],
)
async def test_the_agents_own_plugin_is_the_file_that_was_dialled(
    plugin: FakePlugin, built_in: BuiltInSockets | None, scope: str
) -> None:
    async with aclosing(await Connection.open(RESOURCE, plugin.socket_path, built_in=built_in)) as connection:
        assert connection.options.scope == scope


@pytest.mark.parametrize("found", [None, BuiltIn(RESOURCE, "built-in y")], ids=["ended", "by another one of its own"])
async def test_a_built_in_plugin_that_ends_while_it_is_dialled_does_not_register(
    plugin: FakePlugin, found: BuiltIn | None
) -> None:
    """It would count as a foreign plugin, whose NodeDevice outlives the configuration."""
    with pytest.raises(PluginFailed, match="replaced or removed"):
        await Connection.open(RESOURCE, plugin.socket_path, built_in=Found(OWN, found))
