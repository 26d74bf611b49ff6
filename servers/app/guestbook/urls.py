"""The view of each path. ``LAB_APP`` says whether the paths of ``workload`` have a ``def`` or an ``async def``."""

import os

from django.urls import path, re_path

from guestbook import views

on_the_loop = os.environ.get("LAB_APP") == "django_app:asynchronous"
urlpatterns = [
    path("-/ready", views.ready),
    path("entries", views.entries),
    re_path(r"^(?P<path>.*)$", views.work_on_the_loop if on_the_loop else views.work),
]
