"""What ends the operator or one of its commands. A request that failed is an ApiError of nodedevice_kube.

OperatorError
├── OperatorSettingsError, CredentialsError       nothing can be started
├── StaleWatch, TaskEnded                         the process exits, to be started again
└── Overdue, OlderRelease, StillLed               a command ends
"""

from typing import Final

from nodedevice_kube.api_errors import ApiError as ApiError
from nodedevice_kube.masking import masked


class OperatorError(Exception):
    """Root of all errors that the operator raises on purpose. Their texts never contain a secret."""

    def __init__(self, text: str = "") -> None:
        super().__init__(masked(text))


class OperatorSettingsError(OperatorError):
    """A flag, an environment variable or a key of the file that is invalid, as written; the text has the remedy."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")


class CredentialsError(OperatorError):
    """No usable kubeconfig or service account. The text names the expected places."""


class StaleWatch(OperatorError):
    """The stored record of an object has been older than the API server's for too long."""

    def __init__(self, kind: str, name: str, version: int, seconds: float) -> None:
        super().__init__(
            f"the watch is stale: it has not delivered {kind} {name} at resource version {version} for {seconds:.0f} s; "
            "exiting for a restart"
        )


class TaskEnded(OperatorError):
    """A background task ended that never ends. Its work is not done any more, so the process exits too."""


class Overdue(OperatorError):
    """A command timed out. `step` names the current step, `trouble` the thing that it waited for, if known."""

    def __init__(self, seconds: float, step: str, trouble: str) -> None:
        because = f": {trouble}" if trouble else ""
        super().__init__(f"not done after {seconds:g} s, while {step}{because}; it can be run again")
        self.trouble = trouble


class OlderRelease(OperatorError):
    """The installed CRDs are of a newer release than this program: fields that newer objects use would be lost."""

    def __init__(self, name: str, there: str, ours: str) -> None:
        super().__init__(
            f"{name} is of release {there}, newer than this program's {ours}: use a program and chart of {there} or newer; to go "
            "back all the same, and lose what only newer fields hold, give --allow-downgrade (crds.allowDowngrade of the chart)"
        )


class StillLed(OperatorError):
    """Another operator leads and does not stop: it would write removed objects again."""

    def __init__(self, holder: str, seconds: float) -> None:
        super().__init__(
            f"the operator {holder} leads, and has not ended after {seconds:.0f} s: stop it, wherever it runs, and try again"
        )


# What a command reports in one sentence.
REPORTED: Final = (OperatorError, ApiError)
