"""``stampede init`` reads further ways in which people start a service, from public repositories and documentation."""

import os
from pathlib import Path

import pytest
import yaml

from stampede.service.discovery import NO_COMMAND, describe_folder
from tests.whole.test_discovery import FASTAPI, FLASK, assert_found, described, needs_a_root, written

CORES = os.cpu_count() or 1
IMAGE = "FROM python:3.12\nWORKDIR /app\nCOPY . .\n"
APP = {"app.py": FLASK}
GUNICORN = IMAGE + 'CMD ["gunicorn", "-c", "gunicorn.conf.py", "app:app"]\n'
SCRIPT = IMAGE + 'ENTRYPOINT ["./entrypoint.sh"]\n'
DEPLOYMENT = (
    "apiVersion: apps/v1\nkind: Deployment\nspec:\n  replicas: 2\n  template:\n    spec:\n      containers:\n"
    "      - {name: proxy, image: 'nginx:1'}\n      - name: web\n        image: shop\n"
)
PASSED = "services:\n  web: {build: ., command: gunicorn app:app, environment: [WEB_CONCURRENCY, K]}\n"
SHAPES: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    # github.com/docker-library, the entrypoint of many images
    "a script that puts the server before options": ({
        "Dockerfile": SCRIPT + 'CMD ["-w", "3", "app:app"]\n',
        "entrypoint.sh": '#!/bin/sh\nif [ "${1#-}" != "$1" ]; then\n  set -- gunicorn "$@"\nfi\nexec "$@"\n',
    }, {"callable": "app:app", "workers": 3}),
    "another server if a variable is set": ({
        "Dockerfile": SCRIPT, "uwsgi.ini": "[uwsgi]\nmodule = app:app\n",
        "entrypoint.sh": '#!/bin/sh\nif [ "$USE_UWSGI" = 1 ]; then\n  exec uwsgi --ini uwsgi.ini\nfi\n'
            'if [ "$MIGRATE" = 1 ]; then\n  flask db upgrade\nfi\nexec gunicorn -w $(expr $(nproc) \\* 2 + 1) '
            "app:app\n",
    }, {"callable": "app:app", "workers": CORES * 2 + 1, "worker_class": "sync", "before": None}),
    # docs.astral.sh/uv, getsops.io and coreutils
    "wrappers with options": ({
        "Procfile": "web: sops exec-env s.yaml 'stdbuf -oL uv run --frozen gunicorn -w 3 app:app'\n",
    }, {"callable": "app:app", "workers": 3}),
    "uv run with a program": ({
        "Dockerfile": IMAGE + 'CMD ["uv", "run", "--no-dev", "main.py"]\n',
        "main.py": "from shop.server import run\nrun()\n", "shop/__init__.py": "",
        "shop/server.py": "import uvicorn\nfrom shop.settings import settings\nOPTIONS = {'port': 80}\ndef run():\n"
            "    uvicorn.run('shop.web:app', workers=settings.workers, **OPTIONS)\n",
        "shop/settings.py": "from pydantic_settings import BaseSettings\nclass Settings(BaseSettings):\n"
            "    workers: int = 4\nsettings = Settings()\n",
        "shop/web.py": FASTAPI,
    }, {"callable": "shop.web:app", "workers": 4}),
    # docs.gunicorn.org/en/latest/custom.html
    "an application of gunicorn in a program": ({
        "Procfile": "web: python main.py\n", "app.py": FLASK,
        "main.py": "import os\nfrom gunicorn.app.base import BaseApplication\nfrom app import app\ndef count():\n"
            "    return os.cpu_count() * 2 + 1\nclass Own(BaseApplication):\n"
            "    def __init__(self, app, options):\n        self.application, self.options = app, options\n"
            "        super().__init__()\n    def load_config(self):\n        for name, value in self.options.items():\n"
            "            self.cfg.set(name, value)\n    def load(self):\n        return self.application\n"
            "if __name__ == '__main__':\n"
            "    options = {'bind': ':80', 'workers': count(), 'threads': 2}\n    Own(app, options).run()\n",
    }, {"callable": "app:app", "workers": CORES * 2 + 1, "threads": 2, "worker_class": "gthread"}),
    # github.com/emmett-framework/granian and hypercorn.readthedocs.io, from a program
    "granian in a program": ({
        "Procfile": "web: python main.py\n", "app.py": FASTAPI,
        "main.py": "from granian import Granian\nfrom granian.constants import Interfaces\n"
            "Granian('app:app', interface=Interfaces.ASGI, workers=4).serve()\n",
    }, {"callable": "app:app", "interface": "asgi", "workers": 4}),
    "hypercorn in a program": ({
        "Procfile": "web: python main.py\n", "app.py": FASTAPI,
        "main.py": "import asyncio\nfrom hypercorn.asyncio import serve\nfrom hypercorn.config import Config\n"
            "from app import app\nasyncio.run(serve(app, Config()))\n",
    }, {"callable": "app:app", "hypercorn": "0.18.0", "workers": 1}),
    "a program in the command": ({"Procfile": "web: python -c \"import uvicorn; uvicorn.run('app:app', workers=2)\"\n"},
         {"workers": 2}),
    # gnu.org/software/make
    "a Makefile with variables": ({
        "Procfile": "web: make serve\n",
        "Makefile": "N ?= 3\nRUN := uv run\nserve:\n\t$(RUN) gunicorn -w $(N) app:app\n",
    }, {"callable": "app:app", "workers": 3}),
    # docs.docker.com/reference/compose-file: extends, include, replicas, entrypoint
    "a service that extends another": ({
        "Dockerfile": IMAGE + 'ENTRYPOINT ["gunicorn"]\nCMD ["-w", "9", "app:app"]\n',
        "common.yml": "services:\n  base:\n    build: .\n    environment: {SHOP: tea}\n",
        "compose.yaml": "services:\n  web:\n    extends: {file: common.yml, service: base}\n"
            "    command: -w 5 app:app\n    environment: {RATE: 3}\n    deploy: {replicas: '${COUNT:-3}'}\n",
    }, {"callable": "app:app", "workers": 5, "replicas": 3, "environment": {"SHOP": "tea", "RATE": "3"}}),
    "a Compose file that includes another": ({
        "compose.yaml": "include: [deploy/web.yml]\n",
        "deploy/web.yml": "services:\n  web: {build: .., command: gunicorn -w 4 app:app}\n", "Dockerfile": IMAGE,
    }, {"callable": "app:app", "workers": 4}),
    "a stage for tests at the end": ({
        "Dockerfile": "FROM python AS web\nCMD gunicorn -w 3 app:app\nFROM web AS test\nCMD pytest\n",
    }, {"workers": 3}),
    # docs.gunicorn.org, settings
    "settings in another folder than the application": ({
        "Dockerfile": IMAGE + 'CMD ["gunicorn", "-c", "/app/gunicorn.conf.py"]\n',
        "gunicorn.conf.py": "wsgi_app = 'shop:app'\nchdir = '/app/back'\nworkers = 3\n", "back/shop.py": FLASK,
    }, {"folder": "back", "callable": "shop:app", "workers": 3}),
    # kubernetes.io: variables in a command, ConfigMaps, and a container with the command of its image
    "variables of Kubernetes": ({
        "k8s/web.yaml": DEPLOYMENT + "        command: [gunicorn, -w, $(N), 'app:app']\n        envFrom: "
            "[{configMapRef: {name: web}}]\n",
        "k8s/config.yaml": "kind: ConfigMap\nmetadata: {name: web}\ndata: {N: '5'}\n",
    }, {"callable": "app:app", "workers": 5, "replicas": 2}),
    "the command of the image in Kubernetes": ({
        "k8s/web.yaml": DEPLOYMENT + "        env: [{name: WEB_CONCURRENCY, value: '5'}]\n",
        "Dockerfile": IMAGE + "CMD gunicorn app:app\n",
    }, {"callable": "app:app", "workers": 5, "replicas": 2}),
    "Knative": ({
        "service.yaml": "apiVersion: serving.knative.dev/v1\nkind: Service\nspec: {template: {spec: {containers: "
            "[{image: x, command: [gunicorn, -w, '4', 'app:app']}]}}}\n",
    }, {"workers": 4}),
    # what ends a worker, and what the lab does not apply
    "a timeout of gunicorn, and requests after which it replaces a worker": ({
        "Procfile": "web: gunicorn -w 3 -t 120 --max-requests 500 --max-requests-jitter=50 app:app\n",
    }, {"timeout_s": 120, "max_requests": 500, "max_requests_jitter": 50}),
    "a timeout of uvicorn, and requests after which it replaces a worker": ({
        "Procfile": "web: uvicorn --workers 2 --timeout-worker-healthcheck 30 --limit-max-requests 500 app:app\n",
    }, {"timeout_s": 30, "max_requests": 500, "max_requests_jitter": None}),
    "requests after which uWSGI replaces a worker": ({
        "Procfile": "web: uwsgi --ini uwsgi.ini", "uwsgi.ini": "[uwsgi]\nmodule = app:app\nmax-requests = 500\n",
    }, {"max_requests": 500, "max_requests_jitter": None}),
    **{f"uWSGI with {option}": ({
        "Procfile": "web: uwsgi --ini uwsgi.ini", "uwsgi.ini": f"[uwsgi]\nmodule = app:app\n{option}\nprocesses = 3\n",
    }, {"callable": "app:app", "workers": 3}) for option in (
        "logto = /var/log/no/web.log", "daemonize = /var/log/no/web.log", "logger = file:/var/log/no/web.log",
        "logto2 = /var/log/no/web.log", "daemonize2 = /var/log/no/web.log")},
    # fly.io, render.com, docs.railway.com, docs.cloudfoundry.org, docs.aws.amazon.com/apprunner, docs.platform.sh
    "the command of the image on Fly": ({
        "fly.toml": "[build]\ndockerfile = 'deploy/Dockerfile'\n[env]\nWEB_CONCURRENCY = '3'\n",
        "deploy/Dockerfile": IMAGE + "CMD gunicorn app:app\n",
    }, {"callable": "app:app", "workers": 3}),
    "the command of the image on Render": ({
        "render.yaml": "services: [{type: web, runtime: docker, numInstances: 3, envVars: [{key: WEB_CONCURRENCY, "
            "value: '4'}]}]\n",
        "Dockerfile": IMAGE + "CMD gunicorn app:app\n",
    }, {"workers": 4, "replicas": 3}),
    "Railway's replicas": ({"railway.toml": "[deploy]\nstartCommand = 'gunicorn -w 2 app:app'\nnumReplicas = 3\n"},
         {"workers": 2, "replicas": 3}),
    "Cloud Foundry": ({
        "manifest.yml": "applications: [{instances: 2, command: 'gunicorn -w 3 app:app', env: {SHOP: tea}}]\n",
    }, {"workers": 3, "replicas": 2, "environment": {"SHOP": "tea"}}),
    "App Runner": ({"apprunner.yaml": "run: {command: 'gunicorn -w 3 app:app'}\n"}, {"workers": 3}),
    # docs.astral.sh/uv, poetry-core and setuptools: scripts that are functions of the project
    "a program that uv adds": ({
        "Dockerfile": IMAGE + 'CMD ["uv", "run", "--with", "gunicorn", "--no-sync", "uvicorn", "app:app"]\n',
        "app.py": FASTAPI,
    }, {"callable": "app:app", "uvicorn": "0.38.0"}),
    "a script in src": ({
        "Dockerfile": IMAGE + 'CMD ["poetry", "run", "shop", "--workers", "3"]\n',
        "pyproject.toml": "[project.scripts]\nshop = 'shop.cli:main'\n",
        "src/shop/__init__.py": "", "src/shop/web.py": FASTAPI,
        "src/shop/cli.py": "import sys\nimport uvicorn\ndef main():\n    uvicorn.run('shop.web:app', "
            "workers=int(sys.argv[2]))\n",
    }, {"callable": "shop.web:app", "workers": 3}),
    "a script that no file starts": ({
        "pyproject.toml": "[tool.poetry.scripts]\nshop = 'shop.cli:main'\n", "shop/__init__.py": "",
        "shop/cli.py": "import uvicorn\ndef main():\n    uvicorn.run('app:app', workers=3)\n",
    }, {"callable": "app:app", "workers": 3}),
    "commands of PDM that are no tasks": ({
        "Procfile": "web: pdm config check_update false && pdm run gunicorn -w 3 app:app\n",
    }, {"callable": "app:app", "workers": 3}),
    # docs.docker.com/reference/dockerfile: CMD and ENTRYPOINT in any order, SHELL
    "a CMD before its ENTRYPOINT": ({
        "Dockerfile": "FROM python AS base\nCMD celery\nFROM base\n" + 'CMD ["-w", "3", "app:app"]\n'
            'ENTRYPOINT ["gunicorn"]\n',
    }, {"callable": "app:app", "workers": 3}),
    "an ENTRYPOINT that forgets the CMD of its base": ({
        "Dockerfile": "FROM python AS base\nCMD celery\nFROM base\n" 'ENTRYPOINT ["gunicorn", "-w", "3", "app:app"]\n',
    }, {"callable": "app:app", "workers": 3}),
    "another shell": ({
        "Dockerfile": IMAGE + 'SHELL ["/bin/bash", "-c"]\nCMD args=(-w 3); gunicorn "${args[@]}" app:app\n',
    }, {"callable": "app:app", "workers": 3}),
    # docs.docker.com/engine/containers/multi-service_container
    "a script that leaves when the first of its programs ends": ({
        "Dockerfile": SCRIPT,
        "entrypoint.sh": "#!/bin/bash\ncelery -A app worker &\ngunicorn -w 3 app:app &\nwait -n\n",
    }, {"callable": "app:app", "workers": 3}),
    # www.freedesktop.org/software/systemd/man: $NAME is words, ${NAME} one word, a later file counts more
    "variables of systemd": ({
        "a-jobs.service": "[Service]\nExecStart=celery worker\n", "deploy/shop.env": "OPTIONS=--threads 2 -k gthread\n",
        "web.service": "[Service]\nEnvironment=N=3\nEnvironmentFile=-/etc/shop.env\n"
            "ExecStart=/venv/bin/gunicorn -w ${N} $OPTIONS app:app\n",
    }, {"callable": "app:app", "workers": 3, "threads": 2, "env_file": "deploy/shop.env"}),
    # supervisord.org, configuration: include, autostart and priority
    "programs of supervisord in files of their own": ({
        "Dockerfile": IMAGE + "COPY programs /etc/programs\nCMD supervisord -c /app/supervisord.conf\n",
        "supervisord.conf": "[include]\nfiles = /etc/programs/*.ini\n",
        "programs/a.ini": "[program:old]\ncommand=gunicorn -w 9 app:old\nautostart=false\n"
            "[program:api]\ncommand=gunicorn -w 8 app:api\n",
        "programs/b.ini": "[program:web]\ncommand=gunicorn -w 3 app:app\npriority=1\n",
    }, {"callable": "app:app", "workers": 3}),
    # kubernetes.io/docs/concepts/workloads/pods/init-containers; devcenter.heroku.com/articles/release-phase
    "a container that prepares the database first": ({
        "k8s/web.yaml": DEPLOYMENT + "        command: [gunicorn, 'app:app']\n      initContainers:\n"
            "      - {name: first, image: shop, command: [sh, -c], args: [flask --app app db upgrade]}\n",
    }, {"callable": "app:app", "before": "flask --app app db upgrade"}),
    "a container of the same image that runs first": ({
        "k8s/web.yaml": DEPLOYMENT + "        command: [gunicorn, 'app:app']\n      initContainers:\n"
            "      - {name: first, image: shop, command: [python, scripts/seed.py]}\n",
    }, {"callable": "app:app", "before": "python scripts/seed.py"}),
    # kubernetes.io/docs/concepts/storage/volumes: configMap
    **{f"settings in a ConfigMap that is mounted, {how}": ({
        "k8s/web.yaml": DEPLOYMENT + "        command: [gunicorn, -c, /etc/own/gunicorn.conf.py, 'app:app']\n"
            f"        volumeMounts: [{{name: c, {mount}}}]\n"
            f"      volumes: [{{name: c, configMap: {{name: conf{items}}}}}]\n"
            f"---\nkind: ConfigMap\nmetadata: {{name: conf}}\ndata: {{{key}: 'workers = 3'}}\n",
    }, {"callable": "app:app", "workers": 3, "written": {"/etc/own/gunicorn.conf.py": "workers = 3"}})
        for how, mount, items, key in (
            ("whole", "mountPath: /etc/own", "", "gunicorn.conf.py"),
            ("a file", "mountPath: /etc/own/gunicorn.conf.py, subPath: gunicorn.conf.py", "", "gunicorn.conf.py"),
            ("by other names", "mountPath: /etc/own", ", items: [{key: web, path: gunicorn.conf.py}]", "web"))},
    # nickjj/docker-flask-example: services for assets, whose script has a server for development, too
    "services of the same folder that build assets": ({
        "compose.yaml": "services:\n  css: {build: {context: ., target: pages}, command: ./run css}\n"
            "  web: {build: .}\n", "run": "#!/bin/sh\nflask run\n",
        "Dockerfile": "FROM node AS pages\nFROM python AS web\nWORKDIR /app\nCOPY . .\nCMD gunicorn -w 3 app:app\n",
    }, {"callable": "app:app", "workers": 3}),
    # pypiserver/pypiserver and airflow: services with the image of the repository, or of another service
    "an image that the repository builds elsewhere": ({
        "compose.yaml": "services:\n  web: {image: 'acme/shop:1', command: -w 3 app:app}\n",
        "Dockerfile": IMAGE + 'COPY conf/gunicorn.conf.py /app\nENTRYPOINT ["gunicorn"]\n',
        "conf/gunicorn.conf.py": "threads = 2\n",
    }, {"callable": "app:app", "workers": 3, "threads": 2}),
    "an image that another service builds": ({
        "compose.yaml": "services:\n  init: {image: one, build: ., command: flask db upgrade}\n  web: {image: one}\n",
        "Dockerfile": IMAGE + "CMD gunicorn -w 3 app:app\n",
    }, {"callable": "app:app", "workers": 3}),
    # wagtail/bakerydemo: a variable of the shell in RUN
    "packages of Debian in a variable": ({
        "Dockerfile": IMAGE + 'RUN set -ex && DEPS=" \\\n  libpq5 \\\n  zlib1g \\\n  " && apt-get install -y $DEPS\n'
            "CMD gunicorn app:app\n",
    }, {"system_packages": ["libpq5", "zlib1g"]}),
    "a script of the release phase": ({"Procfile": "release: ./release.sh\nweb: gunicorn app:app\n"},
         {"before": "./release.sh"}),
    # netbox-community/netbox-docker and Kludex/fastapi-microservices: other processes of the same image
    "services whose names say that they are other processes": ({
        "compose.yaml": "services:\n  shop: {image: 'acme/tea:1'}\n  shop-worker: {build: ., command: ./work}\n"
            "  shop-housekeeping: {build: ., command: ./clean.sh}\n",
        "Dockerfile": IMAGE + "CMD gunicorn -w 3 app:app\n", "clean.sh": "#!/bin/sh\n", "work": "#!/bin/sh\n",
    }, {"callable": "app:app", "workers": 3}),
    # GoogleCloudPlatform/bank-of-anthos: deployments of several images, and databases that are built there
    "a container without a command, in a repository of several images": ({
        "k8s/a-db.yaml": DEPLOYMENT.replace("name: web\n        image: shop", "name: a-db\n        image: acme/a-db:1"),
        "k8s/web.yaml": DEPLOYMENT.replace("image: shop", "image: acme/till:1"), "till/app.py": FLASK,
        "shop/Dockerfile": IMAGE + "CMD uvicorn shop:app\n", "shop/shop.py": FASTAPI,
        "till/Dockerfile": IMAGE + "CMD gunicorn -w 3 app:app\n",
    }, {"callable": "app:app", "workers": 3, "replicas": 2, "working_folder": "till"}),
    # ministryofjustice/fala: a stage for development in the Compose file, and requirements of another name
    "requirements that have another name in the image": ({
        "compose.yaml": "services:\n  web: {build: {context: ., target: dev}, command: flask run --reload}\n",
        "Dockerfile": "FROM python AS base\nWORKDIR /app\nFROM base AS dev\nCOPY needs/dev.txt requirements.txt\n"
            "RUN pip install -r requirements.txt\nFROM base\nCOPY needs/live.txt ./requirements.txt\n"
            "RUN pip3 install --user --requirement ./requirements.txt\nCOPY . .\nCMD gunicorn -w 3 app:app\n",
        "needs/live.txt": "flask\ngunicorn==26.1.0\n", "needs/dev.txt": "pytest\n",
    }, {"requirements": "needs/live.txt", "gunicorn": "26.1.0", "workers": 3}),
    # alphagov/notifications-api and hotosm/fmtm: uv pip sync, and a project beside the Dockerfile of a folder below
    "requirements that uv installs": ({
        "Dockerfile": IMAGE + "RUN uv pip sync --python-preference system needs.txt\nCMD gunicorn -w 3 app:app\n",
        "needs.txt": "flask\ngunicorn==26.1.0\n",
    }, {"requirements": "needs.txt", "packages": None, "gunicorn": "26.1.0"}),
    "a project beside a Dockerfile that is built from above": ({
        "src/web/Dockerfile": "FROM python\nWORKDIR /opt\nCOPY web/pyproject.toml /lock/\nRUN uv sync\n"
            "COPY web/app.py /opt/\nCMD gunicorn -w 3 app:app\n",
        "src/web/app.py": FLASK, "src/web/pyproject.toml": "[project]\ndependencies = ['gunicorn==26.1.0']\n",
    }, {"requirements": "src/web/pyproject.toml", "gunicorn": "26.1.0"}),
    # taigaio/taiga-back: settings that are an example in the repository
    "a file that is copied in the image": ({
        "Dockerfile": IMAGE + "RUN set -eux; cp -v docker/conf.py shop/conf.py; \\\n  echo done\nCMD gunicorn -c "
            "shop/conf.py app:app\n", "docker/conf.py": "workers = 3\n", "shop/__init__.py": "",
    }, {"callable": "app:app", "workers": 3}),
    # saleor/saleor: comments among packages
    "comments in backticks": ({
        "Dockerfile": IMAGE + "RUN apt-get install -y \\\n  `# for lxml (PyPI)` \\\n  libxslt1.1 \\\n  zlib1g\n"
            "CMD gunicorn app:app\n",
    }, {"system_packages": ["libxslt1.1", "zlib1g"]}),
    # openfoodfacts/robotoff: variables that Compose passes on from .env
    "a variable that .env has": ({
        "compose.yaml": PASSED, "Dockerfile": IMAGE, ".env": "WEB_CONCURRENCY=3\n",
    }, {"workers": 3, "env_file": ".env", "environment": {"WEB_CONCURRENCY": "${WEB_CONCURRENCY}"}}),
    # CTFd/CTFd and netbox-community/netbox-docker
    "a manage.py that is not Django's": ({"Procfile": "web: gunicorn app:app\n", "manage.py": "import click\n"},
        {"before": None}),
    "manage.py by its whole path": ({
        "Dockerfile": IMAGE + "RUN /venv/bin/python /app/manage.py collectstatic\nCMD gunicorn app:app\n",
    }, {"before": "python /app/manage.py collectstatic"}),
    # dockersamples/example-voting-app: the Compose file starts Flask's own server
    "a program that serves with Flask's own server": ({
        "compose.yaml": "services:\n  web: {build: ., command: python app.py}\n",
        "app.py": FLASK + "app.run(host='0.0.0.0', debug=True)\n", "Dockerfile": IMAGE + "CMD gunicorn -w 3 app:app\n",
    }, {"workers": 3}),
    # doccano/doccano: an image of its own for Heroku
    "the image that heroku.yml builds": ({
        "heroku.yml": "build: {docker: {web: h/Dockerfile}}\nrun: {web: ./run.sh}\n",
        "run.sh": "#!/bin/sh\ngunicorn app:app\n",
        "Dockerfile": "FROM python\nWORKDIR /else\nCOPY app.py /else/\nCMD gunicorn -w 9 app:app\n",
        "h/Dockerfile": "FROM python\nWORKDIR /shop\nCOPY . .\n",
    }, {"callable": "app:app", "paths": {"/shop": "."}}),
    # ministryofjustice/fala
    "a server that pip install --user has": ({
        "Dockerfile": IMAGE + "RUN pip install --user gunicorn\nCMD $HOME/.local/bin/gunicorn -w 3 app:app\n",
    }, {"callable": "app:app", "workers": 3}),
    # alphagov/notifications-api: a folder of the repository has the name of the working folder
    "a working folder with the name of a package in it": ({
        "Dockerfile": "FROM python\nWORKDIR /home/app\nCOPY app app\nCOPY --chown=a:a run.py conf.py ./\n"
            "CMD gunicorn -c conf.py run:app\n", "app/__init__.py": "", "conf.py": "workers = 3\n", "run.py": FLASK,
    }, {"callable": "run:app", "workers": 3, "paths": {"/home/app": "."}}),
    # ietf-tools/purple: a Compose file for development that starts nothing, and a script that runs another
    "a script that runs another": ({
        "compose.yaml": "services:\n  app: {build: ., command: sleep infinity}\n", "b/one.sh": "#!/bin/sh\n./two.sh\n",
        "b/two.sh": "#!/bin/sh\ngunicorn -w 3 app:app\n", "Dockerfile": IMAGE + "COPY b/*.sh ./\nCMD ./one.sh\n",
    }, {"callable": "app:app", "workers": 3}),
    # nickjj/docker-django-example and python-discord/site: static files are collected outside the application
    "folders that an image makes, and volumes": ({
        "compose.yaml": "services:\n  web: {build: ., volumes: ['on:/var/static', '.:/app']}\nvolumes: {on: {}}\n",
        "Dockerfile": IMAGE + "RUN mkdir -p /collected /app/a /var/lib/apt/x && chown me /collected\n"
            "CMD cd /collected && touch a && cd /var/static && touch b && gunicorn --chdir /app -w 3 app:app\n",
    }, {"workers": 3, "paths": {"/app": ".", "/collected": "collected", "/var/static": "var/static"}}),
    # kubernetes.io, argoproj.github.io and docs.docker.com/engine/swarm: lists, other kinds of deployments, and stacks
    "a deployment in a list": ({
        "Dockerfile": IMAGE + "CMD gunicorn app:app\n",
        "all.yaml": "kind: List\nitems:\n- kind: Rollout\n  spec: {replicas: 3, template: {spec: {containers: [{"
            "name: web, image: x, command: [gunicorn, -w, '4', 'app:app']}]}}}\n",
    }, {"callable": "app:app", "workers": 4, "replicas": 3}),
    "a stack of Swarm": ({
        "Dockerfile": IMAGE + "CMD gunicorn app:app\n", "cloud/stack.yaml": "Resources: {}\n",
        "docker-stack.yml": "services:\n  web: {image: shop, command: gunicorn -w 4 app:app, deploy: {replicas: 5}}\n",
    }, {"callable": "app:app", "workers": 4, "replicas": 5}),
    # supervisord.org, configuration: expressions, and variables for all programs
    "expressions of supervisord": ({
        "Dockerfile": IMAGE + 'ENV N=2\nCMD ["supervisord", "-c", "/app/sup.conf"]\n',
        "sup.conf": "[supervisord]\nenvironment=GUNICORN_CMD_ARGS=\"--threads 4\"\n"
            "[program:jobs]\npriority=1\ncommand=celery -A x worker -n %(nobody)s\n[program:web]\nnumprocs=3\n"
            "command=gunicorn -w %(ENV_N)s -b 127.0.0.1:80%(process_num)02d app:app\ndirectory=%(here)s\n",
    }, {"callable": "app:app", "workers": 2, "threads": 4, "replicas": 3}),
    # www.freedesktop.org/software/systemd/man, systemd.unit: specifiers; a command is taken back by an empty line
    "folders of systemd, and an environment in the project": ({
        "web.service": "[Service]\nWorkingDirectory=%h/shop\nExecStartPre=%h/shop/venv/bin/flask db upgrade\n"
            "ExecStart=\nExecStart=/bin/bash -lc 'source venv/bin/activate && exec gunicorn -w 3 -b unix:a app:app'\n",
    }, {"callable": "app:app", "workers": 3, "before": "flask db upgrade"}),
    "a Makefile that names the environment of a project": ({
        "Dockerfile": IMAGE + 'CMD ["make", "run"]\n',
        "Makefile": "PY := venv/bin/python\nrun:\n\t$(PY) -m gunicorn -w 3 app:app\n",
    }, {"callable": "app:app", "workers": 3}),
    # github.com/just-containers/s6-overlay and smarden.org/runit: services in files of their own
    "a service of s6": ({
        "Dockerfile": IMAGE + 'COPY rootfs/ /\nENTRYPOINT ["/init"]\n',
        "rootfs/etc/s6-overlay/s6-rc.d/web/run": "#!/command/with-contenv sh\ncd /app\nexec s6-setuidgid app gunicorn "
            "-w 3 app:app\n",
    }, {"callable": "app:app", "workers": 3}),
    "a service of runit": ({
        "Dockerfile": IMAGE + 'CMD ["runsvdir", "/app/sv"]\n',
        "sv/web/run": "#!/bin/sh\nexec 2>&1\ncd /app\nexec chpst -u app gunicorn -w 3 app:app\n",
    }, {"callable": "app:app", "workers": 3}),
    # docs.djangoproject.com/en/stable/howto/custom-management-commands
    "a command of manage.py that serves": ({
        "Procfile": "web: python manage.py serve -w 3\n",
        "manage.py": "import os, sys\nfrom django.core.management import execute_from_command_line\nos.environ["
            "'DJANGO_SETTINGS_MODULE'] = 'shop.settings'\nexecute_from_command_line(sys.argv)\n",
        "shop/__init__.py": "", "shop/settings.py": "SECRET_KEY = 'x'\nINSTALLED_APPS = ['shop']\n",
        "shop/management/__init__.py": "", "shop/management/commands/__init__.py": "",
        "shop/management/commands/serve.py": "import subprocess\nfrom django.core.management.base import BaseCommand\n"
            "class Command(BaseCommand):\n    def add_arguments(self, parser): parser.add_argument('-w')\n"
            "    def handle(self, **said): subprocess.call(['gunicorn', 'app:app', '-w', said['w']])\n",
    }, {"callable": "app:app", "workers": 3}),
    "programs of supervisord where Debian has them": ({
        "Dockerfile": IMAGE + 'COPY sup/*.conf /etc/supervisor/conf.d/\nCMD ["/usr/bin/supervisord", "-n"]\n',
        "sup/web.conf": "[program:web]\ncommand=/usr/local/bin/gunicorn -w 3 app:app\n",
        "sup/nginx.conf": "[program:nginx]\ncommand=/usr/sbin/nginx -g 'daemon off;'\n",
    }, {"callable": "app:app", "workers": 3}),
    # uvicorn.org: a Server that a program runs itself has one process, whatever its Config says
    "a server of uvicorn in a program": ({
        "Procfile": "web: python main.py\n", "app.py": FASTAPI,
        "main.py": "import uvicorn\nuvicorn.Server(uvicorn.Config('app:app', workers=4)).run()\n",
    }, {"callable": "app:app", "workers": 1}),
    "Platform.sh": ({".platform.app.yaml": "web: {commands: {start: 'gunicorn -w 3 app:app'}}\n"}, {"workers": 3}),
}  # fmt: skip


