"""Rejected registrations: the reason for the metrics, and the remedy in the message."""

import pytest
from nodedevice_agent.devicemanager.registration import (
    MAX_CONNECTIONS_OF_A_NAME,
    MAX_CONNECTIONS_OF_A_SOCKET,
    MAX_OPENING,
    RegistrationRejected,
    check_connections,
    check_plugin_info,
    check_registration,
    surplus_connection,
)

GOOD = {"version": "v1beta1", "resource_name": "example.com/gpu", "endpoint": "gpu.sock"}


@pytest.mark.kubelet("behaviour 6")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="plain"),
        pytest.param({"resource_name": "example.com/GPU_1.a"}, id="name part with capitals, _ and ."),
        pytest.param({"resource_name": "a.b/" + "c" * 63}, id="longest name part"),
        pytest.param({"endpoint": ".hidden"}, id="a dot file"),
        pytest.param({"endpoint": "..."}, id="three dots are a name"),
        pytest.param({"endpoint": "sock with spaces ☃"}, id="any printable file name"),
    ],
)
def test_accepted(change: dict[str, str]) -> None:
    check_registration(**GOOD | change)


@pytest.mark.kubelet("behaviour 5", "behaviour 6")
@pytest.mark.parametrize(
    ("change", "reason", "part"),
    [
        pytest.param({"version": "v1alpha"}, "Version", "v1beta1", id="old version"),
        pytest.param({"version": "v2"}, "Version", f"'{GOOD['resource_name']}'", id="which plugin has another version"),
        pytest.param({"version": ""}, "Version", "v1beta1", id="no version"),
        pytest.param({"version": "v" * 10_000}, "Version", "...", id="endless version"),
        pytest.param({"resource_name": "gpu"}, "ResourceName", "'gpu'", id="no domain"),
        pytest.param({"resource_name": ""}, "ResourceName", "''", id="empty name"),
        pytest.param({"resource_name": "kubernetes.io/gpu"}, "ResourceName", "kubernetes.io", id="reserved"),
        pytest.param({"resource_name": "a.kubernetes.io/gpu"}, "ResourceName", "kubernetes.io", id="reserved below"),
        pytest.param({"resource_name": "requests.example.com/gpu"}, "ResourceName", "requests.", id="quota prefix"),
        pytest.param({"resource_name": "Example.com/gpu"}, "ResourceName", "lower-case", id="capitals in the domain"),
        pytest.param({"resource_name": "example.com/a/b"}, "ResourceName", "a/b", id="two slashes"),
        pytest.param({"resource_name": "example.com/"}, "ResourceName", "example.com/", id="no name part"),
        pytest.param({"resource_name": "a.b/" + "c" * 64}, "ResourceName", "63", id="name part too long"),
        pytest.param({"resource_name": "a.b/\n"}, "ResourceName", r"\n", id="line break in the name"),
        pytest.param({"endpoint": ""}, "Endpoint", "file name", id="no endpoint"),
        pytest.param({"endpoint": "../x.sock"}, "Endpoint", "plugin directory", id="out of the directory"),
        pytest.param({"endpoint": "/x.sock"}, "Endpoint", "plugin directory", id="absolute"),
        pytest.param({"endpoint": "."}, "Endpoint", "file name", id="the directory itself"),
        pytest.param({"endpoint": ".."}, "Endpoint", "file name", id="the directory above"),
        pytest.param({"endpoint": "a\x00b"}, "Endpoint", r"a\x00b", id="zero byte"),
        pytest.param({"endpoint": "x" * 10_000 + "/"}, "Endpoint", "...", id="endless endpoint"),
    ],
)
def test_rejected(change: dict[str, str], reason: str, part: str) -> None:
    with pytest.raises(RegistrationRejected) as rejected:
        check_registration(**GOOD | change)
    text = str(rejected.value)
    assert rejected.value.reason == reason
    assert part in text
    assert text.isprintable()
    assert len(text) < 600


# a connection's socket and its resource name
Sockets = list[tuple[str, str]]
NEW = ("new.sock", "example.com/new")


def many(count: int, socket: str = "{}.sock") -> Sockets:
    return [(socket.format(number), f"example.com/r{number}") for number in range(count)]


