#include "tests/unit/trainer_link/trace/link_trace.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <utility>

namespace crowdsurf::worker {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

std::string Number(uint64_t n) { return std::to_string(n); }

void Add(const std::vector<float>& change, std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] += change[i];
}

}  // namespace

LinkTrace::LinkTrace(Motion motion, std::vector<float> first, uint64_t unit)
    : motion_(motion), unit_(unit) {
  states_.push_back({.base = std::move(first)});
}

void LinkTrace::Asked(uint64_t number) { asked_ = number; }

void LinkTrace::Delivered(uint64_t number, std::vector<float> change) {
  delivered_ = Result{number, std::move(change)};
}

void LinkTrace::Released() { delivered_.reset(); }

void LinkTrace::Offered(uint64_t sequence, std::vector<float> values) {
  offered_ = Offer{sequence, std::move(values)};
  may_train_ = true;
}

void LinkTrace::Granted(const LeasesGranted& leases) {
  if (leases.stream == 0) return;
  auto& samples = streams_[leases.stream];
  begins_.try_emplace(leases.stream, leases.begin);
  uint64_t position = leases.begin;
  for (const Lease& lease : leases.leases) {
    for (uint64_t i = 0; i < lease.count; ++i) samples[position++] = lease.begin + i;
  }
}

// Whatever was on its way may have arrived, and will not arrive any more.
void LinkTrace::Restarted() {
  states_ = Possible();
  delivered_.reset();
  offered_.reset();
  asked_.reset();
  registered_ = false;
  restarted_ = true;
}

void LinkTrace::Saw(const LinkEvent& event, std::span<const float> outbox) {
  const bool end = std::holds_alternative<link::TrainerGone>(event);
  if (!registered_ && !end && !std::holds_alternative<link::TrainerRegistered>(event))
    Break("does something before it registers");
  if (acknowledged_ && !end) Break("does something after it has acknowledged the stop");
  std::visit(Overloaded{[&](const link::TrainerRegistered& e) { OnRegistered(e); },
                        [&](const link::TrainerGone&) { registered_ = false; },
                        [&](const link::Published& e) { OnPublished(e, outbox); },
                        [&](const link::PublishRefused&) { Break("publishes no finite number"); },
                        [&](const link::Applied& e) { OnApplied(e); },
                        [&](const link::Adopted& e) { OnAdopted(e); },
                        [&](const link::OpaqueGiven&) {
                          if (!std::exchange(state_asked_, false)) Break("gives a state unasked");
                        },
                        [&](const link::StopAcknowledged&) {
                          if (!stopped_) Break("acknowledges a stop that was not raised");
                          acknowledged_ = true;
                        },
                        [](const auto&) {}},
             event);
}

void LinkTrace::OnRegistered(const link::TrainerRegistered& event) {
  if (registered_) Break("registers twice");
  if (event.fresh && steps_ > 0 && restarted_) Break("says that it is fresh, and has trained");
  if (!event.fresh && !may_train_) Break("says that it has trained, and was never let start");
  registered_ = true;
  gives_first_ = event.gives_first;
}

void LinkTrace::OnPublished(const link::Published& event, std::span<const float> outbox) {
  if (asked_ != event.number) Break("publishes " + Number(event.number) + " unasked");
  if (!may_train_ && !gives_first_) Break("publishes while it is held");
  asked_.reset();
  CheckCounts(event);
  if (motion_ == Motion::kDrawsLeases) CheckLeases(event.leases);
  std::vector<State> matching;
  for (State& state : Possible()) {
    if (auto matched = Match(std::move(state), event, outbox)) matching.push_back(*matched);
  }
  if (matching.empty()) {
    Break("snapshot " + Number(event.number) + " after " + Number(event.steps) +
          " steps is none that it can have");
    // As if it were right, so that one fault is told once.
    matching.push_back(states_.front());
    matching.back().base.assign(outbox.begin(), outbox.end());
    matching.back().least = matching.back().most = event.steps;
    matching.back().at = event.leases;
  }
  states_ = std::move(matching);
  published_ = event.number;
  steps_ = event.steps;
  samples_ = event.samples;
  told_ = event.leases;
  ++snapshots_;
}

void LinkTrace::CheckCounts(const link::Published& event) {
  if (event.steps < steps_) Break("counts steps backwards");
  if (event.samples < samples_) Break("counts samples backwards");
  if (motion_ == Motion::kMarches && event.samples != kTracedUnit * event.steps)
    Break("counts " + Number(event.samples) + " samples in " + Number(event.steps) + " steps");
}

void LinkTrace::CheckLeases(const StreamPosition& at) {
  if (at.stream == 0) return;
  const auto stream = streams_.find(at.stream);
  if (stream == streams_.end())
    return Break("trains stream " + Number(at.stream) + ", not granted");
  if (over_.contains(at.stream)) Break("trains a stream that an adoption has ended");
  const uint64_t begin = begins_.at(at.stream);
  const uint64_t end = stream->second.empty() ? begin : stream->second.rbegin()->first + 1;
  if (at.position < begin || at.position > end) Break("is beyond its leases");
  if (at.stream == told_.stream && at.position < told_.position) Break("goes back in its stream");
}

