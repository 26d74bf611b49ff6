# A stand-in for the image grafana/k6, for machines that cannot reach an image registry: k6 from the Go module proxy.
FROM debian:trixie-slim AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends golang-go ca-certificates
ARG K6_RELEASE
# k6 needs a newer Go than Debian's. GOTOOLCHAIN=auto fetches the newer Go as a module.
RUN --mount=type=secret,id=ca_bundle \
    if [ -s /run/secrets/ca_bundle ]; then export SSL_CERT_FILE=/run/secrets/ca_bundle; fi \
 && CGO_ENABLED=0 GOTOOLCHAIN=auto GOFLAGS=-trimpath GOBIN=/out go install "go.k6.io/k6@v${K6_RELEASE}"

FROM debian:trixie-slim
COPY --from=build /out/k6 /usr/bin/k6
LABEL stampede.stand-in="Go module proxy"
USER 12345
WORKDIR /home/k6
ENTRYPOINT ["k6"]
