"""A check of every response for schemathesis, which imports this module by SCHEMATHESIS_HOOKS.

Two of its own checks are left out, because they do not hold by design: that every request that
fits the schemas is accepted (a name must also exist), and that any other is refused (Nessie reads
malformed requests as far as it can).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

if TYPE_CHECKING:
    from schemathesis import Case, CheckContext, Response

_WITHOUT_BODY: Final = frozenset({204, 400, 404, 406})
_OTHER_METHODS: Final = frozenset({200, 400, 404, 405})


@schemathesis.check
def response_is_as_described(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    not_a_server_error(ctx, response, case)
    if response.request.method != case.operation.method.upper():
        # The document does not have this method. HEAD and OPTIONS are answered nevertheless.
        assert not response.content
        assert response.status_code in _OTHER_METHODS
        assert response.status_code != 405 or "allow" in response.headers
        return
    checks.status_code_conformance(ctx, response, case)
    checks.response_headers_conformance(ctx, response, case)
    if response.content:
        checks.content_type_conformance(ctx, response, case)
        checks.response_schema_conformance(ctx, response, case)
    else:
        # OpenAPI cannot describe that only some responses have a body.
        assert response.status_code in _WITHOUT_BODY
        assert "content-type" not in response.headers
