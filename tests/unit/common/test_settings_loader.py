"""Flag over file over default, and errors that name the place and the remedy; the programs' tests have many more."""

import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from nodedevice_common.settings_loader import SettingProblem, load

Short = Annotated[str, msgspec.Meta(max_length=3)]


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    poll_seconds: float = 10.0
    mode: Literal["fast", "slow"] | None = None
    policy: dict[str, Literal["report", "evict"]] = {}
    notes: dict[Short, Short] = {}


class _Texts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = ""
    names: tuple[str, ...] = ()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "example.yaml"


def test_given_values_win_over_the_file_and_the_file_over_defaults(file: Path) -> None:
    file.write_text("pollSeconds: 1\nmode: fast\n")
    assert load(Example, file, {"mode": "slow", "policy": None}) == Example(1.0, "slow")
    assert load(Example, None, {}) == Example()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param("polSeconds: 1", "unknown field `polSeconds`; did you mean pollSeconds?", id="typo"),
        pytest.param("mode: late", "Invalid enum value 'late' - at `$.mode`; choose one of fast, slow", id="choice"),
        pytest.param("policy: {a: evict, b: 1}", "- at `$.policy[...]`, of b; choose one of evict, report", id="value"),
        pytest.param("policy: {a: evict, 1: evict}", "the key 1; write it in quotes", id="key"),
        pytest.param("notes: {a: 1}", "at `$.notes[...]`, of a; write the value in quotes", id="not text"),
        pytest.param("notes: {long: a}", "Expected `str` of length <= 3 - at `key` in `$.notes`", id="too long"),
        pytest.param(
            "mode: fast\nmode: slow", "is not YAML (it has the key mode twice, in line 1 and in line 2", id="duplicate"
        ),
        pytest.param('{"mode": "fast", "mode": "slow"}', "is not YAML (duplicate key `mode`)", id="duplicate in JSON"),
    ],
)
def test_a_mistake_in_the_file_names_file_place_and_remedy(file: Path, content: str, problem: str) -> None:
    file.write_text(content)
    with pytest.raises(SettingProblem) as refused:
        load(Example, file, {})
    assert str(refused.value).startswith(f"config file {file}: ")
    assert problem in refused.value.problem


def test_a_mistake_in_a_flag_names_the_flag_and_its_variable(file: Path) -> None:
    file.write_text("mode: fast\n")
    with pytest.raises(SettingProblem) as refused:
        load(Example, file, {"poll_seconds": "often"})
    assert str(refused.value) == "--poll-seconds (NODEDEVICE_POLL_SECONDS): Expected `float`, got `str`"


@pytest.mark.parametrize("text", ['name: "\\ud800"', 'names: ["a", "\\udcff"]', '{"name": "\\udc80 "}'])
def test_text_that_is_no_utf8_is_refused_with_its_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(SettingProblem, match=f"config file {file}: "):
        load(_Texts, file, {})


def test_an_argument_that_is_no_utf8_is_refused_with_its_flag() -> None:
    """As Python has it: an octet that is none is a lone surrogate."""
    with pytest.raises(SettingProblem, match=r"--name \(NODEDEVICE_NAME\): has text that is not UTF-8"):
        load(_Texts, None, {"name": os.fsdecode(b"node-\xff")})
