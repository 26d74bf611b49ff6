"""``stampede init`` finds how a service starts, and the real shell, Python and servers say the rest.

Shapes are starts as people have them. Each is followed in a root of its own, with the servers of this environment.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stampede.errors import LabError
from stampede.service.answers import Answers, Followed
from stampede.service.description import UserService, read_env_files, variables_of_env_file
from stampede.service.discovery import NO_COMMAND, Description, describe_folder
from stampede.service.layer import FOLDER, start_of
from stampede.service.packages import pinned_release, required_lines
from tests.sealed import followed, is_possible

needs_a_root = pytest.mark.skipif(not is_possible(), reason="this machine gives no process a root of its own")
CORES = os.cpu_count() or 1
FASTAPI = "from fastapi import FastAPI\napp = FastAPI()\n\n@app.get('/healthz')\ndef health(): ...\n"
MANAGE = (
    "import sys\nfrom django.core.management import execute_from_command_line\nexecute_from_command_line(sys.argv)\n"
)
FLASK = "from flask import Flask\napp = Flask(__name__)\n\n@app.route('/healthz')\ndef health(): ...\n"
SHAPES = {
    "fastapi run in a second stage": ({
        "Dockerfile": "FROM uv AS builder\nWORKDIR /app\nCOPY . /app\n\nFROM python\nCOPY --from=builder /app /app\n"
            'WORKDIR /app\nCMD ["fastapi", "run", "app/main.py", "--workers", "4"]\n',
        "app/__init__.py": "", "app/main.py": FASTAPI,
        "pyproject.toml": "[project]\nname = 'shop'\ndependencies = ['fastapi[standard]', 'uvicorn==0.37.0']\n",
    }, {"callable": "app.main:app", "workers": 4, "uvicorn": "0.37.0", "requirements": "pyproject.toml"}),
    "poetry, an entrypoint script and GUNICORN_CMD_ARGS": ({
        "Dockerfile": 'FROM python\nWORKDIR /srv\nCOPY . .\nENV GUNICORN_CMD_ARGS="--workers=3 --threads=4"\n'
            'ENTRYPOINT ["./entrypoint.sh"]\n',
        "entrypoint.sh": '#!/bin/sh\nset -e\nif [ "$MIGRATE" = 1 ]; then\n  flask db upgrade\nfi\n'
            'exec gunicorn --bind "0.0.0.0:${PORT:-8000}" $GUNICORN_CMD_ARGS "shop:create_app()"\n',
        "shop/__init__.py": "def create_app(config=None): ...\n",
        "pyproject.toml": "[tool.poetry.dependencies]\npython = '^3.12'\nflask = '^3.0'\n",
    }, {"callable": "shop:create_app()", "workers": 3, "threads": 4, "worker_class": "gthread"}),
    "a Django project in src, with settings that compute": ({
        "Dockerfile": "FROM python\nWORKDIR /app\nRUN pip install -r /tmp/requirements/production.txt\n"
            "COPY src/ src/\nCOPY gunicorn.conf.py .\nWORKDIR /app/src\nENV DJANGO_SETTINGS_MODULE=shop.settings\n"
            'CMD ["gunicorn", "--config", "../gunicorn.conf.py", "shop.wsgi:application"]\n',
        "gunicorn.conf.py": "import multiprocessing\nworkers = multiprocessing.cpu_count() * 2 + 1\n"
            "worker_class = 'gthread'\nthreads = 4\n",
        "requirements/common.txt": "django\ngunicorn==26.2.0\n", "requirements/production.txt": "-r common.txt\n",
        "src/shop/__init__.py": "", "src/shop/wsgi.py": "application = get_wsgi_application()\n",
    }, {
        "folder": "src", "callable": "shop.wsgi:application", "workers": CORES * 2 + 1, "threads": 4,
        "gunicorn": "26.2.0",
        "requirements": "requirements/production.txt",
        "environment": {"DJANGO_SETTINGS_MODULE": "shop.settings"},
    }),
    "granian with its options": ({
        "compose.yaml": "services:\n  web:\n    build: .\n    command: granian --interface wsgi --workers 4 "
            "--blocking-threads 3 --backpressure=64 --runtime-threads 2 app\n",
        "app.py": "", "requirements.txt": "granian[uvloop]==2.7.9\n",
    }, {
        "callable": "app:app", "granian": "2.7.9", "interface": "wsgi", "workers": 4, "threads": 3, "backpressure": 64,
        "worker_class": None,
    }),
    "granian with variables, and the threads that it has by itself": ({
        "Dockerfile": "FROM python\nENV GRANIAN_WORKERS=4 GRANIAN_INTERFACE=wsgi GRANIAN_FACTORY=true SHOP=tea\n"
            "CMD granian --no-ws shop:create_app\n",
    }, {
        "callable": "shop:create_app()", "granian": "2.8.7", "interface": "wsgi", "workers": 4, "threads": 128,
        "backpressure": None,
        "environment": {"SHOP": "tea", "GRANIAN_WORKERS": "4", "GRANIAN_INTERFACE": "wsgi", "GRANIAN_FACTORY": "true"},
    }),
    "granian without a lifespan": ({
        "Procfile": "web: python -m granian --interface asginl --workers 2 shop.asgi:application\n",
    }, {"callable": "shop.asgi:application", "interface": "asgi", "workers": 2, "threads": None}),
    "hypercorn with a prefix": ({"Procfile": "web: hypercorn -w 3 -k uvloop --bind 0.0.0.0:$PORT asgi:shop.main:api\n"},
         {"callable": "shop.main:api", "hypercorn": "0.18.0", "workers": 3}),
    "a WSGI application on hypercorn": ({"Procfile": "web: hypercorn -w 3 wsgi:shop:app\n"},
         {"callable": "shop:app", "hypercorn": "0.18.0", "workers": 3, "threads": None}),
    "daphne": ({
        "Procfile": "web: daphne -b 0.0.0.0 -p $PORT -t 60 shop.asgi:application\n",
        "requirements.txt": "daphne==4.1.2\n",
    }, {"callable": "shop.asgi:application", "daphne": "4.1.2", "workers": 1}),
    "nginx before two containers": ({
        "nginx.conf": "upstream app {\n  least_conn;\n  server a:80;\n  server b:80;\n}\n",
        "Procfile": "web: gunicorn app:app\n",
    }, {"replicas": 2, "balance": "least_conn"}),
    "uWSGI's ini file without a command": ({"uwsgi.ini": "[uwsgi]\nmodule = shop.wsgi\nprocesses = 5\nthreads = 3\n"},
         {"callable": "shop.wsgi:application", "uwsgi": "2.0.31", "workers": 5, "threads": 3}),
    "threads of a class that has none": ({"Procfile": "web: gunicorn -b 0.0.0.0:80 -k sync --threads 4 a:b\n"},
         {"callable": "a:b", "worker_class": "gthread", "threads": 4}),
}  # fmt: skip

FURTHER_SHAPES: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "packages of Debian in the stages that install packages of Python": ({
        "Dockerfile": "FROM python:3.13-slim AS built\nRUN --mount=type=cache,target=/var/cache/apt apt-get update && "
            "apt-get install -y \\\n    -t stable build-essential libpq-dev=17.* && rm -r /tmp/*\n"
            "RUN bin/install-all\nFROM node AS pages\nRUN apt-get install -y libvips\nFROM python:3.13-slim AS base\n"
            "RUN apt install -y --no-install-recommends libmagic1:amd64\nFROM debian AS more\n"
            "RUN apt-get install -y gcc && pip wheel pycairo\nFROM base\nRUN <<END\napt-get install -y ffmpeg curl "
            "python3-dev vim\nEND\nCOPY --from=built /wheels /wheels\nCOPY --from=pages /pages /pages\n"
            "COPY --from=more /more /more\nCMD gunicorn shop:app\n",
    }, {"system_packages": ["libmagic1", "ffmpeg", "build-essential", "libpq-dev", "gcc"]}),
    "a release of uWSGI that the lab lacks": ({
        "Procfile": "web: uwsgi --module shop:app --processes 2\n", "requirements.txt": "flask\nuWSGI==2.0.24\n",
    }, {"callable": "shop:app", "uwsgi": "2.0.31"}),
    # cookiecutter-django, compose/production
    "a Compose file for production, and scripts without a suffix": ({
        "compose/local/django/start": "#!/bin/sh\nexec uvicorn config.asgi:application --reload\n",
        "compose/production/aws/Dockerfile": "FROM amazon/aws-cli\nENTRYPOINT bash\n",
        "docker-compose.local.yml": "services:\n  django:\n    build: {context: ., dockerfile: "
            "./compose/local/Dockerfile}\n    command: /start\n",
        "compose/local/Dockerfile": "FROM python\n",
        "docker-compose.production.yml": "services:\n  django: &django\n    build:\n      context: .\n"
            "      dockerfile: ./compose/production/django/Dockerfile\n    depends_on: [redis]\n    command: /start\n"
            "  worker:\n    <<: *django\n    command: /start-worker\n  redis: {image: redis}\n  awscli:\n"
            "    build: {context: ., dockerfile: ./compose/production/aws/Dockerfile}\n",
        "compose/production/django/Dockerfile": "ARG V=3.12\nFROM python:$V AS run\nARG APP_HOME=/app\n"
            "WORKDIR ${APP_HOME}\nCOPY --chown=a:a ./compose/production/django/entrypoint /entrypoint\n"
            "COPY --chown=a:a ./compose/production/django/start /start\nCOPY ./compose/production/django/worker/start "
            '/start-worker\nCOPY . ${APP_HOME}\nENTRYPOINT ["/entrypoint"]\n',
        "compose/production/django/entrypoint": "#!/bin/bash\nset -o errexit\npython << END\nimport sys\nEND\n"
            'wait-for-it $HOST:5432 -t 30\nexec "$@"\n',
        "compose/production/django/start": "#!/bin/bash\npython /app/manage.py collectstatic --noinput\n"
            "exec /usr/local/bin/gunicorn config.wsgi -w 3 --bind 0.0.0.0:5000 --chdir=/app\n",
        "compose/production/django/worker/start": "#!/bin/bash\nexec celery -A config.celery_app worker\n",
        "config/wsgi.py": "application = get_wsgi_application()\n",
    }, {
        "folder": ".", "callable": "config.wsgi:application", "workers": 3,
        "beside": {"compose": "docker-compose.production.yml", "services": ["redis"]},
    }),
    # fastapi/full-stack-fastapi-template
    "a backend in a folder of its own, with a frontend beside it": ({
        "compose.yml": "services:\n  db: {image: postgres}\n  prestart:\n    build: {context: ., dockerfile: "
            "backend/Dockerfile}\n    command: bash scripts/prestart.sh\n  backend:\n    restart: always\n"
            "    depends_on:\n      db: {condition: service_healthy, restart: true}\n    build: {context: ., "
            "dockerfile: backend/Dockerfile}\n  frontend:\n    build: {context: ., dockerfile: frontend/Dockerfile}\n",
        "compose.override.yml": "services:\n  backend:\n    command: [fastapi, run, --reload, app/main.py]\n",
        "backend/Dockerfile": "FROM python\nWORKDIR /app/\nENV PYTHONPATH=/app\nCOPY ./backend/pyproject.toml "
            "./backend/alembic.ini /app/backend/\nWORKDIR /app/backend/\nCOPY ./backend/app /app/backend/app\n"
            'CMD ["fastapi", "run", "--workers", "3", "app/main.py"]\n',
        "backend/app/__init__.py": "", "backend/app/main.py": FASTAPI,
        "backend/scripts/prestart.sh": "#!/bin/sh\npython app/initial_data.py\n",
        "backend/pyproject.toml": "[project]\nname = 'app'\ndependencies = ['fastapi', 'uvicorn==0.38.0']\n",
        "frontend/Dockerfile": "FROM node\nRUN npm run build\nFROM nginx\nCOPY ./frontend/nginx.conf /etc/nginx\n",
    }, {
        "folder": "backend", "callable": "app.main:app", "workers": 3, "requirements": "backend/pyproject.toml",
        "uvicorn": "0.38.0", "beside": {"compose": "compose.yml", "services": ["db"]},
    }),
    # tiangolo/uvicorn-gunicorn-docker, gunicorn_conf.py, which many repositories copy
    "settings with conditions": ({
        "Dockerfile": 'FROM python\nENV WORKERS_PER_CORE="2"\nCOPY ./app /app\nWORKDIR /app/\n'
            'CMD ["gunicorn", "-k", "uvicorn.workers.UvicornWorker", "-c", "gunicorn_conf.py", "main:app"]\n',
        "app/main.py": FASTAPI,
        "app/gunicorn_conf.py": "import multiprocessing, os\nper_core = float(os.getenv('WORKERS_PER_CORE', '1'))\n"
            "said = os.getenv('WEB_CONCURRENCY', None)\nif said:\n    count = int(said)\nelse:\n"
            "    count = max(int(per_core * multiprocessing.cpu_count()), 2)\nworkers = count\n"
            "bind = f\"{os.getenv('HOST', '0.0.0.0')}:80\"\n",
    }, {"folder": "app", "callable": "main:app", "workers": max(2 * CORES, 2),
        "worker_class": "uvicorn.workers.UvicornWorker"}),
    # the start.sh of tiangolo/uvicorn-gunicorn-docker, which many repositories copy
    "a script that looks which files there are": ({
        "Dockerfile": 'FROM python\nCOPY docker/start.sh /start.sh\nCOPY . /app\nWORKDIR /app\nCMD ["/start.sh"]\n',
        "docker/start.sh": "#! /usr/bin/env sh\nset -e\nif [ -f /app/app/main.py ]; then\n    DEFAULT=app.main\n"
            "elif [ -f /app/main.py ]; then\n    DEFAULT=main\nfi\nMODULE=${MODULE:-$DEFAULT}\n"
            'export APP=${APP:-"$MODULE:${NAME:-api}"}\nif [ -f /app/gunicorn_conf.py ]; then\n'
            "  CONF=/app/gunicorn_conf.py\nelse\n  CONF=/gunicorn_conf.py\nfi\nif [ -f /app/prestart.sh ] ; then . "
            '/app/prestart.sh ; fi\nexec gunicorn -k uvicorn.workers.UvicornWorker -c "$CONF" "$APP"\n',
        "main.py": FASTAPI, "gunicorn_conf.py": "workers = 3\n", "prestart.sh": "alembic upgrade head\n",
    }, {"callable": "main:api", "workers": 3}),
    "variables that the command itself gives": ({
        "Procfile": "web: export SHOP=tea; HOST=$UNKNOWN DJANGO_SETTINGS_MODULE=shop.live env RATE=3 gunicorn "
            "shop.wsgi\n",
    }, {"callable": "shop.wsgi:application"}),
    "an application that a program imports from beside it": ({
        "Procfile": "web: python -m shop.run\n", "shop/__init__.py": "",
        "shop/run.py": "import uvicorn\nfrom .web import api\nconfig = uvicorn.Config(api, port=5000)\n"
            "uvicorn.Server(config).run()\n",
        "shop/web.py": FASTAPI.replace("app", "api"),
    }, {"callable": "shop.web:api", "workers": 1}),
    # supervisord.org, configuration; a usual file beside nginx in one container
    "supervisord": ({
        "Dockerfile": "FROM python\nCOPY . /srv\nCOPY deploy/supervisord.conf /etc/supervisor/conf.d/shop.conf\n"
            'CMD ["/usr/bin/supervisord", "-n", "-c", "/etc/supervisor/conf.d/shop.conf"]\n',
        "deploy/supervisord.conf": "[supervisord]\nnodaemon=true\n\n[program:nginx]\ncommand=nginx -g 'daemon off;'\n"
            "[program:web]\ndirectory=/srv/site\ncommand=/venv/bin/gunicorn --workers 5\n"
            '    --threads 2 shop:app ; the site\nenvironment=SHOP="tea",RATE="50%%"\n[program:worker]\n'
            "command=celery -A shop worker\n",
        "site/shop.py": FLASK,
    }, {
        "folder": "site", "callable": "shop:app", "workers": 5, "threads": 2,
    }),
    # docs.gunicorn.org, deploy; DigitalOcean's guide for Flask
    "a unit of systemd": ({
        "deploy/shop.service": "[Unit]\nDescription=shop\nAfter=network.target\n[Service]\nUser=www-data\n"
            'WorkingDirectory=/home/me/shop/web\nEnvironment="PATH=/venv/bin" "SHOP=tea"\n'
            "ExecStartPre=/bin/mkdir -p /run/shop\nExecStart=/venv/bin/gunicorn --workers 3 \\\n"
            "    --bind unix:shop.sock -m 007 wsgi:app\nRestart=always\n[Install]\nWantedBy=multi-user.target\n",
        "web/wsgi.py": FLASK,
    }, {"folder": "web", "callable": "wsgi:app", "workers": 3, "environment": {"SHOP": "tea"}}),
    # render.com/docs/blueprint-spec
    "Render's blueprint": ({
        "render.yaml": "services:\n- type: worker\n  startCommand: celery -A shop worker\n- type: web\n  name: api\n"
            "  rootDir: api\n  numInstances: 2\n  startCommand: ./start.sh\n  envVars:\n"
            "  - {key: WEB_CONCURRENCY, value: 4}\n  - {key: SHOP, value: tea}\n  - {key: SECRET, generateValue: "
            "true}\n",
        "api/start.sh": '#!/usr/bin/env bash\nset -euo pipefail\n: "${KIND:=gthread}"\nexport KIND\n'
            "python -m alembic upgrade head\nexec gunicorn shop:app -k $KIND --threads ${THREADS:-3}\n",
        "api/shop.py": FLASK,
    }, {
        "folder": "api", "callable": "shop:app", "workers": 4, "threads": 3, "replicas": 2,
        "environment": {"WEB_CONCURRENCY": "4", "SHOP": "tea"},
    }),
    # fly.io/docs/reference/configuration
    "Fly's processes": ({
        "fly.toml": "app = 'shop'\n[env]\n  PORT = '8000'\n  SHOP = 'tea'\n[processes]\n"
            "  app = 'python -m gunicorn --chdir src --bind :8000 --workers 2 core.wsgi'\n"
            "  worker = 'python -m celery worker'\n",
        "Dockerfile": "FROM python\nWORKDIR /code\nCOPY . /code\n", "src/core/wsgi.py": "application = 1\n",
    }, {"folder": "src", "callable": "core.wsgi:application", "workers": 2, "environment": {"SHOP": "tea"}}),
    # devcenter.heroku.com/articles/app-json-schema and …/build-docker-images-heroku-yml
    "Heroku's app.json": ({
        "Procfile": "release: python manage.py migrate\nweb: newrelic-admin run-program gunicorn shop.wsgi --log-file "
            "-\n",
        "app.json": '{"env": {"WEB_CONCURRENCY": {"value": "5"}, "SHOP": "tea", "KEY": {"generator": "secret"}}, '
            '"formation": {"web": {"quantity": 3}}}',
    }, {"callable": "shop.wsgi:application", "workers": 5, "replicas": 3,
        "environment": {"WEB_CONCURRENCY": "5", "SHOP": "tea"}}),
    "Heroku's heroku.yml": ({
        "heroku.yml": "build:\n  docker:\n    web: Dockerfile\nrun:\n  web: uvicorn shop:app --workers 3 --port "
            "$PORT\n",
    }, {"callable": "shop:app", "workers": 3}),
    # docs.railway.com/reference/config-as-code, cloud.google.com/appengine (app.yaml), docs.digitalocean.com (app spec)
    "Railway": ({"railway.json": '{"deploy": {"startCommand": "hypercorn shop:app -w 2"}}'},
         {"callable": "shop:app", "workers": 2}),
    "App Engine": ({
        "app.yaml": "runtime: python312\nentrypoint: gunicorn -b :$PORT -w 2 main:app\nenv_variables: {SHOP: tea}\n",
    }, {"callable": "main:app", "workers": 2, "environment": {"SHOP": "tea"}}),
    "App Platform": ({
        ".do/app.yaml": "name: shop\nservices:\n- name: web\n  source_dir: web\n  instance_count: 2\n"
            "  run_command: gunicorn --worker-tmp-dir /dev/shm -w 3 app:app\n",
        "web/app.py": FLASK,
    }, {"folder": "web", "callable": "app:app", "workers": 3, "replicas": 2}),
    # kubernetes.io, define a command and arguments for a container
    "a deployment of Kubernetes": ({
        "k8s/deployment.yaml": "apiVersion: v1\nkind: Service\n---\napiVersion: apps/v1\nkind: Deployment\nspec:\n"
            "  replicas: 3\n  template:\n    spec:\n      containers:\n      - name: web\n        image: shop\n"
            "        command: [uvicorn]\n        args: ['shop:app', --workers, '2']\n        env: [{name: SHOP, "
            "value: tea}, {name: KEY, valueFrom: {secretKeyRef: {}}}]\n",
    }, {"callable": "shop:app", "workers": 2, "replicas": 3, "environment": {"SHOP": "tea"}}),
    # fastapi.tiangolo.com/tutorial/debugging and www.uvicorn.org/deployment
    "a Python program that calls uvicorn.run": ({
        "Dockerfile": 'FROM python\nWORKDIR /app\nCOPY . .\nENTRYPOINT ["python3", "-u", "main.py"]\n',
        "main.py": FASTAPI + "\nif __name__ == '__main__':\n    import uvicorn\n    uvicorn.run(app, port=80)\n",
    }, {"callable": "main:app", "workers": 1}),
    # docs.pylonsproject.org/projects/waitress
    "waitress in a Python program": ({
        "Procfile": "web: python serve.py\n", "shop.py": FLASK,
        "serve.py": "from waitress import serve\nfrom shop import app\nserve(app, listen='*:8080', threads=8)\n",
    }, {"callable": "shop:app", "workers": 1, "threads": 8, "worker_class": "gthread"}),
    "waitress": ({"Dockerfile": 'FROM python\nCMD ["waitress-serve", "--port=8000", "--call", "shop:create_app"]\n',
                  "shop.py": "from flask import Flask\ndef create_app():\n    return Flask('shop')\n"},
         {"callable": "shop:create_app()", "workers": 1, "threads": 4, "worker_class": "gthread"}),
    # docs.docker.com/reference/compose-file/services
    "a literal command, with the numbers in .env": ({
        "docker-compose.yml": 'services:\n  web:\n    build: .\n    command: |\n      bash -c "\n'
            '      alembic upgrade head\n      exec gunicorn -w ${COUNT} --threads $${THREADS:-2} shop:app"\n',
        ".env": "COUNT=5\n",
    }, {"callable": "shop:app", "workers": 5, "threads": 2}),
    "secrets in .env, of which the file keeps the names": ({
        "compose.yaml": "services:\n  web:\n    build: .\n    command: uvicorn shop:app\n    environment:\n"
            "      KEY: $KEY\n      URL: postgres://shop:${PASSWORD:-none}@db/shop\n      SHOP: tea\n"
            "      MODE: ${MODE:-fast}\n",
        ".env": "KEY=s3cret\nPASSWORD=hush-hush\nMODE=\n",
    }, {
        "environment": {"KEY": "${KEY}", "URL": "postgres://shop:${PASSWORD}@db/shop", "SHOP": "tea", "MODE": "fast"},
        "env_file": ".env",
    }),
    "anchors, a merged environment and a tag of Compose": ({
        "compose.yaml": "x-app: &app\n  build: .\n  environment: &env\n    SHOP: tea\n  volumes: !reset []\n"
            "services:\n  web:\n    <<: *app\n    entrypoint: [gunicorn, shop.wsgi]\n    environment:\n"
            "      <<: *env\n      GUNICORN_CMD_ARGS: --workers 4 --threads=2\n  worker:\n    <<: *app\n"
            "    command: celery worker\n",
    }, {"callable": "shop.wsgi:application", "workers": 4, "threads": 2,
        "environment": {"SHOP": "tea", "GUNICORN_CMD_ARGS": "--workers 4 --threads=2"}}),
    "an env_file in a folder": ({
        "deploy/docker-compose.yml": "services:\n  api:\n    build: {context: .., dockerfile: docker/api/Dockerfile}\n"
            "    env_file: [./api.env]\n",
        "deploy/api.env": "export WEB_CONCURRENCY=6 # all cores\n",
        "pyproject.toml": "[project]\ndependencies = ['fastapi[standard]']\n",
        "uv.lock": "[[package]]\nname = 'uvicorn'\nversion = '0.41.0'\n",
        "docker/api/Dockerfile": "FROM python\nCOPY . /app\nWORKDIR /app\nCMD uvicorn shop:app\n", "shop.py": FASTAPI,
    }, {"folder": ".", "callable": "shop:app", "workers": 6, "uvicorn": "0.41.0", "env_file": "deploy/api.env"}),
    # docs.docker.com/reference/dockerfile: here-documents, ARG and ENV
    "a here-document as the script": ({
        "Dockerfile": "FROM python\nRUN <<EOF\nset -e\nCMD nothing\nEOF\nCOPY --chmod=755 <<'EOT' /start.sh\n"
            '#!/bin/sh\nexec gunicorn -w 3 shop:app\nEOT\nCMD ["/start.sh"]\n',
    }, {"callable": "shop:app", "workers": 3}),
    "a number of ARG that ENV keeps": ({
        "Dockerfile": "ARG PY=3.12\nFROM python:${PY}\nARG COUNT=3\nENV COUNT=${COUNT} \\\n    # a note\n"
            '    NAME=\'a b\'\nENTRYPOINT ["sh", "-c", "exec dumb-init -- gunicorn -w $COUNT \\"$@\\"", "--"]\n'
            'CMD ["shop:app"]\n',
    }, {"callable": "shop:app", "workers": 3, "environment": {"COUNT": "3", "NAME": "a b"}}),
    # docs.datadoghq.com, opentelemetry.io
    "ddtrace-run in the poetry of a user": ({
        "Dockerfile": 'FROM python\nCMD ["gosu", "app", "poetry", "run", "ddtrace-run", "gunicorn", "--workers=2", '
            '"a.b:c"]\n',
    }, {"callable": "a.b:c", "workers": 2}),
    "opentelemetry-instrument": ({
        "Dockerfile": 'FROM python\nENTRYPOINT ["opentelemetry-instrument", "--traces_exporter", "otlp", \\\n'
            '  "gunicorn", "--config=python:conf.gunicorn", "a:b"]\nCMD []\n',
        "conf/gunicorn.py": "workers = 4 if True else 2\nthreads = 2\n",
    }, {"callable": "a:b", "workers": 4, "threads": 2}),
    # the usual docker-entrypoint.sh with a word for each kind of container
    "a word that a script looks at": ({
        "Dockerfile": 'FROM python\nCOPY . /app\nENTRYPOINT ["/app/bin/run"]\nCMD ["web"]\n',
        "bin/run": "#!/usr/bin/env bash\nserve() {\n  local args=(--workers 4 --threads 2)\n  args+=(--bind :80)\n"
            '  exec gunicorn "${args[@]}" shop:app\n}\ncase "${1:-web}" in\n  dev) uvicorn shop:dev --reload ;;\n'
            '  api|rest) exec gunicorn -w 9 shop:api ;;\n  web) serve ;;\n  *) exec "$@" ;;\nesac\n',
    }, {"callable": "shop:app", "workers": 4, "threads": 2}),
    "a script that waits for the database": ({
        "docker-compose.yml": "services:\n  web:\n    build: .\n    command: ['./wait-for-it.sh', 'db:5432', '--', "
            "'gunicorn', '-w', '2', 'shop:app']\n",
        "wait-for-it.sh": '#!/usr/bin/env bash\nwhile [[ $# -gt 0 ]]; do shift; done\nCLI=("$@")\nexec "${CLI[@]}"\n',
    }, {"callable": "shop:app", "workers": 2}),
    # docs.gunicorn.org/en/latest/settings.html
    "gunicorn's short options": ({
        "Procfile": "web: gunicorn -e SHOP=tea --env RATE=3 -w2 -k=gevent --worker-connections 50 --preload shop:app\n",
    }, {
        "callable": "shop:app", "workers": 2, "worker_class": "gevent", "worker_connections": 50,
    }),
    # uwsgi-docs.readthedocs.io/en/latest/Configuration.html
    "uWSGI's settings as YAML": ({
        "Dockerfile": 'FROM python\nWORKDIR /app\nCOPY . /app\nCMD ["uwsgi", "--yaml", "/app/conf/uwsgi.yaml"]\n',
        "conf/uwsgi.yaml": "uwsgi:\n  wsgi-file: /app/site/serve.py\n  callable: app\n  processes: 3\n  master: true\n",
        "site/serve.py": FLASK,
    }, {"folder": ".", "callable": "site.serve:app", "workers": 3}),
    # www.uvicorn.org/deployment, processes that share a socket of supervisord
    "a socket of supervisord": ({
        "supervisord.conf": "[supervisord]\n[fcgi-program:uvicorn]\nsocket=tcp://localhost:8000\nnumprocs=3\n"
            "command=venv/bin/uvicorn --fd 0 main:App\nprocess_name=uvicorn-%(process_num)d\n",
        "main.py": FASTAPI.replace("app", "App"),
    }, {"callable": "main:App", "workers": 3}),
    # honcho.readthedocs.io
    "another Procfile": ({
        "Dockerfile": 'FROM python\nCMD ["honcho", "start", "-f", "Procfile.prod", "api"]\n',
        "Procfile.prod": "worker: celery worker\napi: gunicorn -w 3 shop:app\n",
    }, {"callable": "shop:app", "workers": 3}),
    # docs.litestar.dev/2/usage/cli.html
    "litestar run": ({
        "Dockerfile": "FROM python\nWORKDIR /app\nCOPY . .\nENV LITESTAR_APP=shop.web:create_app\n"
            'CMD ["litestar", "run", "--host", "0.0.0.0", "--wc", "3"]\n',
        "shop/web.py": "from litestar import Litestar\ndef create_app() -> Litestar:\n    return Litestar([])\n",
    }, {"callable": "shop.web:create_app()", "workers": 3}),
    # cookiecutter-django: two env_files, a database with a Dockerfile of its own, and an entrypoint that migrates
    "two env_files, a database that is built, and commands before the server": ({
        "compose.production.yml": "services:\n  web:\n    build: {context: ., dockerfile: docker/web/Dockerfile}\n"
            "    depends_on: [db]\n    env_file: [envs/web, envs/db]\n    command: /start\n  db:\n"
            "    build: {context: ., dockerfile: docker/db/Dockerfile}\n",
        "envs/web": "A=1\n", "envs/db": "B=2\n", "docker/db/Dockerfile": "FROM postgres:18\n",
        "docker/web/Dockerfile": "FROM python\nWORKDIR /app\nCOPY docker/web/start /start\nCOPY . /app\n",
        "docker/web/start": "#!/bin/bash\npython /app/manage.py collectstatic --noinput\nuv run ./manage.py migrate\n"
            "exec gunicorn shop.wsgi\n",
        "manage.py": "", "shop/wsgi.py": "application = get_wsgi_application()\n",
    }, {
        "env_file": ["envs/web", "envs/db"], "beside": {"compose": "compose.production.yml", "services": ["db"]},
        "before": "python manage.py collectstatic --noinput && python manage.py migrate",
    }),
    # full-stack-fastapi-template: a service of the same image ends before the application starts
    "a service that prepares the database in the same image": ({
        "compose.yml": "services:\n  init: &app\n    image: shop\n    build: .\n    command: bash scripts/init.sh\n"
            "    depends_on: [db]\n  db: {image: postgres}\n  web:\n    <<: *app\n    command: null\n    depends_on:\n"
            "      db: {condition: service_healthy}\n      init: {condition: service_completed_successfully}\n",
        "Dockerfile": "FROM python\nWORKDIR /app\nCOPY . /app\nCMD uvicorn shop:app\n", "shop.py": FASTAPI,
        "scripts/init.sh": "#!/bin/sh\npython seed.py\n", "alembic.ini": "",
    }, {
        "beside": {"compose": "compose.yml", "services": ["db"]},
        "before": "bash scripts/init.sh && alembic upgrade head",
    }),
    # full-stack-fastapi-template: the file for production adds to the file that has the images
    "a Compose file for production that adds to another": ({
        "compose.yml": "services:\n  web:\n    build: .\n    depends_on: [db]\n    environment: {A: tea, B: milk}\n"
            "  db: {image: postgres}\n",
        "compose.prod.yml": "services:\n  web:\n    environment: {B: sugar}\n  db: {restart: always}\n",
        "Dockerfile": "FROM python\nCOPY . /app\nWORKDIR /app\nCMD uvicorn shop:app\n", "shop.py": FASTAPI,
    }, {"beside": {"compose": "compose.yml", "services": ["db"]}, "environment": {"A": "tea", "B": "sugar"}}),
    "a Procfile, and the variables and the database of a Compose file": ({
        "Procfile": "web: gunicorn -w 3 shop.wsgi\n", "shop/wsgi.py": "",
        "shop.env": "KEY=s3cret\nGUNICORN_CMD_ARGS=--threads 2\n",
        "compose.yml": "services:\n  web:\n    build: .\n    command: gunicorn shop.wsgi\n    env_file: shop.env\n"
            "    environment: {A: tea}\n    depends_on: [db]\n  db: {image: postgres}\n",
    }, {
        "workers": 3, "threads": 2, "env_file": "shop.env", "environment": {"A": "tea"},
        "beside": {"compose": "compose.yml", "services": ["db"]},
    }),
    # healthchecks, moto and pypiserver: what a Dockerfile installs beside the file of requirements
    "extras, groups and further packages in a Dockerfile": ({
        "Dockerfile": "FROM python\nCOPY . /app\nRUN poetry export -f requirements.txt -o a.txt\n"
            "RUN pip install --no-cache-dir -U pip setuptools && \\\n"
            "    pip install 'psycopg[c]' minio==7.2.20 gunicorn==24.1.1 -e '.[server]' \\\n    --group docker\n"
            "WORKDIR /app\nCMD gunicorn shop:app\n",
        "pyproject.toml": "[project]\ndependencies = ['flask']\n[project.optional-dependencies]\nserver = ['redis']\n"
            "[dependency-groups]\ndocker = ['rich']\n",
        "shop.py": FLASK,
    }, {
        "requirements": "pyproject.toml", "extras": ["server", "docker"], "gunicorn": "24.1.1",
        "packages": ["psycopg[c]", "minio==7.2.20"],
    }),
    # mozmeao/basket: two here-documents with the same word, and a script of the repository around apt-get
    "here-documents of the same name in two stages": ({
        "Dockerfile": "FROM python AS builder\nRUN <<EOT\napt-install gcc libxml2-dev\nEOT\nRUN pip install lxml\n"
            "FROM python\nRUN <<EOT\napt-install libxml2\nEOT\nCOPY --from=builder /venv /venv\n"
            "CMD gunicorn shop:app\n",
    }, {"system_packages": ["libxml2", "gcc", "libxml2-dev"], "packages": ["lxml"]}),
    # Heroku's release phase; Docker's RUN before the application is copied to its stage
    "a release phase, and static files that are collected in the image": ({
        "Procfile": "release: python manage.py migrate\nweb: gunicorn shop.wsgi\n", "manage.py": "",
        "Dockerfile": "FROM python AS builder\nRUN pip install django && \\\n    KEY=k ./manage.py collectstatic\n"
            "FROM python\nCOPY --from=builder /app /app\n",
    }, {"before": "KEY=k python manage.py collectstatic && python manage.py migrate"}),
}  # fmt: skip
"""What the documentation of servers, platforms and templates shows; a comment names the source."""


SAID: dict[str, tuple[dict[str, str], str]] = {
    "gunicorn's settings without a command": ({
        "gunicorn.conf.py": "workers = 2\nthreads = 8\nworker_connections = 8\n",
        "shop/wsgi.py": "application = get_wsgi_application()\n",
    }, NO_COMMAND),
    "a base image that has the command": ({
        "api/Dockerfile": "FROM tiangolo/uvicorn-gunicorn-fastapi:python3.11-slim\nENV WORKERS_PER_CORE 3\n"
            "COPY ./app /app/app\n",
        "api/app/main.py": FASTAPI, "api/app/__init__.py": "", "api/requirements.txt": "fastapi\n",
    }, "api/Dockerfile: states no command, so that of its base image counts"),
    "Elastic Beanstalk": ({
        ".ebextensions/django.config": "option_settings:\n  aws:elasticbeanstalk:container:python:\n"
            "    WSGIPath: shop.wsgi:application\n    NumProcesses: 3\n    NumThreads: 20\n",
    }, NO_COMMAND),
    "a script whose arguments nobody knows": ({
        "Dockerfile": 'FROM python\nCOPY . /app\nENTRYPOINT ["/app/entrypoint.sh"]\n',
        "entrypoint.sh": '#!/bin/bash\nset -eu\ncase "$@" in\n  web) exec gunicorn -w 3 shop ;;\n'
            "  work) exec celery ;;\n  *) exit 1 ;;\nesac\n",
    }, "the command starts no server that the lab knows"),
    "a command in a README": ({
        "README.md": "# Shop\n\n    $ shop run\n\n```shell\ngunicorn -w4 'shop:app(root=\"/srv\")'\n```\n",
        "shop/__init__.py": "def app(**kwargs): ...\n", "shop/_app.py": FLASK,
        "pyproject.toml": "[project.scripts]\nshop = 'shop.cli:main'\n",
    }, NO_COMMAND),
    "a script of the project, and no command": ({
        "pyproject.toml": "[project.scripts]\nshop_server = 'shop.server:main'\n",
        "shop/__init__.py": "", "shop/app.py": "class Dispatcher: ...\ndef create_app(name): ...\n",
        "shop/server.py": "from werkzeug.serving import run_simple\nfrom shop.app import Dispatcher, create_app\n\n"
            "def main():\n    app = Dispatcher(create_app)\n    run_simple('localhost', 5000, app)\n",
    }, "TypeError: Dispatcher() takes no arguments"),
    # docs of PDM, Pipenv and Hatch: tasks
    "a task of PDM": ({
        "Procfile": "web: pdm run start\n",
        "pyproject.toml": "[tool.pdm.scripts]\nstart = {cmd = 'gunicorn -w 4 shop:app'}\n",
    }, "pdm run start: the lab does not follow the tasks of pdm; give the command that serves with --command"),
    "a task of PDM without run": ({
        "Procfile": "web: pdm -v start\n", "pyproject.toml": "[tool.pdm.scripts]\nstart = 'gunicorn -w 4 shop:app'\n",
    }, "pdm -v start: the lab does not follow the tasks of pdm"),
    "a task of Hatch": ({
        "Procfile": "web: hatch run prod:serve\n",
        "pyproject.toml": "[tool.hatch.envs.prod.scripts]\nserve = ['migrate', 'uvicorn --workers 2 shop:app']\n",
    }, "hatch run prod:serve: the lab does not follow the tasks of hatch"),
    "a project of Django with nothing but its own files": ({
        "manage.py": "", "shop/__init__.py": "", "shop/wsgi.py": "application = get_wsgi_application()\n",
    }, NO_COMMAND),
}  # fmt: skip
"""Starts that the lab does not follow: what it says then."""


def written(folder: Path, files: dict[str, str]) -> Path:
    """Write the files of an application."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def described(folder: Path, temporary: Path) -> tuple[Description, Followed | None]:
    """Describe a folder as ``stampede init --check`` does, but for the routes."""
    found = describe_folder(folder)
    if found.fallbacks is None:
        return found, None
    told = followed(folder, start_in(found, folder), temporary)
    return describe_folder(folder, answers=Answers(followed=told)), told


