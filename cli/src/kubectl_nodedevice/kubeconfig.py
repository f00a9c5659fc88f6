"""Loads connection settings by the rules of `nodedevice_kube.kubeconfig`, which are kubectl's."""

import os
from collections.abc import Mapping

from nodedevice_kube import kubeconfig
from nodedevice_kube.settings import Settings

from kubectl_nodedevice.errors import as_login_problem


def load(file: str, context: str, environment: Mapping[str, str] = os.environ) -> Settings:
    """file, context: values of the flags, or "". Raises LoginProblem."""
    with as_login_problem():
        return kubeconfig.load(file, context, environment)
