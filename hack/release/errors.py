"""Errors that stop a release. Each message is one sentence with a remedy; `make release` prints it and leaves `dist/`
unchanged.
"""


class ReleaseError(Exception):
    """A release is impossible with this tree, these arguments, or this machine."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"{why}: {remedy}")
