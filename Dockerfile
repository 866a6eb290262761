# The server as a container image. deploy/build_image.sh calls this with docker, podman or buildah; by hand:
#
#   docker build --target runtime-cpu  -t sru-server:cpu .
#   docker build --target runtime-cuda -t sru-server:cuda .
#   docker build --target test .                               (builds and runs the tests)
#
# Each stage is of the architecture that its base has, amd64 or arm64: docker buildx build --platform linux/arm64 ..., or
# deploy/build_image.sh --arch=arm64.
#
# The runtime images contain no distribution: no shell, no package manager, only the two programs, the shared
# libraries that they load (deploy/image_rootfs.sh collects them), the packages' names and licenses for scanners, and
# the bundled model. So any base works whose libraries the programs were built against.

# Debian 12 and 13 and Ubuntu 24.04 work. A CUDA base also has nvcc and cuBLAS.
# With CUDA 13 the image needs an NVIDIA driver from 580 on. With CUDA 12 it needs one from 525 on:
#   --build-arg CUDA_BASE=docker.io/nvidia/cuda:12.9.1-devel-ubuntu24.04 --build-arg CUDA_REQUIRED=12.0
ARG BASE=docker.io/library/debian:12-slim
ARG CUDA_BASE=docker.io/nvidia/cuda:13.0.1-devel-ubuntu24.04

# ---- what every runtime image says about itself
FROM scratch AS runtime
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="sru_server" \
      org.opencontainers.image.description="Inference server for Simple Recurrent Units" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# Every flag of the server is an environment variable too; SRU_ADDRESS is sru_client's. The engine decides who reaches
# the ports, which by default only the machine itself does.
ENV PATH=/usr/local/bin \
    SRU_LISTEN=0.0.0.0:50051 \
    SRU_HTTP_LISTEN=0.0.0.0:8080 \
    SRU_METRICS_LISTEN=0.0.0.0:9090 \
    SRU_MODEL_REPOSITORY=/models \
    SRU_ADDRESS=127.0.0.1:50051
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
EXPOSE 50051 8080 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/sru_server"]
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["/usr/local/bin/sru_client", "health", "--deadline=2s"]

# ---- a root file system that deploy/build_image.sh --prebuilt made from a build folder of this machine
FROM runtime AS runtime-prebuilt
COPY rootfs/ /

# ---- build
FROM ${BASE} AS tools
WORKDIR /src
COPY scripts/deps.sh scripts/
RUN scripts/deps.sh build && rm -rf /var/lib/apt/lists/*

FROM tools AS build
COPY . .
ARG COMMIT=
RUN cmake --preset release -DSRU_COMMIT=${COMMIT} -DSRU_BUILD_TESTS=OFF -DSRU_CUDA=OFF \
 && cmake --build --preset release --target sru_server sru_client \
 && cmake --install build --prefix /opt/sru --component runtime --strip \
 && deploy/image_rootfs.sh /opt/sru /rootfs

# ---- runtime, CPU
FROM runtime AS runtime-cpu
COPY --from=build /rootfs/ /

# ---- build and runtime, CUDA
FROM ${CUDA_BASE} AS tools-cuda
WORKDIR /src
COPY scripts/deps.sh scripts/
RUN scripts/deps.sh build && rm -rf /var/lib/apt/lists/*

FROM tools-cuda AS build-cuda
COPY . .
ARG COMMIT=
RUN cmake --preset release -DSRU_COMMIT=${COMMIT} -DSRU_BUILD_TESTS=OFF -DSRU_CUDA=ON \
 && cmake --build --preset release --target sru_server sru_client \
 && cmake --install build --prefix /opt/sru --component runtime --strip \
 && deploy/image_rootfs.sh /opt/sru /rootfs libcublasLt.so

FROM runtime AS runtime-cuda
ARG CUDA_REQUIRED=13.0
# For NVIDIA's container toolkit, which brings the driver's libraries with it and refuses to start the container if the
# driver is too old. Some toolkits and clusters put the libraries where the loader does not look by itself.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_REQUIRE_CUDA="cuda>=${CUDA_REQUIRED}" \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/lib64
COPY --from=build-cuda /rootfs/ /

# ---- test; last, because engines without BuildKit build every stage before a target
FROM tools AS test
RUN scripts/deps.sh build test && rm -rf /var/lib/apt/lists/*
COPY . .
RUN make test
