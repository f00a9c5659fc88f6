"""The project's texts read like those of its neighbours: turns of phrase that stop a reader are counted, per 10,000 words.

The limits go down, never up. The same count of kopf 1.45.2 (package and docs) gives 23.6, of node-feature-discovery 0.19.0 7.9.
"""

from typing import Final

import pytest

from tests.unit.dialect import count, files
from tests.unit.sources import ROOT

LIMITS: Final = {
    "node-agent/src": 4,
    "operator/src": 4,
    "cli/src": 4,
    "kube/src": 4,
    "common/src": 2,
    "proto/src": 29,
    "hack": 24,
    "charts": 34,
    "docs": 22,
}


@pytest.mark.parametrize("folder", LIMITS)
def test_texts_read_like_those_of_other_projects(folder: str) -> None:
    paths = [path for path in files(ROOT / folder) if "decisions" not in path.parts]
    words, marks = count(paths)
    rate = 10_000 * marks.total() / words
    most = ", ".join(f"{mark} {number}" for mark, number in marks.most_common(3))
    assert rate <= LIMITS[folder], f"{rate:.0f} per 10,000 words: {most}"
