"""The words of all programs for an API server that rejects their identity (401). Pure."""

from typing import Final

EVENT: Final = "API server rejects the credentials; renew the token or the client certificate"
OVER: Final = "API server accepts the credentials again"


def problem(server: str) -> str:
    return f"API server {server} rejects the credentials"
