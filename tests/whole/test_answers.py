"""What an application says of itself when the lab asks it: its routes, however it is wrapped."""

from pathlib import Path

import pytest
import yaml

from stampede.service import build
from stampede.service.answers import AnsweredRoute, Answers, Followed, Record
from stampede.service.description import HEAD, UserService
from stampede.service.discovery import describe_folder
from stampede.service.layer import Layer
from tests.quick.test_waits import loaded
from tests.whole.test_discovery import written

FLASK = """\
from flask import Blueprint, Flask
from flask.views import MethodView
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

shop, staff = Flask(__name__), Flask("staff")
shop.wsgi_app = ProxyFix(shop.wsgi_app)
items = Blueprint("items", __name__, url_prefix="/items")

class Tags(MethodView):
    def get(self): ...
    def delete(self, name): ...

items.add_url_rule("/", "all", print, methods=["GET", "POST"])
items.add_url_rule("/<int:id>", "item", print)
shop.register_blueprint(items, url_prefix="/api")
shop.add_url_rule("/tags", view_func=Tags.as_view("tags"))
shop.add_url_rule("/_debug_bar/log", "bar", print)
shop.add_url_rule("/admin/", "admin", print)
staff.add_url_rule("/log", "log", print, methods=["POST"])
"""
OF_FLASK = ["GET POST /api/", "GET /api/<int:id>", "GET DELETE /tags"]
ASGI = """\
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount, Route, Router, WebSocketRoute
from starlette.staticfiles import StaticFiles

def view(): ...

class Page(HTTPEndpoint):
    async def get(self, request): ...
    async def post(self, request): ...

inner, outer, other = APIRouter(), APIRouter(prefix="/v1"), FastAPI()
def search(q: str, page: int = 1): ...

inner.add_api_route("/deep", view)
inner.add_api_route("/search", search)
outer.add_api_route("/items/{id}", view, methods=["PUT", "DELETE"])
outer.include_router(inner, prefix="/in")
other.add_api_route("/status", view)
fast = FastAPI()
fast.include_router(outer, prefix="/api")
fast.mount("/other", other)
star = Starlette(routes=[
    Route("/", view), Route("/page", Page), WebSocketRoute("/ws", view), Mount("/static", StaticFiles(directory="/")),
    Mount("/a", routes=[Route("/", view), Mount("/b", Router([Route("/{x:int}", view, methods=["DELETE"])]))]),
])
"""
DJANGO = """\
from django.conf import settings

settings.configure(
    ROOT_URLCONF="shop", LANGUAGE_CODE="de", USE_I18N=True,
    INSTALLED_APPS=["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes"],
)
from django.core.wsgi import get_wsgi_application
from django.conf.urls.i18n import i18n_patterns
application = get_wsgi_application()
from django.contrib import admin
from django.urls import include, path, re_path
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

class Page(View):
    def get(self, request): ...
    def post(self, request): ...

def view(request): ...

blog = [path("<int:year>/", view), re_path(r"^(?P<slug>[\\w-]+)/(\\d+)/$", view), re_path(r"^old(?:er)?/?$", view)]
urlpatterns = [
    path("", view), path("page/", Page.as_view()), path("admin/", admin.site.urls),
    path("blog/", include((blog, "blog"), namespace="b")), path("buy/", csrf_exempt(require_POST(view))),
    *i18n_patterns(path("late/", view)),
]

def app(environ, start_response):
    return application(environ, start_response)
"""
OF_DJANGO = ["GET /", "GET POST /page/", "GET /blog/<int:year>/", "GET /blog/<slug>/<_0>/", "GET /blog/old",
             "POST /buy/", "GET /de/late/"]  # fmt: skip
STAND_IN = """\
import sys
from types import ModuleType, SimpleNamespace as N

def of(module, **has):
    return type("App", (), {{"__module__": module, "__call__": lambda self, environ, start_response: None, **has}})()

def view(): ...

falcon = sys.modules["falcon.inspect"] = ModuleType("falcon.inspect")
sys.modules["falcon"] = ModuleType("falcon")
falcon.inspect_routes = lambda app: [N(path="/f/{{id}}", methods=[N(method="GET", internal=False),
                                                                 N(method="OPTIONS", internal=True)])]
route = {{"name": "k", "pattern": "k/*rest", "request_methods": None}}
told = [{{"introspectable": route, "related": [{{"request_methods": ("PUT",)}}]}}]
HTTPRoute = type("HTTPRoute", (), {{"path": "/l", "methods": {{"POST"}}, "route_handlers": [N(fn=view)]}})
app = {}
"""


