// crowdsurf-crd as a process: it prints the CRD that is shipped, or says what it lacks.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace crowdsurf::controller {
namespace {

struct Printed {
  int code;
  std::string text;
};

Printed Print(const std::string& arguments) {
  const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string command = (beside / "crowdsurf-crd").string() + arguments;
  FILE* out = popen(command.c_str(), "r");
  std::string text;
  char some[4096];
  while (const size_t size = fread(some, 1, sizeof some, out)) text.append(some, size);
  const int status = pclose(out);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

TEST(CrdProgramTest, ItPrintsTheShippedFile) {
  std::ostringstream shipped;
  shipped << std::ifstream("deploy/crd/trainingjobs.yaml").rdbuf();
  const Printed printed = Print(" deploy/crd/pod-template-schema.json 2>&1");
  EXPECT_EQ(printed.code, 0);
  // The file is one line of 70 KB, which a failure need not show.
  EXPECT_TRUE(printed.text == shipped.str());
}

TEST(CrdProgramTest, WithoutASchemaItSaysWhyAndEndsWithTwo) {
  for (const std::string arguments : {"", " /nowhere", " README.md", " a b"}) {
    const Printed printed = Print(arguments + " 2>/dev/null");
    EXPECT_EQ(printed.code, 2) << arguments;
    EXPECT_EQ(printed.text, "") << arguments;
  }
  EXPECT_EQ(Print(" 2>&1").text, "usage: crowdsurf-crd POD_TEMPLATE_SCHEMA.json\n");
  EXPECT_EQ(Print(" README.md 2>&1").text, "crowdsurf-crd: README.md is no JSON\n");
}

}  // namespace
}  // namespace crowdsurf::controller
