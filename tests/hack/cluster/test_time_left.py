"""What is printed of the time that builds still take: never negative, never a promise that is broken already."""

import re
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.cluster.build import builder
from hack.cluster.build.binaries import find, missing
from hack.cluster.build.time_left import Forecast, clock, duration, received

_SECONDS = st.floats(0, 1e5)
_PROGRAMS = ("etcd", "kube-apiserver", "kubectl")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00"), (15.9, "0:15"), (80, "1:20"), (600, "10:00"), (3725, "62:05")],
)
def test_a_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "10 s"), (1, "10 s"), (36, "40 s"), (89.9, "90 s"), (90, "2 min"), (240, "4 min"), (4000, "67 min")],
)
def test_a_duration_is_never_none(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("took_etcd", "elapsed", "shown"),
    [
        pytest.param(80, 0, "0:00, about 5 min left", id="as expected"),
        pytest.param(80, 80, "1:20, about 3 min left", id="as expected, after a while"),
        pytest.param(220, 0, "0:00, about 9 min left", id="a machine of half the speed"),
        pytest.param(10, 0, "0:00, about 2 min left", id="etcd was compiled already"),
        pytest.param(10, 150, "2:30, about 2 min left", id="and the API server was not"),
        pytest.param(80, 232, "3:52, longer than expected (4 min), then about 40 s for the others", id="over"),
        pytest.param(80, 9999, "166:39, longer than expected (4 min), then about 40 s for the others", id="long over"),
    ],
)
def test_in_the_middle_of_the_second(took_etcd: float, elapsed: float, shown: str) -> None:
    forecast = Forecast({"etcd": 80, "kube-apiserver": 232, "kubectl": 40})
    forecast.built("etcd", took_etcd)
    assert forecast.describe("kube-apiserver", elapsed) == shown


def test_the_last_one_is_over() -> None:
    forecast = Forecast({"kubectl": 40})
    assert forecast.describe("kubectl", 41) == "0:41, longer than expected (40 s)"


@given(st.lists(st.tuples(_SECONDS, _SECONDS), min_size=1, max_size=9), _SECONDS)
def test_whatever_builds_take_no_time_left_is_negative(builds: list[tuple[float, float]], elapsed: float) -> None:
    forecast = Forecast({str(number): expected for number, (expected, _) in enumerate(builds)})
    for number, (_, took) in enumerate(builds):
        shown = forecast.describe(str(number), elapsed)
        assert re.fullmatch(
            r"\d+:\d\d, (about |longer than expected \()\d+ (s|min)( left|\)(, then about \d+ \w+ for.*)?)", shown
        )
        forecast.built(str(number), took)
    assert forecast.seconds == 0


@pytest.mark.parametrize(
    ("done", "total", "before", "elapsed", "shown"),
    [
        pytest.param(45, 110, 0, 15.0, "45 of 110 MB, about 20 s left", id="in the middle"),
        pytest.param(45, 110, 40, 5.0, "45 of 110 MB, about 60 s left", id="gone on with"),
        pytest.param(110, 110, 0, 15.0, "110 of 110 MB, about 10 s left", id="at the end"),
        pytest.param(45, 110, 45, 5.0, "45 of 110 MB", id="nothing came yet"),
        pytest.param(45, 110, 0, 0.0, "45 of 110 MB", id="no time has passed"),
        pytest.param(45, 0, 0, 5.0, "45 MB", id="of unknown size"),
        pytest.param(45, 40, 0, 5.0, "45 MB", id="more than there should be"),
    ],
)
def test_a_download(done: int, total: int, before: int, elapsed: float, shown: str) -> None:
    mega = 1_000_000
    assert received(done * mega, total * mega, before * mega, elapsed) == shown


def test_a_build_says_how_long_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for Go compiles until its progress was reported."""
    go, reported = tmp_path / "bin" / "go", tmp_path / "reported"
    go.parent.mkdir()
    wait = f"until [ -e {reported} ]; do sleep 0.05; done"
    go.write_text(
        "#!/bin/sh\n[ $1 = env ] && { echo go1.99.1; exit; }\n"
        f'{wait}\nwhile [ "$1" != -o ]; do shift; done\necho "#!/bin/sh" > "$2"; chmod +x "$2"\n'
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BINARIES", "build")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(builder, "_REPORT_EVERY_SECONDS", 0.05)
    lines: list[str] = []
    enough = threading.Event()

    def progress(line: str) -> None:
        lines.append(line)
        if " left" in line:
            reported.touch()
            enough.set()

    assert missing(_PROGRAMS) == list(_PROGRAMS)
    find(_PROGRAMS, progress)
    assert missing(_PROGRAMS) == []
    assert enough.is_set()
    assert re.search(r"once: about \d+ min on \d+ cores, at most", lines[0])
    assert any(re.fullmatch(r"\[1/3\] etcd v\S+: 0:00, about \d+ min left", line) for line in lines)