def told(tmp_path: Path, source: str) -> Answers:
    """Load an application and ask it, as the container does."""
    done = loaded(tmp_path, source, build.program_text("ask.py"))
    assert done.returncode == 0, done.stderr
    return Answers.model_validate_json(done.stdout)


def routes(answers: Answers, *, aside: bool = False) -> list[str]:
    return [" ".join([*route.methods, route.path]) for route in answers.routes if route.aside == aside]


@pytest.mark.parametrize(
    ("app", "has"),
    [
        ("shop", OF_FLASK),
        ("(lambda inner: lambda environ, start_response: inner(environ, start_response))(shop.wsgi_app)", OF_FLASK),
        ("DispatcherMiddleware(shop, {'/staff': ProxyFix(staff)})", ["POST /staff/log", *OF_FLASK]),
        ("lambda environ, start_response: None", []),
    ],
)
def test_flask_tells_its_url_map_whatever_wraps_it(tmp_path: Path, app: str, has: list[str]) -> None:
    """What the application and its children write is no part of the answer. What visitors seldom ask for is aside."""
    noise = "import os\nprint('hello')\nos.system('echo hello')\n"

    answers = told(tmp_path, f"{FLASK}{noise}app = {app}\n")

    assert routes(answers) == has
    assert bool(answers.problem) == (not has) == (answers.framework == "")
    aside = {"GET /static/<path:filename>", "GET /_debug_bar/log", "GET /admin/"} if has else set()
    assert aside <= {*routes(answers, aside=True)}


def test_starlette_and_fastapi_tell_their_routes_with_routers_and_mounts(tmp_path: Path) -> None:
    """A query that a route needs is a part of its path."""
    star = ["GET /", "GET POST /page", "GET /a/", "DELETE /a/b/{x:int}"]

    wrapped = told(tmp_path, ASGI + "app = CORSMiddleware(star)\n")
    fast = told(tmp_path, ASGI + "app = fast\n")

    assert routes(wrapped) == star
    assert (wrapped.framework, fast.framework) == ("starlette", "fastapi")
    assert routes(fast) == [
        "PUT DELETE /api/v1/items/{id}", "GET /api/v1/in/deep", "GET /api/v1/in/search?q={q}", "GET /other/status",
    ]  # fmt: skip
    assert {"GET /docs", "GET /openapi.json", "GET /other/redoc"} <= {*routes(fast, aside=True)}


def test_django_tells_its_urls_with_a_sample_of_each_pattern(tmp_path: Path) -> None:
    """Namespaces and languages are followed, and the views say their methods. The admin is aside."""
    answers = told(tmp_path, DJANGO)

    assert answers.framework == "django"
    assert routes(answers) == OF_DJANGO
    assert "GET /admin/" in routes(answers, aside=True)


@pytest.mark.parametrize(
    ("app", "has"),
    [
        ("of('quart.app', view_functions={'q': view}, url_map=N(iter_rules=lambda: [N(build_only=False, endpoint='q', "
         "methods={'GET'}, rule='/q')]))", ["GET /q"]),
        ("of('litestar.app', routes=[HTTPRoute(), N(path='/ws')])", ["POST /l"]),
        ("of('falcon.app', add_route=view)", ["GET /f/{id}"]),
        ("of('pyramid.router', registry=N(introspector=N(get_category=lambda name: told)))", ["PUT /k/{rest}"]),
        ("of('shop.vendored.bottle', routes=[N(rule='/m', config={'mountpoint.prefix': '/m', 'mountpoint.target': "
         "of('bottle', routes=[N(rule='/b/<id>', method='ANY', config={})])})])",
         ["GET POST PUT PATCH DELETE /m/b/<id>"]),
    ],
)  # fmt: skip
def test_other_frameworks_tell_their_routes(tmp_path: Path, app: str, has: list[str]) -> None:
    """Stand-ins have what the lab asks Quart, Litestar, Falcon, Pyramid and Bottle for."""
    assert routes(told(tmp_path, STAND_IN.format(app))) == has