void LinkTrace::OnApplied(const link::Applied& event) {
  if (!delivered_ || delivered_->number != event.number)
    return Break("applies " + Number(event.number) + ", which was not delivered");
  for (State& state : states_) state = After(*delivered_, std::move(state));
  delivered_.reset();
}

void LinkTrace::OnAdopted(const link::Adopted& event) {
  if (!offered_ || offered_->sequence != event.sequence)
    return Break("adopts " + Number(event.sequence) + ", which was not offered");
  for (State& state : states_) state = After(*offered_, std::move(state));
  if (told_.stream != 0) over_.insert(told_.stream);
  offered_.reset();
}

// The result of a snapshot from before an adoption is acknowledged, not added.
LinkTrace::State LinkTrace::After(const Result& result, State state) const {
  if (state.applied == result.number) return state;
  state.applied = result.number;
  if (state.voided < result.number) Add(result.change, state.base);
  return state;
}

LinkTrace::State LinkTrace::After(const Offer& offer, State state) const {
  if (state.adopted == offer.sequence) return state;
  state.adopted = offer.sequence;
  state.voided = published_;
  state.base = offer.values;
  state.least = steps_;
  state.most = kUnknown;
  state.at = {};
  return state;
}

std::vector<LinkTrace::State> LinkTrace::Possible() const {
  std::vector<State> all = states_;
  if (delivered_) {
    for (const State& state : states_) all.push_back(After(*delivered_, state));
  }
  if (offered_) {
    for (size_t i = all.size(); i-- > 0;) all.push_back(After(*offered_, all[i]));
  }
  return all;
}

std::optional<LinkTrace::State> LinkTrace::Match(State state, const link::Published& event,
                                                 std::span<const float> outbox) const {
  auto matched = motion_ == Motion::kMarches ? MatchMarch(std::move(state), event, outbox)
                                             : MatchLeases(std::move(state), event, outbox);
  if (!matched) return std::nullopt;
  matched->base.assign(outbox.begin(), outbox.end());
  matched->least = matched->most = event.steps;
  matched->at = event.leases;
  return matched;
}

std::optional<LinkTrace::State> LinkTrace::MatchMarch(State state, const link::Published& event,
                                                      std::span<const float> outbox) const {
  // Element 0 moves by one, and says how many steps there were.
  const float marched = outbox[0] - state.base[0];
  if (marched < 0 || marched > static_cast<float>(event.steps)) return std::nullopt;
  const uint64_t since = event.steps - static_cast<uint64_t>(marched);
  if (since < state.least || since > state.most) return std::nullopt;
  for (size_t i = 0; i < outbox.size(); ++i) {
    if (outbox[i] != state.base[i] + marched * static_cast<float>(i + 1)) return std::nullopt;
  }
  return state;
}

std::optional<LinkTrace::State> LinkTrace::MatchLeases(State state, const link::Published& event,
                                                       std::span<const float> outbox) const {
  return Reaches(state.base, state.at, event.leases, outbox) ? std::optional(std::move(state))
                                                             : std::nullopt;
}

// A trainer goes on in its stream until it sees that there is another one, and may miss some. It
// stops between two steps. What it can have come to is kept once, whichever way leads there: a busy
// machine misses many streams.
bool LinkTrace::Reaches(const std::vector<float>& values, const StreamPosition& at,
                        const StreamPosition& to, std::span<const float> outbox) const {
  const auto is_outbox = [&](const std::vector<float>& v) {
    return std::equal(outbox.begin(), outbox.end(), v.begin(), v.end());
  };
  // Samples are added alone.
  const auto is_beyond = [&](const std::vector<float>& v) {
    return !std::equal(v.begin(), v.end(), outbox.begin(), std::less_equal<>());
  };
  std::set<std::vector<float>> held = {values};
  StreamPosition here = at;
  while (true) {
    std::erase_if(held, is_beyond);
    if (here.stream == to.stream)
      return std::any_of(held.begin(), held.end(), [&](const auto& v) {
        return is_outbox(Trained(v, here.stream, here.position, to.position));
      });
    std::set<std::vector<float>> then;
    for (const auto& v : held)
      for (uint64_t until = here.position; until <= EndOf(here); until += unit_)
        then.insert(Trained(v, here.stream, here.position, until));
    // Streams are numbered in the order of their grants; 0 is none, and comes between any two.
    if (to.stream == 0 && std::any_of(then.begin(), then.end(), is_outbox)) return true;
    const auto next = streams_.upper_bound(here.stream);
    if (next == streams_.end()) return false;
    here = {next->first, begins_.at(next->first)};
    held = std::move(then);
  }
}

uint64_t LinkTrace::EndOf(const StreamPosition& at) const {
  const auto samples = streams_.find(at.stream);
  const bool none = samples == streams_.end() || samples->second.empty();
  return none ? at.position : std::max(at.position, samples->second.rbegin()->first + 1);
}

std::vector<float> LinkTrace::Trained(std::vector<float> values, uint64_t stream, uint64_t from,
                                      uint64_t to) const {
  const auto samples = streams_.find(stream);
  if (samples == streams_.end()) return values;
  for (auto at = samples->second.lower_bound(from); at != samples->second.end() && at->first < to;
       ++at)
    values[at->second] += 1;
  return values;
}

}  // namespace crowdsurf::worker
