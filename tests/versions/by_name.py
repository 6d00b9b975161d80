"""Sends what a release from before 2.7 sends to `https://<name>` to the server, name and all: as if the names led there and TLS
ended in front of it. Import it before the release."""

import os

import httpcore

SERVER = httpcore.URL(os.environ["E2B_API_URL"])


def led_to_the_server(pool: type) -> None:
    send = "handle_async_request" if hasattr(pool, "handle_async_request") else "handle_request"
    original = getattr(pool, send)

    def handle(self, request):
        request.url = httpcore.URL(scheme=SERVER.scheme, host=SERVER.host, port=SERVER.port, target=request.url.target)
        return original(self, request)

    setattr(pool, send, handle)


led_to_the_server(httpcore.ConnectionPool)
led_to_the_server(httpcore.AsyncConnectionPool)
