"""The views: the guest book, the paths of ``workload``, and the readiness check."""

import workload
from django.db import connection as database
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from wsgi import connection

from guestbook.models import Entry
from guestbook.served import refused, served, server
from guestbook.settings import DATABASE

NEWEST = 20


class EntryForm(ModelForm):
    """The form of an entry."""

    class Meta:
        """The model and the fields of the form."""

        model = Entry
        fields = ("visit",)


@served
@refused
def entries(request: HttpRequest) -> HttpResponse:
    """Show the form and the newest entries. On POST, write an entry and redirect to the page."""
    form = EntryForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        form.save()
        return redirect(request.path)
    newest = Entry.objects.order_by("-id")[:NEWEST]
    return render(request, "guestbook/entries.html", {"form": form, "newest": newest})


def work(request: HttpRequest, path: str) -> JsonResponse:
    """Do the work that the path asks for (see ``workload``)."""
    try:
        query = request.META.get("QUERY_STRING", "")
        return JsonResponse(workload.answer(f"/{path}", query, server(request), connection(request.META)))
    except workload.Failure as failure:
        return JsonResponse({"error": str(failure)}, status=failure.status)


async def work_on_the_loop(request: HttpRequest, path: str) -> JsonResponse:
    """Do the work that the path asks for (see ``workload``), on the event loop."""
    try:
        query = request.META.get("QUERY_STRING", "")
        return JsonResponse(await workload.answer_async(f"/{path}", query, server(request)))
    except workload.Failure as failure:
        return JsonResponse({"error": str(failure)}, status=failure.status)


@refused
def ready(_: HttpRequest) -> JsonResponse:
    """Say that this worker has loaded the application, and that all migrations of the database are applied."""
    if DATABASE:
        # imported here, because only this view needs it and it loads slowly
        from django.db.migrations.executor import MigrationExecutor  # noqa: PLC0415

        executor = MigrationExecutor(database)
        missing = [str(one) for one, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
        if missing:
            return JsonResponse({"error": f"migrations are not applied: {', '.join(missing)}"}, status=503)
    return JsonResponse({"ready": True})