SHOP = {"Procfile": "web: gunicorn -c conf.py app:app\n", "requirements.txt": "flask\n", "conf.py": "", "app.py": ""}
FOLLOWED = Followed(
    records=[
        Record(what="before", folder="/opt/application", words=["alembic", "upgrade", "head"]),
        Record(
            what="server", server="gunicorn", folder="/opt/application", callable="app:app",
            words=["gunicorn", "-c", "conf.py", "--backlog", "64", "app:app"],
            settings={"workers": 2, "threads": 4, "worker_connections": 9, "worker_class": "gthread", "backlog": 64,
                      "keepalive": 9, "max_requests": 100, "max_requests_jitter": 0},
            differ=["workers", "worker_connections", "max_requests", "backlog", "keepalive"], given={"MODE": "fast"},
        ),
    ],
)  # fmt: skip
ANSWERS = Answers(
    framework="flask",
    routes=[
        AnsweredRoute(methods=["GET"], path="/static/<path:filename>", aside=True),
        AnsweredRoute(methods=["POST"], path="/buy"),
        AnsweredRoute(methods=["GET"], path="/kinds/<int:id>"),
        AnsweredRoute(methods=["GET"], path="/kinds/tea"),
        AnsweredRoute(methods=["GET"], path="/search?q={q}"),
        AnsweredRoute(methods=["GET", "POST"], path="/report"),
    ],
    followed=FOLLOWED,
)


def test_each_line_says_which_program_has_said_it(tmp_path: Path) -> None:
    found = describe_folder(written(tmp_path, SHOP).resolve(), answers=ANSWERS)

    UserService.model_validate(yaml.safe_load(found.text))
    assert found.text.replace(str(tmp_path.resolve()), "…").splitlines()[len(HEAD) :] == [
        "application:",
        '  folder: "…"',
        '  command: "gunicorn -c conf.py app:app"  # from Procfile:1',
        '  # callable: "app:app"  # gunicorn says, of Procfile:1',
        "  requirements: requirements.txt",
        '  before: "alembic upgrade head"  # from Procfile:1',
        "served:",
        '  gunicorn: "27.0.1"  # guessed: no file names its release',
        '  # worker_class: "gthread"  # gunicorn\'s default',
        "  # workers: 2  # gunicorn says",
        "  # threads: 4  # gunicorn's default",
        "  # worker_connections: 9  # gunicorn says",
        "  # max_requests: 100  # gunicorn says",
        "requests:",
        "  # guessed: how many users",
        '  report: {path: "/report", users: 10, pause_s: 0.1}  # from the application: its URL map',
        '  kinds-tea: {path: "/kinds/tea", users: 10, pause_s: 0.1}  # from the application: its URL map',
        '  # search-q-q: {path: "/search?q={q}", users: 10, pause_s: 0.1}  # write a real path',
        '  # kinds-int-id: {path: "/kinds/<int:id>", users: 10, pause_s: 0.1}  # write a real path',
        '  # buy: {path: "/buy", method: POST, users: 10, pause_s: 0.1}  # it changes data',
        '  # report-2: {path: "/report", method: POST, users: 10, pause_s: 0.1}  # it changes data',
    ]


def test_what_a_start_tells_has_the_names_of_secrets_and_no_values(tmp_path: Path) -> None:
    """The application's own name stays, even if it is a variable of the env_file, too."""
    given = {"URL": "postgres://shop:hush-hush@db", "MODE": "fast"}
    record = Record(what="server", server="gunicorn", folder="/", words=["gunicorn", "hush-hush"], given=given,
                    callable="shop.wsgi:app")  # fmt: skip
    layer = Layer(tmp_path, "tag", {"PASSWORD": "hush-hush", "MODULE": "shop.wsgi"})

    told = build.masked_start(Followed(records=[record], said="no hush-hush"), layer)

    assert told.said == "no ${PASSWORD}"
    [masked] = told.records
    assert masked.given == {"URL": "postgres://shop:${PASSWORD}@db", "MODE": "fast"}
    assert (masked.words, masked.callable) == (["gunicorn", "${PASSWORD}"], "shop.wsgi:app")


def test_an_application_that_tells_no_routes_gets_a_guess(tmp_path: Path) -> None:
    found = describe_folder(written(tmp_path, SHOP), answers=ANSWERS.model_copy(update={"routes": []}))

    assert found.text.partition("requests:\n")[2].splitlines() == [
        '  page: {path: "/", users: 10, pause_s: 0.1}  # guessed: what people ask for'
    ]


def test_of_many_routes_the_first_are_classes_and_the_rest_is_counted(tmp_path: Path) -> None:
    many = [AnsweredRoute(methods=["GET"], path=f"/page/{number}") for number in range(17)]

    found = describe_folder(written(tmp_path, SHOP), answers=ANSWERS.model_copy(update={"routes": many}))

    assert len(yaml.safe_load(found.text)["requests"]) == 10
    assert "  # not here: 7 further routes\n" in found.text
