"""The readers of request bodies, one for each kind of body in API version 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api.json_reader import Body
from morag.errors import BadRequest
from morag.model.operations import Delete, Unchanged
from morag.rest import requests
from morag.rest.requests import shortened

if TYPE_CHECKING:
    from morag.rest.requests import ReferenceBody

_INVALID: Final = "Invalid value '"
_AT_TYPE: Final = "' - at `$.type`"


class ReferenceReader(Body[requests.ReferenceBody]):
    """Refuses an unknown type of reference with Nessie's message, which its clients match."""

    def read(self, body: bytes, most_items: int) -> ReferenceBody | None:
        try:
            return super().read(body, most_items)
        except BadRequest as problem:
            # No regular expression: a client could send a text on which it takes long.
            _, _, unknown = str(problem).partition(_INVALID)
            if not unknown.endswith(_AT_TYPE):
                raise
            unknown = unknown.removesuffix(_AT_TYPE)
            raise BadRequest(
                f"Could not resolve type id '{shortened(unknown)}' as a subtype of "
                "`org.projectnessie.model.Reference`: known type ids = [BRANCH, DETACHED, TAG]"
            ) from None


COMMIT: Final = Body[requests.CommitBody](
    requests.CommitBody,
    items=("operations", requests.PutBody | Delete | Unchanged),
    counted=("operations",),
)
REFERENCE: Final = ReferenceReader(requests.ReferenceBody)
MERGE: Final = Body[requests.MergeBody](
    requests.MergeBody,
    items=("key_merge_modes", requests.MergeKeyBody),
    counted=("key_merge_modes",),
)
TRANSPLANT: Final = Body[requests.TransplantBody](
    requests.TransplantBody,
    items=("key_merge_modes", requests.MergeKeyBody),
    counted=("key_merge_modes", "hashes_to_transplant"),
)
KEYS: Final = Body[requests.KeysBody](
    requests.KeysBody,
    items=("requested_keys", requests.RequestedKey),
    counted=("requested_keys",),
)
CONFIG: Final = Body[requests.ConfigBody](requests.ConfigBody)
