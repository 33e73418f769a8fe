// numbers.h: options that are numbers. Each gives what is wrong with the text, as CLI11 wants it: empty if nothing is.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace lowtide::cli {

using Check = std::function<std::string(const std::string&)>;

// "expected a whole number from 1 to 256, got '0'"; without a `most`, any of 64 bits.
Check whole_number(std::uint64_t least = 0, std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

// "expected a number from 0 to 1000000, got 'nan'": a decimal number, such as 2, 0.5 or 1e3.
Check number(double least, double most);

}  // namespace lowtide::cli
