"""Which mutants are tried again, and when `make mutants` passes. The mutants themselves need `make mutants`' own environment."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.mutants import session, trials, types
from hack.mutants.changes import changed_functions, changed_since
from hack.mutants.same import proves_nothing
from hack.mutants.session import Place, Result, Results

ENTRY = """
[[equivalent]]
file = "a.py"
function = "f"
before = "x"
after = "y"
"""


@dataclass(frozen=True)
class Change:
    id: str
    file: str = "a.py"
    function: str = "f"
    before: str = "x"
    after: str = "y"


def sampled(names: Sequence[str], count: int, seed: int = 1) -> list[str]:
    return [change.id for change in session.sample([Change(name) for name in names], count, seed)]


def test_a_sample_is_the_seeds_and_changes_with_the_code_alone() -> None:
    names = [f"m{number}" for number in range(100)]
    found = sampled(names, 20)
    assert sampled(names[::-1], 20) == found
    assert sampled(names, 40)[:20] == found
    assert sampled([name for name in names if name != found[5]], 19) == found[:5] + found[6:]
    assert sampled(names, 20, seed=2) != found


@pytest.mark.parametrize(
    ("word", "is_kept"),
    [("killed", True), ("timeout", True), ("refused", True), ("survived", False), ("unreached", False)],
)
def test_what_survived_is_tried_again_with_other_tests(tmp_path: Path, word: str, is_kept: bool) -> None:
    file = tmp_path / "build" / "results.jsonl"
    result = Result("m", word, "", 1.5, "these tests")
    Results(file).add(result)
    again = Results(file)
    assert again.find("m", "these tests") == result
    assert again.find("m", "other tests") == (result if is_kept else None)
    assert again.find("n", "these tests") is None


def test_the_last_result_of_a_mutant_counts(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    for word in ("survived", "killed"):
        results.add(Result("m", word, "", 1.0, "tests"))
    found = Results(tmp_path / "results.jsonl").find("m", "tests")
    assert found is not None
    assert found.word == "killed"


def test_an_equivalent_mutant_has_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "equivalent.toml"
    file.write_text(ENTRY + 'reason = "the same"\n')
    assert session.equivalents(file) == {Place.of(Change("m")): "the same"}
    for wrong in ("", 'reason = ""\n', 'reason = "the same"\nline = 7\n'):
        file.write_text(ENTRY + wrong)
        with pytest.raises(ValueError, match=r"entry 1 needs file, function, before, after and reason"):
            session.equivalents(file)


def test_those_that_are_in_the_list_are_well_formed() -> None:
    session.equivalents(Path(session.__file__).with_name("equivalent.toml"))


def test_the_table_counts_by_room() -> None:
    words = ["killed"] * 16 + ["timeout", "refused", "equivalent", "survived"]
    found = [(Change("m", file=f"{'a' if word == 'killed' else 'b'}/x.py"), word) for word in words]
    rooms = {"room a": "a/", "room b": "b/", "empty": "c/"}
    assert session.table(found, rooms, is_unreached_counted=True).splitlines()[2:] == [
        "| room a | 16 | 16 | 0 | 0 | 0 | 0 | 0 | 100.0 % |",
        "| room b | 4 | 0 | 1 | 1 | 1 | 1 | 0 | 75.0 % |",
        "| all | 20 | 16 | 1 | 1 | 1 | 1 | 0 | 95.0 % |",
    ]


def test_what_no_test_reaches_counts_only_in_the_rooms() -> None:
    found = [(Change("m", file="a.py"), word) for word in ("killed", "unreached", "unreached")]
    assert session.table(found, {}, is_unreached_counted=True).splitlines()[2:] == [
        "| all | 3 | 1 | 0 | 0 | 0 | 0 | 2 | 33.3 % |",
    ]
    assert session.table(found, {}, is_unreached_counted=False).splitlines()[2:] == [
        "| all | 3 | 1 | 0 | 0 | 0 | 0 | 2 | 100.0 % |",
    ]
    assert session.table(found[1:], {}, is_unreached_counted=False).splitlines()[2:] == [
        "| all | 2 | 0 | 0 | 0 | 0 | 0 | 2 | - |",
    ]


def test_files_that_no_test_reaches_are_listed_with_how_much_of_them() -> None:
    found = [(Change("m", file=file), word) for file, word in (("b.py", "unreached"), ("b.py", "killed"))]
    found += [(Change("m", file="a.py"), "unreached"), (Change("m", file="c.py"), "survived")]
    assert session.unreached_table(found).splitlines()[2:] == ["| a.py | 1 | 1 |", "| b.py | 1 | 2 |"]
    assert session.unreached_table(found[3:]) == ""


def test_97_of_100_are_required() -> None:
    words = ["killed"] * 97 + ["survived"] * 3
    found = [session.share(each, is_unreached_counted=True) for each in (words, words[1:])]
    assert found[0] == session.REQUIRED_SHARE
    assert found[1] is not None
    assert found[1] < session.REQUIRED_SHARE


def change(line: str, old: str, new: str) -> tuple[str, str]:
    """A method with this line, before and after the change."""
    assert line.count(old) == 1
    text = f"    @property\n    def f(self):\n        {line}\n        return x\n"
    return text, text.replace(line, line.replace(old, new))


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        *((f"if d.get(k, {no}): x = 1", f"k, {no}", "k, ") for no in ('""', "b''", "0", "0.0", "()", "[]", "{}")),
        ("while d.get(k, 0): x = 1", "k, 0", "k, None"),
        ("x = a if d.get(k, 0) else b", "k, 0", "k, "),
        ("x = [a for a in b if d.get(a, 0)]", "a, 0", "a, "),
        ("x = not d.get(k, 0)", "k, 0", "k, None"),
        ("x = bool(d.get(k, 0))", "k, 0", "k, "),
        ("x = d.get(k, 0) or b", "k, 0", "k, "),
        ("x = (a and d.get(k, 0)) or b", "k, 0", "k, "),
        ("assert a and (b or d.get(k, 0))", "k, 0", "k, "),
        ("x = zip(a, b, strict=True)", "True", "None"),
        ("x = zip(a, b, strict=True)", "True", "False"),
        ("x = zip(a, b, strict=True)", "strict=True", ""),
        ("x = zip(a, b, strict=False)", "strict=False", ""),
        ("x = zip(a, b, strict=False)", "False", "None"),
        ("x = cast(a, b)", "(a, ", "(None, "),
        ("x = a.rstrip('/')", "/", "XX/XX"),
        ("x = a.strip(',.')", ",.", "XX,.XX"),
        ("x = False", "False", "None"),
        ("x = f(True)", "True", "None"),
        ("x = f(a=True, b=True)", "a=True", "a=None"),
    ],
)
def test_what_proves_nothing_is_no_mutant(line: str, old: str, new: str) -> None:
    assert proves_nothing(*change(line, old, new))


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        ('x = d.get(k, "")', 'k, ""', "k, "),
        ('x = a or d.get(k, "")', 'k, ""', "k, "),
        ('x = d.get(k, "") and a', 'k, ""', "k, "),
        ('x = a if d else d.get(k, "")', 'k, ""', "k, "),
        ('if d.get(k, "") == a: x = 1', 'k, ""', "k, "),
        ('if len(d.get(k, "")): x = 1', 'k, ""', "k, "),
        ('if d.get(k, ""): x = 1', 'k, ""', "None, None"),
        ('if d.get(k, ""): x = 1', '""', '"XXXX"'),
        ("if d.get(k, 0): x = 1", "0", "1"),
        ("if d.pop(k, 0): x = 1", "k, 0", "k, "),
        ("x = zip(a, b, strict=False)", "False", "True"),
        ("x = zip(a, b, strict=True)", "a, b", "a"),
        ("x = f(a, b, strict=True)", "strict=True", ""),
        ("x = cast(a, b)", "b", "None"),
        ("x = a.rstrip('/')", "'/'", "None"),
        ("x = a.rstrip('/')", "rstrip", "lstrip"),
        ("x = a.strip(',.')", ",.", ","),
        ("x = a.removesuffix('/')", "/", "XX/XX"),
        ("x = False", "False", "True"),
        ("x = f(True)", "True", "False"),
        ("x = f(a=True)", "a=True", ""),
        ("x = f(a=True, b=0)", "b=0", "b=None"),
        ("x = 1", "1", "None"),
        ("x = None", "None", '""'),
        ("return a", "a", "None"),
    ],
)
def test_what_may_be_noticed_is_one(line: str, old: str, new: str) -> None:
    assert not proves_nothing(*change(line, old, new))


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("def f(x: int) -> int:\n    return x + 2\n", False),
        ("def f(x: int) -> int:\n    return None\n", True),
        ("def f(x: int) -> int:\n    return None#\n", True),
        ("def f(x: int) -> int:\n    return x + 1  # type: ignore\n", False),
        ("def f(x: int) -> int:\n    return (\n", False),
    ],
    ids=["same type", "another type", "as long as it was", "a comment", "no program"],
)
def test_a_mutant_is_refused_by_its_types_alone(text: str, is_refused: bool, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.mypy]\nstrict = true\n")
    (tmp_path / "a.py").write_text("def f(x: int) -> int:\n    return x + 1\n")
    assert types.refuses(tmp_path, "a.py", text) is is_refused


def test_nothing_is_refused_in_a_file_that_is_refused_itself(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x: int = None\n")
    assert not types.refuses(tmp_path, "a.py", "x: int = None\n")


OLD = """
class A:
    @property
    def same(self):
        return 1

    @old
    def decorated(self):
        return 2

    def edited(self):
        def inner():
            return 3
        return inner

    def shortened(self):
        a = 4
        return a