def start_in(found: Description, folder: Path) -> dict[str, object]:
    """Return what the container follows."""
    application = UserService.model_validate(yaml.safe_load(found.text)).application
    files = [application.env_file] if isinstance(application.env_file, Path) else application.env_file
    return start_of(application, read_env_files(folder / each for each in files)) | dict(found.fallbacks or {})


def stated(text: str) -> Any:
    """Return what a description says, and what it has as comments beside the command."""
    return yaml.safe_load(re.sub(rf"^  # (?=({'|'.join(OF_SERVER)}): )", "  ", text, flags=re.MULTILINE))


OF_SERVER = ("callable", "workers", "threads", "worker_class", "worker_connections", "interface", "backpressure",
             "replicas", "timeout_s", "max_requests", "max_requests_jitter")  # fmt: skip


@needs_a_root
@pytest.mark.parametrize("shape", SHAPES | FURTHER_SHAPES)
def test_a_start_is_followed_to_what_its_server_says(tmp_path: Path, shape: str) -> None:
    """If this environment lacks the server, the lab says which server the image has to have."""
    assert_found(tmp_path, *(SHAPES | FURTHER_SHAPES)[shape])


def assert_found(tmp_path: Path, files: dict[str, str], finds: dict[str, object]) -> None:
    """Assert that a start is followed to what is expected. ``folder`` is that from which the server imports."""
    folder = written(tmp_path / "shop", files).resolve()

    description, told = described(folder, tmp_path)

    text = description.text.replace(f"{folder}/", "").replace(f"{folder}", ".")
    found: Any = stated(text)
    said = found["application"] | found["served"] | ({"beside": found["beside"]} if "beside" in found else {})
    if told and told.missing:
        assert f"starts {told.missing}, which the image lacks" in text
        finds = {name: value for name, value in finds.items() if name not in OF_SERVER}
    server = told.server if told else None
    said["folder"] = os.path.relpath(server.chdir or server.folder, FOLDER) if server else said.get("working_folder")
    assert {name: said.get(name) for name in finds} == finds
    UserService.model_validate(yaml.safe_load(text))


