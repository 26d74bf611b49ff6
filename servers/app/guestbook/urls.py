"""The view of each path."""

from django.urls import path, re_path

from guestbook import views

urlpatterns = [
    path("-/ready", views.ready),
    path("entries", views.entries),
    re_path(r"^(?P<path>.*)$", views.work),
]
