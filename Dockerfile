# Build: docker build -t podgpu .          (or buildah bud)
# A base of your own, with Python 3.11 or newer as python3 and its venv module: --build-arg BASE=...
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# pip and the build backend live beside podgpu's environment and stay behind in this stage.
RUN python3 -m venv /opt/build \
 && python3 -m venv --without-pip /opt/podgpu
COPY requirements.txt ./
RUN /opt/build/bin/python -m pip --python /opt/podgpu/bin/python install \
        --no-cache-dir --require-hashes --only-binary=:all: -r requirements.txt
COPY constraints.txt ./
RUN /opt/build/bin/python -m pip install --no-cache-dir --only-binary=:all: -c constraints.txt hatchling
COPY pyproject.toml README.md LICENSE ./
COPY config config
COPY pipeline pipeline
COPY sources sources
COPY sinks sinks
# podgpu itself has no hash: it is this very folder.
RUN /opt/build/bin/python -m hatchling build -t wheel -d /dist \
 && /opt/build/bin/python -m pip --python /opt/podgpu/bin/python install \
        --no-cache-dir --no-index --no-deps /dist/*.whl


FROM ${BASE}
LABEL org.opencontainers.image.title="podgpu" \
      org.opencontainers.image.description="Who uses which GPU of this node, and how well" \
      org.opencontainers.image.licenses="Apache-2.0"
# The four packages have everyday names: the working directory must not stand in front of them.
# NVIDIA_*: without them the container toolkit hands the container no driver library.
ENV PATH=/opt/podgpu/bin:$PATH \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    MALLOC_ARENA_MAX=2 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility
COPY --from=build /opt/podgpu /opt/podgpu
# What an image of dcgm-exporter has, where it has it, so that this one can be put in its place.
COPY image/entrypoint /usr/local/bin/podgpu-entrypoint
COPY config/counters/*.csv /etc/dcgm-exporter/
RUN mkdir -p /usr/local/dcgm \
 && for name in bin/dcgm-exporter bin/dcgm-exporter-entrypoint.sh local/dcgm/dcgm-exporter-entrypoint.sh; do \
        ln -s /usr/local/bin/podgpu-entrypoint "/usr/$name"; \
    done
WORKDIR /
# Not root, but in its group: the kubelet's pod-resources folder is root:root 0750.
USER 65532:0
EXPOSE 9400
# podgpu handles SIGTERM itself, so it can be process 1; the entry point makes it that.
ENTRYPOINT ["podgpu-entrypoint"]
