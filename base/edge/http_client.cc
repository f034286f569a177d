#include "base/edge/http_client.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <exception>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/endpoint.h"

namespace crowdsurf {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using TlsStream = asio::ssl::stream<tcp::socket>;

Status Failure(const std::string& address, const char* what, error_code failed) {
  const std::string text = absl::StrCat(address, ": ", what, ": ", failed.message());
  if (failed == http::error::header_limit || failed == http::error::body_limit ||
      failed == http::error::buffer_overflow) {
    return absl::ResourceExhaustedError(text);
  }
  // HTTP's own category: the server's mistakes. All else is the network's.
  if (failed.category() == http::make_error_code(http::error::bad_version).category()) {
    return absl::DataLossError(text);
  }
  return absl::UnavailableError(text);
}

}  // namespace

struct HttpTrust::Context {
  asio::ssl::context tls{asio::ssl::context::tls_client};
};

HttpTrust::HttpTrust(std::unique_ptr<Context> context) : context_(std::move(context)) {}
HttpTrust::~HttpTrust() = default;

StatusOr<std::shared_ptr<HttpTrust>> HttpTrust::FromPem(const std::string& pem) {
  auto context = std::make_unique<Context>();
  asio::ssl::context& tls = context->tls;
  error_code failed;
  tls.add_certificate_authority(asio::buffer(pem), failed);
  ERR_clear_error();
  if (failed) return absl::InvalidArgumentError("no certificate of a CA in PEM");
  tls.set_verify_mode(asio::ssl::verify_peer);
  SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION);
  return std::shared_ptr<HttpTrust>(new HttpTrust(std::move(context)));
}

// One request, from its connection to the end of its answer. On the client's thread. Its pending
// operations share it; the last one ends it.
class HttpExchange : public std::enable_shared_from_this<HttpExchange> {
 public:
  virtual ~HttpExchange() = default;
  virtual void Begin() = 0;
  virtual void End(StatusOr<HttpClient::Answer> answer) = 0;  // idempotent
};

namespace {

using Leave = std::function<void(const std::shared_ptr<HttpExchange>&)>;

template <class Stream>
class ExchangeOn final : public HttpExchange {
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;

 public:
  ExchangeOn(Stream stream, Endpoint to, HttpClient::Request request, HttpClient::Receiver receiver,
             Leave leave)
      : stream_(std::move(stream)),
        resolver_(stream_.get_executor()),
        timer_(stream_.get_executor()),
        to_(std::move(to)),
        asked_(std::move(request)),
        receiver_(std::move(receiver)),
        leave_(std::move(leave)),
        // A line that does not fit ends its read with buffer_overflow.
        buffer_(asked_.max_header) {}

  void Begin() override {
    timer_.expires_after(std::chrono::nanoseconds(asked_.deadline.nanoseconds()));
    timer_.async_wait([self = Self()](error_code failed) {
      if (!failed) self->End(absl::DeadlineExceededError(self->asked_.address + ": too slow"));
    });
    error_code no_address;
    const auto address = asio::ip::make_address(to_.host, no_address);
    if (no_address) {
      resolver_.async_resolve(to_.host, std::to_string(to_.port),
                              [self = Self()](error_code failed, const auto& found) {
                                if (self->ended_) return;
                                if (failed) return self->Fail("its name", failed);
                                std::vector<tcp::endpoint> points(found.begin(), found.end());
                                self->Connect(std::move(points));
                              });
    } else {
      Connect({tcp::endpoint(address, to_.port)});
    }
  }

  void End(StatusOr<HttpClient::Answer> answer) override {
    if (std::exchange(ended_, true)) return;
    error_code ignored;
    timer_.cancel(ignored);
    resolver_.cancel();
    socket().close(ignored);
    leave_(shared_from_this());
    receiver_(std::move(answer));
  }

 private:
  using Step = void (ExchangeOn::*)();

  std::shared_ptr<ExchangeOn> Self() {
    return std::static_pointer_cast<ExchangeOn>(shared_from_this());
  }
  tcp::socket& socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }
  void Fail(const char* what, error_code failed) { End(Failure(asked_.address, what, failed)); }

  // The handler of an operation: what follows it, or the end with what it was.
  auto Then(const char* what, Step step) {
    return [self = Self(), what, step](error_code failed, const auto&...) {
      if (self->ended_) return;
      failed ? self->Fail(what, failed) : ((*self).*step)();
    };
  }

  void Connect(std::vector<tcp::endpoint> points) {
    points_ = std::move(points);
    asio::async_connect(socket(), points_, Then("connecting", &ExchangeOn::OnConnected));
  }

