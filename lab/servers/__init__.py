"""The servers that can be measured: each is a class here, and a stage, a service and a folder of servers/ there."""

from typing import Annotated

from pydantic import Field

from lab.servers.asgi import Asgi
from lab.servers.flup import Flup
from lab.servers.gunicorn import GunicornAsgi, GunicornGreen, GunicornGthread, GunicornSync
from lab.servers.uwsgi import Uwsgi

Server = Annotated[
    GunicornGthread | GunicornSync | GunicornGreen | GunicornAsgi | Asgi | Uwsgi | Flup,
    Field(discriminator="server"),
]
"""A variant of an experiment file, told apart by its key ``server``."""
