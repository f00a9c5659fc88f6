"""An administrator's word that a GPU is well: a file named after its UUID. The `gpu` command leaves it, the watch takes it away."""

import logging
from pathlib import Path

log = logging.getLogger(__name__)


class Clears:
    """folder: see memory.clear_dir."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # what could not be taken away, as was said
        self._refused: set[str] = set()

    def take(self) -> list[str]:
        """The UUIDs, each once. What cannot be taken away counts for nothing, or it would count again and again."""
        try:
            left = sorted(path for path in self.folder.iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        refused = {path.name for path in left if not self._take_away(path)}
        self._refused = refused
        return [path.name for path in left if path.name not in refused]

    def _take_away(self, path: Path) -> bool:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            if path.name not in self._refused:
                log.error("GPU is not cleared: remove this by hand", extra={"path": str(path), "error": str(error)})
            return False
        return True