  void OnConnected() {
    error_code ignored;
    socket().set_option(tcp::no_delay(true), ignored);
    if constexpr (kTls) {
      SSL* tls = stream_.native_handle();
      X509_VERIFY_PARAM* wanted = SSL_get0_param(tls);
      // A common name is no name of a host: whoever may choose it could be anybody.
      X509_VERIFY_PARAM_set_hostflags(
          wanted, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
      if (X509_VERIFY_PARAM_set1_ip_asc(wanted, to_.host.c_str()) != 1) {
        X509_VERIFY_PARAM_set1_host(wanted, to_.host.c_str(), to_.host.size());
        SSL_set_tlsext_host_name(tls, to_.host.c_str());
      }
      ERR_clear_error();
      stream_.async_handshake(asio::ssl::stream_base::client, [self = Self()](error_code failed) {
        if (self->ended_) return;
        if (!failed) return self->Send();
        const long verdict = SSL_get_verify_result(self->stream_.native_handle());
        if (verdict == X509_V_OK) return self->Fail("TLS", failed);
        self->End(absl::UnauthenticatedError(absl::StrCat(
            self->asked_.address, ": its certificate: ", X509_verify_cert_error_string(verdict))));
      });
    } else {
      Send();
    }
  }

  void Send() {
    request_.version(11);
    request_.method_string(asked_.method);
    request_.target(asked_.target);
    request_.set(http::field::host, asked_.address);
    request_.set(http::field::connection, "close");
    for (const auto& [name, value] : asked_.headers) request_.set(name, value);
    request_.body() = std::move(asked_.body);
    request_.prepare_payload();
    http::async_write(stream_, request_, Then("sending", &ExchangeOn::Read));
  }

  void Read() {
    parser_.header_limit(static_cast<uint32_t>(asked_.max_header));
    parser_.body_limit(asked_.max_body);
    // The header by itself: where Beast 1.74 reads on at once, it forgets that the length which the
    // header promises is above the limit.
    http::async_read_header(stream_, buffer_, parser_, Then("its answer", &ExchangeOn::OnHeader));
  }

  void OnHeader() {
    if (parser_.is_done()) return OnAnswer();
    http::async_read(stream_, buffer_, parser_, Then("its answer", &ExchangeOn::OnAnswer));
  }

  void OnAnswer() {
    auto message = parser_.release();
    End(HttpClient::Answer{static_cast<int>(message.result_int()), std::move(message.body())});
  }

  Stream stream_;
  tcp::resolver resolver_;
  asio::steady_timer timer_;
  const Endpoint to_;
  HttpClient::Request asked_;
  const HttpClient::Receiver receiver_;
  const Leave leave_;
  std::vector<tcp::endpoint> points_;
  boost::beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  bool ended_ = false;
};

}  // namespace

class HttpClient::Impl {
 public:
  Impl() : thread_([this] { Run(); }) {}

  void Ask(Request request, Receiver receiver) {
    {
      const std::lock_guard lock(mutex_);
      if (!stopped_) {
        asio::post(io_,
                   [this, request = std::move(request), receiver = std::move(receiver)]() mutable {
                     Begin(std::move(request), std::move(receiver));
                   });
        return;
      }
    }
    receiver(absl::CancelledError("the client has stopped"));
  }

  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(stopped_, true)) return;
      // Behind all that was asked for before.
      asio::post(io_, [this] {
        for (const auto live = live_; const auto& one : live) {
          one->End(absl::CancelledError("the client stops"));
        }
        io_.stop();
      });
    }
    thread_.join();
  }

 private:
  void Run() {
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception&) {
        // One step of one request failed, such as a header too long to send. Its deadline ends it.
      }
    }
  }

  void Begin(Request request, Receiver receiver) {
    auto to = ParseEndpoint(request.address);
    if (!to) return receiver(absl::InvalidArgumentError(request.address + ": no host and port"));
    if (live_.size() >= kMaxRequests) {
      return receiver(absl::ResourceExhaustedError("too many requests are under way"));
    }
    const Leave leave = [this](const std::shared_ptr<HttpExchange>& one) { live_.erase(one); };
    const std::shared_ptr<HttpTrust> trust = request.trust;
    std::shared_ptr<HttpExchange> exchange;
    if (trust) {
      exchange =
          std::make_shared<ExchangeOn<TlsStream>>(TlsStream(io_, trust->context_->tls), *to,
                                                  std::move(request), std::move(receiver), leave);
    } else {
      exchange = std::make_shared<ExchangeOn<tcp::socket>>(
          tcp::socket(io_), *to, std::move(request), std::move(receiver), leave);
    }
    live_.insert(exchange);
    exchange->Begin();
  }

  asio::io_context io_{1};
  const asio::executor_work_guard<asio::io_context::executor_type> work_ =
      asio::make_work_guard(io_);
  std::set<std::shared_ptr<HttpExchange>> live_;  // of the thread alone
  std::mutex mutex_;                              // orders Ask and Stop
  bool stopped_ = false;
  std::thread thread_;
};

HttpClient::HttpClient() : impl_(std::make_unique<Impl>()) {}
HttpClient::~HttpClient() { Stop(); }
void HttpClient::Ask(Request request, Receiver receiver) {
  impl_->Ask(std::move(request), std::move(receiver));
}
void HttpClient::Stop() { impl_->Stop(); }

StatusOr<HttpClient::Answer> HttpClient::Fetch(Request request) {
  const auto answer = std::make_shared<std::promise<StatusOr<Answer>>>();
  auto future = answer->get_future();
  Ask(std::move(request), [answer](StatusOr<Answer> got) { answer->set_value(std::move(got)); });
  return future.get();
}

}  // namespace crowdsurf
