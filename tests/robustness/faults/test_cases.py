"""Which cases there are, and which are drawn."""

from tests.robustness.faults.calls import ERRORS, NEVER, QUIET
from tests.robustness.faults.cases import drawn, matrix
from tests.robustness.faults.strace import failed_calls


def test_each_call_is_in_one_category() -> None:
    assert not ERRORS.keys() & NEVER.keys()
    pairs = {f"{call} {error}" for call, errors in ERRORS.items() for error in errors}
    assert {each for each in QUIET if each[0].islower()} <= pairs


def test_a_call_that_failed_is_shown_with_what_it_was_made_with() -> None:
    lines = [
        '7 openat(AT_FDCWD, "/proc/self/stat", O_RDONLY <unfinished ...>',
        '8 openat(AT_FDCWD, "/f", O_RDONLY) = -1 EIO (Input/output error) (INJECTED)',
        "7 <... openat resumed>) = -1 EIO (Input/output error) (INJECTED)",
        "8 +++ exited with 0 +++",
    ]
    first, second = failed_calls(lines)
    assert (first, "/proc/self/stat" in second) == (lines[1], True)


def test_the_same_seed_draws_the_same_and_a_share_of_one_is_all() -> None:
    cases = matrix(ERRORS)
    first, again, other = (drawn(cases, 0.1, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert sorted(drawn(cases, 1, 3)) == cases
