"""A search for the words of other programs ends on the page on troubleshooting. test_reasons has the table of our own."""

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"


# what the kubelet, runtimes and programs print; people search for it as they read it
WORDS = (
    *("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "exec format error", "no match for platform"),
    *("permission denied", "Operation not permitted", "dialout", "supplementalGroups", "No such file or directory"),
    *(
        "CreateContainerError",
        "UnexpectedAdmissionError",
        "violates PodSecurity",
        "401 Unauthorized",
        "pull access denied",
    ),
)


@pytest.mark.parametrize("words", WORDS)
def test_has_the_words_of_others(words: str) -> None:
    assert words.lower() in PAGE.read_text(encoding="utf-8").lower()
