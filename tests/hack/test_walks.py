"""`make walks`: the real programs, traced. The bounds are those of docs/decisions/0025-events-mark.md."""

from hack.measure.walks import CAPACITY, CONTAINER, DEVICE_LIST, REPOSITORY, trace


async def test_a_change_is_followed_through_few_files() -> None:
    files = {walk.name: walk.files for walk in await trace(REPOSITORY)}
    assert files[CAPACITY]
    assert 20 < len(files[DEVICE_LIST]) <= 42, files[DEVICE_LIST]
    assert 15 < len(files[CONTAINER]) <= 27, files[CONTAINER]
