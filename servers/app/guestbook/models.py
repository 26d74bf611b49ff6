"""What visitors leave behind."""

from django.db import models


class Entry(models.Model):
    """One row for each form that was sent; nothing keeps two of them from being of the same visit."""

    visit = models.CharField(max_length=40)
    written = models.DateTimeField(auto_now_add=True)
