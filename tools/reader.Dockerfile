# The core of the package, for people who want to read a log, or get advice, without installing anything:
#     docker build -f tools/reader.Dockerfile -t stampede .
#     docker run -i --rm stampede diagnose - < gunicorn.log
FROM debian:trixie-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /opt/venv \
 && useradd --create-home reader
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/srv
COPY requirements/reader.txt /tmp/requirements.txt
# On a network that re-signs TLS: --secret id=ca_bundle,src=/etc/ssl/certs/ca-certificates.crt
RUN --mount=type=secret,id=ca_bundle \
    if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement /tmp/requirements.txt
COPY docker-compose.yml /srv/
COPY experiments /srv/experiments
COPY stampede /srv/stampede
RUN python -m compileall -q /srv
USER reader
WORKDIR /home/reader
ENTRYPOINT ["python", "-m", "stampede"]
CMD ["--help"]
