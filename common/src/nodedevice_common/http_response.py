"""One HTTP/1.1 response, parsed from the bytes of a connection as they come. Pure. Source: httptools @ 0.9, which is llhttp."""

from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

# the limit of status and headers, also of a proxy's response, and of trailers
_MOST_HEAD_BYTES: Final = 32 * 1024


class Received:
    """The received part of a response. The parser calls the methods named on_*. body: not yet read."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self.status = 0
        self.reason = ""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.has_head = self.is_whole = False
        # more has come than this response
        self.has_more = False
        self._is_kept_alive = False
        # bytes since the last one of a body
        self._without_body = 0

    def feed(self, octets: bytes) -> None:
        """octets: empty if the peer has ended the connection. Raises HttpParserError, and ConnectionError for a cut response."""
        if not octets:
            self._end()
            return
        self._without_body += len(octets)
        try:
            self._parser.feed_data(octets)
        except HttpParserUpgrade as exc:
            raise HttpParserError("the server switched to another protocol") from exc
        except HttpParserError as exc:
            if not self.is_whole:
                raise HttpParserError(f"invalid response: {exc}") from exc
            self.has_more = True
        if self._without_body > _MOST_HEAD_BYTES and not self.is_whole:
            raise HttpParserError("the headers of the response are too long")

    def _end(self) -> None:
        if not self.has_head:
            raise ConnectionError("the connection was closed without a response")
        has_length = any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
        if has_length and not self.is_whole:
            raise ConnectionError("the connection was closed before the end of the response")
        self.is_whole = True

    def take(self) -> bytes:
        """The next bytes of the body; b"" at its end."""
        body, self.body = self.body, []
        return body[0] if len(body) == 1 else b"".join(body)

    @property
    def ends_request(self) -> bool:
        """Whether it was read to its end, and its connection can be used for the next request."""
        return self.is_whole and self._is_kept_alive and not self.has_more and not self.body

    def on_message_begin(self) -> None:
        self.has_more = self.has_more or self.is_whole

    def on_status(self, reason: bytes) -> None:
        self.reason += reason.decode("ascii", "replace")

    def on_header(self, name: bytes, value: bytes) -> None:
        # a later one is a trailer
        if not self.has_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.is_whole:
            return
        if status // 100 == 1:
            self.headers, self.reason = [], ""
            return
        self.status, self.has_head = status, True

    def on_body(self, body: bytes) -> None:
        self._without_body = 0
        if not self.has_more:
            self.body.append(body)

    def on_message_complete(self) -> None:
        if self.has_head and not self.is_whole:
            self.is_whole, self._is_kept_alive = True, self._parser.should_keep_alive()
