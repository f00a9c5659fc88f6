"""A played API server: objects in, responses to lists, watches, tables and writes out. No validation, no access control.

    api = PlayedApi()
    api.put(NODES, {"metadata": {"name": "node-a"}})
    with serving(api):                 # in serving.py
        api.address

`tests/conformance/test_played_api.py` compares the responses with those of a real API server.
"""

import base64
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tests.fakes.played_api import kinds, writes
from tests.fakes.played_api.kinds import OURS, PODS, Place, Selector, group_of, plural_of
from tests.fakes.played_api.messages import Answer, CutOff, Object, Request, encode, failure, found, status
from tests.fakes.played_api.store import Made, Store, Stored, content_of, has, key_of, line, octets_of

Fault = Callable[[Request], Answer | None]

_NO_PAGE: Final = Answer(404, b"404 page not found\n", {"Content-Type": "text/plain; charset=utf-8"})
# how often a watch looks whether its client is still connected
_CHECK_SECONDS: Final = 0.5
_BOOKMARK_SECONDS: Final = 20.0
_MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


class PlayedApi(Store):
    """fault: called first for each request; its response, if any, is sent. requests: all so far. address: while served.

    has_selectors: whether our kinds have selectable fields. omitted_columns: as an older CRD. date: of each response, if set.
    """

    def __init__(self, objects: Mapping[str, list[Any]] | None = None, fault: Fault = lambda _: None) -> None:
        super().__init__(objects)
        self.fault = fault
        self.user = "alice"
        self.has_selectors = True
        self.omitted_columns: frozenset[str] = frozenset()
        self.requests: list[Request] = []
        self.connections = 0
        self.date = self.address = ""

    def answer(self, request: Request) -> Answer:
        with self.changed:
            self.requests.append(request)
            return self.fault(request) or self._answer(request)

    def _answer(self, request: Request) -> Answer:
        if request.path.endswith("/selfsubjectreviews"):
            return found({"kind": "SelfSubjectReview", "status": {"userInfo": {"username": self.user}}}, 201)
        if request.path.endswith("/selfsubjectaccessreviews"):
            return found({"kind": "SelfSubjectAccessReview", "status": {"allowed": True}}, 201)
        document = kinds.discovered(request.path, self.objects) if request.method == "GET" else None
        if document is not None:
            return found(document)
        place = kinds.place(request.path)
        if place is None or place.kind not in self.objects:
            return _NO_PAGE
        if not place.name:
            return self._create(request, place) if request.method == "POST" else self._collection(request, place)
        stored = self.stored(place.kind, place.namespace, place.name)
        if stored is None and not _creates(request, place):
            return _failed(404, place, "{} not found")
        if request.method == "GET" and stored is not None:
            return Answer(200, octets_of(stored))
        if request.method == "DELETE" and stored is not None:
            return self._delete(request, place, content_of(stored))
        return self._write(request, place, None if stored is None else content_of(stored))

    def _collection(self, request: Request, place: Place) -> Answer:
        if request.method != "GET":
            return status(405, "the server does not allow this method on the requested resource")
        if place.kind.startswith(OURS):
            known = kinds.selectable_fields(place.kind) if self.has_selectors else {"metadata.name"}
            for path, _, _ in kinds.fields_of(request.query):
                if path not in known:
                    return status(400, f"field label not supported: {path}")
        is_watch = request.query.get("watch", "").lower() in ("1", "true")
        return self._watch(request, place) if is_watch else self._list(request, place)

    # -- lists ----------------------------------------------------------------------------------------------------------

    def _list(self, request: Request, place: Place) -> Answer:
        version, begin = self.version, 0
        if token := request.query.get("continue"):
            try:
                version, begin = json.loads(base64.urlsafe_b64decode(token))
            except ValueError:
                return status(400, f"invalid continue token: continue key is not valid: {token}")
            if version < self.oldest:
                rest = {"continue": _token(self.version, begin)}
                message = "The provided continue parameter is too old to display a consistent list result"
                return found({**failure(410, message), "metadata": rest}, 410)
        limit = int(request.query.get("limit", "0")) or None
        selected = self._selected(place, request.query, begin)
        shown = [each for _, each in itertools.islice(selected, limit)]
        meta: Object = {"resourceVersion": str(version)}
        if (following := next(selected, None)) is not None:
            meta |= {"continue": _token(version, following[0])}
        if "as=Table" in request.headers.get("accept", ""):
            return self._table(place.kind, shown, meta, request.query.get("includeObject", "Metadata"))
        head = {"kind": f"{kinds.name_of(place.kind)}List", "apiVersion": kinds.version_of(place.kind)}
        # the API server writes metadata after the items of custom resources, and no kind in the items of its own
        first, last = ({}, {"metadata": meta}) if group_of(place.kind) else ({"metadata": meta}, {})
        if not place.kind.startswith(OURS):
            shown = [each if isinstance(each, Made) else _without(each, "kind", "apiVersion") for each in shown]
        return _listed(head | first, shown, last, is_large=any(isinstance(each, Made) for each in shown))

    def _selected(self, place: Place, query: Mapping[str, str], begin: int = 0) -> Iterator[tuple[int, Stored]]:
        """Index and object of each that a list has, from `begin` on."""
        stored, selector = self.objects[place.kind], Selector(query)
        for index in range(begin, len(stored)):
            if has(place.namespace, selector, stored[index]):
                yield index, stored[index]

    def _table(self, kind: str, shown: list[Stored], meta: Object, objects: str) -> Answer:
        columns = [each for each in kinds.columns_of(plural_of(kind)) if each["name"] not in self.omitted_columns]

        def row(each: Stored) -> Object:
            content = content_of(each)
            metadata = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": content["metadata"],
            }
            cells = [kinds.cell(content, column["jsonPath"]) for column in columns]
            return {"cells": cells, "object": {"None": None, "Object": content}.get(objects, metadata)}

        definitions = [_without(each, "jsonPath") for each in columns]
        head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": definitions}
        return _listed(head, map(row, shown), {}, "rows", is_large=True)

    # -- watches --------------------------------------------------------------------------------------------------------

    def _watch(self, request: Request, place: Place) -> Answer:
        query, version = request.query, request.query.get("resourceVersion", "")
        is_whole = version in ("", "0") or query.get("sendInitialEvents") == "true"
        since = self.version if is_whole else int(version)
        if since < self.oldest:
            gone = failure(410, f"too old resource version: {since} ({self.oldest})")
            return Answer(chunks=iter([line("ERROR", encode(gone))]))
        first = [each for _, each in self._selected(place, query)] if is_whole else None
        return Answer(chunks=self._lines(query, place, first, since, self.cuts))

    def _lines(
        self, query: Mapping[str, str], place: Place, first: list[Stored] | None, since: int, cuts: int
    ) -> Iterator[bytes]:
        selector, has_bookmarks = Selector(query), query.get("allowWatchBookmarks") == "true"
        for each in first or ():
            yield line("ADDED", octets_of(each))
        if first is not None and has_bookmarks:
            yield _bookmark(place, since, {"k8s.io/initial-events-end": "true"})
        sent = 0
        now = bookmarked = time.monotonic()
        ends = now + float(query.get("timeoutSeconds", "inf"))
        while now < ends:
            with self.changed:
                if len(self.events) == sent:
                    self.changed.wait(min(_CHECK_SECONDS, ends - now))
                events, sent = self.events[sent:], len(self.events)
            if self.cuts != cuts:
                raise CutOff
            for event in events:
                if event.version > since and event.kind == place.kind:
                    yield event.shown(place.namespace, selector)
            since, now = max(since, events[-1].version if events else 0), time.monotonic()
            if has_bookmarks and now - bookmarked >= _BOOKMARK_SECONDS:
                bookmarked = now
                yield _bookmark(place, since)
            yield b""

    # -- writes ---------------------------------------------------------------------------------------------------------

    def _create(self, request: Request, place: Place) -> Answer:
        body: Object = request.body
        metadata = body.setdefault("metadata", {})
        place = place._replace(name=metadata.get("name") or f"{metadata['generateName']}{self.version}")
        if self.stored(place.kind, place.namespace, place.name) is not None:
            return _failed(409, place, "{} already exists", "AlreadyExists")
        return self._saved(place, {}, body)

    def _write(self, request: Request, place: Place, before: Object | None) -> Answer:
        content_type, body, stored = request.headers.get("content-type", ""), request.body, before or {}
        if "apply-patch" in content_type:
            body["metadata"].pop("resourceVersion", None)
            written = writes.applied(stored, body, request.query["fieldManager"])
        elif request.method == "PUT":
            written = body
        elif isinstance(body, list):
            try:
                written = writes.patched(stored, body)
            except writes.PatchError:
                message = "the server rejected our request due to an error in our request"
                return found(failure(422, message) | {"details": {}}, 422)
        else:
            written = writes.merged(stored, body)
        for key in ("uid", "resourceVersion") if stored else ():
            expected, actual = written["metadata"].get(key), stored["metadata"].get(key)
            if expected not in (None, "", actual):
                return _failed(409, place, f"Operation cannot be fulfilled on {{}}: {_MODIFIED}")
        return self._saved(place, stored, written)

    def _saved(self, place: Place, before: Object, body: Object) -> Answer:
        """Store what was written, if it differs. A status changes by its subresource only, which changes nothing else."""
        metadata = dict(body["metadata"])
        if place.part:
            managed = {key: metadata[key] for key in ("managedFields",) if key in metadata}
            body, metadata = {**before, "status": body.get("status", {})}, before["metadata"] | managed
        elif kinds.has_status(place.kind):
            body = _without(body, "status")
            body |= {"status": before["status"]} if "status" in before else {}
        metadata |= {"name": place.name, **({"namespace": place.namespace} if place.namespace else {})}
        if before:
            metadata |= {key: before["metadata"][key] for key in _KEPT if key in before["metadata"]}
        else:
            metadata |= {"uid": f"uid-{self.version}", "creationTimestamp": _wall_time()}
        if place.kind.startswith(OURS) or place.kind == PODS:
            is_new = _without(body, "metadata", "status") != _without(before, "metadata", "status")
            metadata["generation"] = before.get("metadata", {}).get("generation", 1 - is_new) + is_new
        body = {**body, "metadata": metadata}
        return found(body if body == before else self.store(place.kind, body), 200 if before else 201)

    def _delete(self, request: Request, place: Place, stored: Object) -> Answer:
        uid = stored["metadata"].get("uid")
        wanted = ((request.body or {}).get("preconditions") or {}).get("uid", uid)
        if wanted != uid:
            text = (
                f"Operation cannot be fulfilled on {{}}: the UID in the precondition ({wanted}) does not match the UID in"
                f" record ({uid}). The object might have been deleted and then recreated"
            )
            return _failed(409, place, text, resource=kinds.name_of(place.kind))
        self.remove(place.kind, place.name, key_of(stored)[0])
        details = {**_details(place), "uid": uid}
        return found({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})


