"""Whose connection gives way where there are too many: never that of an address with fewer than another."""

from nodedevice_common.peer_places import PeerPlaces


def added(places: PeerPlaces[str], *connections: str) -> list[str | None]:
    """Who gives way to each; the address of "a1" is "a"."""
    return [places.add(each, each[0]) for each in connections]


def test_an_address_has_so_many_places_and_loses_its_oldest() -> None:
    places: PeerPlaces[str] = PeerPlaces(most=10, of_peer=2)
    assert added(places, "a1", "b1", "a2", "a3", "a4") == [None, None, None, "a1", "a2"]
    assert [each in places for each in ("a1", "a2", "a3", "a4", "b1")] == [False, False, True, True, True]
    assert len(places) == 3


def test_where_all_places_are_taken_the_address_with_most_loses_its_oldest() -> None:
    places: PeerPlaces[str] = PeerPlaces(most=4, of_peer=3)
    assert added(places, "b1", "a1", "a2", "a3") == [None] * 4
    assert added(places, "c1", "c2", "d1") == ["a1", "a2", "c1"]


def test_a_spared_address_gives_way_last() -> None:
    places: PeerPlaces[str] = PeerPlaces(most=3, of_peer=3, spared={"a"})
    assert added(places, "a1", "a2", "b1") == [None] * 3
    assert added(places, "c1", "a3") == ["b1", "c1"]
    # all others are spared
    assert added(places, "d1") == ["d1"]


def test_a_place_is_free_again() -> None:
    places: PeerPlaces[str] = PeerPlaces(most=2, of_peer=2)
    added(places, "a1", "a2")
    assert places.remove("a1") == "a"
    assert places.remove("a1") is None
    assert added(places, "b1") == [None]
