# docker build --build-arg BASE_IMAGE=python@sha256:... .
# For a GPU add --build-arg ACCELERATOR=cuda, and --gpus all to docker run.
# The base is python:3.11-slim-bookworm, named by its digest: docs/operations.md, "Containers", says how to find that.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}

# cpu pins every model to the processor; cuda runs them on the GPU.
ARG ACCELERATOR=cpu
# Every package with the digest of its file. The lock of the program has torch with CUDA.
ARG LOCK=requirements.lock

# It listens on every address of the container, and starts with accounts (COFT_ACCOUNTS=on, once an admin is added) or
# where something in front of it asks who people are (COFT_ACCOUNTS=elsewhere); the README has both commands.
ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    GRADIO_ANALYTICS_ENABLED=False \
    COFT_HOST=0.0.0.0 \
    COFT_PORT=7860 \
    COFT_DATABASE_URL=sqlite:////data/coft-audit.sqlite3 \
    HF_HOME=/data/models

# What passes signals on, and what formal reports are written as PDF with: text layout, and letters.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        tini libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /srv/coft-audit
COPY ${LOCK} requirements-postgresql.lock ./
RUN pip install --require-hashes -r "$LOCK" -r requirements-postgresql.lock

COPY LICENSE README.md ./
COPY coft_core ./coft_core
COPY db ./db
COPY app ./app
COPY assets ./assets

RUN useradd --system --uid 10001 --home-dir /data --no-create-home auditor \
    && mkdir -p /data \
    && chown auditor:auditor /data
ENV COFT_DEVICE=${ACCELERATOR}
USER auditor
VOLUME ["/data"]
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['COFT_PORT'] + '/health', timeout=4)"]
# A container's first process is sent no signal that it does not ask for, and has to bury what its children leave: tini does.
ENTRYPOINT ["tini", "--"]
CMD ["python", "-m", "app", "serve"]
