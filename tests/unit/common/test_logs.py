"""The log of both programs, for people and for machines."""

import errno
import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import PurePath

import pytest
from nodedevice_common.logs import LogFormat, set_up_logs

OURS = logging.getLogger("nodedevice_common.test")
INCOMPLETE = "the log could not be written for a while; lines may be missing"
LIBRARY = logging.getLogger("library_of_others")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level, library = root.handlers[:], root.level, LIBRARY.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    LIBRARY.setLevel(library)


def test_json_has_time_level_logger_event_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("info", "json", {})
    OURS.info("event", extra={"node": "node-a", "number": 3, "device_ids": ("a", "b"), "path": PurePath("/a")})
    OURS.debug("below the level")
    LIBRARY.error("library", extra={"settings": "all of them"})
    ours, library = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert ours.pop("time").endswith("Z")
    assert ours == {
        "level": "info",
        "logger": "nodedevice_common.test",
        "event": "event",
        "node": "node-a",
        "number": 3,
        "device_ids": ["a", "b"],
        "path": "/a",
    }
    assert "settings" not in library


def test_text_keeps_one_line_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("debug", "text", {})
    OURS.warning("event", extra={"node": "node-a", "detail": 'two "words"', "none": "", "ids": ["a"], "error": "a\nb"})
    OURS.info("event", extra={"quoted": '"a"', "path": PurePath("/a")})
    LIBRARY.error("library", extra={"settings": "all of them"})
    ours, more, library = capsys.readouterr().err.splitlines()
    assert more.endswith(' event quoted="\\"a\\"" path="/a"')
    assert ours.endswith(' WARNING event node=node-a detail="two \\"words\\"" none="" ids=["a"] error="a\\nb"')
    assert library.endswith("ERROR   library")


def test_libraries_have_levels_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs("debug", "text", {LIBRARY.name: logging.CRITICAL})
    LIBRARY.error("too noisy")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_is_logged_once(capsys: pytest.CaptureFixture[str], log_format: LogFormat) -> None:
    set_up_logs("info", log_format, {})
    try:
        raise ValueError("broken")
    except ValueError:
        OURS.exception("event")
    written = capsys.readouterr().err
    assert written.count("ValueError: broken") == 1
    if log_format == "json":
        assert json.loads(written)["exception"].startswith("Traceback (most recent call last):")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_text_that_is_no_utf8_is_a_line_like_any_other(
    capfd: pytest.CaptureFixture[str], log_format: LogFormat
) -> None:
    """On the real stream, which takes UTF-8 alone."""
    with open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False) as stderr:
        with pytest.MonkeyPatch.context() as real:
            real.setattr("sys.stderr", stderr)
            set_up_logs("info", log_format, {})
            try:
                raise ValueError("name \udcff")
            except ValueError:
                OURS.exception("event", extra={"socket": "/r/\udcff.sock"})
        stderr.flush()
    written = capfd.readouterr().err
    assert "Logging error" not in written
    assert "\\udcff.sock" in written
    assert "name \\udcff" in written


class _Full(io.StringIO):
    """A file on a disk that is full for so many lines."""

    left = 0

    def write(self, text: str) -> int:
        if self.left:
            self.left -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_log_that_cannot_be_written_says_so_when_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    file = _Full()
    monkeypatch.setattr(sys, "stderr", file)
    set_up_logs("info", "json", {})
    log = logging.getLogger("nodedevice_common.test")
    log.info("before")
    file.left = 3
    for number in range(4):
        log.info("line", extra={"number": number})
    log.info("after")
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["before", "line", INCOMPLETE, "after"]
    said = lines[2]
    assert (said["level"], said["lines"], said["error"]) == ("warning", 3, "[Errno 28] No space left on device")
    # and so it does the next time
    file.left = 1
    for _ in range(2):
        log.info("again")
    again = [json.loads(line) for line in file.getvalue().splitlines()[4:]]
    assert [(line["event"], line.get("lines")) for line in again] == [("again", None), (INCOMPLETE, 1)]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secret_and_no_control_character_is_in_a_line(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logs("info", log_format, {})
    word = "https://u:SECRET@host \x1b[31m"
    try:
        raise ValueError(f"Bearer SECRET-TOKEN {word}\x07")
    except ValueError as exc:
        OURS.exception("event", extra={"error": str(exc), "ids": [word]})
        LIBRARY.warning("of a library: %s\nforged line", word)
    lines = capsys.readouterr().err
    assert "SECRET" not in lines
    assert lines.replace("\n", "").isprintable()
    assert not any(line.startswith("forged") for line in lines.splitlines())
