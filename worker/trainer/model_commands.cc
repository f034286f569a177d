// The commands that read a model file: evaluate and sample (commands.h).
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "worker/trainer/commands.h"
#include "worker/trainer/data/ngram.h"
#include "worker/trainer/safetensors.h"
#include "worker/trainer/sample.h"

namespace crowdsurf::trainer {
namespace {

// A language model read back from a file: its widths come from the tensors' shapes.
struct LoadedModel {
  std::unique_ptr<GruModel<float>> model;
  std::vector<float> parameters;
  std::optional<Vocabulary> vocabulary;  // from the metadata, where the file has it
};

StatusOr<LoadedModel> LoadModel(const std::string& path) {
  ASSIGN_OR_RETURN(const Safetensors file, ReadSafetensors(path));
  const TensorSpec* output = file.Find("output.weight");
  // Checked here, because the file is from outside and the model only CHECKs its widths.
  if (output == nullptr || output->shape.size() != 2 || output->shape[0] < 1 ||
      output->shape[0] > 256 || output->shape[1] < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no charlm model: needs output.weight of [1..256, hidden]"));
  }
  LoadedModel loaded;
  loaded.model = std::make_unique<GruModel<float>>(output->shape[0], output->shape[1]);
  ASSIGN_OR_RETURN(loaded.parameters, ParametersFrom(file, loaded.model->table()));
  if (const auto it = file.metadata.find("vocabulary"); it != file.metadata.end()) {
    Bytes bytes(it->second.size() / 2);
    // Not hexadecimal: another program's metadata, as if there were none.
    if (FromHex(it->second, bytes)) loaded.vocabulary.emplace(AsString(bytes));
  }
  return loaded;
}

Status CheckVocabulary(const LoadedModel& loaded, const Vocabulary& vocabulary) {
  // The number alone, as a file need not carry its characters: another text with as many passes.
  if (vocabulary.size() == loaded.model->vocabulary()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the model was trained on ", loaded.model->vocabulary(),
                   " different characters, this text has ", vocabulary.size(),
                   ": --text must be the text that it was trained on"));
}

StatusOr<nlohmann::json> EvaluateFile(const TrainerOptions& options) {
  ASSIGN_OR_RETURN(LoadedModel loaded, LoadModel(options.model));
  ASSIGN_OR_RETURN(const std::string text, ReadTexts(options.texts));
  ASSIGN_OR_RETURN(const Corpus corpus, MakeCorpus(text, options.split_seed));
  RETURN_IF_ERROR(CheckVocabulary(loaded, corpus.vocabulary));
  const NgramBits ngram = HeldOutNgramBits(corpus);
  return nlohmann::json{
      {"heldout_bits_per_char",
       HeldOutBits(*loaded.model, loaded.parameters, corpus.held_out, std::string::npos)},
      {"heldout_characters", corpus.held_out_tokens()},
      {"unigram_bits_per_char", ngram.unigram},
      {"bigram_bits_per_char", ngram.bigram},
      {"trigram_bits_per_char", ngram.trigram},
      {"sample", MakeUpFortune(*loaded.model, loaded.parameters, corpus.vocabulary, options.sample,
                               options.training.seed)}};
}

}  // namespace

int Evaluate(const TrainerOptions& options) {
  const auto json = EvaluateFile(options);
  if (!json.ok()) return ReportFailure(json.status());
  std::printf("%s\n", json->dump(1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return 0;
}

int MakeSample(const TrainerOptions& options) {
  auto loaded = LoadModel(options.model);
  if (!loaded.ok()) return ReportFailure(loaded.status());
  if (!options.texts.empty()) {
    const auto text = ReadTexts(options.texts);
    if (!text.ok()) return ReportFailure(text.status());
    loaded->vocabulary.emplace(*text);
  }
  if (!loaded->vocabulary) {
    return ReportFailure(absl::InvalidArgumentError(
        absl::StrCat(options.model,
                     ": does not carry its vocabulary; name the text it was trained on "
                     "with --text")));
  }
  if (const Status s = CheckVocabulary(*loaded, *loaded->vocabulary); !s.ok())
    return ReportFailure(s);
  std::printf("%s\n", MakeUpFortune(*loaded->model, loaded->parameters, *loaded->vocabulary,
                                    options.sample, options.training.seed)
                          .c_str());
  return 0;
}

}  // namespace crowdsurf::trainer
