"""The bearer token in a file that others replace, about every hour. It is seen in any state: what is no token changes nothing."""

import re
from pathlib import Path

from nodedevice_common.masking import remember

# anything else would be no header, and no request would be sent
_TOKEN = re.compile(r"[!-~]+")


class NoToken(OSError):
    """The file has no token, and none was read before."""


class TokenFile:
    """Reads when it is asked to. Raises NoToken where nothing was ever read, with the reason."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._token = ""

    def read(self) -> str:
        """The token as it is now; while the file has none, the one before. Raises NoToken."""
        problem = "there is no token in it"
        try:
            found = self._file.read_text(encoding="ascii").strip()
        except OSError as exc:
            found, problem = "", exc.strerror or str(exc)
        except UnicodeError:
            found = ""
        if _TOKEN.fullmatch(found):
            self._token = found
            remember(found)
        if not self._token:
            raise NoToken(f"the token file {self._file} cannot be used ({problem})")
        return self._token
