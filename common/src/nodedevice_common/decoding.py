"""Decodes all foreign JSON into values; every error of a decoder becomes one error.

An API server stores JSON that is nested 10,000 levels deep, in managedFields of any pod. Decoders call themselves for each level:
Python 3.11 ends them after a thousand, 3.12 after a fixed number, and a higher limit crashes a thread with a small stack. So
values nested deeper than DEEPEST become null; no kind of the API has any value there.

A form skips fields that it does not name. Values of any shape are cut at the same depth, so that comparing, copying, encoding
and logging them is safe.
"""

import json
import threading
from functools import cached_property
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import inspect
from nodedevice_kube.depth import DEEPEST as DEEPEST
from nodedevice_kube.depth import shallow as shallow

T = TypeVar("T")

# of a library's words, which may quote a whole text
MOST_SHOWN: Final = 500

# Errors of decoders: invalid JSON, another form, invalid UTF-8, a number too big, nesting too deep.
FAILURES: Final = (ValueError, ArithmeticError, RecursionError)


class DuplicateKey(ValueError):
    """An object names a key twice."""


class Undecodable(ValueError):
    """A text that does not decode; the reason in one sentence of bounded length."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(_sentence(cause)[:MOST_SHOWN])
        # whether it is JSON, and only a field is missing or of the wrong kind
        self.is_wrong_form = isinstance(cause, msgspec.ValidationError)


class TooMuch(Undecodable):
    """This reader's own limit: another one may accept the text."""


@overload
def decode(data: bytes | str | msgspec.Raw, form: type[T]) -> T: ...
@overload
def decode(data: bytes | str | msgspec.Raw, form: Any) -> Any: ...
def decode(data: bytes | str | msgspec.Raw, form: Any) -> Any:
    """Values of that form, with null in place of values nested deeper than DEEPEST. Raises Undecodable."""
    try:
        decoder = _decoder(form)
        if decoder.keeps_any_shape:
            return decoder.decode(shallow(_octets(data)))
        try:
            return decoder.decode(data)
        except RecursionError:
            return decoder.decode(shallow(_octets(data)))
    except FAILURES as exc:
        raise Undecodable(exc) from exc


def decode_unique(text: str) -> Any:
    """The value, of any shape. Raises Undecodable, also if an object names a key twice: the decoder would keep the last."""
    found = decode(text, Any)
    try:
        json.loads(shallow(text.encode()), object_pairs_hook=_unique)
    except FAILURES as exc:
        raise Undecodable(exc) from exc
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise DuplicateKey(f"duplicate key `{key}`")
        found[key] = value
    return found


def convert(value: Any, form: type[T]) -> T:
    """The same for a decoded value without a form. Raises Undecodable."""
    _decoder(form)
    try:
        return msgspec.convert(value, form)
    except FAILURES as exc:
        raise Undecodable(exc) from exc


def _octets(data: bytes | str | msgspec.Raw) -> bytes:
    """Raises UnicodeEncodeError for half a character."""
    return data.encode() if isinstance(data, str) else bytes(data)


class _Decoder:
    """The decoder of one form."""

    def __init__(self, form: Any) -> None:
        self.decode = msgspec.json.Decoder(form).decode
        self._form = form

    @cached_property
    def keeps_any_shape(self) -> bool:
        """Whether some place of it takes anything at all, however deep. Takes milliseconds of a large form, such as settings."""
        return _keeps_any_shape(self._form)


# a program has some fifty forms
_decoders: dict[Any, _Decoder] = {}
# msgspec finds out about a form when it first meets it, and two threads that do that at once crash the interpreter
_meeting: Final = threading.Lock()


def _decoder(form: Any) -> _Decoder:
    found = _decoders.get(form)
    if found is None:
        with _meeting:
            found = _decoders.setdefault(form, _Decoder(form))
    return found


def _keeps_any_shape(form: Any) -> bool:
    rest: list[Any] = [inspect.type_info(form)]
    # a form may hold itself
    seen = set[int]()
    while rest:
        found = rest.pop()
        if isinstance(found, inspect.AnyType):
            return True
        if isinstance(found, inspect.Type | inspect.Field) and id(found) not in seen:
            seen.add(id(found))
            parts = msgspec.structs.asdict(found).values()
            rest += [part for each in parts for part in (each if isinstance(each, tuple) else (each,))]
    return False


def _sentence(cause: Exception) -> str:
    if isinstance(cause, RecursionError):
        return f"it is nested deeper than {DEEPEST} levels"
    if isinstance(cause, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {cause.start})"
    return " ".join(str(cause).split()) or type(cause).__name__
