"""Which mutants are tried again, and when `make mutants` passes. The mutants themselves need `make mutants`' own environment."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.mutants import session
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
    ("word", "is_kept"), [("killed", True), ("timeout", True), ("survived", False), ("unreached", False)]
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
    words = ["killed"] * 17 + ["timeout", "equivalent", "survived"]
    found = [(Change("m", file=f"{'a' if word == 'killed' else 'b'}/x.py"), word) for word in words]
    assert session.table(found, {"room a": "a/", "room b": "b/"}).splitlines()[2:] == [
        "| room a | 17 | 17 | 0 | 0 | 0 | 0 | 100.0 % |",
        "| room b | 3 | 0 | 1 | 1 | 1 | 0 | 66.7 % |",
        "| all | 20 | 17 | 1 | 1 | 1 | 0 | 95.0 % |",
    ]
    assert session.share(words) >= session.REQUIRED_SHARE > session.share([*words, "unreached"])
