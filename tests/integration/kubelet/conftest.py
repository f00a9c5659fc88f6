"""Tests here run the agent's side of the kubelet in their own process."""

from tests.integration.deadlines import deadlines as deadlines
from tests.integration.deadlines import long_deadlines as long_deadlines
