# A stand-in for the image grafana/k6, for machines that cannot reach an image registry: k6 from the Go module proxy.
FROM debian:trixie-slim AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends golang-go ca-certificates
ARG K6_RELEASE
ARG GOARCH
WORKDIR /build
# k6 needs a newer Go than Debian's. GOTOOLCHAIN=auto fetches the newer Go as a module. `go install` refuses modules
# that replace other modules, as k6 does, so k6 is built in a copy of its own module.
RUN --mount=type=secret,id=ca_bundle \
    if [ -s /run/secrets/ca_bundle ]; then export SSL_CERT_FILE=/run/secrets/ca_bundle; fi \
 && export CGO_ENABLED=0 GOTOOLCHAIN=auto GOFLAGS=-trimpath \
 && module="go.k6.io/k6/v${K6_RELEASE%%.*}@v${K6_RELEASE}" \
 && go mod download "$module" \
 && cp --recursive --no-preserve=mode "$(go env GOMODCACHE)/$module/." . \
 && go build -o /out/k6 .

FROM debian:trixie-slim
COPY --from=build /out/k6 /usr/bin/k6
LABEL stampede.stand-in="Go module proxy"
USER 12345
WORKDIR /home/k6
ENTRYPOINT ["k6"]
