# Build: docker build -t podgpu .          (or buildah bud)
# A base of your own, with Python 3.11 or newer as python3: --build-arg BASE=...
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY requirements.txt ./
RUN python3 -m venv /opt/podgpu \
 && /opt/podgpu/bin/python -m pip install --no-cache-dir --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY config config
COPY pipeline pipeline
COPY sources sources
COPY sinks sinks
# The build backend comes with its own pin; podgpu itself has no hash: it is this very folder.
RUN python3 -m venv /opt/build \
 && /opt/build/bin/python -m pip install --no-cache-dir hatchling==1.33.0 \
 && /opt/build/bin/python -m hatchling build -t wheel -d /dist \
 && /opt/podgpu/bin/python -m pip install --no-cache-dir --no-deps /dist/*.whl


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
WORKDIR /
EXPOSE 9400
# podgpu handles SIGTERM itself, so it can be process 1.
ENTRYPOINT ["podgpu"]
CMD ["run"]
