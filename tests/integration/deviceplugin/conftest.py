"""Most tests here run the agent's side of device plugins in their own process."""

from tests.integration.deadlines import deadlines as deadlines
from tests.integration.deadlines import long_deadlines as long_deadlines
