#include "base/manifest/fields.h"

#include <algorithm>
#include <string>

#include "base/text.h"

namespace crowdsurf::manifest {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Edit distance without regard to case. Names are short, so the quadratic table is fine; longer
// input (a hostile manifest) is cut off by the caller.
size_t Distance(std::string_view a, std::string_view b) {
  // row[j]: distance of the first i letters of `a` to the first j of `b` (Levenshtein 1966).
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (Lower(a[i - 1]) == Lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Field> SpecFields() { return kSpecFields; }

const Field* FindField(std::string_view path) {
  const auto it = std::find_if(std::begin(kSpecFields), std::end(kSpecFields),
                               [&](const Field& field) { return field.path == path; });
  return it == std::end(kSpecFields) ? nullptr : &*it;
}

std::string_view TextDefaultOf(const Field& field) {
  const std::string_view text = field.fallback;
  return text.size() < 2 ? std::string_view() : text.substr(1, text.size() - 2);
}

std::vector<std::string_view> ChildrenOf(std::string_view path) {
  const size_t skip = path.empty() ? 0 : path.size() + 1;
  std::vector<std::string_view> names;
  for (const Field& field : kSpecFields) {
    if (field.path.size() <= skip || field.path.substr(0, path.size()) != path) continue;
    // "target" is no parent of "targets".
    if (!path.empty() && field.path[path.size()] != '.') continue;
    const std::string_view rest = field.path.substr(skip);
    if (rest.find('.') == std::string_view::npos && rest.find('[') == std::string_view::npos) {
      names.push_back(rest);
    }
  }
  return names;
}

std::vector<std::string_view> SplitChoices(std::string_view choices) {
  return SplitText(choices, ' ');
}

std::string ListOfChoices(std::string_view choices) {
  std::string list;
  for (const std::string_view name : SplitChoices(choices)) {
    if (!list.empty()) list += ", ";
    list += name;
  }
  return list;
}

std::string_view NearestName(std::string_view name, std::span<const std::string_view> names) {
  constexpr size_t kLongestName = 64;  // of ours: 34; longer input is nobody's typo
  if (name.size() > kLongestName) return {};
  std::string_view best;
  size_t best_distance = kLongestName;
  for (const std::string_view candidate : names) {
    const size_t distance = Distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  // More than a third of its letters wrong: that is another word, no typo.
  return best_distance <= std::max<size_t>(1, best.size() / 3) ? best : std::string_view();
}

std::string WhyNotBuilt(const NotBuilt& field) {
  const std::string why = "is not built yet";
  return field.instead.empty() ? why : why + "; " + std::string(field.instead);
}

std::string WhyNotBuilt(std::string_view choice, const Field& field) {
  return std::string(choice) + " is not built yet; this version has " + ListOfChoices(field.built);
}

std::string WhyNoOuter(std::string_view strategy) {
  return std::string(strategy) +
         " has no base that all workers share; outer optimizers work with " +
         ListOfChoices(kOuterStrategies);
}

}  // namespace crowdsurf::manifest
