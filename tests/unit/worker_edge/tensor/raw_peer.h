// What a peer that is no agent does on a tensor connection: it dials, and says any bytes.
//
// For tests over real sockets. Descriptors are the caller's to close.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "worker/edge/tensor/tensor_frame.h"

namespace crowdsurf::worker {

// To a node's port on this machine.
inline void Connect(int fd, const std::string& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port =
      htons(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
}

inline int Dial(const std::string& endpoint) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  Connect(fd, endpoint);
  return fd;
}

inline void WriteAll(int fd, ByteView bytes) {
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// A whole frame, with its size and hash.
inline Bytes FrameOf(TensorHeader header, ByteView payload) {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.hash = TensorPayloadHash(header.instance, payload);
  const TensorHeaderBytes head = EncodeTensorHeader(header);
  Bytes frame(head.size() + payload.size());
  std::copy(payload.begin(), payload.end(), std::copy(head.begin(), head.end(), frame.begin()));
  return frame;
}

inline Bytes HelloOf(const TensorHello& hello) {
  return FrameOf({.kind = TensorKind::kHello}, EncodeTensorHello(hello));
}

}  // namespace crowdsurf::worker
