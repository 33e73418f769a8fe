// file_damages.h: ways to spoil the text of a graph or plan, and the bytes that it is compressed to.
#pragma once

#include <random>
#include <string>

namespace lowtide {

struct SpoiledFile {
  std::string bytes;
  std::string damage;  // what was done, in words
};

// One or two damages to the text; a third of the files are then compressed, half of which are damaged once more.
SpoiledFile spoiled(std::string text, std::mt19937_64& random);

// A small compressed file of a huge text, which begins and ends like `text`. Some of these are damaged, too.
SpoiledFile spoiled_to_bomb(std::string text, std::mt19937_64& random);

// Without a checksum, which files of ours have, damage is not seen until the text is read.
std::string compressed(const std::string& text, bool with_checksum);

}  // namespace lowtide
