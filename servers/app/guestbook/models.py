"""The table of the guest book."""

from django.db import models


class Entry(models.Model):
    """One row for each form that was sent. One visit may write several rows, because nothing enforces uniqueness."""

    visit = models.CharField(max_length=40)
    written = models.DateTimeField(auto_now_add=True)
