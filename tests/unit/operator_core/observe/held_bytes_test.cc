// The memory that a projection takes: every text in it counts, whatever its place.
#include "operator/core/observe/held_bytes.h"

#include <gtest/gtest.h>

namespace crowdsurf::controller {
namespace {

using nlohmann::json;

const std::string kLong(1000, 'x');

TEST(HeldBytesTest, EveryTextOfAPodCounts) {
  const size_t empty = HeldBytes(PodEntry());
  EXPECT_GE(empty, sizeof(PodEntry));
  EXPECT_LE(empty, 2 * sizeof(PodEntry));
  void (*const changes[])(PodEntry&) = {
      [](PodEntry& p) { p.job = kLong; },
      [](PodEntry& p) { p.job_uid = kLong; },
      [](PodEntry& p) { p.http = kLong; },
      [](PodEntry& p) { p.facts.name = kLong; },
      [](PodEntry& p) { p.facts.uid = kLong; },
      [](PodEntry& p) { p.facts.node = kLong; },
      [](PodEntry& p) { p.facts.status_reason = kLong; },
      [](PodEntry& p) { p.facts.status_message = kLong; },
      [](PodEntry& p) { p.facts.init_name = kLong; },
      [](PodEntry& p) { p.facts.wait = kLong; },
      [](PodEntry& p) {
        p.facts.init = ContainerEnd{1, "", kLong};
      },
      [](PodEntry& p) { p.facts.disruption_target = kLong; },
      [](PodEntry& p) { p.facts.waiting_reason = kLong; },
      [](PodEntry& p) { p.facts.waiting_message = kLong; },
      [](PodEntry& p) { p.facts.address = kLong; },
      [](PodEntry& p) { p.facts.agent_image = kLong; },
      [](PodEntry& p) { p.facts.agent_cpu_limit = kLong; },
      [](PodEntry& p) {
        p.facts.trainer = ContainerEnd{1, kLong, ""};
      },
      [](PodEntry& p) {
        p.facts.trainer = ContainerEnd{1, "", kLong};
      },
      [](PodEntry& p) {
        p.facts.agent = ContainerEnd{1, "", kLong};
      },
      [](PodEntry& p) {
        p.facts.conditions = {{kLong, ""}};
      },
      [](PodEntry& p) {
        p.facts.conditions = {{"", kLong}};
      },
      [](PodEntry& p) {
        p.facts.annotations = {{"k", kLong}};
      },
      [](PodEntry& p) {
        p.facts.annotations = {{kLong, ""}};
      },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    PodEntry pod;
    changes[i](pod);
    EXPECT_GE(HeldBytes(pod), empty + kLong.size()) << i;
    EXPECT_LE(HeldBytes(pod), empty + 2 * kLong.size()) << i;
  }
}

TEST(HeldBytesTest, ADocumentIsItsTextsAndItsStructure) {
  const json document = {{"a", {kLong, 1, nullptr}}, {kLong, {{"b", true}}}};
  const size_t texts = 2 * kLong.size(), values = 7;
  EXPECT_GE(HeldBytes(document), texts + values * sizeof(json));
  EXPECT_LE(HeldBytes(document), 2 * (texts + values * 64));
}

TEST(HeldBytesTest, EveryPartOfAJobAndOfANodeCounts) {
  const size_t empty = HeldBytes(JobEntry());
  void (*const changes[])(JobEntry&) = {
      [](JobEntry& j) { j.job.spec.averaging = kLong; },
      [](JobEntry& j) { j.job.spec.target = kLong; },
      [](JobEntry& j) { j.job.spec.checkpoint = kLong; },
      [](JobEntry& j) { j.job.spec.agent = kLong; },
      [](JobEntry& j) { j.job.spec.scheduling = kLong; },
      [](JobEntry& j) { j.job.spec.max_unavailable = kLong; },
      [](JobEntry& j) { j.job.spec.pod_template = kLong; },
      [](JobEntry& j) { j.job.spec.bootstrap_peers = {kLong}; },
      [](JobEntry& j) { j.violations = {kLong}; },
      [](JobEntry& j) { j.warnings = {kLong}; },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    JobEntry job;
    changes[i](job);
    EXPECT_GE(HeldBytes(job), empty + kLong.size()) << i;
    EXPECT_LE(HeldBytes(job), empty + 2 * kLong.size()) << i;
  }
  JobEntry twice;  // the status as it was read, and as the server has it
  twice.status_json = kLong;
  EXPECT_GE(HeldBytes(twice), empty + 2 * kLong.size());
  NodeEntry node;
  const size_t bare = HeldBytes(node);
  node.facts.mark = Mark{kLong, std::nullopt, false};
  EXPECT_GE(HeldBytes(node), bare + kLong.size());
}

TEST(HeldBytesTest, AListIsAllThatIsInIt) {
  PodEntry pod;
  pod.facts.name = kLong;
  const Sighting<PodEntry> one{kLong, 1, pod}, gone{kLong, 2, std::nullopt};
  EXPECT_GE(HeldBytes(one), HeldBytes(pod) + kLong.size());
  EXPECT_GE(HeldBytes(gone), kLong.size());
  EXPECT_LT(HeldBytes(gone), HeldBytes(one));
  const Listing<PodEntry> list{{one, one, gone}, 2};
  EXPECT_GE(HeldBytes(list), 2 * HeldBytes(one) + HeldBytes(gone));
}

}  // namespace
}  // namespace crowdsurf::controller
