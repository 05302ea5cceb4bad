# Build: docker build -t podgpu .          (or buildah bud)
#   --build-arg BASE=...       a base of your own, with Python 3.11 or newer as python3, its modules venv and sqlite3; a
#                              digest (NAME@sha256:...) pins it as requirements.txt pins what goes upon it
#   --build-arg REVISION=...   the commit that it is built from, for the label
#   --build-arg CREATED=...    when, for the label, such as 2030-01-31T12:00:00Z
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# pip and the build backend live beside podgpu's environment and stay behind in this stage.
RUN python3 -m venv /opt/build \
 && python3 -m venv --without-pip /opt/podgpu
COPY requirements.txt ./
RUN /opt/build/bin/python -m pip --python /opt/podgpu/bin/python install \
        --no-cache-dir --require-hashes --only-binary=:all: -r requirements.txt
COPY image/build-requirements.txt ./
RUN /opt/build/bin/python -m pip install \
        --no-cache-dir --require-hashes --only-binary=:all: -r build-requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY config config
COPY pipeline pipeline
COPY podgpu podgpu
COPY sources sources
COPY sinks sinks
# podgpu itself has no hash: it is this very folder.
RUN /opt/build/bin/python -m hatchling build -t wheel -d /dist \
 && /opt/build/bin/python -m pip --python /opt/podgpu/bin/python install \
        --no-cache-dir --no-index --no-deps /dist/*.whl
# The ledger's: a base may lack it.
RUN /opt/podgpu/bin/python -c "import sqlite3"
# What never runs: classes for all of the Kubernetes API, of which podgpu uses none (see pipeline/kube/client_library.py), and
# what is for people who work in an environment.
RUN cd /opt/podgpu \
 && rm -r include bin/activate* bin/Activate.ps1 lib/python3*/site-packages/kubernetes_asyncio/client/api \
        lib/python3*/site-packages/kubernetes_asyncio/client/models
# dcgm-exporter's names, where an image of it has them, so that this one can be put in its place.
RUN mkdir -p /links/usr/bin /links/usr/local/dcgm \
 && for name in bin/dcgm-exporter bin/dcgm-exporter-entrypoint.sh local/dcgm/dcgm-exporter-entrypoint.sh; do \
        ln -s /usr/local/bin/podgpu-entrypoint "/links/usr/$name"; \
    done


FROM ${BASE}
# Packages of ours have everyday names: the working directory must not stand in front of them.
# Nothing is written beside the program, so the root may be read-only.
# NVIDIA_*: without them the container toolkit hands the container no driver library.
ENV PATH=/opt/podgpu/bin:$PATH \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    MALLOC_ARENA_MAX=2 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
COPY --from=build /opt/podgpu /opt/podgpu
COPY --from=build /links /
COPY image/entrypoint /usr/local/bin/podgpu-entrypoint
COPY config/counters/*.csv /etc/dcgm-exporter/
WORKDIR /
# Not root, and no capability: enough for the GPUs, whose device nodes are everybody's, and for the API server.
# In root's group: the kubelet's folder pod-resources is root:root 0750, and podlist.json lies in it.
# The kubelet's and the runtime's sockets and the kubelet's checkpoint are root's alone: with those sources run it as
# user 0, without capabilities. That is what the chart does.
USER 65532:0
EXPOSE 9400
# podgpu handles SIGTERM itself, so it can be process 1; the entry point makes it that.
ENTRYPOINT ["podgpu-entrypoint"]
ARG BASE
ARG VERSION=0.1.0
ARG REVISION=
ARG CREATED=
LABEL org.opencontainers.image.title="podgpu" \
      org.opencontainers.image.description="Who uses which GPU of this node, and how well" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE}"
