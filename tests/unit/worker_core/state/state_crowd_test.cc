// A crowd of joiners at one donor, real cores, under virtual time: it serves four at a time.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/unit/worker_core/world/numbered_peers.h"
#include "worker/core/state/state_donor.h"
#include "worker/core/state/state_fetch.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kElements = 100'000;  // two chunks
constexpr Duration kDelay = Milliseconds(20);
const PeerId kDonor = Id(200);

struct Crowd {
  explicit Crowd(uint8_t n) {
    donor.Offer(0, MakeStateManifest(average, AveragingId(7), Digest(), Digest()));
    StateFetchOptions options;
    options.elements = kElements;
    for (uint8_t i = 0; i < n; ++i) {
      fetches.push_back(std::make_unique<StateFetch>(now, options, metrics));
      Feed(i, [&](FetchActions& out) { fetches[i]->OnDonor(now, kDonor, out); });
    }
  }

  template <class F>
  void Feed(uint8_t joiner, F input) {
    FetchActions out;
    input(out);
    for (const FetchAction& action : out) {
      const auto* ask = std::get_if<AskDonor>(&action);
      if (ask != nullptr) {
        queue.emplace(now + kDelay,
                      [this, joiner, message = ask->message] { Serve(joiner, message); });
      }
      done += std::holds_alternative<FetchDone>(action);
    }
  }
  void Serve(uint8_t joiner, const StateMessage& message) {
    if (std::holds_alternative<FetchOver>(message)) return donor.OnOver(Id(joiner));
    const auto send = donor.OnMessage(now, Id(joiner), message);
    ASSERT_TRUE(send.has_value());
    if (send->bytes > 0) donor.OnSent(Id(joiner));
    queue.emplace(now + kDelay, [this, joiner, sent = *send] {
      const ByteView all(reinterpret_cast<const uint8_t*>(average.data()),
                         kElements * sizeof(float));
      const ByteView payload = all.subspan(sent.offset, sent.bytes);
      Feed(joiner, [&](FetchActions& out) {
        fetches[joiner]->OnReply(now, kDonor, sent.message,
                                 {payload.size(), fetches[joiner]->HashOf(payload)}, out);
      });
    });
  }
  // Until everybody has it, at most for `limit`.
  void Run(Duration limit) {
    const Time end = now + limit;
    while (done < fetches.size()) {
      size_t first = 0;
      for (size_t i = 1; i < fetches.size(); ++i) {
        if (fetches[i]->NextDeadline() < fetches[first]->NextDeadline()) first = i;
      }
      const Time timer = fetches[first]->NextDeadline();
      const Time next = queue.empty() ? timer : std::min(timer, queue.begin()->first);
      if (next > end) return;
      now = std::max(now, next);
      if (!queue.empty() && queue.begin()->first <= now) {
        auto node = queue.extract(queue.begin());
        node.mapped()();
      } else {
        Feed(static_cast<uint8_t>(first),
             [&](FetchActions& out) { fetches[first]->OnTimer(now, out); });
      }
    }
  }

  Time now = Time::FromNanoseconds(1'000'000'000);
  MetricRegistry metrics;
  const std::vector<float> average = std::vector<float>(kElements, 0.5f);
  StateDonor donor{StateDonorOptions{}, metrics};
  std::vector<std::unique_ptr<StateFetch>> fetches;
  std::multimap<Time, std::function<void()>> queue;
  size_t done = 0;
};

// Fifteen that find the first one of a job: four batches, each two round trips and a pause of those
// that wait. Without the joiners' last word each place was held for ten seconds by nobody.
TEST(StateCrowdTest, FifteenJoinersGetTheStateOfOneDonorInAboutASecond) {
  Crowd crowd(15);
  const Time start = crowd.now;
  crowd.Run(Seconds(60));
  EXPECT_EQ(crowd.done, 15u);
  EXPECT_LT(crowd.now - start, Seconds(1.5));
  EXPECT_GE(crowd.now - start, kDelay * 8);  // of four places, and two round trips each
  EXPECT_GT(crowd.metrics.Value("crowdsurf_state_requests_refused_total", {{"reason", "busy"}}), 0);
}

}  // namespace
}  // namespace crowdsurf::worker
