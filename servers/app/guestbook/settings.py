"""Django's settings: the defaults, except for what the guest book needs.

``LAB_DATABASE`` is the host of the database. If it is empty, there is no database, and only the paths of ``workload``
work. ``LAB_MIDDLEWARE`` is the kind of three further middlewares (middleware.py): ``sync``, ``async`` or ``none``.
"""

import os

import pymysql

pymysql.install_as_MySQLdb()  # pure Python; Django's MySQL backend then uses it

DATABASE = os.environ.get("LAB_DATABASE", "")

SECRET_KEY = "the lab's own, it guards nothing"  # noqa: S105
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "guestbook.urls"
INSTALLED_APPS = ["guestbook"]
FURTHER = {"sync": ["guestbook.middleware.synchronous"], "async": ["guestbook.middleware.asynchronous"]}
MIDDLEWARE = ["django.middleware.csrf.CsrfViewMiddleware", *3 * FURTHER.get(os.environ.get("LAB_MIDDLEWARE", ""), [])]
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
LOGGING = {  # errors are in the answers (see served.py); a log line for each error would slow the server down
    "version": 1,
    "loggers": {"django.request": {"level": "CRITICAL"}},
}
