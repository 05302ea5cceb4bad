# Build: docker build -t podgpu .          (or buildah bud)
#   --build-arg BASE=...       another base image with Python 3.11 or newer as python3, and its modules venv and sqlite3;
#                              a digest (NAME@sha256:...) pins it, as requirements.txt pins the packages
#   --build-arg REVISION=...   the commit of the source, for the label
#   --build-arg CREATED=...    the time of the build, for the label, such as 2030-01-31T12:00:00Z
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# pip and the build backend are not in podgpu's environment, and so not in the final image.
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
# podgpu itself has no hash, because it is installed from this folder.
RUN /opt/build/bin/python -m hatchling build -t wheel -d /dist \
 && /opt/build/bin/python -m pip --python /opt/podgpu/bin/python install \
        --no-cache-dir --no-index --no-deps /dist/*.whl
# Needed by the ledger; a base image may lack it.
RUN /opt/podgpu/bin/python -c "import sqlite3"
# Remove files that are never used: classes for the Kubernetes API (see pipeline/kube/client_library.py), and files for
# interactive use of the environment.
RUN cd /opt/podgpu \
 && rm -r include bin/activate* bin/Activate.ps1 lib/python3*/site-packages/kubernetes_asyncio/client/api \
        lib/python3*/site-packages/kubernetes_asyncio/client/models
# The paths of dcgm-exporter's image, so that this image can replace it.
RUN mkdir -p /links/usr/bin /links/usr/local/dcgm \
 && for name in bin/dcgm-exporter bin/dcgm-exporter-entrypoint.sh local/dcgm/dcgm-exporter-entrypoint.sh; do \
        ln -s /usr/local/bin/podgpu-entrypoint "/links/usr/$name"; \
    done


FROM ${BASE}
# podgpu's packages have common names, so the working directory must not precede them in the path.
# No files are written next to the program, so that the root can be read-only.
# NVIDIA_*: required for the container toolkit to mount the driver library.
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
# Not root, and no capability: sufficient for the GPUs, whose device nodes have mode 0666, and for the API server.
# In root's group: the kubelet's folder pod-resources, which contains podlist.json, is root:root 0750.
# Only root can use the sockets of the kubelet and the runtime and the kubelet's checkpoint: with these sources, run it as
# user 0 without capabilities, as the chart does.
USER 65532:0
EXPOSE 9400
# podgpu handles SIGTERM itself, so that it can be process 1; the entry point makes it so (exec).
ENTRYPOINT ["podgpu-entrypoint"]
ARG BASE
ARG VERSION=0.1.0
ARG REVISION=
ARG CREATED=
LABEL org.opencontainers.image.title="podgpu" \
      org.opencontainers.image.description="GPU metrics per pod and container of a node" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE}"
