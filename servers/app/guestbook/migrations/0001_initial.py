"""The table of entries."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [
        migrations.CreateModel(
            name="Entry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("visit", models.CharField(max_length=40)),
                ("written", models.DateTimeField(auto_now_add=True)),
            ],
        ),
    ]
