"""The audit log is read while the API server writes it, and is whole after a server that was killed."""

from pathlib import Path

import pytest

from hack.cluster.control_plane import audit_log

_ONE, _TWO = b'{"verb":"get"}\n', b'{"verb":"list"}\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def _verbs(log: Path, text: str = "") -> list[str]:
    return [request["verb"] for request in audit_log.requests(log, text)]


@pytest.mark.parametrize("end", [b"", b"{", _ONE[:-1]])
def test_a_line_without_its_end_is_left_out(log: Path, end: bytes) -> None:
    log.write_bytes(_ONE + _TWO + end)
    assert _verbs(log) == ["get", "list"]


def test_lines_without_the_text_are_not_decoded(log: Path) -> None:
    log.write_bytes(b"not JSON\n" + _TWO)
    assert _verbs(log, "list") == ["list"]


def test_a_line_that_is_no_request_is_named_by_its_place(log: Path) -> None:
    log.write_bytes(_ONE + b'{"verb": get}\n' + _TWO)
    with pytest.raises(ValueError, match=rf"{log}: the line at byte {len(_ONE)} is not a request: .*get}}"):
        _verbs(log)


def test_a_line_that_is_whole_a_moment_later_is_a_request(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hole = b"\0" * 5
    log.write_bytes(_ONE[:3] + hole + _ONE[3 + len(hole) :])

    def fill(_: float) -> None:
        with log.open("r+b") as file:
            file.write(_ONE)

    monkeypatch.setattr("hack.cluster.control_plane.audit_log.time.sleep", fill)
    assert _verbs(log) == ["get"]


@pytest.mark.parametrize(("content", "left"), [(_ONE + _TWO[:4], _ONE), (_ONE, _ONE), (_ONE[:5], b""), (b"", b"")])
def test_half_a_line_is_dropped(log: Path, content: bytes, left: bytes) -> None:
    log.write_bytes(content)
    audit_log.drop_half_line(log)
    assert log.read_bytes() == left
