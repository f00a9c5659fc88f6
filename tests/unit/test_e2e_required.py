"""E2E_REQUIRED: what is skipped in `make e2e` fails, and says what is missing."""

import pytest

from tests.e2e import conftest as rules_of_e2e

pytest_plugins = ["pytester"]

_SKIPS = """
import pytest

@pytest.mark.skip(reason="a real node needs root: run as root")
def test_by_a_mark():
    pass

@pytest.fixture
def image():
    pytest.skip("no image builder: install podman")

def test_by_a_fixture(image):
    pass

def test_by_itself():
    pytest.skip("no /dev/fuse: modprobe fuse")

@pytest.mark.xfail(reason="known")
def test_that_fails_as_expected():
    raise AssertionError
"""


@pytest.fixture
def pytester(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(_SKIPS)
    return pytester


def test_every_skip_fails_with_what_is_missing(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2E_REQUIRED", "1")
    done = pytester.inline_run("-p", "no:asyncio", plugins=[rules_of_e2e])
    texts = [report.longreprtext for report in done.getfailures()]
    assert [text.partition(" is set. ")[2] for text in texts] == [
        "a real node needs root: run as root",
        "no image builder: install podman",
        "no /dev/fuse: modprobe fuse",
    ]
    assert all(text.startswith("skipped, and E2E_REQUIRED is set.") for text in texts)
    assert done.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("value", [None, ""], ids=["unset", "empty"])
def test_without_it_a_skip_is_a_skip(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("E2E_REQUIRED", raising=False)
    if value is not None:
        monkeypatch.setenv("E2E_REQUIRED", value)
    done = pytester.inline_run("-p", "no:asyncio", plugins=[rules_of_e2e])
    done.assertoutcome(skipped=4)
    assert done.ret == pytest.ExitCode.OK
