#include "published/solver/integer_program.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <limits>

#include "interfaces/highs_c_api.h"

namespace lowtide {
namespace {

static_assert(sizeof(HighsInt) == sizeof(std::int32_t));

// Measured: an iteration of the simplex method, with its share of all else that is done between two of them.
class Meter {
 public:
  Meter(const IntegerProgram& program, const Work& work)
      : steps_of_iteration_(80'000 + 80 * program.num_terms()), most_(work.left() / steps_of_iteration_) {}

  std::uint64_t most_iterations() const { return most_; }
  std::uint64_t steps(HighsInt iterations) const {
    return static_cast<std::uint64_t>(iterations) * steps_of_iteration_;
  }

  static void look(int, const char*, const HighsCallbackDataOut* seen, HighsCallbackDataIn* answer, void* meter) {
    const std::uint64_t most = static_cast<const Meter*>(meter)->most_;
    if (static_cast<std::uint64_t>(seen->mip_total_lp_iterations) > most) answer->user_interrupt = 1;
  }

 private:
  std::uint64_t steps_of_iteration_;
  std::uint64_t most_;
};

}  // namespace

VariableId IntegerProgram::add_variable(Kind kind, double lower, double upper, double cost) {
  assert(std::isfinite(lower) && std::isfinite(upper));
  lower_.push_back(lower);
  upper_.push_back(upper);
  cost_.push_back(cost);
  whole_.push_back(kind == Kind::whole ? 1 : 0);
  return VariableId(lower_.size() - 1);
}

void IntegerProgram::add_row(std::span<const Term> terms, double lower, double upper) {
  row_begin_.push_back(static_cast<std::int32_t>(term_factor_.size()));
  row_lower_.push_back(lower);
  row_upper_.push_back(upper);
  for (const Term& term : terms) {
    term_variable_.push_back(static_cast<std::int32_t>(term.variable.value()));
    term_factor_.push_back(term.factor);
  }
}

class Highs {
 public:
  explicit Highs(const IntegerProgram& program)
      : program_(program),
        mixed_(std::ranges::find(program.whole_, 1) != program.whole_.end()),
        highs_(Highs_create()) {
    set("output_flag", false);
    set("threads", 1);
    set("mip_rel_gap", 0.0);
    set("mip_abs_gap", 0.0);
    Highs_passMip(highs_, count(program.num_variables()), count(program.num_rows()), count(program.num_terms()),
                  kHighsMatrixFormatRowwise, kHighsObjSenseMinimize, 0, program.cost_.data(), program.lower_.data(),
                  program.upper_.data(), program.row_lower_.data(), program.row_upper_.data(),
                  program.row_begin_.data(), program.term_variable_.data(), program.term_factor_.data(),
                  mixed_ ? program.whole_.data() : nullptr);
  }
  Highs(const Highs&) = delete;
  Highs& operator=(const Highs&) = delete;
  ~Highs() { Highs_destroy(highs_); }

  void start_from(std::span<const double> values) {
    assert(values.size() == program_.num_variables());
    Highs_setSolution(highs_, values.data(), nullptr, nullptr, nullptr);
  }

  Answer run(Work& work) {
    Meter meter(program_, work);
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<HighsInt>::max());
    // For programs without whole numbers, which do not call back.
    set("simplex_iteration_limit", static_cast<int>(std::min(meter.most_iterations(), kMost)));
    if (work.deadline() != Work::Clock::time_point::max()) {
      const std::chrono::duration<double> left = work.deadline() - Work::Clock::now();
      set("time_limit", std::max(0.0, left.count()));
    }
    Highs_setCallback(highs_, &Meter::look, &meter);
    Highs_startCallback(highs_, kHighsCallbackMipInterrupt);
    Highs_run(highs_);
    work.spend(std::min(work.left(), meter.steps(iterations())));
    return answer();
  }

 private:
  static HighsInt count(std::size_t number) { return static_cast<HighsInt>(number); }
  void set(const char* option, bool value) { Highs_setBoolOptionValue(highs_, option, value ? 1 : 0); }
  void set(const char* option, int value) { Highs_setIntOptionValue(highs_, option, value); }
  void set(const char* option, double value) { Highs_setDoubleOptionValue(highs_, option, value); }
  double number(const char* name) const {
    double value = 0;
    Highs_getDoubleInfoValue(highs_, name, &value);
    return value;
  }
  HighsInt whole_number(const char* name) const {
    HighsInt value = 0;
    Highs_getIntInfoValue(highs_, name, &value);
    return value;
  }
  // -1 if there were none.
  HighsInt iterations() const { return std::max(0, whole_number("simplex_iteration_count")); }

  Answer answer() const {
    const HighsInt status = Highs_getModelStatus(highs_);
    const double nothing = -std::numeric_limits<double>::infinity();
    if (status == kHighsModelStatusInfeasible) return {Answer::Outcome::infeasible, {}, 0, -nothing};
    const bool optimal = status == kHighsModelStatusOptimal || status == kHighsModelStatusModelEmpty;
    Answer made{Answer::Outcome::nothing_found, {}, 0, nothing};
    if (mixed_) made.bound = number("mip_dual_bound");
    if (!optimal && whole_number("primal_solution_status") != kHighsSolutionStatusFeasible) return made;
    made.outcome = optimal ? Answer::Outcome::optimal : Answer::Outcome::found;
    made.values.resize(program_.num_variables());
    Highs_getSolution(highs_, made.values.data(), nullptr, nullptr, nullptr);
    made.cost = number("objective_function_value");
    if (optimal && !mixed_) made.bound = made.cost;
    return made;
  }

  const IntegerProgram& program_;
  bool mixed_;  // of whole numbers too: otherwise HiGHS does not speak of bounds
  void* highs_;
};

Answer minimize(const IntegerProgram& program, Work& work, std::span<const double> start) {
  Highs highs(program);
  if (!start.empty()) highs.start_from(start);
  return highs.run(work);
}

}  // namespace lowtide
