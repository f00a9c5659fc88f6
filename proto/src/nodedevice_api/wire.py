"""Base of the records of our kinds, in the form of the API's JSON. Pure.

Both ends use the same records: the writer encodes them, the reader decodes them. A field that a record does not name is skipped,
and an absent one has its default: the API server may have the CRDs of another release. Each name is written here and in `crds/`
alone, and a test compares the two.
"""

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct, field

T = TypeVar("T")


class Record(Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """A part of an object. Its fields are encoded in their order, without fields that have their defaults.

    Only what the CRD requires has no default.
    """


def always(make: Callable[[], T]) -> T:
    """The default of a field that is always encoded: an apply without it would keep the value of another writer."""

    # the encoder knows what `list`, `tuple` and the like make, and leaves it out
    def made() -> T:
        return make()

    return field(default_factory=made)
