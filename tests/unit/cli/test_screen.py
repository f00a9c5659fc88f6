"""The one way out, byte by byte: for a terminal of some width, for a pipe, for programs."""

import io

import pytest
from kubectl_nodedevice.errors import CliError
from kubectl_nodedevice.output import Cell, Screen, Table
from kubectl_nodedevice.shell import typed
from kubectl_nodedevice.styles import BAD, BOLD

from tests.unit.cli.conftest import Terminal

FAINT, RESET = "\x1b[90m", "\x1b[0m"
CLEAR = "\r\x1b[K"


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")


@pytest.fixture
def person() -> Screen:
    return Screen(out=Terminal(), err=Terminal())


@pytest.fixture
def pipe() -> Screen:
    return Screen(out=io.StringIO(), err=io.StringIO())


def shown(screen: Screen) -> str:
    assert isinstance(screen.out, io.StringIO)
    return screen.out.getvalue()


def test_a_line_for_a_pipe_is_as_it_is(pipe: Screen) -> None:
    pipe.line("x" * 50 + "\x1b[0m :smile: [b]", BOLD)
    pipe.line()
    assert shown(pipe) == "x" * 50 + "[0m :smile: [b]\n\n"


def test_a_line_for_a_person_is_wrapped_between_words(person: Screen) -> None:
    person.line("short [b] :smile: 'text' 12")
    person.line("exactly forty " + "x" * 26)
    person.line("one more than forty " + "x" * 21)
    assert shown(person) == f"short [b] :smile: 'text' 12\nexactly forty {'x' * 26}\none more than forty\n{'x' * 21}\n"


def test_a_command_can_be_copied(person: Screen, pipe: Screen) -> None:
    """It is never wrapped, and is for the same cluster as this command line."""
    words = typed("kubectl", "nodedevice", "why", "device", "node", "gpu-0", "--resource", "example.com/gpu")
    for screen in (person, pipe):
        screen.command(words)
    assert shown(person) == f"{FAINT}   {words}{RESET}\n"
    assert shown(pipe) == f"   {words}\n"
    pipe.flags = typed("--context", "a b")
    pipe.command(words, indent=0)
    pipe.data("K", {"command": words, "other": words})
    assert shown(pipe).count("kubectl nodedevice --context 'a b' why device node gpu-0 --resource") == 2
    assert pipe.typed(typed("kubectl", "get", "pods")) == "kubectl --context 'a b' get pods"


def table(*rows: tuple[str | Cell, ...]) -> Table:
    made = Table(("NAME", "STATE"))
    for row in rows:
        made.add(*row)
    return made


def test_a_table_for_a_pipe_has_plain_columns(pipe: Screen) -> None:
    pipe.table(table())
    pipe.table(table(("  a", Cell("bad", BAD)), ("漢", "x\ny"), ("longest name", "")))
    assert shown(pipe) == "NAME          STATE\n  a           bad\n漢            x y\nlongest name\n"


def lines(screen: Screen) -> list[str]:
    """Without styles and ends of columns."""
    text = shown(screen).replace("\x1b[1m", "").replace(FAINT, "").replace(RESET, "")
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize(
    ("name", "state", "expected"),
    [
        # two spaces between columns where there is room for them, else one
        ("a" * 18, "b" * 20, [f"NAME{' ' * 16}STATE", f"{'a' * 18}  {'b' * 20}"]),
        ("a" * 18, "b" * 21, [f"NAME{' ' * 15}STATE", f"{'a' * 18} {'b' * 21}"]),
        # the wide one is folded, the narrow one is not
        ("a" * 12, "b" * 30, [f"NAME{' ' * 9}STATE", f"{'a' * 12} {'b' * 27}", f"{' ' * 13}bbb"]),
    ],
)
def test_wide_cells_are_folded_where_the_terminal_is_narrow(
    name: str, state: str, expected: list[str], person: Screen
) -> None:
    person.table(table((name, state)))
    assert lines(person) == expected


def test_numbers_are_aligned_at_their_right(person: Screen, pipe: Screen) -> None:
    made = Table(("NAME", "FREE", "STATE"), [("a", "1,200", "fine"), ("b", Cell("7", BOLD), "fine")], numbers=["FREE"])
    pipe.table(made)
    person.table(made)
    expected = ["NAME   FREE  STATE", "a     1,200  fine", "b         7  fine"]
    assert lines(pipe) == lines(person) == expected


def test_where_columns_do_not_fit_each_row_is_words(person: Screen) -> None:
    made = Table(("NAME", "ONE", "TWO", "THREE"))
    made.add("n" * 12, "1" * 12, Cell("2" * 12, BOLD), "3")
    person.table(made)
    # a name stays with the first word of its cell, and further lines are indented
    assert lines(person) == [f"{'n' * 12}  ONE {'1' * 12}", f"    TWO {'2' * 12}  THREE 3"]
    assert shown(person).startswith(f"\x1b[1m{'n' * 12}{RESET}  {FAINT}ONE {RESET}")
    assert f"{FAINT}TWO {RESET}\x1b[1m{'2' * 12}{RESET}" in shown(person)
    long = Screen(out=Terminal(), err=Terminal())
    made.rows = [("n" * 12, "1" * 90, "a sentence of many words that are short", "3")]
    long.table(made)
    # what is to be copied is never broken
    words = ["    TWO a sentence of many words that", "    are short  THREE 3"]
    assert lines(long) == ["n" * 12, f"    ONE {'1' * 90}", *words]


def test_an_object_for_programs() -> None:
    content = {"z": ["é", "\x7f"], "a": None}
    as_json, as_yaml = (Screen(form, io.StringIO(), io.StringIO()) for form in ("json", "yaml"))
    for screen in (as_json, as_yaml):
        screen.data("Kind", content)
    assert shown(as_json) == (
        '{\n  "apiVersion": "kubectl.nodedevice.io/v1alpha1",\n  "kind": "Kind",\n'
        '  "z": [\n    "\\u00e9",\n    "\\u007f"\n  ],\n  "a": null\n}\n'
    )
    lines = ["apiVersion: kubectl.nodedevice.io/v1alpha1", "kind: Kind", "z:", '- "\\xE9"', '- "\\x7F"', "a: null"]
    assert shown(as_yaml).splitlines() == lines
    long = Screen("yaml", io.StringIO(), io.StringIO())
    long.data("Kind", {"text": "a " * 99 + "a"})
    # broken after the first word beyond 120 characters
    assert [len(line) for line in shown(long).splitlines()[2:]] == [121, 85]


def test_progress_is_shown_to_a_person_who_waits(person: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    now, err = [100.0], person.err
    assert isinstance(err, Terminal)
    monkeypatch.setattr("kubectl_nodedevice.output.time.monotonic", lambda: now[0])
    person.progress("one")
    now[0] += 0.9
    person.progress("two")
    person.end_progress()
    assert err.getvalue() == ""
    # it begins again
    person.progress("three")
    now[0] += 1.0
    person.progress("four\x07" + "x" * 50)
    person.progress("five")
    assert err.getvalue() == f"{CLEAR}four{'x' * 35}{CLEAR}five"
    person.note("done")
    person.end_progress()
    person.fail(CliError("x"))
    assert err.getvalue().endswith(f"five{CLEAR}done\nerror: x\n")
    person.progress("six")
    now[0] += 1.0
    person.progress("seven")
    person.fail(CliError("y"))
    assert err.getvalue().endswith(f"error: x\n{CLEAR}seven{CLEAR}error: y\n")
