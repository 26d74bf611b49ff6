"""The servers that can be measured. Each has a class in SERVERS, a folder and a stage in servers/, and a service.

The variants that an experiment file allows, the editor's schema, the messages and the tests follow from SERVERS.
"""

from typing import TYPE_CHECKING, Annotated, Union, get_args

from pydantic import Field, WrapValidator

from stampede.servers.asgi import Asgi
from stampede.servers.base import Variant
from stampede.servers.gunicorn import GunicornAsgi, GunicornGreen, GunicornGthread, GunicornSync
from stampede.servers.wsgi import Flup, GranianWsgi, Python314, Uwsgi

SERVERS: tuple[type[Variant], ...] = (
    GunicornGthread, GunicornSync, GunicornGreen, GunicornAsgi, Asgi, GranianWsgi, Uwsgi, Flup, Python314,
)  # fmt: skip
"""The servers that an experiment file can name, in the order of the documentation."""

KINDS: dict[str, type[Variant]] = {
    kind: server for server in SERVERS for kind in get_args(server.model_fields["server"].annotation)
}
"""The class for each word that the key ``server`` of a variant can be."""


if TYPE_CHECKING:
    Server = Variant
else:
    _Named = Annotated[Union[SERVERS], Field(discriminator="server")]  # noqa: UP007  # X | Y takes no tuple
    Server = Annotated[_Named, WrapValidator(lambda made, read: made if isinstance(made, Variant) else read(made))]
"""A variant of an experiment file. Its key ``server`` selects the class.

A variant that is made already may be of any class, also of a class that serves only somebody's own application.
"""