class TestConnections:
    @pytest.mark.parametrize(
        ("connections", "opening"),
        [
            pytest.param([], [], id="no connection"),
            pytest.param(many(256), [], id="one for each name that a node may have, on other sockets"),
            pytest.param(many(MAX_CONNECTIONS_OF_A_SOCKET - 1, NEW[0]), [], id="one less than the most of a socket"),
            pytest.param([], many(MAX_OPENING - 1), id="one less than may be dialled"),
        ],
    )
    def test_below(self, connections: Sockets, opening: Sockets) -> None:
        check_connections(connections, opening, *NEW, known=[])

    @pytest.mark.parametrize(
        ("connections", "opening", "part"),
        [
            pytest.param(many(MAX_CONNECTIONS_OF_A_SOCKET, NEW[0]), [], "fewer resources", id="names of one socket"),
            pytest.param(many(60, NEW[0]), many(4, NEW[0]), "streams that are no longer used", id="some are dialled"),
            pytest.param([], many(MAX_OPENING), "256 .*responded yet.*stop plugins that hang", id="many are dialled"),
        ],
    )
    @pytest.mark.parametrize("has_place", [False, True])
    def test_reached(self, connections: Sockets, opening: Sockets, part: str, has_place: bool) -> None:
        # a name that has its place, too, while it is dialled already
        dialled, known = ([*opening, NEW], [NEW[1]]) if has_place else (opening, [])
        with pytest.raises(RegistrationRejected, match=part) as rejected:
            check_connections(connections, dialled, *NEW, known=known)
        assert rejected.value.reason == "Connections"
        assert rejected.value.of_all

    def test_names_that_register_again_all_at_once_keep_no_new_one_out(self) -> None:
        again = many(MAX_OPENING)
        check_connections(again, again, *NEW, known=[name for _, name in again])

    @pytest.mark.parametrize(
        ("connections", "opening"),
        [
            pytest.param(many(MAX_CONNECTIONS_OF_A_SOCKET, NEW[0]), [], id="its socket is full"),
            pytest.param([NEW] * 100, [], id="it has many itself"),
            pytest.param(many(400), [], id="all together"),
            pytest.param([], many(MAX_OPENING), id="many are dialled"),
        ],
    )
    def test_a_name_that_has_its_place_is_not_rejected(self, connections: Sockets, opening: Sockets) -> None:
        check_connections(connections, opening, *NEW, known=[NEW[1]])

    @pytest.mark.parametrize(
        ("connections", "name", "surplus"),
        [
            pytest.param({}, "a", None, id="none"),
            pytest.param({1: "a", 2: "b"}, "a", None, id="room"),
            pytest.param(dict.fromkeys(range(5, 5 + MAX_CONNECTIONS_OF_A_NAME), "a"), "a", 5, id="many of the name"),
            pytest.param(dict.fromkeys(range(MAX_CONNECTIONS_OF_A_NAME - 1), "a"), "a", None, id="one less"),
            pytest.param({**dict.fromkeys(range(65), "b"), 70: "a", 71: "a"}, "a", 70, id="many of all"),
            pytest.param({**dict.fromkeys(range(65), "b"), 70: "a"}, "a", 70, id="as many of all as there may be"),
            pytest.param({**dict.fromkeys(range(64), "b"), 70: "a"}, "a", None, id="one less of all"),
            pytest.param(dict.fromkeys(range(100), "b"), "a", None, id="the first one of its name"),
            pytest.param({number: str(number) for number in range(256)}, "7", None, id="one for each name"),
        ],
    )
    def test_the_oldest_of_too_many_goes(self, connections: dict[int, str], name: str, surplus: int | None) -> None:
        assert surplus_connection(connections, name) == surplus


@pytest.mark.parametrize("versions", [["v1beta1"], ["v1alpha1", "v1beta1"]])
def test_a_plugin_that_is_discovered_may_offer_other_versions_too(versions: list[str]) -> None:
    check_plugin_info("example.com/gpu", versions)


@pytest.mark.parametrize(
    ("name", "versions", "reason", "part"),
    [
        pytest.param("example.com/gpu", [], "Version", "API versions none are not supported", id="no version"),
        pytest.param("example.com/gpu", ["v1", "v2"], "Version", "API versions 'v1', 'v2' are", id="others"),
        pytest.param("gpu", ["v1beta1"], "ResourceName", "'gpu'", id="no domain"),
    ],
)
def test_a_plugin_that_is_discovered_is_rejected(name: str, versions: list[str], reason: str, part: str) -> None:
    with pytest.raises(RegistrationRejected) as rejected:
        check_plugin_info(name, versions)
    assert rejected.value.reason == reason
    assert part in str(rejected.value)
