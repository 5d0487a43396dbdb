# clearhead serve in a container: docs/serving.md. One image for one kind of processor, that of the machine it is made on.
#
#     docker build -t clearhead .
#     docker run -p 5000:5000 -v ./runs:/models:ro --read-only --tmpfs /tmp clearhead /models/de-en

# The extras in the image. The compiled core needs no PyTorch; what it does not compute needs `serve,train`.
ARG EXTRAS=serve

FROM python:3.13-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
ARG EXTRAS
# Where pip finds torch, if that is among the extras: with the index of PyTorch for CPUs the image has no CUDA.
ARG PIP_EXTRA_INDEX_URL=""
COPY . /source
# What `clearhead --version` says: git, which else is asked, is not in the image.
ARG VERSION=""
RUN test -z "$VERSION" || echo "$VERSION" > /source/src/clearhead/runtime/version.txt
RUN pip wheel --no-cache-dir --wheel-dir /wheels --constraint /source/constraints.txt "/source[$EXTRAS]"

FROM python:3.13-slim
ARG EXTRAS
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels "clearhead[$EXTRAS]" \
    && useradd --system --no-create-home --uid 10001 clearhead
# By its number, so that Kubernetes sees that it is not root.
USER 10001
WORKDIR /tmp
EXPOSE 5000
HEALTHCHECK --start-period=120s --interval=30s --timeout=5s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:5000/readyz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["clearhead", "serve", "--host", "0.0.0.0"]
CMD ["/models/de-en"]
