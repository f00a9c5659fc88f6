"""The program's start: commands that do not exist, and a part of it that is missing."""

import sys
from pathlib import Path

import kubectl_nodedevice
import pytest

from tests.unit.cli.conftest import Run


def test_a_part_that_is_missing(run: Run, new_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubectl_nodedevice.commands.holders", None)
    ran = run("holders")
    where = Path(kubectl_nodedevice.__file__).parents[1]
    problem = "a part of this program is missing: kubectl_nodedevice.commands.holders"
    remedy = f"install it again; it is in {where}, which you can remove"
    assert (ran.status, ran.err) == (2, f"error: {problem}; {remedy}\n")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("devces", " Did you mean 'devices'?"),
        ("holdrs", " Did you mean 'holders'?"),
        ("complete", " Did you mean 'completion'?"),
        ("zzz", ""),
    ],
)
def test_a_command_that_does_not_exist(run: Run, word: str, hint: str) -> None:
    ran = run(word)
    problem = f"No such command '{word}'." if hint else f"No such command '{word}'"
    assert (ran.status, ran.err) == (2, f"error: {problem}{hint}; kubectl nodedevice --help shows how\n")


@pytest.mark.parametrize("words", [("why",), ("config",)])
def test_a_command_without_the_rest_shows_its_help(run: Run, words: tuple[str, ...]) -> None:
    ran = run(*words)
    assert (ran.status, ran.out, ran.err) == (2, "", run(*words, "--help").out)


def test_its_version(run: Run) -> None:
    assert run("--version").out == f"{kubectl_nodedevice.__version__}\n"
