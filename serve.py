"""The app for a shared machine: `streamlit run serve.py`. The same as app.py, and no other site may frame it.

Streamlit sends no such headers itself; behind a proxy that does, app.py will do.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from streamlit.starlette import App

HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class Guarded:
    """Every answer of an ASGI application with `HEADERS`."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Callable[..., Awaitable[None]]) -> None:
        """As every ASGI application."""

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self.app(scope, receive, send_guarded)


app = App(Path(__file__).with_name("app.py"), middleware=[Middleware(Guarded)])
