// The fields of a TrainingJob's spec at run time: by path, by parent, by a name that is nearly
// right.
//
// The rows themselves are in spec_fields.h. Pure functions, any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/manifest/spec_fields.h"

namespace crowdsurf::manifest {

// Fields that exist and have no effect yet: naming one is refused, never ignored. Each with what to
// use instead; empty: nothing.
struct NotBuilt {
  std::string_view path, instead;
};
inline constexpr NotBuilt kNotBuilt[] = {
    {"checkpoint.uri", "this version has volume"},
    {"scheduling.queueName", ""},
    {"scheduling.gangMinimum", ""},
    {"network.podMonitor", "the chart makes one of all workers"},
    {"tls.caSecretName", "this version makes a CA of its own for each job"}};
// "is not built yet; ..."
std::string WhyNotBuilt(const NotBuilt& field);
// "Int8 is not built yet; this version has None, Float16". Pre: the field's choices have `choice`.
std::string WhyNotBuilt(std::string_view choice, const Field& field);

// Blocks of averaging that belong to one strategy.
struct StrategyBlock {
  std::string_view block, strategy;
};
inline constexpr StrategyBlock kStrategyBlocks[] = {{"gossip", "Gossip"},
                                                    {"a2cid2", "A2CiD2"},
                                                    {"relaySum", "RelaySum"},
                                                    {"powerGossip", "PowerGossip"},
                                                    {"ist", "IST"}};

// Pre: not one of kOuterStrategies. "Gossip has no base that all workers share; outer optimizers
// work with Moshpit, AllReduce".
std::string WhyNoOuter(std::string_view strategy);

// Every field, parents before children, in the order of the manual.
std::span<const Field> SpecFields();

// The row of `path` ("failurePolicy.rules[].name"), nullptr when there is none.
const Field* FindField(std::string_view path);

// A choice's or a text's default without its quotes, as TextDefault (field_defaults.h) at run time.
std::string_view TextDefaultOf(const Field& field);

// Last parts of the names directly below `path` ("" for the top), in table order.
std::vector<std::string_view> ChildrenOf(std::string_view path);

// "Moshpit AllReduce" -> {"Moshpit", "AllReduce"}.
std::vector<std::string_view> SplitChoices(std::string_view choices);

// "Moshpit, AllReduce": for people.
std::string ListOfChoices(std::string_view choices);

// The member of `names` that `name` was most likely meant to be, empty when none is near: equal but
// for case, or at most a third of its letters away.
std::string_view NearestName(std::string_view name, std::span<const std::string_view> names);

}  // namespace crowdsurf::manifest
