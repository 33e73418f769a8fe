#include "front_allocator.h"

#include <c10/cuda/CUDAFunctions.h>

#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "device_cuda.h"

namespace lowtide::torch_runtime {
namespace {

using namespace c10::cuda::CUDACachingAllocator;  // NOLINT: the file is about it

// Ordinary blocks that the runtime is told of when they are freed. There is no room for that in front of them, where
// only the device can look.
class Watched {
 public:
  struct Block {
    c10::Device where;
    WatchedBlock watched;
  };
  void add(const void* address, Block block) {
    const std::lock_guard lock(mutex_);
    blocks_.insert_or_assign(address, block);
  }
  Block take(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(address);
    const Block block = found->second;
    blocks_.erase(found);
    return block;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, Block> blocks_;
};

// Those that were opened since this allocator is in place; of one that is closed, others may not be known.
class OpenPools {
 public:
  using Pool = std::pair<c10::DeviceIndex, c10::MempoolId_t>;
  void add(const Pool& pool) {
    const std::lock_guard lock(mutex_);
    pools_.insert(pool);
  }
  bool take(const Pool& pool) {
    const std::lock_guard lock(mutex_);
    const auto found = pools_.find(pool);
    if (found == pools_.end()) return false;
    pools_.erase(found);
    return true;
  }

 private:
  std::mutex mutex_;
  std::multiset<Pool> pools_;
};

class FrontAllocator final : public CUDAAllocator {
 public:
  FrontAllocator(Runtime& runtime, CUDAAllocator& behind) : runtime_(runtime), behind_(behind) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return behind_.allocate(bytes);
    const c10::Device where(c10::kCUDA, c10::cuda::current_device());
    const auto size = static_cast<std::int64_t>(bytes);
    const Served served = runtime_.serve(where, size);
    if (served.address != nullptr) return {served.address, served.address, served.deleter, where};
    c10::DataPtr block = behind_.allocate(bytes);
    if (served.watched && block.compare_exchange_deleter(behind_.raw_deleter(), &release_watched)) {
      const std::uint64_t serial = runtime_.note_ordinary(where, block.get(), size, served);
      watched_.add(block.get(), {where, {size, served.step, serial}});
    }
    return block;
  }
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override {
    if (CudaDevice* device = CudaDevice::with(block.get()); device != nullptr) {
      device->wait_for_stream(stream);
    } else if (device = CudaDevice::at(block.device().index());
               device != nullptr && device->note_use_of_tier(block.get(), stream)) {
      return;
    } else if (!runtime_.note_use(block.get(), stream)) {
      behind_.recordStream(as_known_behind(block), stream);
    }
  }

  // -- the one behind does the rest -------------------------------------------------------------------------------