@needs_a_root
@pytest.mark.parametrize("shape", SAID)
def test_a_start_that_cannot_be_followed_is_said(tmp_path: Path, shape: str) -> None:
    """Nothing is guessed in the place of what its server would say."""
    files, says = SAID[shape]

    text = described(written(tmp_path / "shop", files).resolve(), tmp_path)[0].text

    assert [line for line in text.splitlines() if line.startswith("# ") and says in line] != []
    assert {"callable", "workers"} & {*stated(text)["application"], *stated(text)["served"]} == set()


def test_without_an_engine_the_command_is_written_and_the_numbers_are_not(tmp_path: Path) -> None:
    files = {"Procfile": "web: gunicorn -w $COUNT shop:app\n", "requirements.txt": "gunicorn==26.2.0\n"}

    text = describe_folder(written(tmp_path, files).resolve()).text

    assert text.replace(str(tmp_path.resolve()), "…").splitlines()[2:] == [
        "# Procfile:1: $COUNT: the value is not in the repository",
        "application:",
        '  folder: "…"',
        '  command: "gunicorn -w $COUNT shop:app"  # from Procfile:1',
        "  requirements: requirements.txt",
        "served:",
        '  gunicorn: "26.2.0"  # from requirements.txt',
        "  # workers, threads and the application: stampede init --check asks the server",
        "requests:",
        "  # the routes: stampede init --check asks the application",
        '  page: {path: "/", users: 10, pause_s: 0.1}  # guessed: what people ask for',
    ]
    UserService.model_validate(yaml.safe_load(text))


