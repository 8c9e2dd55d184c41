"""Configurations of a repository, which all its servers share. Each type of config is one struct.

A config is stored as JSON, so the order of its fields is part of the stored bytes.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from morag.errors import BadRequest
from morag.model.durations import duration_text, parse_duration
from morag.model.json_types import INT32_LIMIT, Int32
from morag.model.keys import check_unicode
from morag.model.names import check_cutoff_policy


class ReferenceCutoffPolicy(Struct, frozen=True, rename="camel"):
    """The cut-off policy of references whose names match the pattern.

    Both texts are stored without a check, as in Nessie.
    """

    # Garbage collection must therefore handle invalid ones.

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
    """The defaults of garbage collection.

    A cut-off policy is a number of commits, a duration, a time, or NONE.
    """

    default_cutoff_policy: str | None = None
    per_ref_cutoff_policies: tuple[ReferenceCutoffPolicy, ...] | None = None
    new_files_grace_period: str | None = None
    expected_file_count_per_content: Int32 | None = None


RepositoryConfig: TypeAlias = GarbageCollectorConfig
"""A config of any type. The field `type` distinguishes them."""


def config_name(kind: type[RepositoryConfig]) -> str:
    """The name of the type in the API."""
    return str(kind.__struct_config__.tag)


CONFIG_TYPES: Final[dict[str, type[RepositoryConfig]]] = {
    config_name(kind): kind for kind in (GarbageCollectorConfig,)
}


class RepositoryConfigs(Struct, frozen=True, omit_defaults=True):
    """The requested configurations that are stored; an empty object if there are none."""

    configs: tuple[RepositoryConfig, ...] = ()


class ConfigUpdate(Struct, frozen=True):
    """A request to store a configuration."""

    config: Annotated[
        RepositoryConfig,
        Meta(description="The whole configuration: fields that it leaves out are removed."),
    ]


class ConfigUpdated(Struct, frozen=True):
    """The configuration that an update replaced."""

    previous: RepositoryConfig | None


def checked_config(config: RepositoryConfig) -> RepositoryConfig:
    """The config in its stored form: equal configs have equal texts. Refuses invalid values."""
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
    if count is not None and (type(count) is not int or not -INT32_LIMIT <= count < INT32_LIMIT):
        raise BadRequest(
            "The expected number of files per content must be a whole number from "
            f"{-INT32_LIMIT} to {INT32_LIMIT - 1}"
        )