  c10::DeleterFnPtr raw_deleter() const override { return behind_.raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t count) const override { behind_.copy_data(to, from, count); }
  void* raw_alloc(std::size_t bytes) override { return behind_.raw_alloc(bytes); }
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override {
    return behind_.raw_alloc_with_stream(bytes, stream);
  }
  void raw_delete(void* address) override { behind_.raw_delete(address); }
  void init(int devices) override { behind_.init(devices); }
  bool initialized() override { return behind_.initialized(); }
  double getMemoryFraction(c10::DeviceIndex device) override { return behind_.getMemoryFraction(device); }
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    behind_.setMemoryFraction(fraction, device);
  }
  std::vector<StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override {
    return behind_.getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { behind_.enable(value); }
  bool isEnabled() const override { return behind_.isEnabled(); }
  void cacheInfo(c10::DeviceIndex device, std::size_t* largest) override { behind_.cacheInfo(device, largest); }
  void* getBaseAllocation(void* address, std::size_t* bytes) override {
    return behind_.getBaseAllocation(address, bytes);
  }
  SnapshotInfo snapshot(c10::MempoolId_t pool, bool traces) override { return behind_.snapshot(pool, traces); }
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    behind_.beginAllocateToPool(device, pool, std::move(filter));
    open_pools_.add({device, pool});
    runtime_.count_pools(1);
  }
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    behind_.endAllocateToPool(device, pool);
    if (open_pools_.take({device, pool})) runtime_.count_pools(-1);
  }
  void markCaptureBegin(c10::DeviceIndex device) override { behind_.markCaptureBegin(device); }
  void markCaptureEnd(c10::DeviceIndex device) override { behind_.markCaptureEnd(device); }
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override { behind_.releasePool(device, pool); }
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    return behind_.getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator) override {
    behind_.createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use) override {
    behind_.setUseOnOOM(device, pool, use);
  }
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) override { behind_.setNoSplit(device, pool); }
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return behind_.checkPoolLiveAllocations(device, pool, expected);
  }
  ShareableHandle shareIpcHandle(void* address) override { return behind_.shareIpcHandle(address); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return behind_.getIpcDevPtr(std::move(handle)); }
  bool isHistoryEnabled() override { return behind_.isHistoryEnabled(); }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* address) override {
    return behind_.getContextForPointer(address);
  }
  void recordHistory(bool enabled, CreateContextFn recorder, std::size_t entries, RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override {
    behind_.recordHistory(enabled, recorder, entries, when, clear, skipped);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& text) override {
    behind_.recordAnnotation(text);
  }
  void pushCompileContext(std::string& text) override { behind_.pushCompileContext(text); }
  void popCompileContext() override { behind_.popCompileContext(); }
  void setUserMetadata(const std::string& text) override { behind_.setUserMetadata(text); }
  std::string getUserMetadata() override { return behind_.getUserMetadata(); }
  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override {
    behind_.attachOutOfMemoryObserver(std::move(observer));
  }
  void attachOomRejectionObserver(OomRejectionObserver observer) override {
    behind_.attachOomRejectionObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override {
    behind_.attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex other) override {
    behind_.enablePeerAccess(device, other);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, std::size_t count,
                          cudaStream_t stream, bool peers) override {
    return behind_.memcpyAsync(to, to_device, from, from_device, count, stream, peers);
  }
  std::shared_ptr<AllocatorState> getCheckpointState(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    return behind_.getCheckpointState(device, pool);
  }
  CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device, std::shared_ptr<AllocatorState> state) override {
    return behind_.setCheckpointPoolState(device, std::move(state));
  }
  c10::DataPtr allocateWithAddress(std::size_t bytes, void* address) override {
    return behind_.allocateWithAddress(bytes, address);
  }
  std::string name() override { return behind_.name(); }
  void emptyCache(c10::MempoolId_t pool) override { behind_.emptyCache(pool); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return behind_.getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { behind_.resetAccumulatedStats(device); }
  void resetPeakStats(c10::DeviceIndex device) override { behind_.resetPeakStats(device); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return behind_.getMemoryInfo(device);
  }

  static inline FrontAllocator* in_place = nullptr;
  CUDAAllocator& behind() { return behind_; }

 private:
  // The one behind passes over blocks that have another deleter than its own. This owns nothing.
  c10::DataPtr as_known_behind(const c10::DataPtr& block) const {
    const bool watched = block.get_deleter() == &release_watched;
    return {block.get(), nullptr, watched ? behind_.raw_deleter() : block.get_deleter(), block.device()};
  }
  static void release_watched(void* address) {
    const Watched::Block block = in_place->watched_.take(address);
    in_place->runtime_.note_freed(block.where, address, block.watched);
    in_place->behind_.raw_delete(address);
  }

  Runtime& runtime_;
  CUDAAllocator& behind_;
  Watched watched_;
  OpenPools open_pools_;
};

}  // namespace

CUDAAllocator& put_in_front(Runtime& runtime) {
  static std::once_flag once;
  std::call_once(once, [&] {
    FrontAllocator::in_place = new FrontAllocator(runtime, *allocator.load());
    allocator.store(FrontAllocator::in_place);  // blocks that are there find the way back by their own deleters
  });
  return FrontAllocator::in_place->behind();
}

}  // namespace lowtide::torch_runtime
