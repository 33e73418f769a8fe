// file_mappings.h: memory that is a part of a nameless file, known by its address.
//
// What is written there is in the file, and the other way round. A process that is forked has copies: what it writes is
// its own. Of pages that it has not touched its copies follow what the parent writes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tier/nameless_file.h"

namespace lowtide::tier {

struct FilePlace {
  std::shared_ptr<NamelessFile> file;
  std::int64_t offset;
};

// Both are multiples of a page. The file lives as long as its mappings. Throws FileError if there are no addresses
// left.
std::byte* map_shared(std::shared_ptr<NamelessFile> file, std::int64_t offset, std::int64_t bytes);

// A whole mapping.
void unmap_shared(void* mapping, std::int64_t bytes);

// Where in which file this address is, if it lies in a mapping that this process made.
std::optional<FilePlace> find_mapped(const void* address);

// Whether there are any that this process made.
bool any_mapped();

// Whether the process has looked at these bytes, or written them, since they were mapped or their pages went back.
// Pages that went back because memory ran short do not count. True where the system does not tell.
bool has_pages(const void* address, std::int64_t bytes);

// The memory of these bytes of a mapping goes back to the system; the file has them.
void give_pages_back(void* address, std::int64_t bytes);

// Of the mapping and of the direct I/O below, in bytes: a page, and 4096 at least.
std::int64_t page_bytes();
std::int64_t whole_pages(std::int64_t bytes);  // rounded up

}  // namespace lowtide::tier
