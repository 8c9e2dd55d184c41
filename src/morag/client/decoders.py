"""The decoders of responses, built once, and the errors that they raise."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import field
from msgspec.json import Decoder

from morag.model.configs import ConfigUpdated, RepositoryConfigs
from morag.model.merging import MergeResult
from morag.model.references import ReferenceHistory
from morag.rest import responses
from morag.rest.responses import ServerConfig

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors that a decoder raises for any input."""


class Configuration(ServerConfig, frozen=True, kw_only=True, rename="camel"):
    """The configuration of a server. Morag's servers have no additional properties."""

    additional_properties: dict[str, str] = field(default_factory=dict)


REFERENCE: Final = Decoder(responses.SingleReference)
REFERENCES: Final = Decoder(responses.References)
REFERENCE_HISTORY: Final = Decoder(ReferenceHistory)
REF_LOG: Final = Decoder(responses.RefLog)
ENTRIES: Final = Decoder(responses.Entries)
SPLITS: Final = Decoder(responses.Splits)
DIFFS: Final = Decoder(responses.Diffs)
CONTENT: Final = Decoder(responses.SingleContent)
CONTENTS: Final = Decoder(responses.Contents)
LOG: Final = Decoder(responses.Log)
COMMITTED: Final = Decoder(responses.Committed)
MERGED: Final = Decoder(MergeResult)
CONFIGURATION: Final = Decoder(Configuration)
CONFIGS: Final = Decoder(RepositoryConfigs)
CONFIG_UPDATED: Final = Decoder(ConfigUpdated)
ERROR: Final = Decoder(responses.NessieError)
BRIEF_ERROR: Final = Decoder(responses.BriefError)
