// Snapshots that the trainer says are there in part. The events are held against the values.
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/worker_edge/link/link_fixture.h"
#include "worker/edge/link/link_mapping.h"

namespace crowdsurf::worker {
namespace {

constexpr size_t kSize = 100;
constexpr uint64_t kNumber = 7;

// A trainer whose words the test writes.
class LinkFilling : public LinkFixture {
 protected:
  void Ask() {
    StartServer();
    client_ = Train(params_);
    auto opened = LinkMapping::Open(dir_ + "/tensors");
    ASSERT_TRUE(opened.ok()) << opened.status();
    words_.emplace(*std::move(opened));
    server_->RequestPublish(kNumber);
    ticket_ = c().publish_wanted.value.load();
  }
  LinkControl& c() { return words_->control(); }
  void Begin(uint64_t ticket) {
    c().published.steps.store(3);
    c().published.samples.store(24);
    c().filling.elements.store(0);
    c().filling.ticket.store(ticket);
  }
  void FillUpTo(uint64_t elements, float value = 1) {
    for (size_t i = filled_; i < std::min<size_t>(elements, kSize); ++i)
      words_->outbox()[i] = value;
    filled_ = elements;
    c().filling.elements.store(elements);
    RingBell(c().trainer_bell.value);
  }
  void Publish() {
    for (size_t i = filled_; i < kSize; ++i) words_->outbox()[i] = 1;
    c().published.ticket.store(ticket_);
    RingBell(c().trainer_bell.value);
  }

  std::vector<float> params_ = std::vector<float>(kSize, 1.0f);
  std::unique_ptr<LinkClient> client_;
  std::optional<LinkMapping> words_;
  uint64_t ticket_ = 0;
  size_t filled_ = 0;
};

TEST_F(LinkFilling, EachPartIsToldOfOnceAndTheLastOneWithTheTicket) {
  Ask();
  Begin(ticket_);
  for (const uint64_t elements : {10, 40, 99}) {
    FillUpTo(elements);
    const auto filled = Expect<link::Filled>();
    EXPECT_EQ(filled.elements, elements);
    EXPECT_EQ(filled.snapshot.number, kNumber);
    EXPECT_EQ(filled.snapshot.steps, 3U);
    EXPECT_EQ(filled.snapshot.samples, 24U);
  }
  FillUpTo(kSize);  // as good as the ticket, which follows
  Publish();
  EXPECT_EQ(Expect<link::Published>().number, kNumber);
}

TEST_F(LinkFilling, APartThatIsNotFiniteIsRefusedAtOnceAndReleasedWhenTheCopyHasEnded) {
  Ask();
  Begin(ticket_);
  FillUpTo(10);
  Expect<link::Filled>();
  FillUpTo(20, std::numeric_limits<float>::infinity());
  const auto refused = Expect<link::PublishRefused>();
  EXPECT_EQ(refused.number, kNumber);
  EXPECT_EQ(refused.element, 10U);
  EXPECT_LT(c().released.value.load(), ticket_) << "the trainer still copies";
  Publish();
  while (c().released.value.load() < ticket_) std::this_thread::yield();
  server_->RequestPublish(kNumber + 1);
  params_.assign(kSize, 2);
  client_->StepDone(1, 1, params_);
  EXPECT_EQ(Expect<link::Published>().number, kNumber + 1) << "and nothing of the refused one";
}

TEST_F(LinkFilling, ALastPartThatIsNotFiniteIsFoundWithTheTicket) {
  Ask();
  Begin(ticket_);
  FillUpTo(90);
  Expect<link::Filled>();
  filled_ = 95;
  words_->outbox()[97] = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = 90; i < kSize; ++i)
    if (i != 97) words_->outbox()[i] = 1;
  filled_ = kSize;
  Publish();
  EXPECT_EQ(Expect<link::PublishRefused>().element, 97U);
}

// A trainer may write anything there.
TEST_F(LinkFilling, WordsThatNobodyAskedForOrBeyondTheEndAreNoParts) {
  Ask();
  Begin(ticket_ + 5);
  FillUpTo(50);
  Begin(ticket_);
  FillUpTo(40);
  EXPECT_EQ(Expect<link::Filled>().elements, 40U);
  FillUpTo(20);                                    // less than before
  FillUpTo(std::numeric_limits<uint64_t>::max());  // more than there are
  Publish();
  EXPECT_EQ(Expect<link::Published>().number, kNumber);
}

TEST_F(LinkFilling, APartOfATrainerThatIsGoneIsNotTheNextOnes) {
  Ask();
  Begin(ticket_);
  FillUpTo(50);
  Expect<link::Filled>();
  client_.reset();
  Expect<link::TrainerGone>();
  params_.assign(kSize, 5);
  params_[3] = std::numeric_limits<float>::infinity();
  client_ = Train(params_);
  EXPECT_EQ(c().filling.ticket.load(), 0U);
  server_->RequestPublish(kNumber + 1);
  client_->StepDone(1, 1, params_);
  EXPECT_EQ(Expect<link::PublishRefused>().element, 3U) << "what it has was looked at anew";
}

// 4 MiB at a time: this model has three such parts, and a rest.
TEST_F(LinkFilling, TheClientSaysHowFarItIs) {
  constexpr size_t kPart = size_t{1} << 20;
  params_.resize(3 * kPart + 5);
  for (size_t i = 0; i < params_.size(); ++i) params_[i] = static_cast<float>(i % 1000);
  StartServer();
  client_ = Train(params_);
  server_->RequestPublish(kNumber);
  client_->StepDone(8, 1, params_);
  uint64_t there = 0;
  while (there < 3 * kPart) {  // the watcher may have missed some
    const auto filled = Expect<link::Filled>();
    ASSERT_GT(filled.elements, there);
    EXPECT_EQ(filled.elements % kPart, 0U);
    EXPECT_EQ(filled.snapshot.samples, 8U);
    EXPECT_EQ(filled.snapshot.steps, 1U);
    there = filled.elements;
    const auto outbox = server_->outbox().first(there);
    EXPECT_TRUE(std::equal(outbox.begin(), outbox.end(), params_.begin()));
  }
  EXPECT_EQ(Expect<link::Published>().samples, 8U);
}

}  // namespace
}  // namespace crowdsurf::worker
