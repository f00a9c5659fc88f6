"""The client core's credentials, for the operator and its commands."""

import os
from typing import Any

from nodedevice_common.api_transport import EXEC_SECONDS
from nodedevice_common.threads import in_thread
from nodedevice_kube import credentials, kubeconfig
from nodedevice_kube.credentials import Access
from nodedevice_kube.errors import ConnectionProblem
from nodedevice_kube.settings import Settings

from nodedevice_operator.errors import CredentialsError


class Credentials(credentials.Credentials):
    @property
    def server(self) -> str:
        return self.settings.server

    @property
    def cluster(self) -> str:
        return f"{self.server} ({self.settings.origin})"

    async def access(self) -> Access:
        """What a request made now is sent with. Raises CredentialsError."""
        return await in_thread(self.access_now) if self.is_due else self.current

    def access_now(self) -> Access:
        """The same in a thread; blocks while a log-in program runs."""
        try:
            return self.refresh()
        except ConnectionProblem as exc:
            raise CredentialsError(str(exc)) from exc

    def transport_options(self) -> dict[str, Any]:
        """TLS and proxy of this moment, as parameters of aiohttp's requests."""
        options: dict[str, Any] = {"ssl": self.current.tls} if self.current.tls is not None else {}
        if self.proxy is not None:
            authorization = self.proxy.authorization
            options["proxy"] = self.proxy.url
            options["proxy_headers"] = {"Proxy-Authorization": authorization} if authorization else None
        return options


def load(file: str | None) -> Credentials:
    """Credentials of that kubeconfig, else of $KUBECONFIG, ~/.kube/config or the service account. Raises CredentialsError."""

    def settings() -> Settings:
        return kubeconfig.load(file or "", "", os.environ)

    try:
        found = Credentials(settings(), load=settings, exec_seconds=EXEC_SECONDS)
        found.refresh()
    except ConnectionProblem as exc:
        raise CredentialsError(str(exc)) from exc
    return found
