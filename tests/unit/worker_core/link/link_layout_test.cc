// The bytes of the link's file. Its words are held against the table of docs/trainer-link.md, which
// is read here; its regions against what they promise; and each flipped bit must be refused.
#include "worker/core/link/link_layout.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/digest.h"
#include "base/rng.h"

namespace crowdsurf::worker {
namespace {

using testing::HasSubstr;

LinkTensor Tensor(std::string name, std::vector<uint64_t> shape,
                  LinkRole role = LinkRole::kParameter) {
  LinkTensor t;
  t.name = std::move(name);
  t.shape = std::move(shape);
  t.role = role;
  return t;
}

std::vector<LinkTensor> Model() {
  return {Tensor("embedding", {64, 32}), Tensor("momentum", {64, 32}, LinkRole::kOptimizerState),
          Tensor("bias", {7}), Tensor("scale", {})};
}

// The start of the file as the agent writes it.
Bytes FileStart(const LinkGeometry& g) {
  Bytes file = EncodeLinkIdentity(g);
  file.resize(g.table_offset);
  const Bytes table = EncodeLinkTable(g.tensors);
  file.insert(file.end(), table.begin(), table.end());
  return file;
}

TEST(LinkLayout, SharedTensorsLiePackedInTableOrderAndOthersHaveNoPlace) {
  const auto g = LayOutLink(Model(), {LinkRole::kParameter});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->elements, 64u * 32 + 7 + 1);
  EXPECT_EQ(g->tensors[0].offset, 0u);
  EXPECT_FALSE(g->tensors[1].shared());
  EXPECT_EQ(g->tensors[2].offset, 64u * 32 * 4);
  EXPECT_EQ(g->tensors[3].offset, (64u * 32 + 7) * 4);
  EXPECT_EQ(g->tensors[0].rows, 64u);
  EXPECT_EQ(g->tensors[0].cols, 32u);
  EXPECT_EQ(g->tensors[2].rows, 1u);
}

TEST(LinkLayout, RegionsAreAlignedDisjointAndInsideTheFile) {
  const auto g = LayOutLink(Model(), {LinkRole::kParameter, LinkRole::kOptimizerState});
  ASSERT_TRUE(g.ok());
  const uint64_t region = g->elements * 4;
  const uint64_t ends[] = {
      kLinkControlBytes,         g->table_offset + g->table_bytes, g->index_offset + g->index_bytes,
      g->outbox_offset + region, g->inbox_offset[0] + region,      g->inbox_offset[1] + region};
  const uint64_t begins[] = {g->table_offset,    g->index_offset,    g->outbox_offset,
                             g->inbox_offset[0], g->inbox_offset[1], g->file_bytes};
  for (size_t i = 0; i < 6; ++i) EXPECT_LE(ends[i], begins[i]) << i;
  for (size_t i = 1; i < 6; ++i) EXPECT_EQ(begins[i] % kLinkRegionAlign, 0u) << i;
}

TEST(LinkLayout, EveryViolationIsNamedAtOnceWithItsTensor) {
  auto tensors = Model();
  tensors[0].dtype = LinkDtype::kFloat16;
  tensors[1].shape = {0};
  tensors[2].name = "scale";
  tensors[3].rows = 2;
  tensors[3].cols = 2;
  const auto g = LayOutLink(tensors, {LinkRole::kParameter});
  ASSERT_FALSE(g.ok());
  const std::string words(g.status().message());
  EXPECT_THAT(words, HasSubstr("\"embedding\": dtype float16 is reserved"));
  EXPECT_THAT(words, HasSubstr("\"momentum\": every dimension"));
  EXPECT_THAT(words, HasSubstr("\"scale\": named twice"));
  EXPECT_THAT(words, HasSubstr("matrix view 2 x 2 does not cover 1"));
}

TEST(LinkLayout, SizesThatOverflowAreRefused) {
  EXPECT_FALSE(LayOutLink({Tensor("a", {1ULL << 33, 1ULL << 33})}, {LinkRole::kParameter}).ok());
  EXPECT_FALSE(LayOutLink({Tensor("a", {~0ULL})}, {LinkRole::kParameter}).ok());
  EXPECT_FALSE(
      LayOutLink({Tensor("a", {kMaxLinkElements}), Tensor("b", {1})}, {LinkRole::kParameter}).ok());
  EXPECT_FALSE(LayOutLink({}, {LinkRole::kParameter}).ok());
  EXPECT_FALSE(LayOutLink({Tensor("__metadata__", {3})}, {LinkRole::kParameter}).ok());
  EXPECT_FALSE(LayOutLink({Tensor("a", {3})}, {LinkRole::kGradient}).ok());
}

TEST(LinkLayout, UnitGroupsReserveRoomForTheirIndexSets) {
  auto in = Tensor("w1", {128, 64}), out = Tensor("w2", {10, 128});
  in.units = {{.axis = 0, .group = 0}};
  out.units = {{.axis = 1, .group = 0}};
  const auto g = LayOutLink({in, out}, {LinkRole::kParameter});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_EQ(g->index_bytes, 8u + 4 * 128);
  out.shape = {10, 127};
  EXPECT_FALSE(LayOutLink({in, out}, {LinkRole::kParameter}).ok());
}

TEST(LinkLayout, UnitAxesAreInTheTableAndUnitsAreThoseOfTheAveragedTensors) {
  auto gates = Tensor("gates", {12, 4}), moment = Tensor("moment", {12, 4});
  gates.units = {{.axis = 0, .group = 5, .blocks = 3}, {.axis = 1, .group = 5}};
  moment.units = gates.units;
  moment.role = LinkRole::kOptimizerState;
  const auto g = LayOutLink({gates, moment}, {LinkRole::kParameter});
  ASSERT_TRUE(g.ok()) << g.status();
  const auto read = ReadLinkIdentity(FileStart(*g), g->file_bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tensors[0].units, gates.units);
  EXPECT_EQ(UnitsOf(*g).elements(), 48u);
  EXPECT_EQ(UnitsOf(*g).units(), (std::map<uint32_t, uint32_t>{{5, 4}}));
  gates.units[0].blocks = 1;
  const auto refused = LayOutLink({gates, moment}, {LinkRole::kParameter}).status();
  EXPECT_NE(refused.message().find("tensor \"gates\""), std::string_view::npos) << refused;
}

TEST(LinkLayout, TheSchemaIsTheHashOfTheTableAndDiffersWithAnyOfItsFields) {
  const auto g = LayOutLink(Model(), {LinkRole::kParameter});
  EXPECT_EQ(g->schema, Sha256(EncodeLinkTable(g->tensors)));
  auto other = Model();
  other[0].name = "embeddinG";
  EXPECT_NE(LayOutLink(other, {LinkRole::kParameter})->schema, g->schema);
  other = Model();
  other[2].shape = {7, 1};
  EXPECT_NE(LayOutLink(other, {LinkRole::kParameter})->schema, g->schema);
  EXPECT_NE(LayOutLink(Model(), {LinkRole::kParameter, LinkRole::kOptimizerState})->schema,
            g->schema);
}

TEST(LinkLayout, AFileReadBackIsTheLayoutThatWasWritten) {
  const auto g = LayOutLink(Model(), {LinkRole::kParameter});
  const auto read = ReadLinkIdentity(FileStart(*g), g->file_bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tensors, g->tensors);
  EXPECT_EQ(read->schema, g->schema);
  EXPECT_EQ(read->inbox_offset, g->inbox_offset);
  const Bytes file = FileStart(*g);  // clients in other languages look for these bytes
  EXPECT_EQ(std::string(file.begin(), file.begin() + 8), "CSFLINK1");
}

TEST(LinkLayout, AnyFlippedBitOfHeaderOrTableIsFound) {
  const auto g = LayOutLink(Model(), {LinkRole::kParameter});
  const Bytes good = FileStart(*g);
  const uint64_t header = 16 + 11 * 8 - 8 + 8 + 32;
  for (size_t i = 0; i < good.size(); ++i) {
    if (i >= header && i < g->table_offset) continue;  // the control words
    Bytes bad = good;
    bad[i] ^= static_cast<uint8_t>(1 << (i % 8));
    EXPECT_FALSE(ReadLinkIdentity(bad, g->file_bytes).ok()) << "byte " << i;
  }
  EXPECT_FALSE(ReadLinkIdentity(good, g->file_bytes - 1).ok());
}

// The page is what clients in other languages are written from: its table must be the header's.
TEST(LinkLayout, TheWordsOfThePageAreWhereTheHeaderHasThem) {
  const std::map<std::string, size_t> words = {
      {"agent_epoch", offsetof(LinkControl, agent_epoch)},
      {"agent_beat", offsetof(LinkControl, agent_beat)},
      {"agent_bell", offsetof(LinkControl, agent_bell)},
      {"hold", offsetof(LinkControl, hold)},
      {"stop", offsetof(LinkControl, stop)},
      {"notice", offsetof(LinkControl, notice)},
      {"publish_wanted", offsetof(LinkControl, publish_wanted)},
      {"result_ready", offsetof(LinkControl, result_ready)},
      {"released", offsetof(LinkControl, released)},
      {"adopt", offsetof(LinkControl, adopt)},
      {"mode", offsetof(LinkControl, mode)},
      {"lr_scale", offsetof(LinkControl, lr_scale)},
      {"job", offsetof(LinkControl, job)},
      {"opaque_wanted", offsetof(LinkControl, opaque_wanted)},
      {"index_version", offsetof(LinkControl, index_version)},
      {"wake_at", offsetof(LinkControl, wake_at)},
      {"trainer_bell", offsetof(LinkControl, trainer_bell)},
      {"steps", offsetof(LinkControl, steps)},
      {"samples", offsetof(LinkControl, samples)},
      {"published", offsetof(LinkControl, published)},
      {"applied", offsetof(LinkControl, applied)},
      {"stop_acknowledged", offsetof(LinkControl, stop_acknowledged)},
      {"adopted", offsetof(LinkControl, adopted)},
      {"stall_ns", offsetof(LinkControl, stall_ns)},
      {"progress", offsetof(LinkControl, progress)},
      {"opaque_given", offsetof(LinkControl, opaque_given)},
      {"index_taken", offsetof(LinkControl, index_taken)},
      {"leases_version", offsetof(LinkControl, leases_version)},
      {"leases", offsetof(LinkControl, leases)},
      {"share", offsetof(LinkControl, share)},
      {"gradient", offsetof(LinkControl, gradient)},
      {"filling", offsetof(LinkControl, filling)},
      {"order", offsetof(LinkControl, order)},
      {"metrics", offsetof(LinkControl, metrics)}};
  std::ifstream page("docs/trainer-link.md");
  ASSERT_TRUE(page) << "run from the repository's root";
  std::map<std::string, size_t> found;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| 0x")) continue;
    std::istringstream cells(line);
    std::string none, at, type, writer, name;
    for (std::string* cell : {&none, &at, &type, &writer, &name}) std::getline(cells, *cell, '|');
    found[name.substr(1, name.size() - 2)] = std::stoul(at, nullptr, 16);
  }
  EXPECT_EQ(found, words);
}

TEST(LinkLayout, GarbageIsRefusedAndNeverRead) {
  const uint64_t seed = 20261121;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  const auto g = LayOutLink(Model(), {LinkRole::kParameter});
  const Bytes good = FileStart(*g);
  for (int i = 0; i < 2000; ++i) {
    Bytes bytes = good;
    bytes.resize(rng.Uniform(good.size()));
    EXPECT_FALSE(ReadLinkIdentity(bytes, g->file_bytes).ok());
    Bytes table = EncodeLinkTable(g->tensors);
    table[rng.Uniform(table.size())] = static_cast<uint8_t>(rng.Next());
    table.resize(rng.Uniform(table.size() + 1));
    DecodeLinkTable(table);  // must not crash; asan looks
  }
}

}  // namespace
}  // namespace crowdsurf::worker
