"""Django's settings: its defaults, but for what a page with a form in a database needs.

``LAB_DATABASE`` is the host of the database; without it there is none, and only the paths of ``workload`` work.
"""

import os

import pymysql

pymysql.install_as_MySQLdb()  # Django's own way to MariaDB, in plain Python

DATABASE = os.environ.get("LAB_DATABASE", "")

SECRET_KEY = "the lab's own, it guards nothing"  # noqa: S105
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "guestbook.urls"
INSTALLED_APPS = ["guestbook"]
MIDDLEWARE = ["django.middleware.csrf.CsrfViewMiddleware"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.mysql",
        "HOST": DATABASE,
        "NAME": "guestbook",
        "USER": "lab",
        "PASSWORD": "lab",
        "OPTIONS": {"charset": "utf8mb4", "connect_timeout": 10},
    }
} if DATABASE else {}  # fmt: skip
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
LOGGING = {  # what goes wrong is told to the visitor, see served.py; a line for each would be a load of its own
    "version": 1,
    "loggers": {"django.request": {"level": "CRITICAL"}},
}
