// The contract of a round of sub-networks: IST through the production strategy, rounds and
// reducers. What a round must bring is worked out here element by element, from the units that the
// trainers were told.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/contract/world/allocation_watch.h"
#include "tests/contract/world/reduce_world.h"
#include "tests/unit/worker_core/subnet/drawn_model.h"

namespace crowdsurf::worker {
namespace {

// Two hidden layers of 24 and 10 units, and what all share.
UnitSchema Model() {
  return UnitSchema::Of({{"first", {24, 8}, {{.axis = 0, .group = 0}}},
                         {"between", {10, 24}, {{.axis = 0, .group = 1}, {.axis = 1, .group = 0}}},
                         {"last", {6, 10}, {{.axis = 1, .group = 1}}},
                         {"bias", {6}, {}}})
      .value();
}

double Old(uint64_t i) { return 1.0 + static_cast<double>(i) * 0x1p-40; }
double Trained(int member, uint64_t i) { return 10.0 * (member + 1) + static_cast<double>(i) / 64; }
bool Same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

class IstWorld {
 public:
  explicit IstWorld(ReduceWorldOptions options) : world(WithModel(options), Model()) {
    // The first average of a view is of whole models: from equal ones the same again.
    for (const int member : world.Living())
      for (uint64_t i = 0; i < elements(); ++i) world.parameters(member)[i] = Old(i);
    world.Average();
    for (const int member : world.Living()) {
      begun = begun && world.applied(member);
      sets.push_back(world.units(member).sets);
    }
    base = world.parameters(0);
    EXPECT_TRUE(begun || options.loss > 0);
  }
  static uint64_t elements() { return Model().elements(); }

  // All change what they have units of, and more: what is not theirs must not travel.
  void Train() {
    for (const int member : world.Living())
      for (uint64_t i = 0; i < elements(); ++i) world.parameters(member)[i] = Trained(member, i);
  }
  std::vector<int> CoverersOf(uint64_t element) const {
    std::vector<int> coverers;
    for (size_t member = 0; member < sets.size(); ++member)
      if (Covers(sets[member], units[element])) coverers.push_back(static_cast<int>(member));
    return coverers;
  }
  // Those who live have applied one result. Returns it.
  const std::vector<double>& Result(size_t least) {
    std::vector<int> applied;
    for (const int member : world.Living())
      if (world.applied(member)) applied.push_back(member);
    EXPECT_GE(applied.size(), least);
    for (const int member : applied)
      for (uint64_t i = 0; i < elements(); ++i)
        EXPECT_TRUE(Same(world.parameters(member)[i], world.parameters(applied[0])[i]))
            << "member " << member << " at " << i;
    return world.parameters(applied.at(0));
  }

  ReduceWorld world;
  bool begun = true;            // all hold the base
  std::vector<IndexSets> sets;  // by member, of the round that comes
  std::vector<double> base;
  const std::vector<std::vector<std::pair<uint32_t, uint32_t>>> units = UnitsOfElements(Model());

