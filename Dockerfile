# Two images, `operator` and `worker` (the agent and the built-in trainer), without compiler, root or use of a shell:
#   docker build --target operator -t localhost/crowdsurf-operator:0.1.0 .
#   docker build --target worker -t localhost/crowdsurf-worker:0.1.0 .
# A third, `pytorch`, is the trainer of all deploy/examples/*-pytorch.yaml: CPU PyTorch, the client, the scripts and their data.
#   docker build --target pytorch -t localhost/crowdsurf-pytorch:0.1.0 .
# The first stage compiles: about 15 minutes of processor time. Programs that were built on Debian 12 already come in
# instead of it (tests/cluster/images does this):
#   deploy/image/stage build/release/bin OUT/image && docker build --build-context build=OUT --target worker ... .
FROM debian:bookworm-slim AS build
WORKDIR /crowdsurf
COPY . .
RUN ./dev build crowdsurf-operator crowdsurf-worker crowdsurf-trainer crowdsurf-trainer-v3 \
 && deploy/image/stage build/release/bin /image

FROM debian:bookworm-slim AS pytorch
RUN apt-get update -q \
 && apt-get install -q -y --no-install-recommends python3-torch python3-sklearn fortunes fortunes-min \
 && rm -rf /var/lib/apt/lists/*
COPY python/crowdsurf /usr/lib/python3/dist-packages/crowdsurf
WORKDIR /crowdsurf
COPY deploy/examples/*.py deploy/examples/
USER 65532:65532
ENTRYPOINT ["python3"]

FROM debian:bookworm-slim AS operator
COPY --from=build /image/operator /
USER 65532:65532
ENTRYPOINT ["/usr/bin/crowdsurf-operator"]

FROM debian:bookworm-slim AS worker
COPY --from=build /image/worker /
USER 65532:65532
ENTRYPOINT ["/usr/bin/crowdsurf-worker"]
