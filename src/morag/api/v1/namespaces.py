"""Endpoints for namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api.call import NO_CONTENT, ok, ok_list
from morag.api.checks import Checks
from morag.api.endpoints import Parameter
from morag.api.url_parsing import NoSuchPath, key_in_path
from morag.api.v1 import structs
from morag.api.v1.parameters import HASH_ON_REF, endpoint
from morag.errors import BadRequest
from morag.model.content import Namespace, check_content, type_name
from morag.model.names import HASH_RULE, check_hash
from morag.service.ref_resolution import RequestedRef

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.later import Answer
    from morag.model.keys import ContentKey


@endpoint(
    "PUT",
    "/namespaces/namespace/{name}/{key}",
    "Create a namespace",
    query=(HASH_ON_REF,),
    takes=Namespace,
    gives=Namespace,
    errors=(404, 409),
)
def create_namespace(call: Call) -> Answer:
    body = call.body(structs.CONTENT)
    with Checks("createNamespace") as check:
        check.is_there("namespace", body)
    assert body is not None, "checked"
    if not isinstance(body, Namespace):
        raise BadRequest(f"createNamespace.namespace: must be a NAMESPACE, not {type_name(body)}")
    check_content(body)
    branch, _ = _namespace(call)
    namespaces = call.service.namespaces

    def work() -> Answer:
        request = namespaces.create_request(branch, body)
        return call.in_lane(request, lambda made: ok(namespaces.created(made, body)))

    return call.before_lane(work)


@endpoint(
    "GET",
    "/namespaces/namespace/{name}/{key}",
    "Get a namespace",
    query=(HASH_ON_REF,),
    gives=Namespace,
    errors=(404,),
)
def get_namespace(call: Call) -> Answer:
    name, key = _namespace(call)
    ref = RequestedRef.unchecked(name, _plain_hash(call))
    return call.in_thread(lambda: ok(call.service.namespaces.get(ref, key)))


@endpoint(
    "DELETE",
    "/namespaces/namespace/{name}/{key}",
    "Delete a namespace that is empty",
    errors=(404, 409),
)
def delete_namespace(call: Call) -> Answer:
    branch, key = _namespace(call)

    def work() -> Answer:
        request = call.service.namespaces.delete_request(branch, key)
        return call.in_lane(request, lambda _: NO_CONTENT)

    return call.before_lane(work)


@endpoint(
    "POST",
    "/namespaces/namespace/{name}/{key}",
    "Change the properties of a namespace",
    takes=structs.NamespaceUpdateBody,
    errors=(404,),
)
def update_namespace(call: Call) -> Answer:
    body = call.body(structs.NAMESPACE_UPDATE)
    with Checks("updateProperties") as check:
        check.is_there("namespaceUpdate", body)
    assert body is not None, "checked"
    branch, key = _namespace(call)

    def work() -> Answer:
        updates, removals = body.property_updates or {}, body.property_removals or ()
        request = call.service.namespaces.update_request(branch, key, updates, removals)
        return call.in_lane(request, lambda _: NO_CONTENT)

    return call.before_lane(work)


@endpoint(
    "GET",
    "/namespaces/{name}",
    "List namespaces",
    query=(Parameter("name", "Only this namespace and those below it."), HASH_ON_REF),
    gives=structs.NamespacesV1,
    errors=(404,),
)
def list_namespaces(call: Call) -> Answer:
    name, prefix = call.parameters["name"], call.query.key("name")
    if prefix is not None:
        _check_namespace(prefix)
    ref = RequestedRef.unchecked(name, _plain_hash(call))
    namespaces = call.service.namespaces
    return call.in_pieces(
        lambda: ok_list(
            "namespaces", namespaces.list(ref, prefix), lambda: structs.NamespacesV1([])
        )
    )


def _plain_hash(call: Call) -> str:
    """The hash in the query. Steps are not allowed; the message has a form of its own in Nessie."""
    hash = call.query.text("hashOnRef")
    if hash is not None:
        try:
            check_hash(hash)
        except BadRequest:
            raise BadRequest(f"{HASH_RULE} - but was: {hash}") from None
    return hash or ""


def _namespace(call: Call) -> tuple[str, ContentKey]:
    key = key_in_path(call.parameters["key"])
    _check_namespace(key)
    return call.parameters["name"], key


def _check_namespace(key: ContentKey) -> None:
    if "." in key.elements:
        raise NoSuchPath(str(key))
