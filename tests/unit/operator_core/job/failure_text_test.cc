// Last words of trainers, as Python 3.11, PyTorch and a shell print them.
#include "operator/core/job/failure_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "operator/core/job/reasons.h"

namespace crowdsurf::controller {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Line(const std::string& output, std::string_view why = reason::kExitCode) {
  return FailureLine(why, ShownOutput(output, 4096));
}

const std::string kPlain =
    "step 7\n"
    "Traceback (most recent call last):\n"
    "  File \"/app/train.py\", line 12, in <module>\n"
    "    main()\n"
    "    ^^^^^^\n"
    "  File \"/app/train.py\", line 8, in main\n"
    "    raise ValueError(\"no labels\")\n"
    "ValueError: no labels\n";

TEST(FailureLineTest, NamesTheExceptionOfTheLastTraceback) {
  EXPECT_EQ(Line(kPlain), "ValueError: no labels");
  EXPECT_EQ(Line(kPlain + "[W pool.cpp:23] leaking threads\n"), "ValueError: no labels")
      << "what libraries print at the end is not why";
  EXPECT_EQ(
      Line(kPlain + "\nDuring handling of the above exception, another exception occurred:\n\n"
                    "Traceback (most recent call last):\n"
                    "  File \"/app/train.py\", line 14, in <module>\n"
                    "KeyError: 'x'\n"),
      "KeyError: 'x'");
  EXPECT_EQ(Line("Traceback (most recent call last):\n"
                 "  File \"a.py\", line 1, in <module>\n"
                 "RuntimeError: Caught OSError in DataLoader worker process 0.\n"
                 "Original Traceback (most recent call last):\n"
                 "  File \"b.py\", line 2, in fetch\n"
                 "OSError: [Errno 5] Input/output error: 'shard-3'\n"),
            "OSError: [Errno 5] Input/output error: 'shard-3'");
  EXPECT_EQ(Line("Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call "
                 "first):\n  File \"a.py\", line 3 in step\n"),
            "Fatal Python error: Segmentation fault");
}

TEST(FailureLineTest, IsTheLastLineWithWordsWhereThereIsNoTraceback) {
  EXPECT_EQ(Line("one\ntwo\n\n   \n"), "two");
  EXPECT_EQ(
      Line("  File \"a.py\", line 3\n    x = (\n        ^\nSyntaxError: '(' was never closed"),
      "SyntaxError: '(' was never closed");
  EXPECT_EQ(Line("terminate called after throwing an instance of 'std::bad_alloc'\n"
                 "  what():  std::bad_alloc\n"),
            "what():  std::bad_alloc");
  EXPECT_EQ(Line("Traceback (most recent call last):\n  File \"cut.py\", line 1"),
            "File \"cut.py\", line 1");
  EXPECT_EQ(Line(" 10%|#   |\r 20%|##  |\r 30%|### |"), "30%|### |");
  EXPECT_EQ(Line(""), "");
  EXPECT_EQ(Line("\n---\n***\n"), "");
}

// stdout is kept back in a pipe until the end, and much is printed after an error.
TEST(FailureLineTest, IsTheErrorAndNotWhatIsPrintedAfterIt) {
  EXPECT_EQ(Line("step 7\nerror: no labels in /data\nmodel has 7 parameters\n"),
            "error: no labels in /data");
  EXPECT_EQ(Line("torch.OutOfMemoryError: CUDA\n100%|#####| 5/5 [00:01<00:00]\n"),
            "torch.OutOfMemoryError: CUDA");
  EXPECT_EQ(Line("cannot open /data/x: No such file or directory\nwandb: loss 0.31\n"),
            "cannot open /data/x: No such file or directory");
  EXPECT_EQ(Line("thread 'main' panicked at src/main.rs:4\nnote: run with RUST_BACKTRACE=1\n"),
            "thread 'main' panicked at src/main.rs:4");
  EXPECT_EQ(Line("FATAL no GPU\ncould not write the summary\nbye\n"), "FATAL no GPU");
  EXPECT_EQ(Line("reads the text\n5/5 [==============================] 0s 1ms/step\n"),
            "reads the text");
  EXPECT_EQ(Line("reads the text\n 40% \u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588 2/5\n"),
            "reads the text");
  EXPECT_EQ(Line("100%|#####| 5/5\n"), "100%|#####| 5/5") << "there is nothing else";
}

TEST(FailureLineTest, FiguresAndWarningsAreNoErrors) {
  for (const char* line : {"epoch 3, train error: 0.31", "test_error=12", "error 0.12 loss 3.4",
                           "0 failed", "finished with no error", "rounds failed: 0",
                           "UserWarning: cannot find a GPU", "WARNING: an error was ignored"}) {
    EXPECT_EQ(Line(std::string(line) + "\nno more data\n"), "no more data") << line;
  }
}

TEST(FailureLineTest, AnEarlierTracebackIsNotWhyATrainerHangs) {
  EXPECT_EQ(Line(kPlain + "trying again\n(it hung, no step for 60 s)", reason::kTrainerHung),
            "(it hung, no step for 60 s)");
}

TEST(MainThreadFrameTest, IsTheInnermostOfTheThreadThatIsWrittenLast) {
  EXPECT_EQ(MainThreadFrame("Timeout (0:00:30)!\n"
                            "Thread 0x2 (most recent call first):\n"
                            "  File \"threading.py\", line 1 in wait\n\n"
                            "Thread 0x1 (most recent call first):\n"
                            "  File \"/app/train.py\", line 8 in load\n"
                            "  File \"/app/train.py\", line 12 in <module>\n"),
            "File \"/app/train.py\", line 8 in load");
  EXPECT_EQ(MainThreadFrame(""), "");
  EXPECT_EQ(MainThreadFrame("no stack\n"), "");
  EXPECT_EQ(MainThreadFrame("Thread 0x1 (most recent call first):"), "");
}

TEST(FailureLineTest, IsBoundedAndNeverSplitsACharacter) {
  std::string word;
  for (int i = 0; i < 300; ++i) word += "\xC3\xA9";
  const std::string line = Line("ValueError: " + word);
  EXPECT_LE(line.size(), kMaxFailureLine);
  EXPECT_GE(line.size(), kMaxFailureLine - 1);
  EXPECT_TRUE(line.ends_with("\xC3\xA9...")) << line;
}

TEST(ShownOutputTest, NothingInItControlsATerminal) {
  EXPECT_EQ(ShownOutput("\x1b[31mred\x1b[0m\r\n\x1b[2J\x07"
                        "ding\n",
                        100),
            "red\nding\n");
  EXPECT_EQ(ShownOutput("no end", 100), "no end");
  EXPECT_EQ(ShownOutput("", 100), "");
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    std::string noise;
    for (int i = 0; i < 200; ++i) noise += static_cast<char>(rng.Uniform(256));
    const std::string shown = ShownOutput(noise, 150);
    EXPECT_LE(shown.size(), 150u);
    for (const char c : shown) {
      EXPECT_TRUE(static_cast<uint8_t>(c) >= 0x20 || c == '\n' || c == '\t') << "seed 7, " << round;
    }
    EXPECT_LE(FailureLine(reason::kExitCode, shown).size(), kMaxFailureLine);
  }
}

