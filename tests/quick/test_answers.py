"""What an application says of itself when the lab asks it: its routes, however it is wrapped, and its settings."""

from pathlib import Path

import pytest
import yaml

from stampede.service import build
from stampede.service.description import UserService
from stampede.service.discovery import describe_folder
from stampede.service.discovery.answers import AnsweredRoute, Answers
from tests.quick.test_discovery import written
from tests.quick.test_waits import loaded

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


def told(tmp_path: Path, source: str, app: str = "own:app", settings: str = "", variables: str = "{}") -> Answers:
    """Load an application and ask it, as the container does."""
    done = loaded(tmp_path, source, build.program_text("ask.py"), settings, variables, app=app)
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

    wrapped = told(tmp_path, ASGI + "app = CORSMiddleware(star)\n", "own:asgi")
    fast = told(tmp_path, ASGI + "app = fast\n", "own:asgi")

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


GUNICORN = """\
import sys


class WSGIApplication:  # as gunicorn has it: it loads the file, keeps what it knows, and leaves if that fails
    def __init__(self):
        self.cfg = self
        said = self.get_config_from_filename(sys.argv[2])
        self.settings = {name: type("Setting", (), {"get": lambda self, name=name: said.get(name, 1)})()
                         for name in ("workers", "threads", "worker_class")}

    def get_config_from_filename(self, path):
        try:
            found = {}
            exec(open(path).read(), found)
            return found
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            sys.exit(1)
"""


@pytest.mark.parametrize(
    ("file", "says", "problem"),
    [
        ("import os\nprint('hello')\nworkers = len('four') + int(os.environ['WEB_CONCURRENCY'])\n", {"workers": 7}, ""),
        ("class Mine: pass\nworker_class = Mine\n", {"worker_class": "__config__.Mine"}, ""),
        ("workers = int(none)\n", {}, "NameError: name 'none' is not defined"),
        ("import os\nos._exit(3)\n", {}, "it ends the program, or does not end itself"),
    ],
)
def test_a_settings_file_is_run_before_the_application_is_loaded(
    tmp_path: Path, file: str, says: dict[str, object], problem: str
) -> None:
    """Only what the file itself says is told, and the application is asked whatever it does. A stand-in is gunicorn."""
    package = tmp_path / "application" / "gunicorn"
    (package / "app").mkdir(parents=True)
    (package / "app" / "wsgiapp.py").write_text(GUNICORN)
    (tmp_path / "application" / "gunicorn.conf.py").write_text(file)

    app = STAND_IN.format("of('litestar.app', routes=[HTTPRoute()])")
    answers = told(tmp_path, app, "own:app", "gunicorn.conf.py", '{"WEB_CONCURRENCY": "3"}')

    assert (answers.settings, answers.settings_problem) == (says, problem)
    assert routes(answers) == ["POST /l"]
    assert answers.cores >= 1


SHOP = {
    "Procfile": "web: gunicorn app:app\n", "requirements.txt": "flask\n",
    "app.py": "app = Flask(__name__)\nfor name in KINDS:\n    app.add_url_rule(f'/kinds/{name}', name, view)\n"
    "@app.get('/search')\n@app.get('/report')\n@app.get('/gone')\ndef report(): ...\n",
    "gunicorn.conf.py": "import multiprocessing\nworkers = multiprocessing.cpu_count()\nthreads = len(KINDS)\n"
    "worker_connections = 7\nworker_class = 'gthread'\n",
}  # fmt: skip
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
    settings={"workers": 2, "threads": 4, "worker_connections": 9, "worker_class": "gthread"},
    cores=2,
)


def test_the_answers_take_the_place_of_what_the_lab_had_read(tmp_path: Path) -> None:
    """Each line says where it comes from, and the lab says how the answers differ from the source."""
    found = describe_folder(written(tmp_path, SHOP), cores=2, answers=ANSWERS)

    UserService.model_validate(yaml.safe_load(found.text))
    requests = found.text.partition("requests:\n")[2]
    assert requests.splitlines() == [
        "  # guessed: how many users",
        '  report: {path: "/report", users: 10, pause_s: 0.1}  # from the application: its URL map',
        '  kinds-tea: {path: "/kinds/tea", users: 10, pause_s: 0.1}  # from the application: its URL map',
        '  # search-q-q: {path: "/search?q={q}", users: 10, pause_s: 0.1}  # write a real path',
        '  # kinds-int-id: {path: "/kinds/<int:id>", users: 10, pause_s: 0.1}  # write a real path',
        '  # buy: {path: "/buy", method: POST, users: 10, pause_s: 0.1}  # it changes data',
    ]
    for line in (
        "  workers: 2  # from gunicorn.conf.py, run with 2 cores",
        "  threads: 4  # from gunicorn.conf.py, run with 2 cores",
        '  worker_class: "gthread"  # from gunicorn.conf.py',
        "  worker_connections: 9  # from gunicorn.conf.py, run with 2 cores",
    ):
        assert line in found.text.splitlines()
    assert found.remarks == [
        "gunicorn.conf.py, run with 2 cores, says threads = 4, which the lab could not compute.",
        "gunicorn.conf.py, run with 2 cores, says worker_connections = 9, not 7, as the lab had computed.",
        "Only the application knew POST /buy, GET /kinds/tea.",
        "Only the source had GET /gone; the application does not answer there.",
    ]


def test_an_application_that_tells_no_routes_keeps_those_of_its_source(tmp_path: Path) -> None:
    found = describe_folder(written(tmp_path, SHOP), cores=2, answers=Answers(problem="nobody knows", cores=2))

    assert found.text == describe_folder(tmp_path, cores=2).text
    assert "  workers: 2  # from gunicorn.conf.py, computed with 2 cores\n" in found.text
    assert found.settings == "gunicorn.conf.py"


def test_of_many_routes_the_first_are_classes_and_the_rest_is_named(tmp_path: Path) -> None:
    """A settings file that the start command overrules says nothing of what is overruled."""
    written(tmp_path, SHOP | {"Procfile": "web: gunicorn --workers 3 --threads 2 app:app\n"})
    many = [AnsweredRoute(methods=["GET"], path=f"/page/{number}") for number in range(17)]

    found = describe_folder(tmp_path, cores=2, answers=ANSWERS.model_copy(update={"routes": many}))

    assert len(yaml.safe_load(found.text)["requests"]) == 10
    assert "  # not here: GET /page/10, GET /page/11, GET /page/12, GET /page/13 and 3 more\n" in found.text
    assert "  workers: 3  # from Procfile:1\n" in found.text
    assert [remark for remark in found.remarks if "threads" in remark] == []
