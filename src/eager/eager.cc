#include "lowtide/eager.h"

#include <span>
#include <utility>
#include <vector>

#include "lowtide/lists.h"

namespace lowtide {
namespace {

bool has_initial_content(const Graph& graph, const Buffer& buffer) {
  return !graph.version(buffer.versions.front()).writer;
}

class EagerRun {
 public:
  EagerRun(const Graph& graph, CachingAllocator allocator)
      : graph_(graph), allocator_(std::move(allocator)), held_(graph.num_buffers()) {
    std::vector<std::pair<std::size_t, BufferId>> last_uses;
    for (std::size_t i = 0; i < graph.num_buffers(); ++i) {
      const BufferId id(i);
      const Buffer buffer = graph.buffer(id);
      const bool is_gradient = buffer.role == Role::gradient;
      if (buffer.planned() ? buffer.kept : is_left_by_step(graph, buffer)) {
        (is_gradient ? zeroed_ : results_).push_back(id);
      }
      if (buffer.role == Role::input && !buffer.planned() && has_initial_content(graph, buffer)) batch_.push_back(id);
      if (buffer.planned() && !buffer.kept) last_uses.emplace_back(last_use(buffer).index(), id);
    }
    dying_ = Lists<BufferId>::group(graph.num_ops(), last_uses);
  }

  Result<EagerMemory> run(std::size_t iterations) {
    EagerMemory memory;
    memory.resident = resident();
    memory.stop = first_stop(iterations);
    memory.allocator = allocator_.stats();
    return memory;
  }

 private:
  OpId last_use(const Buffer& buffer) const {
    OpId last;
    for (const VersionId id : buffer.versions) {
      const Version version = graph_.version(id);
      if (version.writer) last = std::max(last, *version.writer);
      if (!version.readers.empty()) last = std::max(last, version.readers.back());
    }
    return last;
  }

  Bytes resident() const {
    Bytes sum;
    for (std::size_t i = 0; i < graph_.num_buffers(); ++i) {
      const Buffer buffer = graph_.buffer(BufferId(i));
      if (!buffer.planned() && buffer.role != Role::gradient) sum += buffer.size;
    }
    return sum;
  }

  std::optional<EagerStop> first_stop(std::size_t iterations) {
    for (std::size_t i = 0; i < graph_.num_buffers(); ++i) {
      if (!has_initial_content(graph_, graph_.buffer(BufferId(i)))) continue;
      if (!make(BufferId(i), 0)) return EagerStop{0, std::nullopt, *allocator_.out_of_memory()};
    }
    for (std::size_t iteration = 0; iteration < iterations; ++iteration) {
      if (iteration > 0 && !take_next_batch()) {
        return EagerStop{iteration, std::nullopt, *allocator_.out_of_memory()};
      }
      for (const BufferId buffer : zeroed_) let_go(buffer);
      const std::vector<RequestId> before = taken(results_);
      for (std::size_t i = 0; i < graph_.num_ops(); ++i) {
        if (!run_op(OpId(i))) return EagerStop{iteration, OpId(i), *allocator_.out_of_memory()};
      }
      free_all(before);
    }
    return std::nullopt;
  }

  // The loop's variables have the batch before until they are given the next one.
  bool take_next_batch() {
    const std::vector<RequestId> before = taken(batch_);
    for (const BufferId buffer : batch_) {
      if (!make(buffer, 0)) return false;
    }
    free_all(before);
    return true;
  }

  bool run_op(OpId id) {
    const Op op = graph_.op(id);
    for (const VersionId version : op.writes) {
      if (!make(graph_.version(version).buffer, op.stream)) return false;
    }
    const Result<RequestId> workspace = allocator_.allocate(op.workspace, op.stream);
    if (!workspace.ok()) return false;
    (void)allocator_.free(*workspace);
    for (const BufferId buffer : dying_[id.index()]) let_go(buffer);
    return true;
  }

  // Unless it is there already.
  bool make(BufferId buffer, std::uint32_t stream) {
    std::optional<RequestId>& held = held_[buffer.index()];
    if (held) return true;
    const Result<RequestId> given = allocator_.allocate(graph_.buffer(buffer).size, stream);
    if (given.ok()) held = *given;
    return given.ok();
  }

  void let_go(BufferId buffer) {
    if (const auto held = std::exchange(held_[buffer.index()], std::nullopt)) (void)allocator_.free(*held);
  }

  // What buffers hold, which then hold nothing.
  std::vector<RequestId> taken(std::span<const BufferId> buffers) {
    std::vector<RequestId> requests;
    for (const BufferId buffer : buffers) {
      if (const auto held = std::exchange(held_[buffer.index()], std::nullopt)) requests.push_back(*held);
    }
    return requests;
  }

  void free_all(std::span<const RequestId> requests) {
    for (const RequestId request : requests) (void)allocator_.free(request);
  }

  const Graph& graph_;
  CachingAllocator allocator_;
  std::vector<std::optional<RequestId>> held_;  // by buffer
  Lists<BufferId> dying_;                       // by op: what nothing uses after it
  std::vector<BufferId> zeroed_;                // gradients, when the next iteration begins
  std::vector<BufferId> results_;               // which the caller has until the next iteration's are there
  std::vector<BufferId> batch_;
};

}  // namespace

bool is_left_by_step(const Graph& graph, const Buffer& buffer) {
  const bool is_left = buffer.role == Role::gradient || buffer.role == Role::output;
  return is_left && !buffer.planned() && !has_initial_content(graph, buffer);
}

Result<EagerMemory> run_eager(const Graph& graph, const EagerOptions& options) {
  Result<CachingAllocator> allocator = CachingAllocator::make(options.allocator, options.capacity);
  if (!allocator.ok()) return allocator.error();
  return EagerRun(graph, *std::move(allocator)).run(options.iterations);
}

}  // namespace lowtide
