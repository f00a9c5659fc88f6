"""Any text may be a device ID: how it is shown, and that nothing is lost or confused by that."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nodedevice_api.device_ids import ESCAPED, MAX_SHOWN, ShortenedID, has_original, is_shortened, original_id, shown_id
from nodedevice_api.names import ALL_DEVICES, ALL_DEVICES_WORD
from nodedevice_api.parts import parent_and_number

_LONG = "x" * 10_240
_HASH = "0" * 64

# Of any characters, and of those with which forms could be confused.
any_id = st.one_of(
    st.text(max_size=200),
    st.text(alphabet="%=:-0aA\n*l", max_size=140),
    st.text(max_size=60).map(shown_id).map(str),
    st.builds("{}{}".format, st.sampled_from([ESCAPED, "*", "all", "x" * 128]), st.text(max_size=90)),
)


@pytest.mark.parametrize(
    ("device_id", "shown"),
    [
        ("gpu-0", "gpu-0"),
        ("GPU-1f2e::3", "GPU-1f2e::3"),
        ("a b", "a b"),
        ("é" * 128, "é" * 128),
        ("100%", "100%"),
        ("\0", "escaped:%00"),
        ("", "escaped:"),
        ("*", "escaped:%2A"),
        ("all", "escaped:all"),
        ("a\nb-3", "escaped:a%0Ab%2D3"),
        ("escaped:%00", "escaped:escaped%3A%2500"),
        ("\u200b", "escaped:%E2%80%8B"),
        ("x" * 129, f"escaped:{'x' * 55}=0ec9eb33e74510bcdd1f2ea55206e82f21649c5c2becbf2b433eb475b34c01bd"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_how_an_id_is_shown(device_id: str, shown: str) -> None:
    assert shown_id(device_id) == shown
    assert original_id(shown_id(device_id)) == device_id


@given(any_id)
@example(_LONG)
@example("\ud800")
@example(f"{ESCAPED}={_HASH}")
@example("é" * 129)
def test_the_api_accepts_every_shown_form_and_the_original_comes_back(device_id: str) -> None:
    shown = shown_id(device_id)
    assert 0 < len(shown) <= MAX_SHOWN
    assert shown.isprintable()
    assert shown not in (ALL_DEVICES, ALL_DEVICES_WORD)
    assert original_id(shown) == device_id
    assert has_original(shown)
    # From the original the same form is made again.
    assert shown_id(original_id(shown)) == shown
    if shown != device_id:
        assert parent_and_number(shown) is None


@given(any_id, any_id)
@example("\0", "escaped:%00")
@example("all", "escaped:all")
@example("", "escaped:")
@example(_LONG, str(shown_id(_LONG)))
@example("x" * 129, "x" * 130)
def test_no_two_ids_are_shown_alike(one: str, other: str) -> None:
    assert (shown_id(one) == shown_id(other)) == (one == other)


@given(st.text(alphabet=st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=4, max_size=MAX_SHOWN))
def test_an_ordinary_id_stays_the_same_object(device_id: str) -> None:
    if not device_id.startswith(ESCAPED):
        assert shown_id(device_id) is device_id


@given(st.text(max_size=MAX_SHOWN))
@example("escaped:%FF")
@example("escaped:%zz")
def test_what_somebody_wrote_into_the_api_never_fails(text: str) -> None:
    original_id(text)
    original_id(f"{ESCAPED}{text}")


def test_a_shortened_id_from_the_api_has_lost_its_original() -> None:
    listed = shown_id(_LONG)
    assert isinstance(listed, ShortenedID)
    from_api = str(listed)
    assert from_api == listed
    assert hash(from_api) == hash(listed)
    assert is_shortened(from_api)
    assert not has_original(from_api)
    assert original_id(from_api) == from_api
    assert listed.octets == len(_LONG)