 private:
  static ReduceWorldOptions WithModel(ReduceWorldOptions options) {
    options.elements = elements();
    return options;
  }
};

TEST(IstContract, WhatOneHasIsItsOwnToTheBitWhatAllHaveIsTheirMeanTheRestIsAsItWas) {
  const std::vector<double> weights = {3, 0.7, 2, 5};
  IstWorld ist({.weights = weights});
  ist.Train();
  ist.world.Average();
  const std::vector<double>& result = ist.Result(4);
  size_t own = 0, shared = 0, kept = 0;
  for (uint64_t i = 0; i < IstWorld::elements(); ++i) {
    const std::vector<int> coverers = ist.CoverersOf(i);
    if (coverers.empty()) {
      ++kept;
      EXPECT_TRUE(Same(result[i], ist.base[i])) << i;
    } else if (coverers.size() == 1) {
      ++own;
      EXPECT_TRUE(Same(result[i], Trained(coverers[0], i))) << i;
    } else {
      ++shared;
      double sum = 0, weight = 0;
      for (const int member : coverers) {
        sum += weights[static_cast<size_t>(member)] * Trained(member, i);
        weight += weights[static_cast<size_t>(member)];
      }
      EXPECT_NEAR(result[i], sum / weight, 1e-12) << i;
    }
  }
  EXPECT_GT(own, 100U);
  EXPECT_EQ(shared, 6U);
  EXPECT_GT(kept, 100U);
  EXPECT_EQ(ist.world.weight(0), 3 + 0.7 + 2 + 5);
}

TEST(IstContract, TheUnitsAreDealtAnewByEachAveragingAndNobodyHasTwo) {
  IstWorld ist({.members = 5});
  std::set<std::vector<uint32_t>> seen;
  for (int round = 0; round < 6; ++round) {
    std::multiset<uint32_t> all;
    for (int member = 0; member < 5; ++member) {
      const std::vector<uint32_t>& own = ist.world.units(member).sets.at(0);
      all.insert(own.begin(), own.end());
      if (member == 0) seen.insert(own);
    }
    EXPECT_EQ(all.size(), 24U);
    EXPECT_EQ(std::set<uint32_t>(all.begin(), all.end()).size(), 24U);
    ist.world.Average();
  }
  EXPECT_EQ(seen.size(), 6U);
}

TEST(IstContract, TheBlocksOfOneThatDiedBeforeKeepTheirBits) {
  for (const WireFormat wire : {WireFormat::kFloat32, WireFormat::kBFloat16}) {
    IstWorld ist({.wire = wire});
    ist.Train();
    ist.world.KillIn(2, Duration());
    ist.world.Average();
    const std::vector<double>& result = ist.Result(3);
    for (uint64_t i = 0; i < IstWorld::elements(); ++i) {
      const std::vector<int> coverers = ist.CoverersOf(i);
      if (coverers.size() == 1 && coverers[0] == 2 && wire == WireFormat::kFloat32) {
        EXPECT_TRUE(Same(result[i], ist.base[i])) << i;
      }
      if (coverers.empty()) {
        EXPECT_TRUE(Same(result[i], ist.base[i])) << i;
      }
    }
    // Its units are the others' from now on.
    std::set<uint32_t> all;
    for (const int member : ist.world.Living())
      for (const uint32_t unit : ist.world.units(member).sets.at(0)) all.insert(unit);
    EXPECT_EQ(all.size(), 24U);
  }
}

// Whenever it dies, and whatever is lost or comes twice: of each block one value, its own or the
// old one, and one result.
TEST(IstContract, OneThatDiesInTheMiddleIsInAChunkOrNot) {
  size_t with = 0, without = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    const bool calm = seed % 2 == 0;
    IstWorld ist(
        {.chunk_elements = 16, .loss = calm ? 0 : .05, .repeat = calm ? 0 : .1, .seed = seed});
    if (!ist.begun) continue;
    ist.Train();
    ist.world.KillIn(1, Microseconds(200 * static_cast<int64_t>(seed)));
    ist.world.Average();
    // With losses nobody may have applied: then all keep what they have.
    const std::vector<int> living = ist.world.Living();
    if (!calm && std::none_of(living.begin(), living.end(),
                              [&](int member) { return ist.world.applied(member); }))
      continue;
    const std::vector<double>& result = ist.Result(calm ? 3 : 1);
    for (uint64_t i = 0; i < IstWorld::elements(); ++i) {
      const std::vector<int> coverers = ist.CoverersOf(i);
      if (coverers.size() > 1) continue;
      const bool old = Same(result[i], ist.base[i]);
      const bool own = coverers.size() == 1 && Same(result[i], Trained(coverers[0], i));
      EXPECT_TRUE(old || own) << i;
      if (calm && coverers.size() == 1 && coverers[0] != 1) {
        EXPECT_TRUE(own) << i;
      }
      if (coverers.size() == 1 && coverers[0] == 1) ++(own ? with : without);
    }
  }
  EXPECT_GT(with, 0U);
  EXPECT_GT(without, 0U);
}

TEST(IstContract, ANaNIsInNoResult) {
  IstWorld ist({});
  ist.Train();
  ist.world.Spoil(3, [](Bytes& bytes) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    std::copy_n(reinterpret_cast<const uint8_t*>(&nan), sizeof(nan), bytes.begin());
  });
  ist.world.Average();
  EXPECT_GT(ist.world.bad_inputs(), 0U);
  for (const int member : ist.world.Living())
    for (const double value : ist.world.parameters(member)) EXPECT_TRUE(std::isfinite(value));
}

TEST(IstContract, TwoRunsOfASeedAreOne) {
  const auto trace = [](uint64_t seed) {
    IstWorld ist({.loss = .02, .repeat = .05, .seed = seed});
    ist.Train();
    ist.world.KillIn(0, Milliseconds(2));
    ist.world.Average();
    return ist.world.trace();
  };
  EXPECT_EQ(trace(5), trace(5));
  EXPECT_NE(trace(5), trace(6));
}

}  // namespace
}  // namespace crowdsurf::worker