def test_a_command_that_is_given_counts_more_than_all_files(tmp_path: Path) -> None:
    written(tmp_path, {"Procfile": "web: gunicorn shop:app\n"})

    text = describe_folder(tmp_path.resolve(), command="uvicorn shop:api").text

    assert '  command: "uvicorn shop:api"  # from --command\n' in text


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"Dockerfile": "FROM python:alpine\nRUN apk add --no-cache libpq\nCMD gunicorn shop:app\n"},
         "Dockerfile:2: apk add --no-cache libpq: write Debian's names in application.system_packages"),
        ({"Dockerfile": "FROM debian\nARG MORE\nRUN apt-get install -y $MORE\nCMD gunicorn shop:app\n"},
         "Dockerfile:3: the lab does not follow apt-get install $MORE"),
        ({"Dockerfile": "FROM conda\nRUN conda env create\nCMD gunicorn shop:app\n"},
         "Dockerfile:2: the lab does not follow conda env create"),
        ({"Dockerfile": 'FROM python\nRUN ["make", "install"]\nCMD gunicorn shop:app\n'},
         "Dockerfile:2: the lab does not follow make install"),
        ({"Dockerfile": "FROM python\nRUN pip install --index-url=https://a.b -r c.txt\nCMD gunicorn shop:app\n"},
         "# if the application needs these steps: docker build -t "),
        ({"Dockerfile": "FROM python\nENV PIP_INDEX_URL=https://user:word@a.b\nCMD gunicorn shop:app\n"},
         "Dockerfile:2: the lab does not follow ENV PIP_INDEX_URL"),
        ({"Procfile": "web: gunicorn -u shop -b unix:/run/shop.sock a:b\n"},
         "Procfile:1: not kept: user shop: the container runs as a user without rights"),
        ({"Procfile": "web: python manage.py runserver\n", "manage.py": MANAGE},
         "Procfile:1: runserver is for development"),
        ({
            "Dockerfile": 'FROM python\nCOPY . /a\nENTRYPOINT ["/a/run.sh"]\n',
            "run.sh": "#!/bin/sh\nset -e\nexec shop-server run\n",
        }, "exec: shop-server: not found"),
        ({"Dockerfile": "FROM python\nARG N=4\nCMD gunicorn -w $N shop:app\n"},
         "Dockerfile:3: $N: the value"),
        ({
            "Procfile": "web: python serve.py\n",
            "serve.py": "import uvicorn\nfrom conf import n\nuvicorn.run('shop:app', workers=n.WORKERS)\n",
        }, "its last words: ModuleNotFoundError: No module named 'conf'"),
        ({
            "compose.yaml": "services:\n  web:\n    build: .\n    command: uvicorn shop:app\n"
                "    environment: ['KEY=https://${HOST:?none}']\n",
        }, "compose.yaml: Compose cannot read it: "),
        ({
            "a/Dockerfile": "FROM python\nCOPY app.py /a/\nCMD gunicorn app:app\n", "a/app.py": FLASK,
            "b/Dockerfile": "FROM python\nCOPY api.py /b/\nCMD uvicorn api:app\n", "b/api.py": FASTAPI,
        }, "b/Dockerfile:3 starts another service, which was not taken; stampede init b describes it"),
        ({
            "Procfile": "web: shop server start\n", "pyproject.toml": "[project.scripts]\nshop = 'cli:main'\n",
            "cli.py": "import uvicorn\ndef develop():\n    uvicorn.run('shop:app', reload=True)\ndef main(): ...\n",
        }, "Procfile:1: the command starts no server that the lab knows"),
        ({
            "Procfile": "web: uvicorn shop:app\n", "shop.py": FASTAPI,
            "pyproject.toml": "[project]\nrequires-python = '>=3.14,<4.0'\ndependencies = ['fastapi']\n",
        }, "pyproject.toml: requires Python >=3.14,<4.0, but the lab serves a folder with Python 3.13"),
        ({"Procfile": "web: uvicorn shop:app --reload\n"}, "Procfile:1: not kept: reload True: it is for development"),
        ({
            "compose.yaml": "services:\n  web:\n    build: .\n    command: uvicorn shop:app\n    env_file: a.env\n",
            "a.env.example": "A=1\n",
        }, "a.env.example may show what is in it"),
        ({"shop.py": FLASK, "environment.yml": "dependencies: [flask]\n"}, "no file of requirements was found"),
        ({"shop.py": FLASK, "setup.cfg": "[options]\ninstall_requires = flask\n"},
         "setup.cfg: the lab does not read install_requires; write them into a requirements.txt"),
    ],
)  # fmt: skip
@needs_a_root
def test_what_init_cannot_read_is_said_at_its_place(tmp_path: Path, files: dict[str, str], says: str) -> None:
    """It stands at the top of the file, and no guess looks like a finding."""
    text = described(written(tmp_path / "shop", files).resolve(), tmp_path)[0].text

    assert [line for line in text.splitlines() if line.startswith("# ") and says in line] != []


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        ({
            "pyproject.toml": "[project]\ndependencies = ['flask>=3', 'gunicorn']\n",
            "uv.lock": "[[package]]\nname = 'gunicorn'\nversion = '23.0.0'\n",
        }, ["flask>=3", "gunicorn==23.0.0"]),
        ({
            "pyproject.toml": "[tool.poetry.dependencies]\npython = '^3.11'\na = '^1.2'\nb = '~2.1'\nc = '*'\n"
                "d = {version = '1.0', extras = ['x']}\ne = '^0.3.1'\n",
        }, ["a>=1.2,<2", "b>=2.1,<2.2", "c", "d[x]==1.0", "e>=0.3.1,<0.4"]),
        ({"Pipfile": "[packages]\nflask = '*'\n", "Pipfile.lock": '{"default": {"flask": {"version": "==3.1.0"}}}'},
         ["flask==3.1.0"]),
        ({  # a lock file of another form takes nothing from the others
            "Pipfile": "[packages]\nflask = '*'\n", "uv.lock": "[[package]]\nversion = '1'\n",
            "Pipfile.lock": '{"default": {"flask": {"version": "==3.1.0"}}}',
        }, ["flask==3.1.0"]),
        ({  # bounds of Poetry that pip does not know, with a lock
            "pyproject.toml": "[tool.poetry.dependencies]\na = '^0.40b0'\nb = '^2.0, <2.9'\nc = '^2.0 || ^3.0'\n"
                "d = {version = '~0.30.0b1', extras = ['x'], markers = \"sys_platform == 'linux'\"}\n"
                "e = [{version = '<2', python = '<3.9'}, {version = '>=2', python = '>=3.9'}]\n",
            "poetry.lock": "".join(f"[[package]]\nname = '{name}'\nversion = '9.1'\n" for name in "abcde"),
        }, ["a==9.1", "b==9.1", "c==9.1", "d[x]==9.1 ; sys_platform == 'linux'", "e==9.1"]),
    ],
)  # fmt: skip
def test_requirements_come_from_whichever_file_says_them(
    tmp_path: Path, files: dict[str, str], lines: list[str]
) -> None:
    written(tmp_path, files)

    assert required_lines(tmp_path / next(iter(files))) == lines


