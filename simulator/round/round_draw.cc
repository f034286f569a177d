// DrawScenario: which faults, and how many, is drawn too, so that seeds differ in kind.
#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "simulator/round/round_scenario.h"

namespace crowdsurf::simulator {
namespace {

Duration Within(Rng& rng, Duration most) {
  return Nanoseconds(
      static_cast<int64_t>(rng.Uniform(static_cast<uint64_t>(most.nanoseconds()) + 1)));
}

LinkOptions DrawLinks(Rng& rng) {
  LinkOptions links;
  links.min_delay = Microseconds(static_cast<int64_t>(20 + rng.Uniform(200)));
  links.mean_extra_delay = Microseconds(static_cast<int64_t>(rng.Uniform(500)));
  links.in_order = rng.Bernoulli(0.5);
  if (rng.Bernoulli(0.3)) links.loss = 0.05 * rng.UniformDouble();
  if (rng.Bernoulli(0.3)) links.duplicate = 0.1 * rng.UniformDouble();
  if (rng.Bernoulli(0.3)) {
    links.slow = 0.05 * rng.UniformDouble();
    links.slow_factor = 10 + rng.UniformDouble() * 200;
  }
  return links;
}

int OneOf(Rng& rng, int count) {
  return static_cast<int>(rng.Uniform(static_cast<uint64_t>(count)));
}

void DrawFaults(Rng& rng, int nodes, RoundScenario& scenario) {
  const Duration soon = Milliseconds(30);
  if (rng.Bernoulli(0.6)) {
    const int deaths = 1 + OneOf(rng, std::max(1, scenario.members / 2));
    for (int i = 0; i < deaths; ++i)
      // After few actions, so that deaths fall into the round and not behind it.
      scenario.deaths.push_back({OneOf(rng, nodes), rng.Uniform(rng.Bernoulli(0.7) ? 60 : 300)});
  }
  // Infinite: no reset is seen, and silence alone tells.
  scenario.detection = rng.Bernoulli(0.2) ? Duration::Infinite() : Within(rng, Milliseconds(20));
  if (rng.Bernoulli(0.3)) {
    for (int i = OneOf(rng, 3); i >= 0; --i)
      scenario.freezes.push_back(
          {Within(rng, soon), Within(rng, Milliseconds(500)), OneOf(rng, nodes)});
  }
  if (rng.Bernoulli(0.3)) {
    for (int i = OneOf(rng, 3); i >= 0; --i)
      scenario.cuts.push_back({Within(rng, soon), Within(rng, Milliseconds(500)), OneOf(rng, nodes),
                               OneOf(rng, nodes)});
  }
  if (rng.Bernoulli(0.4)) {
    for (int i = OneOf(rng, 5); i >= 0; --i)
      scenario.suspicions.push_back({Within(rng, soon), Within(rng, Milliseconds(300)),
                                     OneOf(rng, nodes), OneOf(rng, scenario.members)});
  }
}

// Owners have one to three chunks, so windows are of one to four.
void DrawWindows(Rng rng, RoundScenario& scenario) {
  scenario.window_chunks = 1;
  scenario.max_window_chunks = static_cast<uint32_t>(1 + OneOf(rng, 4));
  for (int i = OneOf(rng, 4 * scenario.members); i > 0; --i)
    scenario.windows.push_back({Within(rng, Milliseconds(20)), OneOf(rng, scenario.members),
                                OneOf(rng, scenario.members),
                                static_cast<uint32_t>(1 + OneOf(rng, 4))});
}

// Windows of several chunks, as agents have them: only where an owner has more chunks than a window
// do members send it some while others are held back.
void DrawManyChunks(Rng rng, RoundScenario& scenario) {
  scenario.elements = static_cast<uint32_t>(40 + OneOf(rng, 161));
  scenario.chunk_elements = 1;
  scenario.window_chunks = 8;
  scenario.max_window_chunks = static_cast<uint32_t>(8 + OneOf(rng, 9));
  for (RoundScenario::Window& window : scenario.windows)
    window.chunks = static_cast<uint32_t>(8 + OneOf(rng, 9));
  if (rng.Bernoulli(0.5)) return;
  // A link of each member has a rate of its own, and one of them may lose three quarters of it.
  constexpr double kLeast = 10e6;  // bytes a second: a round of a few seconds
  scenario.chunk_bytes = size_t{128} << 10;
  for (int node = 0; node < scenario.members; ++node)
    scenario.rates.push_back({Duration(), node, kLeast * std::pow(20, rng.UniformDouble())});
  if (rng.Bernoulli(0.5)) return;
  RoundScenario::Rate rate = scenario.rates[static_cast<size_t>(OneOf(rng, scenario.members))];
  rate.at = Within(rng, Seconds(1));
  rate.bytes_per_second /= 4;
  scenario.rates.push_back(rate);
}

}  // namespace

RoundScenario DrawScenario(uint64_t seed) {
  Rng rng = Rng(seed).Fork("scenario");
  RoundScenario scenario;
  scenario.seed = seed;
  scenario.members = 2 + OneOf(rng, 7);
  if (rng.Bernoulli(0.3)) {
    scenario.holes = 1 + OneOf(rng, 2);
    scenario.speakers = 1 + OneOf(rng, 3);
  }
  if (rng.Bernoulli(0.3)) scenario.outside_witnesses = 1 + OneOf(rng, 5);
  // A value for each member at least, so that everybody owns a part.
  scenario.elements = static_cast<uint32_t>(scenario.members * (1 + OneOf(rng, 3)));
  scenario.chunk_elements = static_cast<uint32_t>(1 + OneOf(rng, 3));
  const worker::WireFormat wires[] = {worker::WireFormat::kFloat32, worker::WireFormat::kFloat16,
                                      worker::WireFormat::kBFloat16};
  scenario.wire = wires[OneOf(rng, 3)];
  scenario.zero_weights = rng.Bernoulli(0.05);
  scenario.links = DrawLinks(rng);
  scenario.start_spread = Within(rng, rng.Bernoulli(0.2) ? Milliseconds(50) : Milliseconds(1));
  scenario.fold_time = Within(rng, Microseconds(500));
  DrawFaults(rng,
             scenario.members + scenario.holes * scenario.speakers + scenario.outside_witnesses,
             scenario);
  DrawWindows(Rng(seed).Fork("windows"), scenario);
  Rng sizes = Rng(seed).Fork("sizes");
  if (sizes.Bernoulli(0.1)) DrawManyChunks(sizes.Fork("chunks"), scenario);
  // In the middle of a long step when the others begin.
  if (sizes.Bernoulli(0.2))
    scenario.late_snapshots.push_back({OneOf(sizes, scenario.members), Within(sizes, Seconds(2))});
  return scenario;
}

}  // namespace crowdsurf::simulator
