#include "tier/tier_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tier/file_error.h"
#include "tier/file_mappings.h"

namespace lowtide::tier {
namespace {

void refuse_memory(const NamelessFile& file) {
  struct statfs found = {};
  if (fstatfs(file.number(), &found) != 0) throw FileError(errno, "cannot tell the file system", file.folder());
  if (found.f_type == TMPFS_MAGIC || found.f_type == RAMFS_MAGIC || found.f_type == HUGETLBFS_MAGIC) {
    throw FileError(EINVAL, "expected a folder on a disk, got one in memory (tmpfs): nothing is saved by a file",
                    file.folder());
  }
}

std::shared_ptr<const Descriptor> open_direct(const NamelessFile& file) {
  const std::string link = "/proc/self/fd/" + std::to_string(file.number());
  const int found = ::open(link.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  return found < 0 ? nullptr : std::make_shared<const Descriptor>(found);
}

using Page = std::array<std::byte, static_cast<std::size_t>(kDirectAlignment)>;

// Whether direct I/O and mappings of a page see what the other has written.
bool are_coherent(const Descriptor& direct, std::byte* mapping, std::int64_t offset) {
  alignas(kDirectAlignment) Page page;
  for (const int value : {1, 2}) {
    std::memset(mapping, value, page.size());
    if (pread(direct.number(), page.data(), page.size(), offset) != static_cast<ssize_t>(page.size())) return false;
    if (std::memcmp(mapping, page.data(), page.size()) != 0) return false;
    page.fill(std::byte{0xa5});
    if (pwrite(direct.number(), page.data(), page.size(), offset) != static_cast<ssize_t>(page.size())) return false;
    if (std::memcmp(mapping, page.data(), page.size()) != 0) return false;
  }
  return true;
}

std::string name_of(const Transfer& transfer) {
  return (transfer.direction == Direction::store ? "cannot store " : "cannot load ") + std::to_string(transfer.bytes) +
         " bytes at offset " + std::to_string(transfer.offset) + " of a file";
}

}  // namespace

TierFile::TierFile(const std::string& folder) : NamelessFile(folder), process_(getpid()) {
  refuse_memory(*this);
}

std::shared_ptr<TierFile> TierFile::open(const std::string& folder, const TierOptions& options) {
  std::shared_ptr<TierFile> file(new TierFile(folder));
  file->start(options);
  return file;
}

void TierFile::start(const TierOptions& options) {
  Descriptors files = {descriptor(), options.direct ? open_direct(*this) : nullptr};
  if (files.direct) {
    allocate(0, page_bytes());
    std::byte* mapping = map_shared(shared_from_this(), 0, page_bytes());
    if (!are_coherent(*files.direct, mapping, 0)) files.direct = nullptr;
    unmap_shared(mapping, page_bytes());
    deallocate(0, page_bytes());
  }
  direct_ = files.direct != nullptr;
  transfers_ = std::make_shared<Transfers>(std::move(files), Transfers::Limits{options.chunk_bytes, options.patience});
  if (options.way != Way::threads) mover_ = make_ring_mover(transfers_, options.depth);
  uses_ring_ = mover_ != nullptr;
  if (!uses_ring_ && options.way == Way::io_uring) throw FileError(ENOSYS, "cannot use io_uring for a file", folder());
  if (!uses_ring_) mover_ = make_thread_mover(transfers_, options.depth);
}

TierFile::~TierFile() {
  if (mover_ == nullptr) return;
  if (getpid() != process_) {  // the threads are the parent's, and so may be the lock
    static_cast<void>(mover_.release());
    static_cast<void>(new std::shared_ptr<Transfers>(std::move(transfers_)));
    return;
  }
  const std::optional<Failure> failed = transfers_->wait_all();
  transfers_->close();
  mover_->wake();
  mover_->end(!failed || failed->reason != Failure::Reason::late);
}

void TierFile::check_process() const {
  if (getpid() != process_) throw FileError(EPERM, "a forked process cannot use its parent's file", folder());
}

std::int64_t TierFile::reserve(std::int64_t bytes) {
  check_process();
  const std::int64_t size = whole_pages(bytes);
  const std::lock_guard lock(slots_mutex_);
  const std::int64_t offset = slots_.take(size);
  if (size == 0) return offset;
  transfers_->with_contents([](Contents& contents) { contents.begin_change(); });
  try {
    allocate(offset, size);
  } catch (const FileError&) {
    slots_.give_back(offset, size);
    transfers_->with_contents([](Contents& contents) { contents.end_change(); });
    throw;
  }
  transfers_->with_contents([](Contents& contents) { contents.end_change(); });
  return offset;
}

void TierFile::release(std::int64_t offset, std::int64_t bytes) {
  if (getpid() != process_) return;  // its homes are copies
  const std::int64_t size = whole_pages(bytes);
  if (!transfers_->wait_for(offset, size)) return;  // the disk may still write there
  transfers_->with_contents([&](Contents& contents) {
    contents.begin_change();
    contents.forget(offset, size, /*lost=*/true);
  });
  deallocate(offset, size);
  transfers_->with_contents([](Contents& contents) { contents.end_change(); });
  const std::lock_guard lock(slots_mutex_);
  slots_.give_back(offset, size);
}

std::byte* TierFile::map(std::int64_t offset, std::int64_t bytes) {
  check_process();
  const std::int64_t size = whole_pages(bytes);
  std::byte* mapping = map_shared(shared_from_this(), offset, size);
  transfers_->with_contents([&](Contents& contents) { contents.add_home(offset, size, mapping); });
  return mapping;
}

void TierFile::unmap(std::byte* mapping, std::int64_t offset, std::int64_t bytes) {
  if (getpid() == process_) {
    transfers_->with_contents([&](Contents& contents) { contents.remove_home(offset); });
  }
  unmap_shared(mapping, whole_pages(bytes));
}

std::optional<TierFile::Place> TierFile::find(const void* address) {
  std::optional<FilePlace> found = find_mapped(address);
  if (!found) return std::nullopt;
  std::shared_ptr<TierFile> file = std::dynamic_pointer_cast<TierFile>(std::move(found->file));
  if (file == nullptr) return std::nullopt;
  return Place{std::move(file), found->offset};
}

bool TierFile::is_touched(const void* address, std::int64_t bytes) {
  return has_pages(address, bytes);
}

void TierFile::forget_pages(void* address, std::int64_t bytes) {
  const std::optional<Place> place = find(address);
  if (!place || !has_pages(address, bytes)) return;
  // That somebody may have written them will not show any more.
  place->file->transfers_->with_contents([&](Contents& contents) { contents.forget(place->offset, bytes); });
  give_pages_back(address, bytes);
}

Ticket TierFile::issue(const Transfer& transfer) {
  check_process();
  if (transfer.offset % kDirectAlignment != 0) throw FileError(EINVAL, name_of(transfer), folder());
  const Ticket ticket = transfers_->issue(transfer);
  mover_->wake();
  return ticket;
}

Ticket TierFile::store(const void* from, std::int64_t offset, std::int64_t bytes) {
  auto* memory = static_cast<std::byte*>(const_cast<void*>(from));  // NOLINT: only read
  return issue({Direction::store, memory, offset, bytes});
}

Ticket TierFile::load(void* to, std::int64_t offset, std::int64_t bytes) {
  return issue({Direction::load, static_cast<std::byte*>(to), offset, bytes});
}

void TierFile::wait(Ticket ticket) {
  check_process();
  if (const std::optional<Failure> failed = transfers_->wait(ticket)) fail(*failed);
}

void TierFile::wait_all() {
  check_process();
  if (const std::optional<Failure> failed = transfers_->wait_all()) fail(*failed);
}

void TierFile::set_faults(std::shared_ptr<Faults> faults) {
  transfers_->set_faults(std::move(faults));
}

void TierFile::fail(const Failure& failure) const {
  const std::string tried = name_of(failure.transfer);
  switch (failure.reason) {
    case Failure::Reason::system:
      throw FileError(failure.error, tried, folder());
    case Failure::Reason::checksum:
      throw FileError(EBADMSG, tried + ": the disk has other bytes than were stored,", folder());
    case Failure::Reason::lost:
      throw FileError(ENODATA, tried + ": an earlier store to them had failed,", folder());
    case Failure::Reason::late:
      break;
  }
  throw FileError(ETIMEDOUT, tried + ": nothing has moved for too long,", folder());
}

}  // namespace lowtide::tier
