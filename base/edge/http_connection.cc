#include "base/edge/http_connection.h"

#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

namespace crowdsurf {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using TlsStream = asio::ssl::stream<tcp::socket>;

constexpr size_t kReadAtOnce = 4096;
constexpr size_t kMaxLingered = 1 << 20;  // bytes of a refused body that are read and thrown away

std::string LowerCase(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// The address that a person would write: IPv4 also where an IPv6 socket took the connection.
std::string AddressOf(const tcp::socket& socket) {
  error_code failed;
  const tcp::endpoint peer = socket.remote_endpoint(failed);
  if (failed) return {};
  asio::ip::address address = peer.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  }
  return address.to_string();
}

template <class Stream>
class ConnectionOn final : public HttpConnection {
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;

 public:
  ConnectionOn(Stream stream, HttpDesk& desk, uint64_t id)
      : stream_(std::move(stream)),
        timer_(stream_.get_executor()),
        desk_(desk),
        id_(id),
        peer_(AddressOf(socket())),
        // The buffer's bound: a longer header ends its read with buffer_overflow.
        buffer_(desk.limits().header_bytes) {}
  ~ConnectionOn() override { Close(); }

  void Begin() override {
    desk_.Enter(id_, HttpPhase::kUnfinished);
    // One deadline for the handshake and the whole first request: bytes that trickle in do not
    // extend it.
    CutAfter(desk_.limits().request, HttpRefusal::kSlow);
    if constexpr (kTls) {
      stream_.async_handshake(asio::ssl::stream_base::server, Bound(&ConnectionOn::OnHandshake));
    } else {
      AwaitFirstByte();
    }
  }

  void Answer(HttpServer::Reply reply) override {
    if (closed_) return;
    response_.emplace();
    response_->version(version_);
    response_->result(static_cast<unsigned>(reply.status));
    for (const auto& [name, value] : reply.headers) response_->set(name, value);
    response_->set(http::field::content_type, reply.content_type);
    response_->keep_alive(keep_alive_);
    // HEAD gets the length of the body, and no body (RFC 9110, section 9.3.2).
    response_->content_length(reply.body.size());
    if (!head_) response_->body() = std::move(reply.body);
    desk_.Enter(id_, HttpPhase::kReplying);
    CutAfter(desk_.limits().reply, HttpRefusal::kUnread);
    http::async_write(stream_, *response_, Bound(&ConnectionOn::OnWritten));
  }

  void Close() override {
    if (closed_) return;
    closed_ = true;
    error_code ignored;
    timer_.cancel(ignored);
    socket().close(ignored);
    desk_.Leave(id_);
  }

 private:
  using Step = void (ConnectionOn::*)(error_code);

  tcp::socket& socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  // The handler of an operation: it keeps this alive, and does nothing once this is closed.
  auto Bound(Step step) {
    auto self = std::static_pointer_cast<ConnectionOn>(shared_from_this());
    return [self, step](error_code failed, size_t = 0) {
      if (!self->closed_) ((*self).*step)(failed);
    };
  }

  // Replaces the deadline before it. reason: counted when it cuts; none for what harms nobody.
  void CutAfter(Duration time, std::optional<HttpRefusal> reason) {
    timer_.expires_after(std::chrono::nanoseconds(time.nanoseconds()));
    // Weak: a deadline keeps no closed connection in memory.
    timer_.async_wait([weak = weak_from_this(), this, reason, deadline = ++deadlines_](error_code) {
      const auto self = weak.lock();
      if (!self || closed_ || deadline != deadlines_) return;  // cancelled, or replaced meanwhile
      if (reason) desk_.Count(*reason);
      Close();
    });
  }

  void OnHandshake(error_code failed) {
    if (failed) {
      desk_.Count(HttpRefusal::kTls);
      Close();
      return;
    }
    AwaitFirstByte();
  }

  void AwaitNextRequest() {
    if (buffer_.size() > 0) {  // pipelined
      desk_.Enter(id_, HttpPhase::kUnfinished);
      CutAfter(desk_.limits().request, HttpRefusal::kSlow);
      ReadRequest();
      return;
    }
    idle_ = true;
    desk_.Enter(id_, HttpPhase::kIdle);
    CutAfter(desk_.limits().idle, std::nullopt);
    AwaitFirstByte();
  }

  void AwaitFirstByte() {
    stream_.async_read_some(buffer_.prepare(kReadAtOnce),
                            [self = shared_from_this(), this](error_code failed, size_t bytes) {
                              if (closed_) return;
                              if (failed) {
                                Close();
                                return;
                              }
                              buffer_.commit(bytes);
                              if (std::exchange(idle_, false)) {
                                desk_.Enter(id_, HttpPhase::kUnfinished);
                                CutAfter(desk_.limits().request, HttpRefusal::kSlow);
                              }
                              ReadRequest();
                            });
  }

  void ReadRequest() {
    keep_alive_ = false;  // until the request is whole
    head_ = false;
    version_ = 11;
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(desk_.limits().header_bytes));
    // The route is not known yet: until then the longest body of all routes is the limit.
    parser_->body_limit(desk_.max_body());
    http::async_read_header(stream_, buffer_, *parser_, Bound(&ConnectionOn::OnHeader));
  }

