# syntax=docker/dockerfile:1
# The agent's image for those who build with Docker, Podman or Buildah:
# docker build -t registry.example.com/fabric-agent:v1 .
# make image makes the same without any of them, and the same bytes each time.
# TestDockerfile in scripts/image compares the two.
FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
ARG TARGETOS=linux
ARG TARGETARCH
ARG VERSION=dev
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd/fabric cmd/fabric
COPY cmd/fabric-agent cmd/fabric-agent
COPY cmd/fabricctl cmd/fabricctl
COPY deployments/helm deployments/helm
COPY internal internal
COPY pkg pkg
COPY plugins plugins
RUN mkdir -p /out/dev /out/etc /out/proc /out/run /out/sys /out/tmp /out/usr /out/usr/bin /out/var && \
    ln -s fabricctl /out/usr/bin/kubectl-fabric && \
    ln -s /run /out/var/run && \
    go build -trimpath -ldflags "-s -w -buildid= -X main.version=$VERSION -X runtime.godebugDefault=disablethp=1" -o /out/usr/bin/ ./cmd/fabric && \
    go build -trimpath -ldflags "-s -w -buildid= -X main.version=$VERSION" -o /out/usr/bin/ ./cmd/fabric-agent && \
    go build -trimpath -ldflags "-s -w -buildid= -X main.version=$VERSION" -o /out/usr/bin/ ./cmd/fabricctl

FROM scratch
ARG VERSION=dev
COPY --from=build /out/ /
ENV PATH=/usr/bin
ENTRYPOINT ["/usr/bin/fabric-agent"]
LABEL org.opencontainers.image.licenses=Apache-2.0
LABEL org.opencontainers.image.title=fabric-agent
LABEL org.opencontainers.image.version=$VERSION
