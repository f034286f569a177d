#include "operator/edge/operator_pages.h"

#include <httplib.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <thread>

namespace crowdsurf::controller {
namespace {

constexpr int kThreads = 2;     // a scraper and a kubelet
constexpr int kPatience_s = 5;  // with a client that sends slowly
constexpr char kText[] = "text/plain; charset=utf-8";

class StderrSink : public LogSink {
 public:
  StderrSink() : logger_("operator", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_level(spdlog::level::debug);  // a Logger has dropped what is below its own
    logger_.set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  }
  void Write(LogLevel level, std::string_view module, std::string_view message,
             std::initializer_list<LogField> fields) override {
    std::string line(module);
    line.append(": ").append(message);
    for (const LogField& field : fields) {
      line.append(" ").append(field.key).append("=\"").append(field.value).append("\"");
    }
    constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                     spdlog::level::warn, spdlog::level::err};
    logger_.log(kLevels[static_cast<size_t>(level)], "{}", line);
  }

 private:
  spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<LogSink> MakeLogSink() { return std::make_unique<StderrSink>(); }

LogLevel LogLevelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

struct OperatorPages::Server {
  std::unique_ptr<httplib::Server> http;
  std::thread thread;
  int port = 0;

  explicit Server(const ServerIdentity* identity) {
    if (identity == nullptr) {
      http = std::make_unique<httplib::Server>();
    } else {
      http = std::make_unique<httplib::SSLServer>(identity->certificate.get(), identity->key.get());
    }
    http->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    http->set_read_timeout(kPatience_s);
    http->set_write_timeout(kPatience_s);
    // The library's default, SO_REUSEPORT, would let two operators share a port without a word.
    http->set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
  }
  Status Listen(const std::string& address, int wanted) {
    if (!http->is_valid()) return absl::InternalError("the TLS context is not valid");
    port = wanted == 0                           ? http->bind_to_any_port(address)
           : http->bind_to_port(address, wanted) ? wanted
                                                 : -1;
    if (port <= 0) {
      return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", address, ":", wanted));
    }
    thread = std::thread([this] { http->listen_after_bind(); });
    while (!http->is_running()) std::this_thread::yield();  // else an early stop would be lost
    return absl::OkStatus();
  }
  ~Server() {
    if (!thread.joinable()) return;
    http->stop();
    thread.join();
  }
};

OperatorPages::OperatorPages() = default;
OperatorPages::~OperatorPages() = default;
int OperatorPages::health_port() const { return health_->port; }
int OperatorPages::metrics_port() const { return metrics_->port; }

StatusOr<std::unique_ptr<OperatorPages>> OperatorPages::Start(const Options& options,
                                                              std::function<bool()> ready,
                                                              MetricsPage& metrics) {
  std::unique_ptr<OperatorPages> pages(new OperatorPages());
  pages->health_ = std::make_unique<Server>(nullptr);
  pages->metrics_ = std::make_unique<Server>(options.identity);
  pages->health_->http->Get(
      "/healthz", [live = options.live](const httplib::Request&, httplib::Response& response) {
        const bool yes = live();
        response.status = yes ? 200 : 503;
        response.set_content(yes ? "ok\n" : "the deciding loop is stuck\n", kText);
      });
  pages->health_->http->Get(
      "/readyz", [ready](const httplib::Request&, httplib::Response& response) {
        const bool yes = ready();
        response.status = yes ? 200 : 503;
        response.set_content(yes ? "ok\n" : "the caches are not filled yet\n", kText);
      });
  pages->metrics_->http->Get(
      "/metrics", [&metrics, admit = options.admit](const httplib::Request& request,
                                                    httplib::Response& response) {
        const Status status =
            admit ? admit(request.get_header_value("Authorization")) : absl::OkStatus();
        if (status.ok()) {
          response.set_content(metrics.Render(), MetricsPage::kContentType);
          return;
        }
        response.status = absl::IsUnauthenticated(status)    ? 401
                          : absl::IsPermissionDenied(status) ? 403
                                                             : 503;
        response.set_content(absl::StrCat(status.message(), "\n"), kText);
      });
  RETURN_IF_ERROR(pages->health_->Listen(options.listen, options.health_port));
  RETURN_IF_ERROR(pages->metrics_->Listen(options.listen, options.metrics_port));
  return pages;
}

}  // namespace crowdsurf::controller
