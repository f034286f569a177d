// The one place that includes Asio, so that every file sees it configured alike.
//
// Asio 1.22 decides by what the standard library has defined so far how it allocates; a file that
// includes Asio before any standard header would free with the wrong function.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string>

#ifndef ASIO_STANDALONE
#define ASIO_STANDALONE
#endif
#include <asio/buffer.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/read_until.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
