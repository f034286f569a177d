// crowdsurf-operator: reconciles TrainingJobs of a Kubernetes cluster until it is told to stop.
#include <absl/cleanup/cleanup.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>

#include "base/backoff.h"
#include "base/edge/any_address.h"
#include "base/edge/clock.h"
#include "base/edge/descriptors.h"
#include "base/edge/inherited.h"
#include "base/edge/log_sink.h"
#include "base/edge/private_memory.h"
#include "operator/edge/controller.h"
#include "operator/edge/kube/lease.h"
#include "operator/edge/reconcile/agent_prober.h"
#include "operator/edge/reconcile/key_collector.h"
#include "operator/edge/reconcile/parallel_requests.h"
#include "operator/edge/reconcile/pulse.h"
#include "operator/edge/reconcile/stop_event.h"
#include "operator/edge/serve/death_report_handler.h"
#include "operator/edge/serve/metrics_guard.h"
#include "operator/edge/serve/operator_pages.h"
#include "operator/edge/sign/job_authorities.h"
#include "operator/edge/sign/signer.h"
#include "operator/edge/sign/token_gate.h"

namespace crowdsurf::controller {
namespace {

constexpr int kBadConfiguration = 2;
// Most of a kubelet's looks are over by then: 0.1 s until it looks, 0.1 s until it writes.
constexpr Duration kNoticeFirst = Milliseconds(250);

struct Flags {
  std::string space, watch_space, agent_image, signer_host;
  std::string spot = "Preferred", listen = "::", log_level = "info";
  int sign_port = 9443, health_port = 8081, metrics_port = 8443;
  int max_workers = DecideOptions().max_workers;
  bool elect = true, guard_metrics = true;
};

std::atomic<Controller*> running{nullptr};  // for the signal handler alone

void OnSignal(int) {
  // Stop writes to an eventfd, which a signal handler may do.
  if (Controller* controller = running.load()) controller->Stop();
}

// The pod's own namespace, as kubelet mounts it; empty outside of a cluster.
std::string MountedNamespace() {
  std::ifstream file("/var/run/secrets/kubernetes.io/serviceaccount/namespace");
  std::string space;
  std::getline(file, space);
  return space;
}

std::string Identity() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  // The process and the instant: a pod that restarts in place is another candidate.
  return absl::StrCat(host, "_", getpid(), "_", WallNow().nanoseconds());
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--namespace", flags.space, "Where its lease and keys are kept (default: its own)")
      ->envname("POD_NAMESPACE");
  app.add_option("--watch-namespace", flags.watch_space, "The only namespace it looks at");
  app.add_option("--agent-image", flags.agent_image, "Image of the agent beside every trainer")
      ->required();
  app.add_option(
      "--signer-host", flags.signer_host,
      "Name by which agents reach the signer (default: crowdsurf-operator.NAMESPACE.svc)");
  app.add_option("--spot-placement", flags.spot, "Preferred: anywhere when no node is spot")
      ->check(CLI::IsMember({"Preferred", "Required"}))
      ->capture_default_str();
  app.add_option("--max-workers-per-job", flags.max_workers,
                 "A job that asks for more gets so many and is Degraded: TooManyWorkers")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--listen", flags.listen, "Address to bind; ::, both families")
      ->capture_default_str();
  app.add_option("--sign-port", flags.sign_port, "Agents' certificates")->capture_default_str();
  app.add_option("--health-port", flags.health_port, "/healthz, /readyz")->capture_default_str();
  app.add_option("--metrics-port", flags.metrics_port, "/metrics")->capture_default_str();
  app.add_option("--guard-metrics", flags.guard_metrics,
                 "HTTPS, for accounts that may get /metrics; false: plain HTTP, for everybody")
      ->capture_default_str();
  app.add_option("--leader-elect", flags.elect, "One of several decides")->capture_default_str();
  app.add_option("--log-level", flags.log_level, "debug, info, warning, error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
}

// The signer's CA, as soon as the API server can be asked: an operator that starts while it is
// away, or before its rights are there, waits instead of ending, because a kubelet would back off.
StatusOr<std::shared_ptr<const CertificateAuthority>> AwaitSignerAuthority(
    JobAuthorities& authorities, const StopEvent& stop, const Logger& log) {
  constexpr Backoff kBackoff{
      .initial = Milliseconds(500), .most = Seconds(10), .factor = 2, .jitter = 0.2};
  Rng rng(static_cast<uint64_t>(getpid()));
  for (int attempt = 0; !stop.IsSet(); ++attempt) {
    auto authority = authorities.OfSigner();
    if (authority.ok()) return authority;
    const Duration delay = kBackoff.Delay(attempt, rng);
    log.Warning("the signer's key is not there yet",
                {{"why", authority.status().ToString()}, {"retry_seconds", delay.seconds()}});
    stop.WaitFor(delay);
  }
  return absl::CancelledError("stopped before it could start");
}

DecideOptions HowToDecide(const Flags& flags) {
  DecideOptions options;
  options.agent_image = flags.agent_image;
  options.notice_first = kNoticeFirst;
  options.max_workers = flags.max_workers;
  return options;
}

// Connections to the API server, apart for what must not wait for each other.
struct Clients {
  Clients(const KubeEndpoint& endpoint, MetricRegistry& metrics)
      : all(endpoint, {.metrics = &metrics}),
        lease(endpoint, {.connections = 1, .timeout = Seconds(5), .metrics = &metrics}),
        lease_watch(endpoint, {.connections = 1, .metrics = &metrics}),
        notices(endpoint, {.connections = kMaxParallelRequests, .metrics = &metrics}),
        beside(endpoint, {.connections = 4, .metrics = &metrics}),
        strangers(endpoint, {.connections = 4, .metrics = &metrics}) {}
  KubeClient all;
  KubeClient lease, lease_watch;  // a renewal must not wait behind a thousand creates
  KubeClient notices;             // a machine that goes gives seconds
  KubeClient beside;              // questions and events, which nobody waits for
  KubeClient strangers;           // of the ports that anybody reaches
};

// The last three outlive what is made with them.
KubeClusterOptions WhatToWatch(const Flags& flags, Clients& clients, JobAuthorities& authorities,
                               KeyCollector& keys) {
  KubeClusterOptions options;
  options.pods = {flags.agent_image,
                  absl::StrCat("https://", flags.signer_host, ":", flags.sign_port),
                  flags.spot == "Required" ? SpotPlacement::kRequired : SpotPlacement::kPreferred};
  options.space = flags.watch_space;
  options.notices = &clients.notices;
  options.beside = &clients.beside;
  options.trust = [&](const TrainingJob& job) { return authorities.Trust(job); };
  options.clock = WallNow;
  options.forget = [&](const std::string& uid) { keys.Forget(uid); };
  options.sweep = [&](std::set<std::string> alive) { keys.Sweep(std::move(alive)); };
  return options;
}

JobAuthoritiesOptions HowToSign(const Flags& flags, Clients& clients, TokenGate& gate) {
  return {.space = flags.space,
          .watched = flags.watch_space,
          .clock = WallNow,
          .review = [&gate](const std::string& token) { return gate.Review(token); },
          .grants = &clients.strangers};
}

// identity: of HTTPS, for accounts that guard admits, where they are asked for.
OperatorPages::Options WhatToServe(const Flags& flags, const Pulse& pulse,
                                   const ServerIdentity& identity, MetricsGuard& guard) {
  OperatorPages::Options serve{flags.listen, flags.health_port, flags.metrics_port};
  serve.live = [&pulse] { return pulse.beats(); };
  if (!flags.guard_metrics) return serve;
  serve.identity = &identity;
  serve.admit = [&guard](const std::string& authorization) { return guard.Admit(authorization); };
  return serve;
}

Status Operate(const Flags& flags, const Logger& log) {
  ASSIGN_OR_RETURN(const KubeEndpoint endpoint, LoadDefaultKubeEndpoint());
  MetricRegistry metrics;
  Clients clients(endpoint, metrics);
  std::optional<KubeCluster> cluster;
  TokenGate gate(
      clients.strangers,
      {[&](const std::string& uid) { return cluster->IsWorker(uid); }, WallNow, SteadyNow},
      metrics);
  JobAuthorities authorities(clients.all, HowToSign(flags, clients, gate));
  KeyCollector keys({[&](const std::string& uid) { return authorities.Forget(uid); },
                     [&](const std::set<std::string>& alive) { return authorities.Sweep(alive); }},
                    metrics, log.For("keys"));
  SignerOptions sign{flags.listen, flags.sign_port, {flags.signer_host}, {}};
  sign.grant = [&](const std::string& token, const std::string& csr) {
    return authorities.Grant(token, csr);
  };
  Pulse pulse;
  Lease lease(clients.lease, clients.lease_watch,
              {.space = flags.space, .identity = Identity(), .fit = [&] { return pulse.beats(); }},
              log.For("lease"), metrics);
  const auto leading = [&] { return !flags.elect || lease.leading(); };
  DeathReportHandler deaths(
      {[&](const std::string& token) { return gate.Review(token); }, leading,
       [&](DeathReport report) { return cluster->PostReport(std::move(report)); }, SteadyNow},
      metrics);
  sign.report = [&](const std::string& token, const std::string& body) {
    return deaths.Take(token, body);
  };
  KubeClusterOptions options = WhatToWatch(flags, clients, authorities, keys);
  AgentProber prober(
      {.exceptions = &ExceptionsOf(metrics, "prober")},
      [&](const std::string& uid, ProbeResult result) { (void)cluster->PostProbe(uid, result); });
  options.probe = [&](const DeathReports::Probe& probe) { return prober.Ask(probe); };
  cluster.emplace(clients.all, std::move(options), Rng(static_cast<uint64_t>(getpid())),
                  log.For("cluster"), metrics);
  ControllerOptions control;
  control.decide = HowToDecide(flags);
  control.leading = leading;
  control.progress = [&] { pulse.Beat(); };
  Controller controller(*cluster, control, metrics, log.For("controller"));
  running = &controller;  // before the wait below, which a signal must be able to end
  const absl::Cleanup no_signals = [] { running = nullptr; };
  ASSIGN_OR_RETURN(const auto signer_authority,
                   AwaitSignerAuthority(authorities, controller.stop(), log));
  ASSIGN_OR_RETURN(const auto signer, Signer::Start(*signer_authority, sign, WallNow(), metrics));
  MetricsPage page(metrics, "crowdsurf-operator");
  page.Before([&] { controller.RefreshMetrics(); });
  MetricsGuard guard(clients.strangers, SteadyNow, metrics);
  ASSIGN_OR_RETURN(const ServerIdentity identity,
                   signer_authority->MakeServer({flags.signer_host, "localhost"}, WallNow()));
  pulse.Beat();  // waiting for the signer's key is no stuck loop
  ASSIGN_OR_RETURN(const auto pages, OperatorPages::Start(
                                         WhatToServe(flags, pulse, identity, guard),
                                         [&] { return controller.ready(); }, page, metrics));
  cluster->Start();  // after the pages: probes are answered while the caches fill
  if (flags.elect) lease.Start();
  log.Info("started", {{"namespace", flags.space},
                       {"signer", flags.signer_host},
                       {"sign_port", signer->port()},
                       {"health_port", pages->health_port()},
                       {"metrics_port", pages->metrics_port()}});
  controller.Run();
  log.Info("stopping");
  lease.Stop();        // first: another takes over while the rest of this ends
  clients.all.Stop();  // before the cluster: its watches wait for sockets that only this cuts
  clients.beside.Stop();
  cluster->Stop();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  TakeInherited();
  CLI::App app{"The operator of Crowdsurf's TrainingJobs"};
  Flags flags;
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadConfiguration;
  }
  if (flags.space.empty()) flags.space = MountedNamespace();
  if (flags.space.empty()) {
    std::cerr << "crowdsurf-operator: --namespace: is required outside of a cluster\n";
    return kBadConfiguration;
  }
  if (flags.signer_host.empty()) flags.signer_host = "crowdsurf-operator." + flags.space + ".svc";
  KeepMemoryPrivate();  // the keys of all jobs' CAs
  // Before any port is opened: each has a part of what there is.
  (void)RaiseDescriptorLimit();
  flags.listen = AnyAddress(flags.listen);
  signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to closed sockets
  signal(SIGTERM, OnSignal);
  if (!IsIgnored(SIGINT)) signal(SIGINT, OnSignal);
  const LogLevel least = *ParseLogLevel(flags.log_level);  // one of the four: checked above
  const auto sink = MakeStderrSink(least);
  const Logger log(sink.get(), "operator", least);
  const Status status = Operate(flags, log);
  if (status.ok()) return 0;
  log.Error("does not start", {{"why", status.ToString()}});
  return 1;
}

}  // namespace
}  // namespace crowdsurf::controller

int main(int argc, char** argv) { return crowdsurf::controller::Main(argc, argv); }