x = 5

def moved():
    return 6
"""
NEW = """
def moved():
    return 6

class A:
    @property
    def same(self):
        return 1

    @new
    def decorated(self):
        return 2

    def edited(self):
        def inner():
            return 30
        return inner

    def shortened(self):
        return a

x = 50

async def added():
    return 7
"""


def test_a_function_has_changed_when_a_line_of_it_or_of_its_decorators_is_another() -> None:
    lines = NEW.splitlines()
    found = [lines[each.start - 1 : each.stop - 1] for each in changed_functions(OLD, NEW)]
    assert found == [lines[9:12], lines[13:17], lines[18:20], lines[23:25]]
    assert changed_functions(NEW, NEW) == []
    assert len(changed_functions("", NEW)) == 6
    assert len(changed_functions(NEW, NEW.replace("class A", "class B"))) == 4


class Repository:
    """With one commit, called `base`, of src/a.py and src/b.py; other/ is no folder of sources."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("src/a.py", OLD)
        self.write("src/b.py", OLD)
        self.write("other/c.py", OLD)
        self.commit()
        self.git("tag", "base")

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "--message=t")

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.root, check=True)

    def changed(self, commit: str = "base") -> dict[str, int]:
        """By file, how many functions have changed."""
        return {file: len(lines) for file, lines in changed_since(commit, self.root, ["src/"]).items()}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_files_count_when_they_differ_from_the_commit_committed_or_not(repository: Repository) -> None:
    assert repository.changed() == {}
    repository.write("src/a.py", OLD.replace("return 6", "return 60"))
    repository.write("other/c.py", NEW)
    repository.write("src/unknown to git.py", "def f():\n    return 1\n")
    repository.write("src/page.md", "def f():\n    return 1\n")
    assert repository.changed() == {"src/a.py": 1, "src/unknown to git.py": 1}
    repository.commit()
    repository.write("src/b.py", OLD.replace("x = 5", "x = 7"))
    assert repository.changed() == {"src/a.py": 1, "src/unknown to git.py": 1}


