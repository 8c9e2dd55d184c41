"""What the fields of request bodies mean, for the OpenAPI description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_DROPPED: Final = "Understood and dropped, as ever."

OF_FIELDS: Final[Mapping[str, str]] = {
    # Merges and transplants
    "fromRefName": "The branch or tag to take commits from; `DETACHED` if only hashes tell.",
    "fromHash": "The commit up to which is merged. It may be relative, as in `HASH~1`.",
    "hashesToTransplant": "The commits to apply, oldest first, without gaps.",
    "defaultKeyMergeMode": "What happens to keys that `keyMergeModes` does not name; by default "
    "`NORMAL`.",
    "keyMergeModes": "What happens to single keys.",
    "mergeBehavior": "`NORMAL` makes a key that both sides changed a conflict, with `FORCE` the "
    "source wins, and with `DROP` the source's change is left out.",
    "expectedTargetContent": "What the target must hold for `resolvedContent` to be stored.",
    "resolvedContent": "What to store instead of the source's content, which resolves a conflict.",
    "expectedTargetDocumentation": _DROPPED,
    "resolvedDocumentation": _DROPPED,
    "keepIndividualCommits": "Merges are always squashed, and transplants never: anything else is "
    "refused.",
    "isDryRun": "Only tell what would happen; nothing is changed.",
    "isFetchAdditionalInfo": _DROPPED,
    "isReturnConflictAsResult": "Answer conflicts with 200 and tell them in `details`, instead of "
    "answering 409.",
    # Commits
    "commitMeta": "What is told of the commit.",
    "operations": "What the commit does; each key may come once.",
    "key": "The content key that this is about.",
    "content": "What the key holds from now on. With an `id` it replaces that content, without one "
    "it is new.",
    "metadata": _DROPPED,
    "documentation": _DROPPED,
    "expectedContent": _DROPPED,
    "variant": "The kind of metadata.",
    "mimeType": "How the text is to be read.",
    "text": "The text itself.",
    "message": "The message of the commit.",
    "author": "Who wrote it; `authors` tells more than one.",
    "authors": "Who wrote it.",
    "authorTime": "When it was written; by default when it is committed.",
    "signedOffBy": "Who signed it off; `allSignedOffBy` tells more than one.",
    "allSignedOffBy": "Who signed it off.",
    "properties": "Properties with one value each.",
    "allProperties": "Properties with any number of values each.",
    # References, keys, namespaces and configuration
    "name": "The name of the branch or tag.",
    "hash": "The commit that it points to.",
    "elements": "The parts of the key, outermost first.",
    "requestedKeys": "The keys to look for.",
    "propertyUpdates": "Properties to set.",
    "propertyRemovals": "Names of properties to remove.",
    "config": "The configuration, whole: what it leaves out is removed. `type` tells which it is.",
}
"""By their name on the wire, which means the same in every body."""
