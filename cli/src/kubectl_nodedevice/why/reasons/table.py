"""The table of reasons: codes, sentences, commands that help, and roles that may run them. Pure.

The order of the rows is the order of precedence: from the request to the running container.
"""

from typing import Final

from kubectl_nodedevice.why.reasons.bound import BOUND
from kubectl_nodedevice.why.reasons.early import EARLY
from kubectl_nodedevice.why.reasons.unbound import UNBOUND

TABLE: Final = (*EARLY, *UNBOUND, *BOUND)
BY_CODE: Final = {row.code: row for row in TABLE}
PRECEDENCE: Final = {row.code: index for index, row in enumerate(TABLE)}