def _creates(request: Request, place: Place) -> bool:
    """Whether this write of an object that does not exist creates it: an apply, and of Leases a PUT, whatever its version."""
    if place.part:
        return False
    is_apply = "apply-patch" in request.headers.get("content-type", "")
    return is_apply if request.method == "PATCH" else request.method == "PUT" and place.kind == kinds.LEASES


# of an object, whatever is written
_KEPT: Final = ("uid", "creationTimestamp", "resourceVersion")


def _listed(head: Object, shown: Iterable[Stored], last: Object, field: str = "items", *, is_large: bool) -> Answer:
    """is_large: its objects are sent one by one."""

    def pieces() -> Iterator[bytes]:
        yield b'%b,"%b":[' % (encode(head)[:-1], field.encode())
        for number, each in enumerate(shown):
            yield (b"," if number else b"") + octets_of(each)
        yield b"]," + encode(last)[1:] if last else b"]}"

    return Answer(chunks=pieces()) if is_large else Answer(200, b"".join(pieces()))


def _token(version: int, index: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, index]).encode()).decode()


def _bookmark(place: Place, version: int, annotations: Mapping[str, str] | None = None) -> bytes:
    metadata: Object = {"resourceVersion": str(version)} | ({"annotations": annotations} if annotations else {})
    kind = {"kind": kinds.name_of(place.kind), "apiVersion": kinds.version_of(place.kind)}
    return line("BOOKMARK", encode({**kind, "metadata": metadata}))


def _details(place: Place, resource: str = "") -> Object:
    group = group_of(place.kind)
    return {"name": place.name, **({"group": group} if group else {}), "kind": resource or plural_of(place.kind)}


def _failed(code: int, place: Place, message: str, reason: str = "", resource: str = "") -> Answer:
    """message: {} stands for the object. resource: in the place of the plural."""
    details = _details(place, resource)
    named = f"{details['kind']}.{details['group']}" if "group" in details else details["kind"]
    return status(code, message.replace("{}", f'{named} "{place.name}"'), reason, **details)


def _without(content: Object, *keys: str) -> Object:
    return {key: value for key, value in content.items() if key not in keys}


def _wall_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
