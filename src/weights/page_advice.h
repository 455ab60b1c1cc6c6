// Advice to the system about the pages of a mapped file: when to read them, when to let them go.
//
// Private to the room. Advice may be ignored, and so may its failure. Any thread may call anything.
#pragma once

#include <cstdint>
#include <span>

namespace emberkv {

// `advice` as for madvise(2), for all pages that hold some of `bytes`, a part of a mapping.
void AdvisePages(std::span<const uint8_t> bytes, int advice);

// Has all of `bytes` read into the system's cache in the background.
void ReadPagesAhead(std::span<const uint8_t> bytes);

}  // namespace emberkv