def test_what_is_optional_is_required_if_an_extra_of_poetry_names_it(tmp_path: Path) -> None:
    """The release of a lock file says nothing of what comes from Git."""
    written(tmp_path, {"poetry.lock": "[[package]]\nname = 'My_C'\nversion = '2.1'\n", "pyproject.toml": (
        "[tool.poetry.dependencies]\na = '*'\nb = {version = '1.0', optional = true}\n"
        "my-c = {git = 'https://example.com/c', tag = 'v2', optional = true}\n[tool.poetry.extras]\nweb = ['my_c']\n"
    )})  # fmt: skip

    assert required_lines(tmp_path / "pyproject.toml") == ["a"]
    assert required_lines(tmp_path / "pyproject.toml", ["web"]) == ["a", "my-c @ git+https://example.com/c@v2"]


def test_a_pinned_release_is_found_and_a_bound_is_none() -> None:
    assert pinned_release("gunicorn", ["flask==3.0", "Gunicorn[gevent]==22.0.0 ; python_version > '3'"]) == "22.0.0"
    assert pinned_release("gunicorn", ["gunicorn>=22"]) is None


BUILT = "FROM python AS build\nWORKDIR /app\nCOPY requirements.txt .\n"
WEB_AND_DB = "services:\n  web:\n    build: {context: ., dockerfile: dev/Dockerfile}\n    command: flask run\n" \
    "    volumes: ['media:/media']\n    depends_on: [db]\n  db: {image: postgres}\nvolumes: {media: {}}\n"  # fmt: skip
