import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nodedevice_agent.lib.deviceplugin_server.values import (
    MAX_DEVICE_ID,
    AllocationRefused,
    device_id,
    env_name,
    file_slug,
    free_ids,
    known_ids,
    shared_ids,
    socket_name,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/dev/ttyUSB0", "ttyUSB0", id="plain"),
        pytest.param("/dev/video-capture.1", "video-capture.1", id="dots and dashes stay"),
        pytest.param("/dev/a b  c", r"a-b-c-[0-9a-f]{8}", id="lost spaces"),
        pytest.param("/dev/dri/card0", r"dri-card0-[0-9a-f]{8}", id="a lost slash"),
        pytest.param("/run/fuse", r"run-fuse-[0-9a-f]{8}", id="not under /dev"),
        pytest.param("/dev/tty-0", r"tty-0-[0-9a-f]{8}", id="looks like a share of /dev/tty"),
        pytest.param("/dev/ü", r"[0-9a-f]{8}", id="nothing is left"),
        pytest.param("/dev/" + "a" * 80, r"a{50}-[0-9a-f]{8}", id="too long"),
    ],
)
def test_device_id(path: str, expected: str) -> None:
    assert re.fullmatch(expected, device_id(path))


paths = st.builds(str.__add__, st.sampled_from(["/dev/", "/run/", "/"]), st.text(min_size=1, max_size=90))


@given(st.lists(paths, min_size=2, max_size=8, unique=True), st.sampled_from([1, 2, 1000]))
@example(["/dev/dri/card0", "/dev/dri-card0"], 1)
@example(["/dev/tty", "/dev/tty-0"], 2)
def test_ids_are_safe_and_never_shared(some_paths: list[str], count: int) -> None:
    ids = [name for path in some_paths for name in shared_ids(device_id(path), count)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+(::[0-9]+)?", name) and len(name) <= MAX_DEVICE_ID + 1 for name in ids)


def test_socket_names_are_short_and_unique() -> None:
    names = [
        *("example.com/gpu", "example.org/gpu", "example.com/GPU", "e.com/_.1"),
        *(f"e.com/{'n' * length}" for length in (62, 63)),
    ]
    sockets = [socket_name(name) for name in names]
    assert len(set(sockets)) == len(names)
    assert all(len(name) <= 30 and "/" not in name for name in sockets)
    assert socket_name("example.com/gpu").startswith("gpu-")


def test_file_slugs_fit_a_file_name_and_are_unique() -> None:
    longest = ".".join(["a" * 60] * 4) + "/" + "n" * 63
    assert file_slug("example.com/my_gpu") == "example.com_my_gpu"
    assert len(file_slug(longest)) <= 220
    assert file_slug(longest) != file_slug(longest[:-1])


@pytest.mark.parametrize(
    ("name", "expected"), [("example.com/gpu", "EXAMPLE_COM_GPU"), ("3d.example.com/a.b", "_3D_EXAMPLE_COM_A_B")]
)
def test_env_names(name: str, expected: str) -> None:
    assert env_name(name) == expected


def test_unknown_devices_are_named() -> None:
    assert known_ids("a.b/c", ["b", "a", "b"], {"a", "b"}) == ["a", "b"]
    with pytest.raises(AllocationRefused, match="no such device: 'b';"):
        known_ids("a.b/c", ["a", "b"], {"a"})


def test_a_long_list_of_unknown_devices_is_cut() -> None:
    with pytest.raises(AllocationRefused, match=r"'0000x{76}', .* and 990 more; ask for devices") as refused:
        known_ids("a.b/c", [f"{index:04}" + "x" * 1000 for index in range(1000)], ())
    assert len(str(refused.value)) < 1500


def test_devices_removed_meanwhile_are_not_free() -> None:
    assert free_ids("a.b/c", {"a", "b", "c"}, ["a", "b", "gone"], ["b"], 2) == {"a"}
    # all that are wanted must be included
    assert free_ids("a.b/c", {"a", "b"}, ["a", "b"], ["b"], 1) == {"a"}


@pytest.mark.parametrize(
    ("available", "must", "size"), [("ab", "", 3), ("ab", "ab", 1), ("", "", 1), ("ab", "", -1), ("ax", "", 2)]
)
def test_impossible_requests_are_rejected(available: str, must: str, size: int) -> None:
    with pytest.raises(AllocationRefused, match=r"a\.b/c: .* devices requested"):
        free_ids("a.b/c", {"a", "b"}, available, list(must), size)