def test_a_file_that_moved_counts_by_what_changed_in_it(repository: Repository) -> None:
    repository.write("src/moved.py", OLD.replace("return 6", "return 60"))
    (repository.root / "src/a.py").unlink()
    repository.commit()
    (repository.root / "src/b.py").unlink()
    assert repository.changed() == {"src/moved.py": 1}


def test_what_changed_on_another_branch_is_not_ours(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "-b", "theirs")
    repository.write("src/b.py", NEW)
    repository.commit()
    repository.git("checkout", "--quiet", "main")
    repository.write("src/a.py", OLD.replace("return 6", "return 60"))
    assert repository.changed("theirs") == {"src/a.py": 1}


def test_what_cannot_be_compared_is_one_plain_line(
    repository: Repository, tmp_path_factory: pytest.TempPathFactory
) -> None:
    repository.write("src/a.py", "def f(:\n")
    with pytest.raises(ValueError, match=r"^unknown commit: nowhere \(a shallow clone .*\)$"):
        repository.changed("nowhere")
    with pytest.raises(ValueError, match=r"^src/a.py cannot be parsed: .*line 1\)$"):
        repository.changed()
    repository.git("checkout", "--quiet", "--orphan", "apart")
    repository.commit()
    with pytest.raises(ValueError, match=r"^main and the files here have no common history$"):
        repository.changed("main")
    with pytest.raises(ValueError, match=r"^no git history to compare with: .*not a git repository.*$"):
        changed_since("main", tmp_path_factory.mktemp("no repository"), ["src/"])


def test_tests_of_mutants_run_in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that one which unlinks what is in the current directory finds nothing there."""
    monkeypatch.chdir(tmp_path)
    trials._Rules(str(tmp_path)).pytest_collection_finish()
    assert (Path.cwd(), [*Path.cwd().iterdir()]) == (tmp_path / "current", [])


def test_unit_tests_of_every_program_are_run() -> None:
    units = Path(__file__).parents[1] / "unit"
    assert {*trials._FOLDERS} == {f"tests/unit/{path.name}" for path in units.iterdir() if any(path.rglob("test_*.py"))}
