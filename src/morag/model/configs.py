"""Settings that belong to the repository, not to a server. A type of config is one struct here.

They are stored as the JSON that is sent, so the order of the fields is part of the stored bytes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from morag.errors import BadRequest
from morag.model.durations import duration_text, parse_duration
from morag.model.keys import check_unicode
from morag.model.names import check_cutoff_policy

_INT32: Final = 1 << 31


class ReferenceCutoffPolicy(Struct, frozen=True, rename="camel"):
    """What may be collected on references whose names match the pattern.

    Neither is checked: the original takes any text, and who collects must cope with it.
    """

    reference_name_pattern: str
    policy: str


class GarbageCollectorConfig(
    Struct,
    frozen=True,
    kw_only=True,
    tag="GARBAGE_COLLECTOR",
    tag_field="type",
    rename="camel",
    omit_defaults=True,
):
    """What a collection of garbage goes by if nobody tells it otherwise.

    A cut-off policy is a number of commits, a duration, a time, or NONE.
    """

    default_cutoff_policy: str | None = None
    per_ref_cutoff_policies: tuple[ReferenceCutoffPolicy, ...] | None = None
    new_files_grace_period: str | None = None
    expected_file_count_per_content: int | None = None


RepositoryConfig: TypeAlias = GarbageCollectorConfig
"""Any of the configs; their `type` tells them apart."""


def config_name(kind: type[RepositoryConfig]) -> str:
    """What clients call this type of config."""
    return str(kind.__struct_config__.tag)


CONFIG_TYPES: Final[dict[str, type[RepositoryConfig]]] = {
    config_name(kind): kind for kind in (GarbageCollectorConfig,)
}


class RepositoryConfigs(Struct, frozen=True, omit_defaults=True):
    """The answer to one who asks for configs; nothing at all if none is stored."""

    configs: tuple[RepositoryConfig, ...] = ()


class ConfigUpdate(Struct, frozen=True):
    """The wish to store a config."""

    config: RepositoryConfig


class ConfigUpdated(Struct, frozen=True):
    """The answer to it, with what was stored before."""

    previous: RepositoryConfig | None


def checked_config(config: RepositoryConfig) -> RepositoryConfig:
    """The config as it is stored: one spelling for what means the same. Refuses what cannot be."""
    if not isinstance(config, GarbageCollectorConfig):
        raise BadRequest(
            f"{type(config).__name__} is not a type of config; known: {', '.join(CONFIG_TYPES)}"
        )
    default, grace = config.default_cutoff_policy, config.new_files_grace_period
    if default is not None:
        check_unicode("The default cut-off policy", default)
        check_cutoff_policy(default)
    _check_policies(config.per_ref_cutoff_policies)
    if grace is not None:
        check_unicode("The grace period of new files", grace)
        grace = duration_text(parse_duration(grace))
    _check_count(config.expected_file_count_per_content)
    return msgspec.structs.replace(
        config,
        per_ref_cutoff_policies=config.per_ref_cutoff_policies or None,
        new_files_grace_period=grace,
    )


def _check_policies(policies: object) -> None:
    if policies is None:
        return
    if not isinstance(policies, tuple):
        raise BadRequest(f"The cut-off policies must be a tuple, not {policies!r}")
    for policy in policies:
        if not isinstance(policy, ReferenceCutoffPolicy):
            raise BadRequest(f"A cut-off policy must be a ReferenceCutoffPolicy, not {policy!r}")
        check_unicode("The pattern of a cut-off policy", policy.reference_name_pattern)
        check_unicode("A cut-off policy", policy.policy)


def _check_count(count: object) -> None:
    if count is not None and (type(count) is not int or not -_INT32 <= count < _INT32):
        raise BadRequest(
            "The expected number of files per content must be a whole number from "
            f"{-_INT32} to {_INT32 - 1}"
        )
