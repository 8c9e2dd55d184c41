"""The JSON bodies of REST API version 2, as structs that the server and the client share.

`requests` has the bodies that clients send, `responses` those that servers send. Structs of `model`
whose form is the same in JSON (contents, keys, commit metadata, entries, conflicts) stay there.
This package knows neither HTTP nor a store.

The server is as lenient as Nessie (`morag.model.lenient_json`), and checks names, hashes and
times while it decodes. The client accepts responses of older and newer servers: fields that some
servers leave out have defaults, with the mark `ALWAYS_SENT` if Morag always sends them.
"""
