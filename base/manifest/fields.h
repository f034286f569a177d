// The fields of a TrainingJob's spec, one row each: type, default, bounds, who may change it.
//
// The one place that knows them: validation, defaults and immutability (validate.h), the page
// docs/manifest.md and the CRD's schema are all read off this table. Pure data, any thread. A row's
// path is below `spec`; "[]" stands for an element of a list. Source: docs/manifest.md.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace crowdsurf::controller {

enum class FieldKind {
  kObject,       // has rows of its own below it
  kList,         // of objects; rows below "path[]"; `most` bounds its length
  kInteger,      // bounds inclusive
  kNumber,       // bounds inclusive
  kBoolean,      //
  kString,       // `most` bounds its length
  kChoice,       // one of `choices`
  kChoiceList,   // several of `choices`
  kStringList,   // `most` bounds its length
  kIntegerList,  // `most` bounds its length, elements are exit codes 0..255
  kQuantity,     // a Kubernetes quantity: 2Gi, 500M, 1.5
  kOpaque        // anything: checked elsewhere
};

enum class MayChange { kYes, kNo, kOnlySuspended };

struct Field {
  std::string_view path;  // "averaging.interval.steps"
  FieldKind kind;
  MayChange may_change;
  std::string_view fallback;  // the default as JSON text; empty: none, or explained in `note`
  double least = 0;
  double most = 0;
  std::string_view choices = {};  // names, separated by single spaces
  std::string_view built = {};    // those of `choices` that this version has; empty: all
  std::string_view note = {};     // a short sentence for the manual
};

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

// Every field, parents before children, in the order of the manual.
std::span<const Field> SpecFields();

// The row of `path` ("failurePolicy.rules[].name"), nullptr when there is none.
const Field* FindField(std::string_view path);

// Last parts of the names directly below `path` ("" for the top), in table order.
std::vector<std::string_view> ChildrenOf(std::string_view path);

// "Moshpit AllReduce" -> {"Moshpit", "AllReduce"}.
std::vector<std::string_view> SplitChoices(std::string_view choices);

// The member of `names` that `name` was most likely meant to be, empty when none is near: equal but
// for case, or at most a third of its letters away.
std::string_view NearestName(std::string_view name, std::span<const std::string_view> names);

}  // namespace crowdsurf::controller
