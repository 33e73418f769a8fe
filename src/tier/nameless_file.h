// nameless_file.h: a file of this process that nobody else can open, and that is gone when the process is, however it
// ends.
//
// It grows by ranges whose blocks on the disk are reserved, so that writing them never runs out of space.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace lowtide::tier {

// An open file, closed with the last that holds it.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }

 private:
  int number_;
};

class NamelessFile {
 public:
  // Throws FileError if no file can be made in `folder`.
  explicit NamelessFile(const std::string& folder);
  virtual ~NamelessFile() = default;
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  const std::string& folder() const { return folder_; }
  const std::shared_ptr<const Descriptor>& descriptor() const { return descriptor_; }
  int number() const { return descriptor_->number(); }

  // Room on the disk for this range. Throws FileError if there is not that much.
  void allocate(std::int64_t offset, std::int64_t bytes) const;
  // Gives the room back, where the file system can; what was there is lost.
  void deallocate(std::int64_t offset, std::int64_t bytes) const;

 private:
  std::string folder_;
  std::shared_ptr<const Descriptor> descriptor_;
};

}  // namespace lowtide::tier
