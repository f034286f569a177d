// The link over the lives of its two sides: a second trainer, a restarted one, a restarted agent,
// and what a file that was left behind means.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <thread>

#include "tests/unit/worker_edge/link/link_fixture.h"
#include "worker/core/subnet/index_sets.h"
#include "worker/edge/link/link_http.h"
#include "worker/edge/link/link_mapping.h"

namespace crowdsurf::worker {
namespace {

using testing::StartsWith;
using Link = LinkFixture;

constexpr char kRegister[] = R"({"tensors": [{"name": "w", "shape": [100]}], "fresh": true})";

// A connection to a socket whose requests and answers are taken apart.
class RawConnection {
 public:
  explicit RawConnection(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
  }
  RawConnection(const RawConnection&) = delete;
  ~RawConnection() { close(fd_); }
  void Send(const std::string& text) const {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  std::string Receive() const {  // what has come, at least a byte of it
    std::string text(4096, '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, recv(fd_, text.data(), text.size(), 0))));
    return text;
  }
  std::string Ask(const std::string& text) const {
    Send(text);
    return Receive();
  }

 private:
  const int fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

TEST_F(Link, ASecondTrainerIsRefusedWhileTheFirstIsConnected) {
  StartServer();
  auto first = Connect();
  ASSERT_TRUE(first->Register(Model()).ok());
  Expect<link::TrainerRegistered>();
  auto second = Connect();
  const auto refused = second->Register(Model());
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
  first.reset();
  Expect<link::TrainerGone>();
  EXPECT_TRUE(second->Register(Model()).ok());
  EXPECT_TRUE(Expect<link::TrainerRegistered>().fresh);
}

TEST_F(Link, ATrainerWithAnotherModelIsRefusedInWords) {
  StartServer();
  Connect()->Register(Model(100)).IgnoreError();
  Expect<link::TrainerRegistered>();
  Expect<link::TrainerGone>();
  const auto refused = Connect()->Register(Model(101));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_NE(std::string(refused.status().message()).find("100 elements; now"), std::string::npos)
      << refused.status();
}

TEST_F(Link, ATrainerWithoutUnitGroupsIsRefusedInWordsWhereTheJobNeedsThem) {
  StartServer(LinkOverlap::kBlocking, true);
  const auto refused = Connect()->Register(Model());
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_NE(std::string(refused.status().message())
                .find("spec.averaging.strategy: IST needs unit groups"),
            std::string::npos)
      << refused.status();
  std::vector<LinkTensor> model = Model();
  model[0].units = {{.axis = 0, .group = 0}};
  EXPECT_TRUE(Connect()->Register(model).ok());
}

// What was written for the trainer before is none of the new one's: it trains the whole model.
TEST_F(Link, ANewTrainerTakesNoUnitsOfTheOneBefore) {
  StartServer();
  std::vector<LinkTensor> model = Model();
  model[0].units = {{.axis = 0, .group = 0}};
  {
    auto first = Connect();
    ASSERT_TRUE(first->Register(model).ok());
    Expect<link::TrainerRegistered>();
    ASSERT_TRUE(server_->SetIndexSets(EncodeIndexSets({{0, {1, 2}}})));
  }
  Expect<link::TrainerGone>();
  auto second = Connect();
  ASSERT_TRUE(second->Register(model).ok());
  Expect<link::TrainerRegistered>();
  const auto sets = second->TakeIndexSets();
  ASSERT_TRUE(sets.ok());
  EXPECT_FALSE(sets->has_value());
  EXPECT_TRUE(server_->SetIndexSets(EncodeIndexSets({{0, {3}}})));
}

TEST_F(Link, ARestartedTrainerGetsNothingOfTheDeadOnesAveraging) {
  StartServer();
  {
    std::vector<float> params(100, 1.0f);
    auto client = TrainAndPublish(params);
  }
  Expect<link::TrainerGone>();
  EXPECT_EQ(server_->outbox()[0], 1.0f) << "its snapshot can still be averaged";
  auto client = Connect();
  ASSERT_TRUE(client->Register(Model()).ok());
  EXPECT_TRUE(Expect<link::TrainerRegistered>().fresh);
  server_->LetStart();
  std::vector<float> params(100, 9.0f);
  ASSERT_TRUE(client->Start(params, Seconds(20)).ok());
  server_->Deliver(1, 0);
  const StepOutcome outcome = client->StepDone(1, 1, params);
  EXPECT_FALSE(outcome.applied);
  EXPECT_FALSE(outcome.published);
  EXPECT_EQ(params[0], 9.0f);
}

TEST_F(Link, AnAgentRestartedBesideALivingTrainerFindsItThereWithTheSameMemory) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  client->StepDone(5, 1, params);
  server_->RequestPublish(4);
  client->StepDone(5, 1, params);
  Expect<link::Published>();
  struct stat before {
  }, after{};
  ASSERT_EQ(stat((dir_ + "/tensors").c_str(), &before), 0);
  server_.reset();
  EXPECT_FALSE(client->StepDone(5, 1, params).applied) << "training goes on alone";
  StartServer();
  EXPECT_TRUE(server_->mapped()) << "the file is re-opened, not made again";
  ASSERT_EQ(stat((dir_ + "/tensors").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  client->StepDone(5, 1, params);  // sees the new epoch and registers again
  const auto event = Expect<link::TrainerRegistered>();
  EXPECT_FALSE(event.fresh);
  EXPECT_EQ(server_->counters().samples, 20u);
  server_->RequestPublish(2);
  EXPECT_TRUE(client->StepDone(5, 1, params).published) << "the old snapshot counts as released";
  EXPECT_EQ(Expect<link::Published>().number, 2u);
}

// The next agent fetches the job's state to where the result lies, as soon as the trainer is there.
TEST_F(Link, AResultThatItsAgentDidNotOutliveIsNotApplied) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = TrainAndPublish(params, 4);
  std::ranges::fill(server_->inbox(0), 3.0f);
  server_->Deliver(4, 0);
  server_.reset();
  StartServer();
  client->StepDone(5, 1, params);  // sees the new epoch and registers again
  Expect<link::TrainerRegistered>();
  std::ranges::fill(server_->inbox(0), 77.0f);  // half of another state
  EXPECT_FALSE(client->StepDone(5, 1, params).applied);
  EXPECT_EQ(params[0], 1.0f);
  server_->RequestPublish(2);
  EXPECT_TRUE(client->StepDone(5, 1, params).published) << "its outbox is released";
  EXPECT_EQ(Expect<link::Published>().number, 2u);
}

// A large model takes seconds to copy, and an agent starts in less.
TEST_F(Link, AnAdoptionThatEndsAfterItsAgentHasDiedIsNotThatOfTheNextAgent) {
  StartServer();
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  const uint64_t first = server_->OfferAdoption(0, 1, std::nullopt);
  server_.reset();
  StartServer();
  auto trainer = LinkMapping::Open(dir_ + "/tensors");
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  trainer->control().adopted.value.store(first, std::memory_order_release);
  client->StepDone(5, 1, params);  // sees the new epoch and registers again
  EXPECT_FALSE(Expect<link::TrainerRegistered>().fresh);
  std::fill(server_->inbox(0).begin(), server_->inbox(0).end(), 3.0f);
  EXPECT_GT(server_->OfferAdoption(0, 2, std::nullopt), first);
  EXPECT_TRUE(client->StepDone(5, 1, params).adopted);
  EXPECT_EQ(params[0], 3.0f);
}

TEST_F(Link, ATrainerBlockedOnAnAgentThatDiesGoesOn) {
  StartServer(LinkOverlap::kBlocking);
  std::vector<float> params(100, 1.0f);
  auto client = Train(params);
  server_->RequestPublish(1);
  StepOutcome outcome;
  std::thread trainer([&] { outcome = client->StepDone(1, 1, params); });
  Expect<link::Published>();
  server_.reset();
  StartServer(LinkOverlap::kBlocking);
  trainer.join();
  EXPECT_FALSE(outcome.applied);
  EXPECT_EQ(params[0], 1.0f);
}

// Its connection is open, so it is not gone; but it beats no more.
TEST_F(Link, ATrainerBlockedOnAnAgentThatFreezesGoesOnAfterItsPatience) {
  std::promise<void> thaws;
  LinkServerOptions options = Options();
  options.overlap = LinkOverlap::kBlocking;
  StartServer(options, [this, frozen = thaws.get_future().share()](const LinkEvent& event) {
    if (std::holds_alternative<link::Published>(event)) return frozen.wait();
    EXPECT_TRUE(events_.Post(event));
  });
  std::vector<float> params(100, 1.0f);
  auto client = Train(params, {.agent_patience = Seconds(1), .metrics = {}});
  server_->RequestPublish(1);
  auto step = std::async(std::launch::async, [&] { return client->StepDone(1, 1, params); });
  EXPECT_EQ(step.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  thaws.set_value();
  server_->ReleaseOutbox(1);  // ends the wait of one that has no patience
  const StepOutcome outcome = step.get();
  EXPECT_TRUE(outcome.published);
  EXPECT_FALSE(outcome.applied);
  EXPECT_FALSE(outcome.agent_lost) << "it is slow";
}

// A client that has lost sight of its agent opens the new connection before it ends the old one.
TEST_F(Link, ATrainerThatConnectsAnewIsNotRefusedForItself) {
  std::promise<void> entered, looks_on;
  StartServer(Options(), [&, held = looks_on.get_future().share()](const LinkEvent& event) {
    if (!std::holds_alternative<link::CheckpointRequested>(event)) return;
    entered.set_value();
    held.wait();
  });
  const std::string socket = dir_ + "/agent.sock";
  auto before = HttpClient::Connect(socket);
  ASSERT_EQ(before->Do("POST", "/v1/register", kRegister, Seconds(20))->code, 200);
  const RawConnection anew(socket);
  EXPECT_THAT(anew.Ask("GET /v1/state HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  auto other = HttpClient::Connect(socket);
  // The agent is busy for a moment, so that it sees both at one look.
  auto busy = std::async(std::launch::async,
                         [&] { return other->Do("POST", "/v1/checkpoint", "", Seconds(20)); });
  entered.get_future().wait();
  before = absl::CancelledError("closed");
  anew.Send(absl::StrCat("POST /v1/register HTTP/1.1\r\nContent-Length: ", strlen(kRegister),
                         "\r\n\r\n", kRegister));
  looks_on.set_value();
  EXPECT_THAT(anew.Receive(), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(busy.get().ok());
}

TEST_F(Link, ALinkFileOfGarbageIsSetAside) {
  FILE* f = fopen((dir_ + "/tensors").c_str(), "w");
  for (int i = 0; i < 10'000; ++i) fputc(i % 251, f);
  fclose(f);
  StartServer();
  EXPECT_FALSE(server_->mapped());
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/tensors.bad"));
  EXPECT_EQ(metrics_.Value("crowdsurf_link_files_set_aside_total"), 1);
  EXPECT_TRUE(Connect()->Register(Model()).ok());
}

TEST_F(Link, AClientNeverMakesTheFileItself) {  // pod-lifecycle 5.3
  const std::string path = dir_ + "/not-there";
  EXPECT_TRUE(absl::IsNotFound(LinkMapping::Open(path).status()));
  struct stat info {};
  EXPECT_NE(stat(path.c_str(), &info), 0);
}

TEST_F(Link, TwoAgentsOnOneFolderAreOneTooMany) {
  StartServer();
  LinkServerOptions options;
  options.dir = dir_;
  options.require_memory = false;
  const auto second = LinkServer::Start(
      options, [](const LinkEvent&) {}, Logger(), metrics_);
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  EXPECT_TRUE(LinkClient::Connect(dir_, Seconds(20)).ok()) << "the first one still answers";
}

}  // namespace
}  // namespace crowdsurf::worker
