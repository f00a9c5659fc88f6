"""Equal texts are one object, and none is kept for ever, whichever Python it is."""

import importlib
import sys
from collections.abc import Iterator

import pytest
from nodedevice_kube import interning


@pytest.fixture(params=[(3, 11), (3, 12), (3, 13)], ids=str)
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "version_info", (*request.param, 0, "final", 0))
        importlib.reload(interning)
        yield request.param
    importlib.reload(interning)


def test_equal_texts_are_one_object(version: tuple[int, int]) -> None:
    one, other = ("".join(["uid-", str(version)]) for _ in range(2))
    assert one is not other
    assert interning.intern(one) is interning.intern(other)
    # the Python that keeps them for ever is not asked
    assert (interning.intern is sys.intern) == (version != (3, 12))  # noqa: TID251