TEST(ShownOutputTest, KeepsTheEnd) {
  std::string output(5000, 'a');
  output += "\nlast";
  EXPECT_EQ(ShownOutput(output, 9), "aaaa\nlast");
}

TEST(ShownOutputTest, MasksWhatLooksLikeASecret) {
  const std::pair<const char*, const char*> kCases[] = {
      {"GET https://ann:pa55@host/x failed", "GET https://***@host/x failed"},
      {"url: https://host/x?token=abc123&part=2", "url: https://host/x?token=***&part=2"},
      {"password='hunter2', user='ann'", "password='***', user='ann'"},
      {"WANDB_API_KEY=0123abcd", "WANDB_API_KEY=***"},
      {"{\"client_secret\": \"s3\", \"n\": 1}", "{\"client_secret\": \"***\", \"n\": 1}"},
      {"Authorization: Bearer abc.def", "Authorization: Bearer ***"},
      {"401 for hf_abcdefghijklmnopqrst", "401 for ***"},
      {"id AKIAABCDEFGHIJKLMNOP is unknown", "id *** is unknown"},
      {"no token is there", "no token is there"},
      {"KeyError: 'token'", "KeyError: 'token'"},
      {"max_tokens=5 at http://host:80/a@b", "max_tokens=5 at http://host:80/a@b"},
      {"sk-learn is old", "sk-learn is old"}};
  for (const auto& [printed, shown] : kCases) EXPECT_EQ(ShownOutput(printed, 4096), shown);
  EXPECT_THAT(ShownOutput("PGPASSWORD=\x1b[1mx9\x1b[0m z", 100), Not(HasSubstr("x9")));
}

}  // namespace
}  // namespace crowdsurf::controller
