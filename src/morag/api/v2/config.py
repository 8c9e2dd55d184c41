"""Endpoints for the configuration of the server and of the repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import body_readers
from morag.api.call import ok
from morag.api.checks import Checks
from morag.api.endpoints import Parameter
from morag.api.v2.parameters import endpoint
from morag.errors import UnsupportedMediaType
from morag.model.configs import ConfigUpdate, ConfigUpdated, RepositoryConfigs
from morag.rest.responses import ServerConfig
from morag.service.configs import config_of

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.later import Answer


@endpoint(
    "GET", "/config", "Get the configuration of the server", gives=ServerConfig, any_media=True
)
def get_config(call: Call) -> Answer:
    return call.once(lambda call: ok(call.service.config))


@endpoint(
    "GET",
    "/config/repository",
    "Read configurations of the repository",
    query=(Parameter("type", "The types to read, such as GARBAGE_COLLECTOR.", repeated=True),),
    gives=RepositoryConfigs,
    any_media=True,
)
def get_repository_config(call: Call) -> Answer:
    types = call.query.texts("type")
    return call.in_thread(lambda: ok(RepositoryConfigs(call.service.configs.read(types))))


@endpoint(
    "POST",
    "/config/repository",
    "Replace a configuration of the repository",
    takes=ConfigUpdate,
    gives=ConfigUpdated,
    errors=(415,),
)
def update_repository_config(call: Call) -> Answer:
    if call.request.header(b"content-type") is None:  # Other endpoints accept a body without it.
        raise UnsupportedMediaType("HTTP 415 Unsupported Media Type")
    body = call.body(body_readers.CONFIG)
    with Checks("updateRepositoryConfig") as check:
        check.is_there("repositoryConfigUpdate", body)
    assert body is not None, "checked"
    config = config_of(body.config)
    return call.in_turn(lambda: ok(ConfigUpdated(call.service.configs.update(config))))
