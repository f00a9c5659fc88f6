"""Whatever one origin of the cluster sends, as large and often as it may, costs an agent bounded memory and short turns."""

import pytest

from tests.robustness.memory import api_server_rows
from tests.robustness.memory.feeding import MOST_MIB_OF_ROW, feed
from tests.robustness.memory.feeding import scene as scene
from tests.robustness.memory.rows import Row
from tests.robustness.memory.scene import Scene


@pytest.mark.parametrize("row", api_server_rows.ROWS, ids=lambda row: row.__name__)
async def test_of_one_origin(scene: Scene, row: Row) -> None:
    await feed(scene, [row], MOST_MIB_OF_ROW)
