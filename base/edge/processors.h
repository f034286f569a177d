// Processors: how many this process may use.
//
// Those that the scheduler lets it run on, or fewer where its control group has a limit of CPU time
// (cgroup v2, cpu.max; as Kubernetes sets it from a container's limits.cpu). At least one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>

namespace crowdsurf {

inline constexpr char kCpuLimitFile[] = "/sys/fs/cgroup/cpu.max";  // of a container's own group

// Reads one small file. Without it, or where it says nothing that is understood, there is no limit.
size_t ProcessorsToUse(const std::filesystem::path& limit_file = kCpuLimitFile);
// What that file says, rounded up: "150000 100000" is 2. nullopt: no limit.
std::optional<size_t> ProcessorsOfLimit(std::string_view text);

}  // namespace crowdsurf
