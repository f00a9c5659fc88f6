"""The words for an API server that does not accept who a program is, HTTP 401: of all programs, for every request. Pure."""

from typing import Final

EVENT: Final = "API server rejects the credentials; renew the token or the client certificate"
OVER: Final = "API server accepts the credentials again"


def problem(server: str) -> str:
    """For a health page: no other request succeeds either."""
    return f"API server {server} rejects the credentials"
