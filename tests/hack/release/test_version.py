"""Which versions a release may have, and where they have to be the same."""

import pytest

from hack.release.errors import ReleaseError
from hack.release.version import check_sources, notes, parse

_CHANGELOG = "# Changelog\n\n## 0.2.0\n\n- New.\n\n### Chart\n\n- A value.\n\n## 0.1.0 (unreleased)\n\n- First.\n"
_CHART = "version: 0.1.0\nappVersion: 0.1.0\n"


@pytest.mark.parametrize("text", ["0.1.0", "1.10.2", "0.2.0-rc.1"])
def test_versions_that_helm_and_python_know(text: str) -> None:
    assert parse(text)


@pytest.mark.parametrize(
    "text", ["", "latest", "0.1", "v0.1.0", "0.1.0rc1", "0.1.0-foo", "0.1.0-1", "01.0.0", "0.1.0 "]
)
def test_what_is_no_version_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ReleaseError, match=r"VERSION.*write it as VERSION=0\.1\.0"):
        parse(text)


def test_notes_are_the_versions_section_of_the_changelog() -> None:
    assert notes(_CHANGELOG, parse("0.2.0")) == "- New.\n\n### Chart\n\n- A value.\n"
    assert notes(_CHANGELOG, parse("0.1.0")) == "- First.\n"


def test_a_version_that_the_changelog_lacks_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"no section 0\.3\.0: write the section"):
        notes(_CHANGELOG, parse("0.3.0"))


def test_a_distribution_or_chart_of_another_version_is_refused() -> None:
    project = '[project]\nversion = "0.1.0"\n'
    check_sources(parse("0.1.0"), {"proto/pyproject.toml": project}, _CHART)
    with pytest.raises(ReleaseError, match=r"proto/pyproject\.toml is 0\.1\.0, not 0\.2\.0: set it"):
        check_sources(parse("0.2.0"), {"proto/pyproject.toml": project}, _CHART)
    with pytest.raises(ReleaseError, match=r"Chart\.yaml's appVersion is 0\.0\.9"):
        check_sources(parse("0.1.0"), {}, "version: 0.1.0\nappVersion: 0.0.9\n")
