#include "engine_word.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <type_traits>

namespace lowtide::torch_runtime {
namespace {

constexpr int kNoAnswer = -1;
constexpr std::size_t kUsualBytes = 256;

class Word {
 public:
  Word() { bytes_.reserve(kUsualBytes); }
  template <typename Value>
  void add(Value value) {
    static_assert(std::is_trivially_copyable_v<Value> && std::has_unique_object_representations_v<Value>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// PyTorch does not answer where newer switches are set to what an older one has no name for.
template <typename Ask>
int answer(const Ask& ask) {
  try {
    return static_cast<int>(ask());
  } catch (const c10::Error&) {
    return kNoAnswer;
  }
}

void add_precisions(const at::Context& context, Word& word) {
  using enum at::Float32Op;
  word.add(context.float32Precision(at::Float32Backend::GENERIC, ALL));
  for (const auto backend : {at::Float32Backend::CUDA, at::Float32Backend::MKLDNN}) {
    for (const auto op : {ALL, CONV, RNN, MATMUL}) word.add(context.float32Precision(backend, op));
  }
  word.add(answer([&] { return context.float32MatmulPrecision(); }));
  word.add(answer([&] { return context.allowTF32CuDNN(); }));
  word.add(context.allowFP16ReductionCPU());
  word.add(context.allowFP16ReductionCuBLAS());
  word.add(context.allowBF16ReductionCuBLAS());
  word.add(context.allowFP16AccumulationCuBLAS());
}

void add_engines(at::Context& context, Word& word) {
  word.add(at::get_num_threads());
  word.add(c10::typeMetaToScalarType(c10::get_default_dtype()));
  word.add(context.deterministicAlgorithms());
  word.add(context.deterministicAlgorithmsWarnOnly());
  word.add(context.deterministicFillUninitializedMemory());
  word.add(context.userEnabledMkldnn());
  word.add(context.deterministicMkldnn());
  word.add(context.userEnabledNNPACK());
  word.add(context.qEngine());
  word.add(context.checkSparseTensorInvariants().value_or(false));
  word.add(context.userEnabledCuDNN());
  word.add(context.deterministicCuDNN());
  word.add(context.benchmarkCuDNN());
  word.add(context.benchmarkLimitCuDNN());
  word.add(context.cudnnDepthwiseKernel());
  word.add(context.linalgPreferredBackend());
  word.add(context.blasPreferredBackend());
  word.add(context._SMCarveout_EXPERIMENTAL().value_or(kNoAnswer));
}

void add_attention(at::Context& context, Word& word) {
  word.add(context.userEnabledFlashSDP());
  word.add(context.userEnabledFA3SDP());
  word.add(context.userEnabledMemEfficientSDP());
  word.add(context.userEnabledMathSDP());
  word.add(context.userEnabledCuDNNSDP());
  word.add(context.userEnabledOverrideableSDP());
  word.add(context.allowFP16BF16ReductionMathSDP());
  for (const auto backend : context.sDPPriorityOrder()) word.add(backend);
}

void add_switches(at::Context& context, Word& word) {
  add_engines(context, word);
  add_precisions(context, word);
  add_attention(context, word);
}

void add_modes(Word& word) {
  word.add(c10::GradMode::is_enabled());
  word.add(c10::InferenceMode::is_enabled());
  for (const auto device : {at::kCPU, at::kCUDA}) {
    word.add(at::autocast::is_autocast_enabled(device));
    word.add(at::autocast::get_autocast_dtype(device));
  }
  word.add(at::autocast::is_autocast_cache_enabled());
}

}  // namespace

std::string engine_word() {
  Word word;
  add_switches(at::globalContext(), word);
  return word.take();
}

std::string call_word() {
  Word word;
  add_modes(word);
  add_switches(at::globalContext(), word);
  return word.take();
}

}  // namespace lowtide::torch_runtime
