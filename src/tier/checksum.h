// checksum.h: 64 bits that tell whether bytes are still what they were.
//
// Four lanes take every fourth word each: state = rotate((state ^ word) * odd). A step is a bijection of the word and
// of the state, and so is the way each lane goes into the result. Any change within one word, a flipped bit or 64 of
// them, is found for certain; any other but for one time in 2^64. It is no defence against somebody who chooses the
// bytes.
//
// The result depends on the machine's order of bytes: it is for bytes that this process wrote.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lowtide::tier {

std::uint64_t checksum(const void* bytes, std::size_t size);

}  // namespace lowtide::tier
