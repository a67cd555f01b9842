# `qkv serve` in a container, for CPUs: the wheel is built and installed in a first stage, and the second has what it needs
# to run. See docs/serving.md.
#
#   docker build -t qkv .
#   docker run -p 127.0.0.1:8080:8080 -e QKV_TOKEN=… -v "$PWD/models:/models:ro" qkv news=/models/news qkv-sentences
#
# PIP_ARGS are more arguments for every pip install. On x86-64 the usual index has torch with CUDA, which runs on CPUs, too,
# but is large: give the index of torch's CPU builds here.

FROM python:3.11-slim AS build
ARG PIP_ARGS=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY constraints.txt ./
RUN python -m venv /opt/qkv && /opt/qkv/bin/pip install -c constraints.txt ${PIP_ARGS} setuptools torch
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# the build backend is pinned, too: without isolation it is the one of constraints.txt
RUN /opt/qkv/bin/pip wheel --no-deps --no-build-isolation -w /wheels . \
    && /opt/qkv/bin/pip install -c constraints.txt ${PIP_ARGS} "$(echo /wheels/qkv-*.whl)[fast,serve,zh]"

FROM python:3.11-slim
COPY --from=build /opt/qkv /opt/qkv
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin qkv
# compiled kernels are cached in the only folder that need be writable; nothing is fetched from a hub
ENV PATH=/opt/qkv/bin:$PATH PYTHONUNBUFFERED=1 HOME=/tmp NUMBA_CACHE_DIR=/tmp/numba HF_HUB_OFFLINE=1
USER 10001
WORKDIR /models
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["qkv", "serve", "--host", "0.0.0.0", "--port", "8080"]
CMD ["qkv-sentences", "qkv-mini"]