  void OnHeader(error_code failed) {
    if (failed) {
      RefuseUnreadable(failed, HttpRefusal::kHeader);
      return;
    }
    const auto& head = parser_->get();
    if (static_cast<size_t>(std::distance(head.begin(), head.end())) > desk_.limits().headers) {
      Refuse(431, HttpRefusal::kHeader);
      return;
    }
    version_ = head.version();
    head_ = head.method() == http::verb::head;
    const std::string_view target = View(head.target());
    int status = 404;
    route_ = desk_.Find(head_ ? "GET" : std::string(View(head.method_string())),
                        std::string(target.substr(0, target.find('?'))), &status);
    if (route_ == nullptr) {
      // Where a body is still to come, its bytes would pass for the next request: then it is
      // closed.
      keep_alive_ =
          parser_->is_done() && parser_->keep_alive() && ++requests_ < desk_.limits().requests;
      Answer({status, status == 404 ? "no such page\n" : "not with this method\n"});
      return;
    }
    parser_->body_limit(route_->max_body);
    // Beast compared the length with the limit of all routes, when it read the header.
    const auto length = parser_->content_length();
    if (length && *length > route_->max_body) {
      Refuse(413, HttpRefusal::kBody);
      return;
    }
    if (parser_->is_done()) {
      Deliver();
    } else {
      http::async_read(stream_, buffer_, *parser_, Bound(&ConnectionOn::OnBody));
    }
  }

  void OnBody(error_code failed) {
    if (failed) {
      RefuseUnreadable(failed, HttpRefusal::kMalformed);
    } else {
      Deliver();
    }
  }

  void Deliver() {
    keep_alive_ = parser_->keep_alive() && ++requests_ < desk_.limits().requests;
    auto message = parser_->release();
    HttpServer::Request request;
    request.method = View(message.method_string());
    const std::string_view target = View(message.target());
    const size_t mark = target.find('?');
    request.path = target.substr(0, mark);
    if (mark != std::string_view::npos) request.query = target.substr(mark + 1);
    request.peer = peer_;
    for (const auto& field : message) {
      request.headers.emplace(LowerCase(View(field.name_string())), View(field.value()));
    }
    request.body = std::move(message.body());
    // A timer that has fired is cancelled no more: the new number voids its handler. A handler has
    // no deadline.
    timer_.cancel();
    ++deadlines_;
    desk_.Enter(id_, HttpPhase::kHeld);
    desk_.Take(shared_from_this(), *route_, std::move(request));
  }

  // too_long: what a buffer that is too small means at this place.
  void RefuseUnreadable(error_code failed, HttpRefusal too_long) {
    if (failed == http::error::body_limit) {
      Refuse(413, HttpRefusal::kBody);
    } else if (failed == http::error::header_limit || failed == http::error::buffer_overflow) {
      Refuse(too_long == HttpRefusal::kHeader ? 431 : 400, too_long);
      // Errors of HTTP's own category are the client's mistakes. All others, and an end, are the
      // network's.
    } else if (failed.category() == http::make_error_code(http::error::bad_version).category() &&
               failed != http::error::end_of_stream && failed != http::error::partial_message) {
      Refuse(400, HttpRefusal::kMalformed);
    } else {
      Close();  // the client went away
    }
  }

  void Refuse(int status, HttpRefusal reason) {
    desk_.Count(reason);
    keep_alive_ = false;
    Answer({status, status == 413   ? "the body is too long\n"
                    : status == 431 ? "the header is too long\n"
                                    : "not a request\n"});
  }

  void OnWritten(error_code failed) {
    response_.reset();
    if (failed) {
      Close();
    } else if (keep_alive_) {
      AwaitNextRequest();
    } else {
      Linger();
    }
  }

  // A socket closed with unread bytes resets the connection, and the reply may be lost with it.
  void Linger() {
    desk_.Enter(id_, HttpPhase::kUnfinished);
    CutAfter(desk_.limits().linger, std::nullopt);
    if constexpr (kTls) {
      // Nothing is left to read, so a close_notify ends it in good order.
      if (parser_->is_done()) {
        SayGoodbye();
        return;
      }
    } else {
      error_code ignored;
      socket().shutdown(tcp::socket::shutdown_send, ignored);
    }
    ThrowAway();
  }

  void ThrowAway() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(kReadAtOnce),
                            [self = shared_from_this(), this](error_code failed, size_t bytes) {
                              if (closed_) return;
                              lingered_ += bytes;
                              if (failed) {
                                SayGoodbye();
                              } else if (lingered_ > kMaxLingered) {
                                Close();
                              } else {
                                ThrowAway();
                              }
                            });
  }

  void SayGoodbye() {
    if constexpr (kTls) {
      stream_.async_shutdown(Bound(&ConnectionOn::OnGoodbye));
    } else {
      Close();
    }
  }
  void OnGoodbye(error_code) { Close(); }

  Stream stream_;
  asio::steady_timer timer_;
  HttpDesk& desk_;
  const uint64_t id_;
  const std::string peer_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> response_;
  const HttpRoute* route_ = nullptr;
  uint64_t deadlines_ = 0;
  size_t requests_ = 0;
  size_t lingered_ = 0;
  unsigned version_ = 11;
  bool keep_alive_ = false, head_ = false, idle_ = false, closed_ = false;
};

}  // namespace

std::shared_ptr<HttpConnection> MakeHttpConnection(tcp::socket socket, asio::ssl::context* tls,
                                                   HttpDesk& desk, uint64_t id) {
  if (tls == nullptr) {
    return std::make_shared<ConnectionOn<tcp::socket>>(std::move(socket), desk, id);
  }
  return std::make_shared<ConnectionOn<TlsStream>>(TlsStream(std::move(socket), *tls), desk, id);
}

}  // namespace crowdsurf
