"""What all origins send at once, as large and as often as they may."""

from tests.robustness.memory.feeding import MOST_MIB_OF_ALL, feed
from tests.robustness.memory.feeding import scene as scene
from tests.robustness.memory.rows import ROWS
from tests.robustness.memory.scene import Scene


async def test_of_all_at_once(scene: Scene) -> None:
    # the other rows have some 140
    scene.names_of_gone = 110
    await feed(scene, ROWS, MOST_MIB_OF_ALL)
