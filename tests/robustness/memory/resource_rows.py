"""What is configured on a node itself: resources of the built-in plugins."""

from collections.abc import AsyncGenerator
from typing import Final

from tests.robustness.memory.scene import Scene

_FILES: Final = 10_000
_GENERIC: Final = 40
_SIMULATED: Final = 10


async def configured_resources(scene: Scene) -> AsyncGenerator[None, None]:
    """Each with as many devices as one may have, or for as many containers."""
    folder = scene.host_root / "dev"
    folder.mkdir(exist_ok=True)
    for number in range(_FILES):
        (folder / f"many{number:05}").symlink_to("/dev/null")
    plugins = scene.settings["plugins"]
    paths = [{"path": "/dev/many*"}]
    plugins["generic"] = [
        *plugins.get("generic", []),
        *(
            {
                "resourceName": f"files.example.com/r{number}",
                "groups": [{"paths": paths, "count": 1 + number % 2 * 999}],
            }
            for number in range(_GENERIC)
        ),
    ]
    plugins["simulated"] = [
        *plugins.get("simulated", []),
        *({"resourceName": f"simulated.example.com/r{number}", "count": 10_000} for number in range(_SIMULATED)),
    ]
    yield
    await scene.agent.until_logged("devices changed", _GENERIC + _SIMULATED)


ROWS: Final = (configured_resources,)
