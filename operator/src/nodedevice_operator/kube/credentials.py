"""The client core's credentials, for the operator and its commands."""

from nodedevice_common.api_transport import EXEC_SECONDS
from nodedevice_common.threads import in_thread
from nodedevice_kube import credentials
from nodedevice_kube.credentials import Access, Credentials
from nodedevice_kube.errors import ConnectionProblem

from nodedevice_operator.errors import CredentialsError


def load(kubeconfig: str | None) -> Credentials:
    """Credentials of that kubeconfig; without one of $KUBECONFIG or ~/.kube/config, else of the pod's service account.

    Raises CredentialsError.
    """
    try:
        return credentials.load(kubeconfig or "", exec_seconds=EXEC_SECONDS)
    except ConnectionProblem as exc:
        raise CredentialsError(str(exc)) from exc


async def access(login: Credentials) -> Access:
    """What a request made now is sent with. Raises CredentialsError."""
    try:
        return await in_thread(login.refresh) if login.is_due else login.current
    except ConnectionProblem as exc:
        raise CredentialsError(str(exc)) from exc


def cluster(login: Credentials) -> str:
    """The API server, and where its settings come from, for messages."""
    return f"{login.settings.server} ({login.settings.origin})"
