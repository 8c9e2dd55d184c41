"""Finding commits on the server, where a request must say more than its caller did."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.client.specs import joined, name_path, path_of, spec_of, steps_text
from morag.client.wire import ENTRIES, REFERENCE, WireReference
from morag.errors import BadRequest
from morag.model.names import check_hash

if TYPE_CHECKING:
    from morag.client.http import Http
    from morag.model.refspecs import RefSpec

NO_ANCESTOR: Final = hashlib.sha256(b"empty").hexdigest()
"""The hash that stands for a history without commits."""


class Places:
    def __init__(self, http: Http) -> None:
        self._http = http

    def named(self, name: str) -> WireReference:
        return self._http.get(f"{self._http.api}/trees/{name_path(name)}", REFERENCE).reference

    def resolved(self, at: str | RefSpec) -> WireReference:
        """The reference, at the commit that is meant now."""
        spec = spec_of(at)
        if spec.name is not None and spec.hash is None and not spec.relatives:
            return self.named(spec.name)
        return self._effective(self.path(spec), spec)

    def path(self, at: str | RefSpec) -> str:
        """The commit as an element of a path.

        Of several steps in a path the API takes only the last one, so that the others have to be
        gone one by one.
        """
        spec = spec_of(at)
        if len(spec.relatives) > 1:
            *first, last = joined(spec.relatives)
            for step in first:
                spec = replace(spec, hash=self._hash(replace(spec, relatives=(step,))))
            spec = replace(spec, relatives=(last,))
        return path_of(spec)

    def expected_path(self, name: str, expected: str | None) -> str:
        """A reference at the hash that a change expects it at; None is where it is now."""
        path = name_path(name)
        return f"{path}@{self.named(name).hash if expected is None else check_hash(expected)}"

    def source(self, at: str | RefSpec | None) -> WireReference:
        """The commit as a body names it: by its hash, and steps from there."""
        if at is None:
            return WireReference("DETACHED", NO_ANCESTOR)
        spec = spec_of(at)
        steps = steps_text(spec.relatives)
        if spec.name is None:
            return WireReference("DETACHED", f"{spec.hash}{steps}")
        if spec.hash is None:
            head = self.named(spec.name)
            return WireReference(head.type, f"{head.hash}{steps}", head.name)
        # Servers go by the name. Whether it is a branch or a tag they know better than we do.
        return WireReference("BRANCH", f"{spec.hash}{steps}", spec.name)

    def _hash(self, spec: RefSpec) -> str:
        return self._effective(path_of(spec), spec).hash

    def _effective(self, path: str, spec: RefSpec) -> WireReference:
        path = f"{self._http.api}/trees/{path}/entries"
        found = self._http.get(path, ENTRIES, [("max-records", "1")]).effective_reference
        if found is None:
            raise BadRequest(f"The server does not tell where '{spec}' is: name a commit instead")
        return found
