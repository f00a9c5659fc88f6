"""Problems of connection settings and credentials.

ConnectionProblem ─┬─ NoSettings           no kubeconfig, and not in a pod
                    ├─ BadKubeconfig        an unusable kubeconfig, or a context that does not exist
                    └─ CredentialProblem    a token, certificate or log-in program that cannot be used now
"""


class ConnectionProblem(Exception):
    """A sentence without a full stop, and the remedy, without secrets. code: one word for scripts, stable across releases."""

    code = "Login"

    def __init__(self, problem: str, remedy: str, code: str = "") -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy
        self.code = code or self.code


class NoSettings(ConnectionProblem):
    code = "NoKubeconfig"


class BadKubeconfig(ConnectionProblem):
    code = "BadKubeconfig"


class CredentialProblem(ConnectionProblem):
    code = "Login"
