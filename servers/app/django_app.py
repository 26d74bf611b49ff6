"""The workload and the guest book behind Django: ``app`` for WSGI, ``asgi`` and ``asynchronous`` for ASGI.

The views of ``asynchronous`` are ``async def`` (guestbook/urls.py).
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from counters import Counters

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "guestbook.settings")

from django.core.asgi import get_asgi_application  # imported late: these modules read the settings
from django.core.wsgi import get_wsgi_application

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

app = get_wsgi_application()


class Counted:
    """Django's ASGI application, with a count of the requests that it served.

    Django does not support ASGI's lifespan protocol, so this class answers it, and creates the counters at startup.
    """

    def __init__(self) -> None:
        self._app = get_asgi_application()
        self._counters: Counters | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        await self._app(scope, receive, send)
        if self._counters:
            self._counters.add("served")

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._counters = Counters("served")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})


asgi = asynchronous = Counted()