LIES: dict[str, tuple[dict[str, str], dict[str, str] | None, str | None]] = {
    "the whole folder in another stage, after a file": ({
        "Dockerfile": BUILT + "COPY . .\nFROM python\nWORKDIR /app\nCOPY --from=build /app /app\nCMD gunicorn a:b\n",
    }, {"/app": "."}, None),
    "a file and a folder in another stage": ({
        "Dockerfile": BUILT + "COPY src ./src\nFROM python\nWORKDIR /srv/shop\nCOPY --from=build /app /srv\n"
            "CMD gunicorn a:b\n", "src/a.py": "",
    }, {"/srv/requirements.txt": "requirements.txt", "/srv/src": "src", "/srv/shop": "."}, None),
    "a file in a folder that RUN has made": ({
        "Dockerfile": "FROM python\nRUN mkdir /app\nCOPY requirements.txt /app\nCOPY . /app\nWORKDIR /app\n"
            "CMD gunicorn a:b\n",
    }, {"/app": "."}, None),
    "a file in a folder that is the working folder later": ({
        "Dockerfile": "FROM python\nADD a.py /srv/app\nWORKDIR /srv/app\nCMD gunicorn a:b\n",
    }, {"/srv/app": "."}, None),
    "all that lies there, among it a folder": ({
        "Dockerfile": "FROM python\nWORKDIR /app\nCOPY * ./\nCMD gunicorn a:b\n", "tests/a.py": "",
    }, {"/app": "."}, None),
    "a folder by a pattern, beside a file": ({
        "Dockerfile": "FROM python\nWORKDIR /app\nCOPY pkg* ./\nCOPY a.py .\nCMD gunicorn a:b\n", "pkg/b.py": "",
    }, {"/app": "."}, None),
    "a folder with a folder in it, by a pattern": ({
        "Dockerfile": "FROM python\nWORKDIR /app\nCOPY src/* /app/\nCMD gunicorn a:b\n",
        "src/a.py": "", "src/static/a.css": "",
    }, {"/app": "src"}, "src"),
    "volumes of a Compose file whose image is another": ({
        "Dockerfile": "FROM python\nRUN mkdir /own\nWORKDIR /app\nCOPY . .\nCMD gunicorn a:b\n",
        "dev/Dockerfile": "FROM python\nRUN mkdir /develop\n", "compose.dev.yaml": WEB_AND_DB,
    }, {"/app": ".", "/own": "own", "/media": "media"}, None),
    "a folder of a host whose name the package has": ({
        "p.service": "[Service]\nWorkingDirectory=/srv/portal\nExecStart=/srv/portal/venv/bin/gunicorn portal:app\n",
        "portal/__init__.py": FLASK,
    }, {"/srv/portal": "."}, None),
    "a folder of a host whose name a folder with the module has": ({
        "p.service": "[Service]\nWorkingDirectory=/opt/site\nExecStart=gunicorn site.wsgi:application\n",
        "site/wsgi.py": "",
    }, {"/opt/site": "."}, None),
    "a folder of a host whose name a package has, and a module elsewhere": ({
        "p.service": "[Service]\nWorkingDirectory=/opt/site\nExecStart=gunicorn other:app\n", "site/__init__.py": "",
    }, {"/opt/site": "."}, None),
    "a folder of a host whose name a package with the module has": ({
        "p.service": "[Service]\nWorkingDirectory=/srv/shop/src\nExecStart=gunicorn app:app\n",
        "src/__init__.py": "", "src/app.py": FLASK,
    }, {"/srv/shop/src": "src"}, "src"),
}  # fmt: skip


