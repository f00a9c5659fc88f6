import pytest
from nodedevice_agent.lib.deviceplugin_server.socket_names import env_name, file_slug, socket_name


def test_socket_names_are_short_and_their_own() -> None:
    names = [
        "example.com/gpu",
        "example.org/gpu",
        "example.com/GPU",
        "e.com/" + "n" * 63,
        "e.com/" + "n" * 62,
        "e.com/_.1",
    ]
    sockets = [socket_name(name) for name in names]
    assert len(set(sockets)) == len(names)
    assert all(len(name) <= 30 and "/" not in name for name in sockets)
    assert socket_name("example.com/gpu").startswith("gpu-")


def test_file_slugs_fit_a_file_name_and_are_their_own() -> None:
    longest = ".".join(["a" * 60] * 4) + "/" + "n" * 63
    assert file_slug("example.com/my_gpu") == "example.com_my_gpu"
    assert len(file_slug(longest)) <= 220
    assert file_slug(longest) != file_slug(longest[:-1])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("example.com/gpu", "EXAMPLE_COM_GPU"), ("3d.example.com/a.b", "_3D_EXAMPLE_COM_A_B")],
)
def test_env_names(name: str, expected: str) -> None:
    assert env_name(name) == expected
