// Scratch folder: a folder of a test's own, gone with it. On memory where there is /dev/shm.
//
// Used by the tests of worker/edge, one a test; names are unique, so tests may run side by side.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace crowdsurf::worker {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string path = std::filesystem::exists("/dev/shm")
                           ? "/dev/shm/crowdsurf-test-XXXXXX"
                           : std::filesystem::temp_directory_path() / "crowdsurf-test-XXXXXX";
    path_ = mkdtemp(path.data());
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ~ScratchFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

}  // namespace crowdsurf::worker
