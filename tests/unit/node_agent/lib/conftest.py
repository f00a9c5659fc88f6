"""Plugins and kubelets here answer over real sockets."""

from tests.integration.deadlines import deadlines as deadlines
from tests.integration.deadlines import long_deadlines as long_deadlines
