"""Looks up references and commits on the server, and writes them as the API accepts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from morag.client.decoders import ENTRIES, REFERENCE
from morag.client.specs import joined, name_path, path_of, spec_of, steps_text
from morag.errors import BadRequest
from morag.model.names import NO_ANCESTOR_HASH, check_hash
from morag.rest.requests import BranchBody, DetachedBody

if TYPE_CHECKING:
    from morag.client.json_http import Http
    from morag.model.refspecs import RefSpec
    from morag.rest.responses import ReferenceView


class RefLookup:
    def __init__(self, http: Http) -> None:
        self._http = http

    def named(self, name: str) -> ReferenceView:
        return self._http.get(f"{self._http.api}/trees/{name_path(name)}", REFERENCE).reference

    def resolved(self, at: str | RefSpec) -> ReferenceView:
        """The reference, with the hash of the commit that the spec names now."""
        spec = spec_of(at)
        if spec.name is not None and spec.hash is None and not spec.relatives:
            return self.named(spec.name)
        return self._effective(self.path(spec), spec)

    def path(self, at: str | RefSpec) -> str:
        """The spec as an element of a path.

        The API applies only the last of several steps in a path, so the others are resolved one by
        one.
        """
        spec = spec_of(at)
        if len(spec.relatives) > 1:
            *first, last = joined(spec.relatives)
            for step in first:
                spec = replace(spec, hash=self._hash(replace(spec, relatives=(step,))))
            spec = replace(spec, relatives=(last,))
        return path_of(spec)

    def expected_path(self, name: str, expected: str | None) -> str:
        """A reference with its expected hash, which is by default its current head."""
        path = name_path(name)
        return f"{path}@{self.named(name).hash if expected is None else check_hash(expected)}"

    def source(self, at: str | RefSpec | None) -> BranchBody | DetachedBody:
        """The commit in the form of a request body: a hash, and steps from there.

        Servers look the name up, so a tag can be sent as a branch.
        """
        if at is None:
            return DetachedBody(NO_ANCESTOR_HASH)
        spec = spec_of(at)
        steps = steps_text(spec.relatives)
        if spec.name is None:
            return DetachedBody(f"{spec.hash}{steps}")
        name, hash = spec.name, spec.hash
        if hash is None:
            head = self.named(spec.name)
            name, hash = head.name or spec.name, head.hash
        return BranchBody(name, f"{hash}{steps}")

    def _hash(self, spec: RefSpec) -> str:
        return self._effective(path_of(spec), spec).hash

    def _effective(self, path: str, spec: RefSpec) -> ReferenceView:
        path = f"{self._http.api}/trees/{path}/entries"
        found = self._http.get(path, ENTRIES, [("max-records", "1")]).effective_reference
        if found is None:
            raise BadRequest(f"The server does not resolve '{spec}': pass a hash instead")
        return found
