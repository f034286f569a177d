// FetchWorld: a joiner and several donors, real cores, under virtual time: delays, deaths,
// corruption, newer averages.
//
// Owner: one test; single sequence. Messages go over the wire's codec.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"
#include "tests/unit/worker_core/state/random_vector.h"
#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/state/state_donor.h"
#include "worker/core/state/state_fetch.h"

namespace crowdsurf::worker {

inline constexpr size_t kFetchElements = 1'000'003;  // 16 chunks, the last one short

inline const std::vector<float>& FetchValues(uint64_t seed) {
  return RandomVector(seed, kFetchElements);
}

struct FetchDonor {
  std::unique_ptr<StateDonor> core;
  std::map<int, std::vector<float>> inbox;
  Bytes opaque;
  Duration delay = Milliseconds(3);
  Duration link;  // that one chunk takes on its link, after those before it
  Time link_free;
  bool alive = true, silent = false, corrupt = false;
  bool busy = false;  // has no place for a joiner
};

// The world: messages are delivered in order of time, ties in order of sending.
struct FetchWorld {
  explicit FetchWorld(StateFetchOptions o) : options(o), fetch(now, o, metrics) {}

  static StateFetchOptions Options() {
    StateFetchOptions o;
    o.elements = kFetchElements;
    return o;
  }

  FetchDonor& AddDonor(uint8_t n, uint64_t number, uint64_t seed, Bytes state = {}) {
    FetchDonor& d = donors[Id(n)];
    d.core = std::make_unique<StateDonor>(StateDonorOptions{}, metrics);
    Hold(n, 0, number, seed);
    d.opaque = std::move(state);
    d.core->SetOpaque(now, {d.opaque.size(), Sha256(d.opaque)});
    return d;
  }
  void Hold(uint8_t n, int inbox, uint64_t number, uint64_t seed) {
    FetchDonor& d = donors[Id(n)];
    d.inbox[inbox] = FetchValues(seed);
    StateManifest manifest =
        MakeStateManifest(d.inbox[inbox], AveragingId(number), Digest(), Digest());
    manifest.job_samples = samples;
    d.core->Offer(inbox, std::move(manifest));
  }

  void Execute(const FetchActions& actions, ByteView payload) {
    for (const FetchAction& action : actions) {
      if (const auto* ask = std::get_if<AskDonor>(&action)) {
        (std::holds_alternative<FetchOver>(ask->message) ? overs : asked)[ask->to]++;
        Later(now + donors[ask->to].delay, [this, a = *ask] { Serve(a); });
      } else if (const auto* keep = std::get_if<KeepChunk>(&action)) {
        ASSERT_LE(keep->offset + payload.size(), result.size() * 4);
        memcpy(reinterpret_cast<uint8_t*>(result.data()) + keep->offset, payload.data(),
               payload.size());
      } else if (const auto* part = std::get_if<KeepOpaque>(&action)) {
        opaque.resize(part->bytes);
        memcpy(opaque.data() + part->offset, payload.data(), payload.size());
      } else if (const auto* verify = std::get_if<VerifyOpaque>(&action)) {
        const bool good = Sha256(opaque) == verify->hash;
        ++verifies;
        Later(now + hash_takes, [this, good] {
          Feed([&](FetchActions& o) {
            good ? fetch.OnOpaqueVerified(now, o) : fetch.OnOpaqueCorrupt(now, o);
          });
        });
      } else if (const auto* done_now = std::get_if<FetchDone>(&action)) {
        done = *done_now;
      } else if (const auto* failed_now = std::get_if<FetchFailed>(&action)) {
        failed = failed_now->why;
      }
    }
  }
  template <class F>
  void Feed(F input, ByteView payload = {}) {
    FetchActions out;
    input(out);
    Execute(out, payload);
  }

  void Serve(const AskDonor& ask) {
    FetchDonor& d = donors[ask.to];
    if (!d.alive || d.silent) return;
    if (std::holds_alternative<FetchOver>(ask.message)) return d.core->OnOver(Id(200));
    auto send = d.core->OnMessage(now, Id(200), ask.message);
    if (d.busy) {
      send->message = ManifestReply{.refusal = StateRefusal::kBusy, .manifest = {}, .opaque = {}};
      send->bytes = 0;
    }
    Bytes payload;
    if (send->bytes > 0) {
      const uint8_t* from = send->inbox < 0
                                ? d.opaque.data()
                                : reinterpret_cast<const uint8_t*>(d.inbox[send->inbox].data());
      payload.assign(from + send->offset, from + send->offset + send->bytes);
      if (d.corrupt) payload[payload.size() / 2] ^= 1;
      d.core->OnSent(Id(200));
    }
    // Over the wire: encoded and decoded, as the transport would.
    Bytes frame = EncodeStateMessage(send->message);
    frame.insert(frame.end(), payload.begin(), payload.end());
    d.link_free = std::max(now, d.link_free) + (payload.empty() ? Duration() : d.link);
    Later(d.link_free + d.delay, [this, peer = ask.to, frame] {
      const auto decoded = DecodeStateMessage(frame);
      ASSERT_TRUE(decoded.has_value());
      Feed(
          [&](FetchActions& o) {
            fetch.OnReply(now, peer, decoded->message,
                          {decoded->payload.size(), fetch.HashOf(decoded->payload)}, o);
          },
          decoded->payload);
    });
  }
  void Later(Time at, std::function<void()> what) { queue.emplace(at, std::move(what)); }
  void Join(uint8_t n) {
    Feed([&](FetchActions& o) { fetch.OnDonor(now, Id(n), o); });
  }
  void Kill(uint8_t n) {
    donors[Id(n)].alive = false;
    Feed([&](FetchActions& o) { fetch.OnDonorFailed(now, Id(n), o); });
  }

  // Runs until the fetch ends, at most `steps` events.
  void Run(int steps = 100'000) {
    while (!done && !failed && --steps > 0) {
      const Time timer = fetch.NextDeadline();
      if (queue.empty() || timer < queue.begin()->first) {
        ASSERT_GE(timer, now);
        now = timer;
        Feed([&](FetchActions& o) { fetch.OnTimer(now, o); });
        continue;
      }
      auto node = queue.extract(queue.begin());
      now = node.key();
      node.mapped()();
    }
    EXPECT_GT(steps, 0) << "the fetch does not come to an end";
  }
  void RunFor(int steps) {
    while (steps-- > 0 && !queue.empty()) {
      auto node = queue.extract(queue.begin());
      now = node.key();
      node.mapped()();
    }
  }

  Time now = Time::FromNanoseconds(1'000'000'000);
  double samples = 0;  // of the job, in averages that are held later
  StateFetchOptions options;
  MetricRegistry metrics;
  StateFetch fetch;
  std::map<PeerId, FetchDonor> donors;
  std::map<PeerId, int> asked, overs;
  Duration hash_takes;  // of an opaque state
  int verifies = 0;
  std::multimap<Time, std::function<void()>> queue;
  std::vector<float> result = std::vector<float>(kFetchElements);
  Bytes opaque;
  std::optional<FetchDone> done;
  std::optional<std::string> failed;
};

}  // namespace crowdsurf::worker
