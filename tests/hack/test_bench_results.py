"""What a benchmark has measured is published, whatever ends it."""

from pathlib import Path

import pytest

from hack.bench.results import information, judged, publishing, show, verdict


@pytest.mark.parametrize("end", [None, TimeoutError(), ZeroDivisionError(), KeyboardInterrupt()])
def test_rows_are_published_at_the_end_of_the_block(
    end: BaseException | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "build" / "bench.json"

    def measure() -> None:
        with publishing(path) as rows:
            rows["row_of_mine"] = judged(1.0, 1.0, "s", 2.0, 1)
            if end is not None:
                raise end

    if end is None:
        measure()
    else:
        with pytest.raises(type(end)):
            measure()
    assert "row_of_mine" in path.read_text()
    assert "row_of_mine" in capsys.readouterr().out


def test_of_no_rows_nothing_is_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bench.json"
    with pytest.raises(TimeoutError), publishing(path):
        raise TimeoutError
    assert not path.exists()
    assert capsys.readouterr().out == ""


def test_information_has_no_goal_and_misses_none(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"resident": information([1.0, 3.0, 2.0], "MiB"), "late": judged(3.0, 3.0, "s", 2.0, 1)}
    show(rows)
    assert (rows["resident"].value, rows["resident"].goal, verdict(rows)) == (2.0, None, "missed: late")
    assert "resident" in capsys.readouterr().out