@pytest.mark.parametrize("shape", LIES)
def test_what_an_image_has_lies_where_its_dockerfile_puts_it(tmp_path: Path, shape: str) -> None:
    files, paths, working_folder = LIES[shape]

    text = describe_folder(written(tmp_path, {"a.py": "", "requirements.txt": "flask\n"} | files).resolve()).text

    found = yaml.safe_load(text)["application"]
    assert (found["paths"], found.get("working_folder")) == (paths, working_folder)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"compose.yaml": "services: {default: {build: ., command: gunicorn a:b}}\n"},
         'command: "gunicorn a:b"  # from compose.yaml, default\n'),
        ({"a,b/one.service": "[Service]\nExecStart=gunicorn a:b\nCPUQuota=200%\n",
          "c/two.service": "[Service]\nExecStart=gunicorn a:b\nCPUQuota=100%\n"}, "cpus: 2  # from a,b/one.service"),
    ],
)  # fmt: skip
def test_a_service_and_a_file_may_have_any_name(tmp_path: Path, files: dict[str, str], says: str) -> None:
    assert says in describe_folder(written(tmp_path, files).resolve()).text


LAUGHS = "".join(f"a{n}: &a{n} [{', '.join(9 * [f'*a{n - 1}' if n else 'ha'])}]\n" for n in range(10))
COMPOSE_WEB = "services:\n  web:\n    command: gunicorn app:app\n"
APP_AND = {"app.py": "def app(environ, start_response): ...\n"}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"render.yaml": "services: [3]\n"}, "render.yaml: the lab does not know this form"),
        ({"compose.yaml": "services:\n  web: {command: uvicorn a:b, deploy: 3}\n"},
         "compose.yaml: Compose cannot read it: "),
        ({"supervisord.conf": "[program:web]\ncommand=\n"}, "supervisord -c"),
        ({"uv.lock": "[[package]]\nversion = '1'\n", "pyproject.toml": "[project]\ndependencies = ['flask']\n"},
         NO_COMMAND),
        ({"Procfile": "web: python -c 'import a\n"}, "from Procfile:1"),
        ({"Dockerfile": "FROM python\nENV NO=1 []=2\nCMD python -c 'a\\\n b'\n"}, "from Dockerfile:3"),
        ({"Procfile": "web: gunicorn a:b\n", "app.json": '{"env": [3], "formation": ["x"]}'}, "from Procfile:1"),
        ({"Procfile": "web: gunicorn a:b\n", "app.json": "[]"}, "from Procfile:1"),
        ({"taskdef.json": '{"containerDefinitions": ["x", {"command": 3}]}'}, NO_COMMAND),
        ({"k8s.yaml": "kind: Deployment\nspec: {template: {spec: {containers: [{env: [{value: 3}], command: [a]}]}}}"},
         NO_COMMAND),
        ({"Dockerfile": f"FROM python\nWORKDIR /{300 * 'w'}\nCOPY {300 * 'x'} **y {5000 * 'z'} /a\nCMD gunicorn a:b\n"},
         "from Dockerfile:4"),
        ({"Dockerfile": f"FROM python\nRUN pip install -r {300 * 'r'}\nCMD gunicorn a:b\n"}, "from Dockerfile:3"),
        ({"compose.yaml": f"services: {{web: {{build: {{context: ., dockerfile: {300 * 'd'}}}, command: uvicorn}}}}"},
         "from compose.yaml, web"),
        ({"compose.yaml": LAUGHS + COMPOSE_WEB}, "compose.yaml: this file cannot be read: it is not valid YAML: with"),
        ({"compose.yaml": "a: &a [*a]\n" + COMPOSE_WEB}, "compose.yaml: this file cannot be read: "),
        ({"compose.yaml": 2000 * "[" + "\n"}, "nested too deeply"),
        ({"compose.yaml": "services:\n  web: {build: ., extends: web}\n"}, "compose.yaml: Compose cannot read it: "),
        ({"compose.yaml": "services:\n  web: {build: ., extends: {file: b.yaml, service: web}}\n",
          "b.yaml": "services:\n  web: {extends: {file: compose.yaml, service: web}}\n"},
         "compose.yaml: Compose cannot read it: "),
        ({"compose.yaml": "services:\n  web: {build: ., env_file: ../outside.env, command: gunicorn app:app}\n"},
         "compose.yaml: the env_file ../outside.env is outside the folder, so it is left out"),
        ({"Procfile": "web: gunicorn app:app\n" + 2**21 * "#"}, "Procfile: it has more than 1 MiB"),
    ],
)  # fmt: skip
def test_a_file_of_another_form_or_without_an_end_is_said_and_the_description_stays_yaml(
    tmp_path: Path, files: dict[str, str], says: str
) -> None:
    (tmp_path / "outside.env").write_text("SECRET=1\n")

    text = describe_folder(written(tmp_path / "shop", APP_AND | files)).text

    assert [line for line in text.splitlines() if "# " in line and says in line] != []
    assert {"application", "served", "requests"} <= {*yaml.safe_load(text)}
    assert "SECRET" not in text