@needs_a_root
@pytest.mark.parametrize("shape", SHAPES)
def test_a_start_as_people_write_it_is_followed(tmp_path: Path, shape: str) -> None:
    assert_found(tmp_path, *SHAPES[shape])


@needs_a_root
@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"Procfile": "web: gunicorn $OPTIONS app:app\n"},
         "# Procfile:1: $OPTIONS: the value is not in the repository"),
        ({"Procfile": "web: gunicorn $OPTIONS app:app\n"}, "workers: 1  # guessed: Procfile:1: $OPTIONS"),
        ({"Procfile": "web: python main.py\n", "main.py": "import uvicorn\nuvicorn.run('app:app', **read())\n"},
         "its last words: NameError: name 'read' is not defined"),
        ({"Dockerfile": GUNICORN, "gunicorn.conf.py": "exec(open('x').read())\n"},
         "its last words: FileNotFoundError: [Errno 2] No such file or directory: 'x'"),
        ({"Dockerfile": GUNICORN, "gunicorn.conf.py": "import os\nos._exit(3)\n"},
         "the command starts no server that the lab knows"),
        ({"compose.yaml": PASSED},
         "workers: 1  # guessed: compose.yaml: WEB_CONCURRENCY"),
        ({"compose.yaml": PASSED},
         "compose.yaml: WEB_CONCURRENCY: the value is not in the repository"),
        ({"Procfile": "web: for n in 1 2 3; do gunicorn -b :800$n app:app & done; wait\n"},
         "Procfile:1 starts 3 servers with this application; one is taken"),
        ({"Procfile": "web: uwsgi -w app:app --daemonize /var/log/no/web.log\n"},
         "Procfile:1: not kept: daemonize /var/log/no/web.log: the container ends with the first process"),
        ({"Procfile": "web: uwsgi --emperor /etc/vassals\n"}, "# Procfile:1: "),
        ({"chart/templates/web.yaml": "kind: Deployment\nspec: {{ .Values }}\n"}, NO_COMMAND),
        ({"compose.yaml": "services:\n  web: {image: 'shop:1'}\n  db: {image: 'postgres:18'}\n"},
         "compose.yaml: web starts with the command of shop:1; if it is the service, write image: shop:1"),
        ({"k8s/web.yaml": DEPLOYMENT + "        command: [gunicorn, 'app:app']\n        envFrom: [{secretRef: {name: "
          "keys}}]\n"}, "k8s/web.yaml: envFrom keys: its values are not in the repository"),
        ({"k8s/web.yaml": DEPLOYMENT + "        command: [gunicorn, 'app:app']\n        env: [{name: KEY, valueFrom: "
          "{secretKeyRef: {}}}]\n"}, "k8s/web.yaml: KEY: the value is not in the repository"),
        ({"k8s/web.yaml": DEPLOYMENT + "        command: [gunicorn, 'app:app']\n      initContainers:\n"
          "      - {name: fill, image: tools, command: [sh, -c, fill it]}\n"},
         "k8s/web.yaml: the init container fill is not run: fill it"),
        ({"k8s/web.yaml": DEPLOYMENT + "        command: [gunicorn, 'app:app']\n",
          "k8s/kustomization.yaml": "resources: [web.yaml]\n"}, "Kustomize may change what k8s says"),
        ({"render.yaml": "services: [{type: web, startCommand: gunicorn, envVars: [{key: K, sync: false}]}]\n"},
         "render.yaml: K: the value is not in the repository"),
        ({"Procfile": "web: gunicorn app:app\n"}, "workers: 1  # guessed: Heroku sets WEB_CONCURRENCY by itself"),
        ({"Procfile": "web: gunicorn app:app\n", "web.service": "[Service]\nExecStart=gunicorn -w 5 app:app\n"},
         "web.service starts the service in another way, which was not taken: gunicorn -w 5"),
        ({"Procfile": "web: gunicorn -k own.Own app:app\n",
          "own.py": "from gunicorn.workers.base import Worker\nclass Own(Worker): ...\n"},
         "Procfile:1: the lab does not serve gunicorn's worker_class own.Own"),
        ({"Dockerfile": IMAGE.replace("3.12", "3.9-slim") + "RUN pip install flask\nCMD gunicorn app:app\n",
          "requirements.txt": "flask\n"},
         "Dockerfile: its image has Python 3.9, but the lab serves a folder with Python 3.13: if it does not start"),
        ({"compose.yaml": "services:\n  shop: {image: 'acme/tea:1'}\n  worker: {image: 'acme/tea:1', command: w}\n"},
         "compose.yaml: shop starts with the command of acme/tea:1; if it is the service, write image: acme/tea:1"),
        # digitalocean/sample-django: what the platform puts in
        ({".do/app.yaml": "services: [{run_command: gunicorn app:app, envs: [{key: DB, value: '${db.URL}'}]}]\n"},
         ".do/app.yaml: DB: the value is not in the repository"),
        ({"web.service": "[Service]\nExecStart=gunicorn --name %n app:app\n"}, "web.service: %n of the command"),
        ({"compose.yaml": "services:\n  web: {build: ., command: uvicorn app:app, scale: $N}\n"},
         "compose.yaml: Compose cannot read it: "),
        ({"Procfile": "web: gunicorn -w ${WEB_CONCURRENCY:-3} app:app\n"},
         "workers: 3  # gunicorn says, but Heroku sets WEB_CONCURRENCY by itself"),
        ({"Procfile": "web: uv run poe serve\n",
          "pyproject.toml": "[tool.poe.tasks.serve]\ncmd = 'gunicorn -w ${N:-6} app:app'\nenv = {N = '4'}\n"},
         "its last words: poe serve: the lab does not follow the tasks of poe; give the command that serves with"),
        # docs.aws.amazon.com/AmazonECS: parameters of a task definition
        ({"deploy/taskdef.json": '{"containerDefinitions": [{"image": "shop", "command": ["-w", "3", "app:app"]}]}',
          "Dockerfile": IMAGE + 'ENTRYPOINT ["gunicorn"]\nCMD ["-w", "9", "app:app"]\n'},
         "deploy/taskdef.json may start the service, too, but the lab does not read files of this kind; if so"),
        ({"Procfile": "web: ./unknown\n"}, "# if another command starts the server itself, such as gunicorn app:app"),
        ({"Dockerfile": IMAGE + "CMD gunicorn app:app\n", "web.nomad": 'command = "gunicorn"\nargs = ["-w", "4"]\n'},
         "web.nomad may start the service, too, but the lab does not read files of this kind"),
        ({"Procfile": "web: mise run web\n"}, "its last words: mise: not found"),
        ({"Procfile": "web: honcho start api\n"}, "starts honcho, which the image lacks: name its package"),
        ({"Dockerfile": IMAGE + "CMD gunicorn app:app\n", "chart/web.yaml": "kind: Deployment\nspec: {{ .Values }}\n"},
         "chart/web.yaml: what Helm makes of this template may start the service in another way"),
        ({"Procfile": "web: flask run\n"}, "threads: 1  # guessed: gunicorn stands in for werkzeug"),
        ({"Procfile": "web: granian app:app\n"}, "the lab does not serve granian's interface rsgi; if the application "
         "has another, add --interface asgi"),
        ({"web.service": "[Service]\nEnvironmentFile=/etc/web\nExecStart=gunicorn app:app\n"},
         "web.service: the EnvironmentFile /etc/web is not in the repository"),
        ({
            "compose.yaml": "services: {web: {build: ., command: gunicorn -w 5 app:app}}\n",
            "Dockerfile": IMAGE + "CMD gunicorn -w 3 app:app\n",
        }, "another way, which was not taken: /bin/sh -c 'gunicorn -w 3"),
        ({
            "compose.yaml": "services: {web: {build: ., command: gunicorn --reload app:app}}\n",
            "Dockerfile": IMAGE + "CMD gunicorn --workers 3 app:app\n",
        }, 'command: "gunicorn --workers 3 app:app"  # from Dockerfile:4'),
    ],
)  # fmt: skip
def test_what_may_be_otherwise_is_no_finding(tmp_path: Path, files: dict[str, str], says: str) -> None:
    """A default is a guess if a part of the command cannot be known."""
    assert says in described(written(tmp_path / "shop", APP | files).resolve(), tmp_path)[0].text


def test_words_of_comments_and_values_of_options_are_no_packages(tmp_path: Path) -> None:
    """github.com/ArchiveBox/ArchiveBox and github.com/etesync/server have such Dockerfiles."""
    image = (
        IMAGE
        + "# RUN pip install shop   # the latest release\nRUN pip install --progress-bar off \\\n  # a note\n  flask\n"
    )
    found = yaml.safe_load(describe_folder(written(tmp_path, {"Dockerfile": image + "CMD gunicorn a:b\n"})).text)

    assert found["application"]["packages"] == ["flask"]
