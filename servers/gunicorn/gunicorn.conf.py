"""gunicorn's settings, each from the experiment and none from the machine. Used by every release."""

import os

bind = "0.0.0.0:8000"
wsgi_app = "wsgi:app"

worker_class = os.environ["LAB_WORKER_CLASS"]
workers = int(os.environ["LAB_WORKERS"])
threads = int(os.environ["LAB_THREADS"])
worker_connections = int(os.environ["LAB_WORKER_CONNECTIONS"])
keepalive = int(os.environ["LAB_KEEPALIVE_S"])
reuse_port = os.environ["LAB_REUSE_PORT"] == "true"

worker_tmp_dir = "/dev/shm"  # the heartbeat file: never on a disk
control_socket_disable = True  # 25.1 and later would all share one path; older releases skip the unknown setting
graceful_timeout = 1  # a trial is over when its load has ended; nobody waits for an answer then
