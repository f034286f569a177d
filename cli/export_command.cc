// `crowdsurf export JOB|CHECKPOINT`: the newest checkpoint as model.safetensors.
#include <signal.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/export_model.h"
#include "cli/screen/live_view.h"

namespace crowdsurf::cli {
namespace {

int Export(const ExportRequest& request) {
  signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of one write
  const StatusOr<ExportedModel> done = ExportModel(request);
  if (!done.ok()) {
    const Status& why = done.status();
    std::fprintf(stderr, "crowdsurf: %s\n", std::string(why.message()).c_str());
    const bool input =
        absl::IsNotFound(why) || absl::IsInvalidArgument(why) || absl::IsAlreadyExists(why);
    return input ? kBadInput : kFailed;
  }
  std::printf("%s is written: %llu parameters of %s, averaging %llu, after %s samples\n",
              done->path.c_str(), static_cast<unsigned long long>(done->parameters),
              Printable(done->job).c_str(), static_cast<unsigned long long>(done->averaging),
              Short(done->job_samples).c_str());
  return kSucceeded;
}

}  // namespace

void RegisterExport(CLI::App& app, Action& action) {
  auto request = std::make_shared<ExportRequest>();
  request->out = "model.safetensors";
  CLI::App* command = app.add_subcommand(
      "export", "Write a job's newest checkpoint as a model that Hugging Face's libraries read.");
  command
      ->add_option("JOB|CHECKPOINT", request->from,
                   "a job of this machine, or the path of a checkpoint or of their folder")
      ->required();
  command->add_option("-o,--out", request->out, "the file to write, or a folder for it")
      ->capture_default_str()
      ->type_name("FILE");
  command->add_option("--state-dir", request->state_dir, "of the job's run, where it was given one")
      ->type_name("DIR");
  command->callback([request, &action] { action = [request] { return Export(*request); }; });
}

}  // namespace crowdsurf::cli
