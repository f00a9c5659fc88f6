"""The page on troubleshooting has every reason that the programs report, so that a search for one ends there."""

import re
from pathlib import Path

import pytest
from nodedevice_api.names import Reason
from nodedevice_operator.observability.events import EventReason

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
REASONS = sorted(
    {value for kind in (Reason, EventReason) for name, value in vars(kind).items() if not name.startswith("_")}
)


@pytest.mark.parametrize("reason", REASONS)
def test_has_every_reason(reason: str) -> None:
    assert f"`{reason}`" in PAGE.read_text(encoding="utf-8")


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


@pytest.mark.parametrize("heading", ["ImagePullBackOff, exec format error", "Permission denied, dialout"])
def test_a_section_has_causes_and_a_command_that_shows_them(heading: str) -> None:
    section = (
        PAGE.read_text(encoding="utf-8").partition(f"\n### {heading}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    )
    assert len(re.findall(r"^```sh\n(?:kubectl|stat) ", section, re.MULTILINE)) > 1