@pytest.mark.parametrize("name", ["Procfile", "compose.yaml", "start.sh"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_named_and_not_read(tmp_path: Path, name: str, kind: str) -> None:
    files = {"Procfile": "web: sh start.sh\n", "start.sh": "#!/bin/sh\nexec gunicorn -c gunicorn.conf.py app:app\n"}
    folder = written(tmp_path / "shop", APP_AND | {other: text for other, text in files.items() if other != name})
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")

    text = describe_folder(folder).text

    assert [line for line in text.splitlines() if line.startswith("# ") and name in line] != []


@pytest.mark.parametrize(
    ("line", "variables"),
    [
        ("WEB_CONCURRENCY=4 # workers", {"WEB_CONCURRENCY": "4"}),
        ('Q="5 # 6" # x', {"Q": "5 # 6"}),
        ("export A = 1#2", {"A": "1#2"}),
        ("A=# nothing", {"A": ""}),
        ("A='it is' ", {"A": "it is"}),
        ('A="open', {"A": '"open'}),
        ("# A=1", {}),
    ],
)
def test_an_env_file_is_read_in_one_way(tmp_path: Path, line: str, variables: dict[str, str]) -> None:
    """By ``stampede init``, and for the application."""
    (tmp_path / ".env").write_text(f"{line}\n")

    assert read_env_files([tmp_path / ".env"]) == variables_of_env_file(f"{line}\n") == variables


@needs_a_root
def test_a_command_that_does_not_end_is_told_with_its_last_words(tmp_path: Path) -> None:
    folder = written(tmp_path / "shop", {"Procfile": "web: echo no database yet; while true; do sleep 9; done\n"})
    found = describe_folder(folder.resolve())

    told = followed(folder, start_in(found, folder.resolve()) | {"within_s": 1}, tmp_path)

    text = describe_folder(folder.resolve(), answers=Answers(followed=told)).text
    assert "# Procfile:1: the command does not end; its last words: no database yet\n" in text


KNOWN: dict[str, tuple[dict[str, str], list[str]]] = {
    "a command that a service inherits": ({
        "compose.yaml": "x-web: &web\n  command: gunicorn app:app\nservices:\n  web:\n    <<: *web\n    build: .\n"
            "  other:\n    build: .\n    command: celery worker\n",
    }, ['command: "gunicorn app:app"  # from compose.yaml, web']),
    "FLASK_APP with a suffix": ({
        "Dockerfile": 'FROM python\nENV FLASK_APP=hello.py\nCMD ["flask", "run"]\n',
        "hello.py": "from flask import Flask\nweb = Flask(__name__)\n",
    }, ['callable: "hello:web"']),
    "a number that only production knows, without which gunicorn does not start": ({
        "Procfile": "web: gunicorn --workers $WEB_CONCURRENCY --threads 5 shop.wsgi\n",
    }, [
        "  # workers: 1  # guessed: Procfile:1: $WEB_CONCURRENCY: the value is not in the repository\n"
        "  # threads: 5  # guessed: Procfile:1: $WEB_CONCURRENCY: the value is not in the repository\n",
        'callable: "shop.wsgi:application"', '    WEB_CONCURRENCY: "1"\n',
    ]),
    "numbers that follow from the cores": ({
        "Procfile": "web: gunicorn -c conf.py a:b\n", ".env": "THREADS=4\n",
        "conf.py": "import multiprocessing\nworkers = multiprocessing.cpu_count() + 1\n",
    }, [
        f"  # workers: {CORES + 1}  # gunicorn says, on {CORES} cores\n",
        "# .env is no part of the image; if the service reads it, name it in env_file\n",
    ]),
    "an entrypoint that waits for a database, and is left aside": ({
        "Dockerfile": 'FROM python\nCOPY . /app\nENTRYPOINT ["/app/wait"]\nCMD ["gunicorn", "-w", "3", "a:b"]\n',
        "wait": "#!/bin/sh\necho no database yet\nexit 1\n",
    }, [
        "so the command was followed without it; its last words: no database yet", '  command: "gunicorn -w 3 a:b"',
    ]),
}  # fmt: skip


@needs_a_root
@pytest.mark.parametrize("shape", KNOWN)
def test_what_is_known_and_what_is_guessed_are_told_apart(tmp_path: Path, shape: str) -> None:
    files, says = KNOWN[shape]

    text = described(written(tmp_path / "shop", files).resolve(), tmp_path)[0].text

    assert [each for each in says if each not in text] == []


PIECES = [
    "web: ", "gunicorn ", "-c gunicorn.conf.py ", "app:app", "\n", "workers = ", "2 ** ", "((", "{", "[", "]",
    "}", ": ", "&a ", "*a ", "- ", "services:\n", "  web:\n", "    command: ", "    extends: ", "env_file: ",
    "${", "$(", "`", "if ", "; then ", "fi", "for x in y; do ", "done", ". ./start.sh", "sh start.sh",
    "FROM x\n", "CMD ", "RUN ", "ENV ", "%(", "<<E\n", "'", '"', "\\", "\x1b[2J", "\x00", "\u202e", "\x9b",
    "999999999999999999999999999999", "1e999", "!!timestamp x", "2024-99-99", "A=", "#", "def f(): ", "f()",
    "exec ", "import ",
]  # fmt: skip
FOREIGN = (
    "Procfile", "Dockerfile", "compose.yaml", "start.sh", "gunicorn.conf.py", ".env", "uwsgi.ini",
    "pyproject.toml", "requirements.txt", "app.yaml", "supervisord.conf", "app.py", "render.yaml", "web.service",
    "taskdef.json", "k8s.yaml",
)  # fmt: skip
TEXTS = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from(PIECES), max_size=25).map(lambda pieces: "".join(pieces).encode()),
    st.tuples(st.sampled_from(PIECES), st.integers(1, 3000)).map(lambda one: (one[0] * one[1]).encode()),
    st.tuples(st.sampled_from([LAUGHS + COMPOSE_WEB, "FROM python\nCOPY . .\nCMD sh start.sh\n"]),
              st.integers(0, 400)).map(lambda one: one[0][: one[1]].encode()),
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.dictionaries(st.sampled_from(FOREIGN), TEXTS, min_size=1, max_size=4))
def test_whatever_a_folder_has_it_is_described_or_refused(tmp_path: Path, files: dict[str, bytes]) -> None:
    """No control character of a stranger's file reaches the description but as an escape."""
    folder = Path(mkdtemp(dir=tmp_path))
    for name, content in files.items():
        (folder / name).write_bytes(content)

    with suppress(LabError):
        text = describe_folder(folder).text
        assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text) is None
