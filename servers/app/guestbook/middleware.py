"""Middlewares that add nothing, written as a function or as a coroutine; ``LAB_MIDDLEWARE`` puts three of a kind in."""

from collections.abc import Awaitable, Callable

from django.http import HttpRequest, HttpResponse
from django.utils.decorators import async_only_middleware

View = Callable[[HttpRequest], HttpResponse]
AsyncView = Callable[[HttpRequest], Awaitable[HttpResponse]]


def synchronous(get_response: View) -> View:
    """Pass requests on in a thread."""

    def passed_on(request: HttpRequest) -> HttpResponse:
        return get_response(request)

    return passed_on


@async_only_middleware  # type: ignore[untyped-decorator]
def asynchronous(get_response: AsyncView) -> AsyncView:
    """Pass requests on on the event loop."""

    async def passed_on(request: HttpRequest) -> HttpResponse:
        return await get_response(request)

    return passed_on
